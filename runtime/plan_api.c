/* The native plan without a runtime: validation, then planners/plan_host.c. */
#include <stdlib.h>

#include "planners/plan_host.h"
#include "runtime/status.h"

#define STACK_WORDS 1024

size_t cgr_plan_size(int32_t num_parts) { return num_parts >= 1 ? cgr__plan_bytes(num_parts) : 0; }

static cgr_status check_lengths(const cgr_plan_input *input) {
  int64_t tokens = 0;
  for (int32_t i = 0; i < input->num_requests; i++) {
    if (input->query_lens[i] < 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_plan_build: query_lens[%d] is %d, expected at least 0", i, input->query_lens[i]);
    if (input->seq_lens[i] < input->query_lens[i])
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_plan_build: seq_lens[%d] is %d, expected at least query_lens[%d], which is %d",
                       i, input->seq_lens[i], i, input->query_lens[i]);
    tokens += input->query_lens[i];
    if (tokens > INT32_MAX - 64)
      return cgr__fail(CGR_ERROR_TOO_MANY_TOKENS, "cgr_plan_build: the first %d requests have %lld tokens, expected at most %d", i + 1,
                       (long long)tokens, INT32_MAX - 64);
  }
  return CGR_OK;
}

static cgr_status check_input(const cgr_plan_input *input, const void *plan, size_t plan_size) {
  CGR__REQUIRE(input, "cgr_plan_build");
  CGR__REQUIRE(plan, "cgr_plan_build");
  if (input->size < sizeof *input)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "cgr_plan_build: size is %u, expected %zu: use CGR_PLAN_INPUT_INIT", input->size,
                     sizeof *input);
  if (input->num_requests < 0 || input->num_requests > 1 << 24)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_plan_build: num_requests is %d, expected 0 .. %d", input->num_requests, 1 << 24);
  if (input->num_requests > 0 && (!input->query_lens || !input->seq_lens))
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_plan_build: query_lens or seq_lens is NULL, expected %d lengths", input->num_requests);
  if (input->num_parts < 1 || input->num_parts > 4096)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_plan_build: num_parts is %d, expected 1 .. 4096", input->num_parts);
  if (input->tile_q < 1 || input->tile_q > 64 || (input->tile_q & (input->tile_q - 1)) != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_plan_build: tile_q is %d, expected a power of two, 1 .. 64", input->tile_q);
  if (plan_size < cgr__plan_bytes(input->num_parts))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_plan_build: plan_size is %zu, expected at least %zu (cgr_plan_size)", plan_size,
                     cgr__plan_bytes(input->num_parts));
  if ((uintptr_t)plan % 8 != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_plan_build: plan is %p, expected a multiple of 8", plan);
  return check_lengths(input);
}

cgr_status cgr_plan_build(const cgr_plan_input *input, void *plan, size_t plan_size) {
  int64_t on_stack[STACK_WORDS];
  CGR__TRY(check_input(input, plan, plan_size));
  size_t words = cgr__plan_scratch_words(input->num_requests);
  int64_t *scratch = words <= STACK_WORDS ? on_stack : malloc(words * sizeof *scratch);
  if (!scratch)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_plan_build: no host memory for %d requests", input->num_requests);
  cgr__plan_build(input, scratch, plan);
  if (scratch != on_stack)
    free(scratch);
  return CGR_OK;
}
