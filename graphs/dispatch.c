/* Which graph a step uses, and why. Part of the hot path. */
#include <string.h>

#include "base/choices.h"
#include "base/status.h"
#include "cgr/names.h"
#include "graphs/graphs.h"

/* An empty step still has one padded request, so that no kernel is launched for nothing. */
static void choose_eager(cgr__choice *choice, const cgr__batch_shape *shape, cgr_reason reason) {
  cgr_key key = CGR_KEY_INIT;
  key.num_tokens = shape->num_tokens > 0 ? shape->num_tokens : 1;
  key.num_requests = shape->num_requests > 0 ? shape->num_requests : 1;
  key.variant = shape->variant;
  key.program = shape->program;
  *choice = (cgr__choice){ .key = key, .reason = reason };
}

/* For a step that has no graph although the mode promises one. */
static cgr_status check_fallback(const cgr__graphs *graphs, const cgr__batch_shape *shape, cgr_reason reason) {
  if (!graphs->strict || shape->num_requests == 0)
    return CGR_OK;
  return cgr__fail(reason == CGR_REASON_STALE ? CGR_ERROR_STALE_GRAPH : CGR_ERROR_FALLBACK,
                   "step: a batch of %d request%s and %d token%s would run eagerly (%s), expected a captured graph (strict): "
                   "capture one that holds it (cgr_capture.keys, or CGR_CAPTURE_MISSED)",
                   shape->num_requests, cgr__plural(shape->num_requests), shape->num_tokens, cgr__plural(shape->num_tokens),
                   cgr_reason_name(reason));
}

/* A search for the graph of a batch. Graphs of up to `light` tokens are within max_padding. A graph of up to `most` is taken if
 * no other list has a smaller one; beyond that, the step runs eagerly. Of equal graphs the first is taken. */
typedef struct search {
  const cgr__graphs *graphs;
  const cgr__batch_shape *shape;
  int32_t requests, light, most;
  cgr__graph_entry *usable; /* the best that can be replayed */
  /* Of the first variant that has graphs. All that are captured have the same keys. */
  bool searched, is_uniform;   /* is_uniform: some query length serves the batch */
  cgr__graph_entry *best;      /* the best of those configured */
  cgr__graph_entry *unlimited; /* the best without max_padding; of a list whose smallest key exceeds it, that key */
} search;

static search begin_search(const cgr__graphs *graphs, const cgr__batch_shape *shape) {
  int32_t tokens = shape->num_tokens > 0 ? shape->num_tokens : 1;
  search s = { .graphs = graphs, .shape = shape, .requests = shape->num_requests > 0 ? shape->num_requests : 1 };
  s.light = cgr__light_tokens(tokens, graphs->max_padding);
  s.most = cgr__most_tokens(tokens, graphs->max_padding);
  if (graphs->strict && shape->num_requests > 0)
    s.most = CGR__MAX_TOKENS; /* an eager step would be refused */
  return s;
}

/* FULL before PIECEWISE, then the smaller. */
static bool comes_first(const cgr_key *a, const cgr_key *b) {
  return a->kind != b->kind ? a->kind > b->kind : a->num_tokens < b->num_tokens;
}

/* The same within max_padding; beyond it the smaller, whatever its kind. */
static bool is_better(const search *s, const cgr_key *a, const cgr_key *b) {
  if (a->num_tokens <= s->light && b->num_tokens <= s->light)
    return comes_first(a, b);
  return a->num_tokens != b->num_tokens ? a->num_tokens < b->num_tokens : a->kind > b->kind;
}

/* The first that can be replayed of those that hold the batch and are not too large. A list ascends by tokens. */
static cgr__graph_entry *find_usable(const search *s, cgr__graph_entry *smallest, const cgr__graph_entry *end) {
  for (cgr__graph_entry *e = smallest; e < end && e->key.num_tokens <= s->most; e++)
    if (e->key.num_requests >= s->requests && cgr__graph_is_usable(s->graphs, e))
      return e;
  return NULL;
}

/* What one list has for the batch: `smallest` is the smallest key that holds it. */
static void consider_list(search *s, cgr__graph_entry *smallest, const cgr__graph_entry *end) {
  cgr__graph_entry *usable = find_usable(s, smallest, end);
  if (usable && (!s->usable || is_better(s, &usable->key, &s->usable->key)))
    s->usable = usable;
  if (s->searched)
    return;
  if (!s->best || is_better(s, &smallest->key, &s->best->key))
    s->best = smallest;
  cgr__graph_entry *wanted = usable && smallest->key.num_tokens <= s->light ? usable : smallest;
  if (!s->unlimited || comes_first(&wanted->key, &s->unlimited->key))
    s->unlimited = wanted;
}

/* Whether uniform graphs of this query length are right for the batch. */
static bool uniform_serves(const cgr__graphs *graphs, const cgr__batch_shape *shape, int32_t query_len) {
  if (shape->num_requests == 0)
    return true;
  return graphs->exact_lengths ? shape->query_len == query_len : shape->max_query_len <= query_len;
}

/* Why no graph serves the batch. */
static cgr_reason reason_against(const search *s) {
  const cgr__graph_entry *best = s->best;
  if (best && best->key.num_tokens > s->most)
    return CGR_REASON_TOO_PADDED;
  if (best && best->state == CGR_GRAPH_READY)
    return CGR_REASON_STALE;
  if (best)
    return best->state == CGR_GRAPH_FAILED        ? CGR_REASON_CAPTURE_FAILED
           : best->state == CGR_GRAPH_OVER_BUDGET ? CGR_REASON_BUDGET
                                                  : CGR_REASON_NOT_CAPTURED;
  const cgr__mixed_keys *mixed = &s->graphs->mixed;
  if (mixed->count > 0 && s->shape->num_tokens > mixed->tokens[mixed->num_token_levels - 1])
    return CGR_REASON_ABOVE_TOKENS;
  return mixed->count > 0 || s->is_uniform ? CGR_REASON_ABOVE_REQUESTS : CGR_REASON_NOT_UNIFORM;
}

int32_t cgr__mixed_find(const cgr__graphs *graphs, int32_t num_tokens, int32_t num_requests) {
  const cgr__mixed_keys *keys = &graphs->mixed;
  if (keys->count == 0 || num_tokens > keys->tokens[keys->num_token_levels - 1])
    return -1;
  int32_t requests = keys->of_requests[num_requests], level = keys->of_block[num_tokens >> keys->shift];
  while (keys->tokens[level] < num_tokens)
    level++;
  int32_t index = requests < 0 ? -1 : keys->smallest[level * keys->num_request_levels + requests];
  return index < 0 ? -1 : keys->first + index;
}

/* Among the entries of one variant, which begin at `entry`. */
static void search_keys(search *s, cgr__graph_entry *entry) {
  const cgr__graphs *graphs = s->graphs;
  for (int32_t i = 0; i < graphs->num_uniform; i++) {
    const cgr__uniform_keys *keys = &graphs->uniform[i];
    if (!uniform_serves(graphs, s->shape, keys->query_len))
      continue;
    s->is_uniform = true;
    if (keys->of_requests[s->requests] >= 0)
      consider_list(s, &entry[keys->first + keys->of_requests[s->requests]], &entry[keys->first + keys->count]);
  }
  bool is_exact = s->usable && s->usable->key.num_tokens == s->shape->num_tokens;
  int32_t mixed = is_exact ? -1 : cgr__mixed_find(graphs, s->shape->num_tokens, s->requests);
  if (mixed >= 0)
    consider_list(s, &entry[mixed], &entry[graphs->mixed.first + graphs->mixed.count]);
  s->searched = true;
}

/* Variant 0 is the first. NULL, with a message, for one that is not declared. */
static const cgr__step_variant *find_variant(const cgr__graphs *graphs, uint32_t word, int32_t program) {
  for (int32_t i = 0; i < graphs->num_step_variants; i++)
    if (graphs->variant[i].word == word && graphs->variant[i].program == program)
      return &graphs->variant[i];
  if (program != 0) {
    cgr__fail(CGR_ERROR_UNSUPPORTED, "batch: variant is %u in a step of program %d, expected 0 in this version", word, program);
    return NULL;
  }
  cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: variant is %u, expected 0 or one of cgr_config.variants", word);
  return NULL;
}

/* A variant's own graph within max_padding comes before those of its supersets. */
static void search_variants(search *s, const cgr__step_variant *variant) {
  for (;; variant = &s->graphs->variant[variant->superset]) {
    if (variant->base >= 0)
      search_keys(s, &s->graphs->entry[variant->base]);
    bool too_padded = s->best && s->best->key.num_tokens > s->most;
    if (too_padded || variant->superset < 0 || (s->usable && s->usable->key.num_tokens <= s->light))
      return;
  }
}

/* Whether max_padding alone keeps a batch from the graph that it would have: a smaller one or an eager step takes it. The answer
 * for a choice that is_best does not depend on what other graphs are captured. */
static bool turns_down(const search *s) {
  const cgr__graph_entry *u = s->unlimited;
  if (!u || u->key.num_tokens <= s->light || (s->usable && s->usable->key.num_tokens >= u->key.num_tokens))
    return false;
  return u != s->best || u->key.num_tokens > s->most;
}

static cgr_status choose_fitting(cgr__graphs *graphs, const cgr__batch_shape *shape, cgr__choice *choice) {
  const cgr__step_variant *own = find_variant(graphs, shape->variant, shape->program);
  if (!own)
    return shape->program == 0 ? CGR_ERROR_INVALID_ARGUMENT : CGR_ERROR_UNSUPPORTED;
  if (graphs->count == 0 || graphs->disabled) {
    choose_eager(choice, shape, graphs->disabled ? CGR_REASON_DISABLED : CGR_REASON_MODE_NONE);
    return CGR_OK;
  }
  search s = begin_search(graphs, shape);
  search_variants(&s, own);
  int32_t turned_down = turns_down(&s) ? s.unlimited->index + 1 : 0;
  if (!s.usable) {
    cgr_reason reason = reason_against(&s);
    choose_eager(choice, shape, reason);
    choice->missed = reason == CGR_REASON_TOO_PADDED ? NULL : s.best;
    choice->turned_down = turned_down;
    return reason == CGR_REASON_NOT_UNIFORM ? CGR_OK : check_fallback(graphs, shape, reason);
  }
  const cgr_key *key = &s.usable->key;
  bool is_exact = key->num_requests == shape->num_requests && key->num_tokens == shape->num_tokens;
  *choice = (cgr__choice){ .entry = s.usable,
                           .missed = s.best != s.usable ? s.best : NULL,
                           .turned_down = turned_down,
                           .shape = *shape,
                           .reason = key->variant != shape->variant ? CGR_REASON_SUPERSET
                                     : is_exact                     ? CGR_REASON_EXACT
                                                                    : CGR_REASON_PADDED,
                           .is_best = s.best == s.usable && key->variant == shape->variant,
                           .key = *key };
  return CGR_OK;
}

const cgr__graph_entry *cgr__graphs_best(const cgr__graphs *graphs, const cgr__batch_shape *shape) {
  search s = begin_search(graphs, shape);
  search_keys(&s, graphs->entry);
  return s.best && s.best->key.num_tokens <= s.most ? s.best : NULL;
}

/* ----------------------------------------------------------------------------------------------------------- forced keys */

cgr_status cgr__key_check_unused(const char *what, const cgr_key *key) {
  const struct {
    const char *name;
    int32_t value;
  } fields[] = { { "lane", key->lane }, { "max_steps", key->max_steps } };
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
    if (fields[i].value != 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s.%s is %d, expected 0 in this version", what, fields[i].name,
                       fields[i].value);
  for (size_t i = 0; i < sizeof key->reserved / sizeof key->reserved[0]; i++)
    if (key->reserved[i] != 0)
      return cgr__fail(CGR_ERROR_NEWER_STRUCT, "%s.reserved[%zu] is %u, expected 0", what, i, key->reserved[i]);
  return CGR_OK;
}

cgr__graph_entry *cgr__graphs_find(cgr__graphs *graphs, const cgr_key *key) {
  if (key->num_requests < 1 || key->num_requests > graphs->limits->max_requests || key->num_tokens < 1)
    return NULL;
  int32_t index = key->query_len == 0 ? cgr__mixed_find(graphs, key->num_tokens, key->num_requests) : -1;
  for (int32_t i = 0; i < graphs->num_uniform; i++) {
    const cgr__uniform_keys *keys = &graphs->uniform[i];
    if (keys->query_len == key->query_len && keys->of_requests[key->num_requests] >= 0)
      index = keys->first + keys->of_requests[key->num_requests];
  }
  const cgr__step_variant *variant = find_variant(graphs, key->variant, key->program);
  if (index < 0 || !variant || variant->base < 0)
    return NULL;
  cgr__graph_entry *entry = &graphs->entry[variant->base + index];
  return memcmp(&entry->key, key, sizeof *key) == 0 ? entry : NULL;
}

/* The batch's own variant, or one that serves it too. */
static cgr_status check_variant(const cgr__graphs *graphs, const cgr__batch_shape *shape, const cgr_key *key) {
  const uint32_t word = shape->variant;
  const cgr__step_variant *variant = find_variant(graphs, word, shape->program);
  if (!variant)
    return shape->program == 0 ? CGR_ERROR_INVALID_ARGUMENT : CGR_ERROR_UNSUPPORTED;
  while (variant->word != key->variant) {
    if (variant->superset < 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "batch: forced_key.variant is %u, expected the batch's, %u, or a superset of it", key->variant, word);
    variant = &graphs->variant[variant->superset];
  }
  return CGR_OK;
}

/* A mixed graph serves any batch; an eager step takes any length that the batch does not contradict. */
static cgr_status check_query_len(const cgr__graphs *graphs, const cgr__batch_shape *shape, const cgr_key *key) {
  if (key->query_len == 0 || (key->query_len > 0 && uniform_serves(graphs, shape, key->query_len)))
    return CGR_OK;
  return graphs->exact_lengths
             ? cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: forced_key.query_len is %d, expected 0 or the batch's, %d",
                         key->query_len, shape->query_len)
             : cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                         "batch: forced_key.query_len is %d, expected 0 or at least the batch's longest, %d", key->query_len,
                         shape->max_query_len);
}

static cgr_status check_forced(const cgr__graphs *graphs, const cgr__batch_shape *shape, const cgr_key *key) {
  CGR__TRY(cgr__check_choice("batch", "forced_key.kind", &cgr__graph_kinds, key->kind));
  if (key->num_requests < 1 || key->num_requests < shape->num_requests || key->num_requests > graphs->limits->max_requests)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: forced_key.num_requests is %d, expected %d .. %d", key->num_requests,
                     shape->num_requests > 1 ? shape->num_requests : 1, graphs->limits->max_requests);
  if (key->num_tokens < 1 || key->num_tokens < shape->num_tokens || key->num_tokens > graphs->limits->max_tokens)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: forced_key.num_tokens is %d, expected %d .. %d", key->num_tokens,
                     shape->num_tokens > 1 ? shape->num_tokens : 1, graphs->limits->max_tokens);
  CGR__TRY(cgr__key_check_unused("batch: forced_key", key));
  if (key->program != shape->program)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: forced_key.program is %d, expected %d, the batch's", key->program,
                     shape->program);
  CGR__TRY(check_variant(graphs, shape, key));
  return check_query_len(graphs, shape, key);
}

static cgr_status choose_forced(cgr__graphs *graphs, const cgr__batch_shape *shape, const cgr_key *key, cgr__choice *choice) {
  CGR__TRY(check_forced(graphs, shape, key));
  *choice = (cgr__choice){ .key = *key, .reason = CGR_REASON_FORCED };
  if (key->kind == CGR_KIND_NONE)
    return CGR_OK;
  choice->entry = cgr__graphs_find(graphs, key);
  if (!choice->entry || !cgr__graph_is_usable(graphs, choice->entry))
    choice->missed = choice->entry;
  if (!choice->entry || choice->entry->state != CGR_GRAPH_READY)
    return cgr__fail(
        CGR_ERROR_STATE,
        "batch: forced_key (%s, %d request%s, %d token%s, query length %d, variant %u) has no graph, expected a captured "
        "key",
        cgr_graph_kind_name((cgr_graph_kind)key->kind), key->num_requests, cgr__plural(key->num_requests), key->num_tokens,
        cgr__plural(key->num_tokens), key->query_len, key->variant);
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
      "step: what the graph of %d request%s and %d token%s was made from has changed since (a region has moved, or `record` is "
      "another), expected cgr_runtime_capture to capture it again: cancel the step, if it is prepared, and prepare it anew",
      entry->key.num_requests, cgr__plural(entry->key.num_requests), entry->key.num_tokens, cgr__plural(entry->key.num_tokens));
}
