/* Calls that all ranks make together: barriers and captures. */
#include <string.h>

#include "base/status.h"
#include "ranks/ranks.h"

static cgr_status check_name(const char *name) {
  CGR__REQUIRE(name, "cgr_ranks_barrier");
  const size_t length = strnlen(name, CGR__RANKS_NAME_BYTES);
  if (length == 0 || length == CGR__RANKS_NAME_BYTES)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_ranks_barrier: name is \"%.31s\", expected 1 .. %d characters", name,
                     CGR__RANKS_NAME_BYTES - 1);
  return CGR_OK;
}

cgr_status cgr_ranks_barrier(cgr_ranks *ranks, const char *name) {
  CGR__TRY(cgr__ranks_check(ranks, "cgr_ranks_barrier"));
  CGR__TRY(check_name(name));
  if (ranks->waits && (ranks->mine.call != CGR__RANK_BARRIER || strcmp(ranks->mine.name, name) != 0))
    return cgr__fail(CGR_ERROR_STATE,
                     "cgr_ranks_barrier: name is \"%s\", but %s%s%s waits for other ranks: expected that call again", name,
                     cgr__rank_call_name(ranks->mine.call), ranks->mine.name[0] ? " " : "", ranks->mine.name);
  memset(ranks->mine.name, 0, sizeof ranks->mine.name);
  memcpy(ranks->mine.name, name, strlen(name));
  const cgr_status status = cgr__ranks_meet(ranks, "cgr_ranks_barrier", CGR__RANK_BARRIER);
  if (!ranks->waits)
    memset(ranks->mine.name, 0, sizeof ranks->mine.name);
  return status;
}

/* After the capture of this rank, which ended with `own`. */
static cgr_status compare_captures(cgr_ranks *k) {
  const cgr_status own = (cgr_status)k->mine.proposal.status;
  CGR__TRY(cgr__ranks_meet(k, "cgr_ranks_capture", CGR__RANK_CAPTURED));
  if (own != CGR_OK)
    return cgr__fail(own, "%s", k->why);
  for (int32_t r = 0; r < k->exchange.num_ranks; r++)
    if (k->all[r].proposal.status != CGR_OK)
      return cgr__fail(CGR_ERROR_RANK, "cgr_ranks_capture: the capture of rank %d has failed: %s", r,
                       cgr_status_name((cgr_status)k->all[r].proposal.status));
  return CGR_OK;
}

cgr_status cgr_ranks_capture(cgr_ranks *ranks, const cgr_capture *capture) {
  CGR__TRY(cgr__ranks_check(ranks, "cgr_ranks_capture"));
  if (ranks->waits && ranks->mine.call == CGR__RANK_CAPTURED)
    return compare_captures(ranks);
  CGR__TRY(cgr__ranks_meet(ranks, "cgr_ranks_capture", CGR__RANK_CAPTURE));
  const cgr_status own = cgr__fail_as("cgr_ranks_capture", "cgr_runtime_capture", cgr_runtime_capture(ranks->runtime, capture));
  ranks->mine.proposal.status = (int32_t)own;
  if (own != CGR_OK)
    cgr__ranks_keep_message(ranks);
  return compare_captures(ranks);
}
