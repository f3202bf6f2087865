/* What ranks that agree on a graph ask of their runtimes (cgr/ranks.h): the counts of a batch, the key of counts, and which keys
 * can be replayed. */
#include "base/hash.h"
#include "cgr/ranks.h"
#include "runtime/step/step.h"

cgr_status cgr_step_count(cgr_runtime *runtime, const cgr_batch *batch, cgr_batch_counts *counts) {
  CGR__ONE_THREAD(runtime, "cgr_step_count");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_step_count"));
  CGR__TRY(cgr__sized_check("cgr_step_count: counts", "CGR_BATCH_COUNTS_INIT", counts));
  cgr_batch_counts full;
  CGR__TRY(cgr__fail_in("cgr_step_count", cgr__step_count(runtime, batch, &full)));
  cgr__sized_write(counts, &full, sizeof full);
  return CGR_OK;
}

/* Whether a batch can have these counts. */
static cgr_status check_counts(const cgr_runtime *rt, const cgr_batch_counts *c) {
  const cgr_config *config = &rt->setup.config;
  const int64_t uniform = (int64_t)c->num_requests * c->query_len;
  const struct {
    const char *name;
    int64_t value, low, high;
  } fields[] = { { "num_requests", c->num_requests, 0, config->max_requests },
                 { "num_tokens", c->num_tokens, 0, c->num_requests == 0 ? 0 : config->max_tokens },
                 { "max_query_len", c->max_query_len, c->num_tokens > 0, c->num_tokens },
                 { "query_len", c->query_len, 0, c->max_query_len } };
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
    if (fields[i].value < fields[i].low || fields[i].value > fields[i].high)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_step_choose_counts: counts.%s is %lld, expected %lld .. %lld",
                       fields[i].name, (long long)fields[i].value, (long long)fields[i].low, (long long)fields[i].high);
  if (c->query_len > 0 && uniform < c->num_tokens)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_step_choose_counts: counts.num_tokens is %d, expected at most %lld, query_len (%d) of each request",
                     c->num_tokens, (long long)uniform, c->query_len);
  return CGR_OK;
}

cgr_status cgr_step_choose_counts(cgr_runtime *runtime, const cgr_batch_counts *counts, cgr_key *key, int32_t *reason) {
  CGR__ONE_THREAD(runtime, "cgr_step_choose_counts");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_step_choose_counts"));
  CGR__REQUIRE(key, "cgr_step_choose_counts");
  cgr_batch_counts c;
  cgr__choice choice = { .is_best = false };
  CGR__TRY(cgr__sized_read("cgr_step_choose_counts: counts", "CGR_BATCH_COUNTS_INIT", counts, &c, sizeof c));
  if (c.reserved != 0)
    return cgr__refuse_used("cgr_step_choose_counts: counts.reserved", (int64_t)c.reserved);
  CGR__TRY(check_counts(runtime, &c));
  const cgr__batch_shape shape = { c.num_requests, c.num_tokens, c.query_len, c.max_query_len, c.variant, 0 };
  CGR__TRY(cgr__fail_in("cgr_step_choose_counts", cgr__graphs_choose(&runtime->graphs, &shape, NULL, &choice)));
  *key = choice.key;
  if (reason)
    *reason = (int32_t)choice.reason;
  return CGR_OK;
}

uint64_t cgr__runtime_hash_all_keys(const cgr_runtime *rt) {
  const cgr__graphs *graphs = &rt->graphs;
  const int32_t limits[] = { rt->setup.config.max_requests, rt->setup.config.max_tokens };
  uint64_t hash = cgr__hash(CGR__HASH_BEGIN, limits, sizeof limits);
  hash = cgr__hash(hash, &graphs->max_padding, sizeof graphs->max_padding);
  hash = cgr__hash(hash, &graphs->exact_lengths, sizeof graphs->exact_lengths);
  hash = cgr__hash(hash, &graphs->strict, sizeof graphs->strict);
  for (int32_t i = 0; i < graphs->count; i++)
    hash = cgr__hash(hash, &graphs->entry[i].key, sizeof graphs->entry[i].key);
  return hash;
}

cgr_status cgr_runtime_hash_keys(cgr_runtime *runtime, uint64_t *keys, uint64_t *usable) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_hash_keys");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_runtime_hash_keys"));
  CGR__REQUIRE(usable, "cgr_runtime_hash_keys");
  const cgr__graphs *graphs = &runtime->graphs;
  uint64_t hash = CGR__HASH_BEGIN ^ (uint64_t)graphs->disabled;
  for (int32_t i = 0; i < graphs->count; i++)
    hash = (hash << 1 | hash >> 63) * 0x9e3779b97f4a7c15u + cgr__graph_is_usable(graphs, &graphs->entry[i]);
  *usable = hash;
  if (keys)
    *keys = cgr__runtime_hash_all_keys(runtime);
  return CGR_OK;
}
