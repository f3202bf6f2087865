/* Which keys pay: what steps have used, and what graphs cost. Cold. */
#include <stdlib.h>

#include "runtime/report/report.h"

#define MAX_GROWTH 1.0

/* What steps have done with each key. The records are folded. */
static void count_uses(const cgr_runtime *rt, cgr__key_use *uses) {
  for (int32_t i = 0; i < rt->graphs.count; i++) {
    cgr_key_stats stats = CGR_KEY_STATS_INIT;
    cgr__statistics_of_key(&rt->statistics, i, false, &stats);
    const cgr__graph_entry *entry = &rt->graphs.entry[i];
    uses[i] = (cgr__key_use){ .key = &entry->key, .steps = stats.steps - stats.reasons[CGR_REASON_FORCED] + entry->misses };
  }
}

static void add_key(const cgr__graphs *graphs, const cgr__key_use *use, int32_t i, cgr_key *keys, int32_t capacity,
                    cgr_key_advice *advice) {
  const cgr__graph_entry *entry = &graphs->entry[i];
  uint64_t bytes = entry->device_bytes > 0 ? (uint64_t)entry->device_bytes : 0;
  advice->bytes += bytes;
  advice->ms += (double)entry->capture_ms;
  if (!use->pays)
    return;
  advice->bytes_after += bytes;
  advice->ms_after += (double)entry->capture_ms;
  if (advice->num_keys < capacity)
    keys[advice->num_keys] = entry->key;
  advice->num_keys++;
}

static cgr_status advise(cgr_runtime *rt, double max_growth, cgr_key *keys, int32_t capacity, cgr_key_advice *advice) {
  const cgr__graphs *graphs = &rt->graphs;
  cgr__key_use *uses = calloc((size_t)graphs->count + 1, sizeof *uses); /* one more: not 0 bytes */
  if (!uses)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_advise_keys: no host memory for %d key%s", graphs->count,
                     cgr__plural(graphs->count));
  cgr__statistics_fold(&rt->statistics, &rt->flight);
  count_uses(rt, uses);
  for (int32_t i = 0; i < graphs->count; i++) {
    advice->steps += uses[i].steps;
    advice->tokens += uses[i].steps * (uint64_t)uses[i].key->num_tokens;
  }
  advice->tokens_after = cgr__keys_advise(uses, graphs->count, graphs->max_padding, max_growth);
  for (int32_t i = 0; i < graphs->count; i++)
    add_key(graphs, &uses[i], i, keys, capacity, advice);
  free(uses);
  return CGR_OK;
}

cgr_status cgr_runtime_advise_keys(cgr_runtime *runtime, double max_growth, cgr_key *keys, int32_t capacity,
                                   cgr_key_advice *advice) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_advise_keys");
  cgr_key_advice full = CGR_KEY_ADVICE_INIT;
  CGR__TRY(cgr__report_check(runtime, "cgr_runtime_advise_keys"));
  CGR__TRY(cgr__sized_check("cgr_runtime_advise_keys: advice", "CGR_KEY_ADVICE_INIT", advice));
  if (!(max_growth >= 0.0 && max_growth <= MAX_GROWTH))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_advise_keys: max_growth is %g, expected 0 .. %g (0.01 is 1%%)",
                     max_growth, MAX_GROWTH);
  if (capacity < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_advise_keys: capacity is %d, expected 0 or more", capacity);
  if (!keys && capacity > 0)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_runtime_advise_keys: keys is NULL, expected an address, as capacity is %d",
                     capacity);
  CGR__TRY(advise(runtime, max_growth, keys, capacity, &full));
  cgr__sized_write(advice, &full, sizeof full);
  return CGR_OK;
}
