#include "kernels/fingerprint.h"

#include "kernels/host/launchers.h"
#include "kernels/host/step_error.h"

static uint64_t hash_inputs(const cgr__fingerprint_args *a) {
  const int32_t num_tokens = a->counts[CGR_COUNT_TOKENS];
  uint64_t sum = cgr__fingerprint_of_counts(a->counts[CGR_COUNT_REQUESTS], num_tokens);
  for (int32_t i = 0; i < num_tokens; i++)
    sum += cgr__fingerprint_of_token(i, a->input_ids[i], a->positions[i]);
  return sum;
}

void cgr__host_fingerprint(const void *pointer) {
  const cgr__fingerprint_args *a = (const cgr__fingerprint_args *)pointer;
  uint64_t *part = a->out->part;
  part[CGR_FINGERPRINT_KEY] = a->key;
  part[CGR_FINGERPRINT_CONFIG] = a->config;
  part[CGR_FINGERPRINT_SEQUENCE] = a->sequence ? (uint64_t)(uint32_t)*a->sequence : 0;
  part[CGR_FINGERPRINT_INPUTS] = a->inputs ? hash_inputs(a) : 0;
}

void cgr__host_compare_fingerprints(const void *pointer) {
  const cgr__compare_fingerprints_args *a = (const cgr__compare_fingerprints_args *)pointer;
  int32_t first = -1, part = 0;
  uint64_t ranks = 0;
  for (int32_t r = 0; r < a->num_ranks; r++) {
    const int32_t differs = cgr__fingerprint_difference(&a->all[r], &a->all[a->rank]);
    if (differs == CGR__FINGERPRINT_PARTS)
      continue;
    ranks |= (uint64_t)1 << r;
    part = first < 0 ? differs : part;
    first = first < 0 ? r : first;
  }
  if (first >= 0)
    cgr__host_claim_error(&a->state->error, CGR_GUARD_RANK, first, part, (int64_t)ranks);
}
