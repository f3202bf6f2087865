#include "graphs/graphs.h"

static void eager(cgr__choice *choice, int32_t num_requests, int32_t num_tokens, uint32_t variant, cgr_reason reason) {
  choice->entry = NULL;
  choice->reason = reason;
  /* An empty step still has one padded row, so that no engine's kernel is launched for nothing. */
  choice->key =
      (cgr_key){ CGR_KIND_NONE, 0, 0, num_tokens > 0 ? num_tokens : 1, num_requests > 0 ? num_requests : 1, 0, variant };
}

void cgr__graphs_choose(cgr__graphs *graphs, int32_t num_requests, int32_t num_tokens, int32_t query_len, uint32_t variant,
                        cgr__choice *choice) {
  cgr_reason reason = CGR_REASON_NOT_CAPTURED;
  if (graphs->mode == CGR_GRAPH_NONE) {
    eager(choice, num_requests, num_tokens, variant, CGR_REASON_MODE_NONE);
    return;
  }
  if (query_len != 1 && num_requests > 0) {
    eager(choice, num_requests, num_tokens, variant, CGR_REASON_NOT_UNIFORM);
    return;
  }
  int32_t index = graphs->bucket_of[num_requests > 0 ? num_requests : 1];
  if (index < 0) {
    eager(choice, num_requests, num_tokens, variant, CGR_REASON_ABOVE_LADDER);
    return;
  }
  cgr__graph_entry *entry = &graphs->entry[index];
  if (entry->state == CGR__GRAPH_READY && variant == entry->key.variant) {
    choice->entry = entry;
    choice->key = entry->key;
    choice->reason = entry->key.num_requests == num_requests ? CGR_REASON_EXACT : CGR_REASON_PADDED;
    return;
  }
  if (entry->state == CGR__GRAPH_FAILED)
    reason = CGR_REASON_CAPTURE_FAILED;
  eager(choice, num_requests, num_tokens, variant, reason);
}
