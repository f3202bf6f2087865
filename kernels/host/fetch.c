/* Fetches the ring slot of the next step into the inbox. */
#include <string.h>

#include "kernels/host/launchers.h"
#include "kernels/step.h"

/* A stretch of the ring slot that the header names. */
static void copy(const cgr__step_args *args, const unsigned char *slot, int64_t offset, int64_t words) {
  const int32_t *from = (const int32_t *)(const void *)(slot + offset);
  int32_t *to = args->buffers.inbox + offset / 4;
  for (int64_t i = 0; i < words; i++)
    to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

void cgr__host_fetch(const void *pointer) {
  const cgr__step_args *args = (const cgr__step_args *)pointer;
  cgr__ring_slot_header *inbox = (cgr__ring_slot_header *)(void *)args->buffers.inbox;
  uint64_t next = args->state->seq + 2;
  const unsigned char *slot = args->staging + (int64_t)(next % (uint64_t)args->ring_depth) * args->slot.stride;
  const cgr__ring_slot_header *header = (const cgr__ring_slot_header *)(const void *)slot;
  if (__atomic_load_n(&header->seq, __ATOMIC_ACQUIRE) != next || !cgr__ring_slot_fits(args, header))
    return;
  if (header->flags & CGR__RING_SLOT_BATCH)
    copy(args, slot, args->slot.batch, 3 * (int64_t)header->num_requests + 1);
  copy(args, slot, args->slot.tokens, cgr__ring_slot_tokens(header));
  if (header->flags & CGR__RING_SLOT_EDITS)
    copy(args, slot, args->slot.edits, 4 * (int64_t)header->num_edits);
  copy(args, slot, args->slot.changes, 4 * (int64_t)header->num_changes);
  memcpy((unsigned char *)inbox + sizeof inbox->seq, slot + sizeof inbox->seq, sizeof *inbox - sizeof inbox->seq);
  inbox->seq = next;
}
