#include <string.h>

#include "base/status.h"
#include "graphs/graphs.h"

/* An empty step still has one padded request, so that no kernel is launched for nothing. */
static void choose_eager(cgr__choice *choice, const cgr__batch_shape *shape, cgr_reason reason) {
  cgr_key key = CGR_KEY_INIT;
  key.num_tokens = shape->num_tokens > 0 ? shape->num_tokens : 1;
  key.num_requests = shape->num_requests > 0 ? shape->num_requests : 1;
  *choice = (cgr__choice){ NULL, key, reason };
}

/* A step that the mode promises a graph for and that has none. */
static cgr_status fall_back(const cgr__graphs *graphs, const cgr__batch_shape *shape, cgr_reason reason, cgr__choice *choice) {
  choose_eager(choice, shape, reason);
  if (!graphs->strict || shape->num_requests == 0)
    return CGR_OK;
  return cgr__fail(reason == CGR_REASON_STALE ? CGR_ERROR_STALE_GRAPH : CGR_ERROR_FALLBACK,
                   "step: a batch of %d requests would run eagerly (%s), expected a captured graph (strict)", shape->num_requests,
                   cgr_reason_name(reason));
}

static cgr_status choose_fitting(cgr__graphs *graphs, const cgr__batch_shape *shape, cgr__choice *choice) {
  if (graphs->mode == CGR_MODE_NONE || (shape->query_len != 1 && shape->num_requests > 0)) {
    choose_eager(choice, shape, graphs->mode == CGR_MODE_NONE ? CGR_REASON_MODE_NONE : CGR_REASON_NOT_UNIFORM);
    return CGR_OK;
  }
  int32_t index = graphs->bucket_of[shape->num_requests > 0 ? shape->num_requests : 1];
  if (index < 0)
    return fall_back(graphs, shape, CGR_REASON_ABOVE_BUCKETS, choice);
  cgr__graph_entry *entry = &graphs->entry[index];
  if (entry->state != CGR_GRAPH_READY)
    return fall_back(graphs, shape, entry->state == CGR_GRAPH_FAILED ? CGR_REASON_CAPTURE_FAILED : CGR_REASON_NOT_CAPTURED,
                     choice);
  if (cgr__graph_is_stale(graphs, entry))
    return fall_back(graphs, shape, CGR_REASON_STALE, choice);
  choice->entry = entry;
  choice->key = entry->key;
  choice->reason = entry->key.num_requests == shape->num_requests ? CGR_REASON_EXACT : CGR_REASON_PADDED;
  return CGR_OK;
}

/* ----------------------------------------------------------------------------------------------------------- forced keys */

static cgr__graph_entry *find(cgr__graphs *graphs, const cgr_key *key) {
  int32_t index = graphs->count > 0 ? graphs->bucket_of[key->num_requests] : -1;
  if (index < 0 || memcmp(&graphs->entry[index].key, key, sizeof *key) != 0)
    return NULL;
  return &graphs->entry[index];
}

static cgr_status check_forced(const cgr__graphs *graphs, const cgr__batch_shape *shape, const cgr_key *key) {
  const cgr_key plain = CGR_KEY_INIT;
  if (key->kind < CGR_KIND_NONE || key->kind > CGR_KIND_FULL)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "batch: forced_key.kind is %d, expected a cgr_graph_kind", key->kind);
  if (key->num_requests < 1 || key->num_requests < shape->num_requests || key->num_requests > graphs->max_requests)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: forced_key.num_requests is %d, expected %d .. %d", key->num_requests,
                     shape->num_requests > 1 ? shape->num_requests : 1, graphs->max_requests);
  if (key->num_tokens < 1 || key->num_tokens < shape->num_tokens || key->num_tokens > graphs->max_tokens)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: forced_key.num_tokens is %d, expected %d .. %d", key->num_tokens,
                     shape->num_tokens > 1 ? shape->num_tokens : 1, graphs->max_tokens);
  if (key->program != 0 || key->lane != 0 || key->max_steps != 0 || key->variant != 0 ||
      memcmp(key->reserved, plain.reserved, sizeof key->reserved) != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "batch: forced_key has program %d, lane %d, max_steps %d, variant %u or a reserved word that is not 0, "
                     "expected 0 in this version",
                     key->program, key->lane, key->max_steps, key->variant);
  bool differs = key->query_len != shape->query_len && (key->query_len != 0 || key->kind != CGR_KIND_NONE);
  if (key->query_len < 0 || (shape->num_requests > 0 && differs))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: forced_key.query_len is %d, expected the batch's, %d", key->query_len,
                     shape->query_len);
  return CGR_OK;
}

static cgr_status choose_forced(cgr__graphs *graphs, const cgr__batch_shape *shape, const cgr_key *key, cgr__choice *choice) {
  CGR__TRY(check_forced(graphs, shape, key));
  *choice = (cgr__choice){ NULL, *key, CGR_REASON_FORCED };
  if (key->kind == CGR_KIND_NONE)
    return CGR_OK;
  choice->entry = find(graphs, key);
  if (!choice->entry || choice->entry->state != CGR_GRAPH_READY)
    return cgr__fail(CGR_ERROR_STATE, "batch: forced_key (%s, %d requests, %d tokens) has no graph, expected a captured key",
                     cgr_graph_kind_name((cgr_graph_kind)key->kind), key->num_requests, key->num_tokens);
  return cgr__graphs_check_fresh(graphs, choice->entry);
}

cgr_status cgr__graphs_choose(cgr__graphs *graphs, const cgr__batch_shape *shape, const cgr_key *forced, cgr__choice *choice) {
  return forced ? choose_forced(graphs, shape, forced, choice) : choose_fitting(graphs, shape, choice);
}

cgr_status cgr__graphs_check_fresh(const cgr__graphs *graphs, const cgr__graph_entry *entry) {
  if (!cgr__graph_is_stale(graphs, entry))
    return CGR_OK;
  return cgr__fail(
      CGR_ERROR_STALE_GRAPH,
      "step: a region has moved since the graph of %d requests was captured, expected cgr_runtime_capture to capture "
      "it again",
      entry->key.num_requests);
}
