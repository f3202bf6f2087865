/* The staging ring and the readback ring: pinned memory, `depth` ring slots each, slot = seq mod depth.
 *
 * cgr__ring_acquire checks the fence: the ring slot of step s is free once step s - depth has completed. cgr__ring_slot returns
 * the same ring slot without checking, for a caller that has acquired or committed it. cgr__ring_commit is the only way to make a
 * ring slot count; until then its contents may not be relied on. The whole protocol: PROTOCOL.md. */
#ifndef CGR_BUFFERS_RING_H
#define CGR_BUFFERS_RING_H

#include <stdbool.h>

#include "buffers/layout.h"
#include "buffers/ring_slot.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__ring {
  unsigned char *staging;
  cgr__completion *completion;
  int64_t stride; /* of ring slots; every step needs the fields up to here and the next two */
  uint32_t depth;
  uint32_t mask; /* depth - 1 when the depth is a power of two, else 0 */
  cgr__ring_slot_layout slot;
  unsigned char *readback;
  cgr__readback_layout readback_slot;
} cgr__ring;

/* Lays the rings into `memory` (layout->pinned_bytes) and clears them. */
void cgr__ring_init(cgr__ring *ring, const cgr__layout *layout, int32_t depth, void *memory);

/* Number of the last completed step. Acquire: what that step wrote to the readback ring is visible afterwards. */
static inline uint64_t cgr__ring_completed(const cgr__ring *ring) {
  return __atomic_load_n(&ring->completion->completed_seq, __ATOMIC_ACQUIRE);
}

/* Steps so far that lost content. Exact for the steps that cgr__ring_completed has shown to be complete. */
static inline uint64_t cgr__ring_generation(const cgr__ring *ring) {
  return __atomic_load_n(&ring->completion->generation, __ATOMIC_RELAXED);
}

/* Steps so far whose result carries a guard's error. */
static inline uint64_t cgr__ring_errors(const cgr__ring *ring) {
  return __atomic_load_n(&ring->completion->errors, __ATOMIC_RELAXED);
}

/* seq mod depth, mostly without a division. */
static inline uint64_t cgr__ring_index(const cgr__ring *ring, uint64_t seq) {
  return ring->mask ? seq & ring->mask : seq % ring->depth;
}

/* The ring slot of step `seq`, which has been acquired. */
static inline cgr__ring_slot_header *cgr__ring_slot(const cgr__ring *ring, uint64_t seq) {
  return (cgr__ring_slot_header *)(ring->staging + (int64_t)cgr__ring_index(ring, seq) * ring->stride);
}

/* The ring slot for step `seq`, or NULL while the step that used it before is in flight. Its header still bears the number of
 * that older step, so that the device ignores it until it is committed. */
static inline cgr__ring_slot_header *cgr__ring_acquire(const cgr__ring *ring, uint64_t seq) {
  bool is_free = seq <= ring->depth || cgr__ring_completed(ring) >= seq - ring->depth;
  return is_free ? cgr__ring_slot(ring, seq) : NULL;
}

/* CGR_ERROR_BUSY: cgr__ring_acquire found no ring slot. `function`: the one that the message names. */
cgr_status cgr__ring_refuse(const cgr__ring *ring, const char *function, uint64_t seq);

/* Makes the ring slot that of step `seq`. Release: whoever sees the number sees the content. Called just before the step is
 * enqueued.
 */
static inline void cgr__ring_commit(cgr__ring_slot_header *slot, uint64_t seq) {
  __atomic_store_n(&slot->seq, seq, __ATOMIC_RELEASE);
}

static inline int32_t *cgr__ring_batch(const cgr__ring *ring, cgr__ring_slot_header *slot) {
  return (int32_t *)((unsigned char *)slot + ring->slot.batch);
}
static inline int32_t *cgr__ring_tokens(const cgr__ring *ring, cgr__ring_slot_header *slot) {
  return (int32_t *)((unsigned char *)slot + ring->slot.tokens);
}
static inline cgr__change *cgr__ring_changes(const cgr__ring *ring, cgr__ring_slot_header *slot) {
  return (cgr__change *)((unsigned char *)slot + ring->slot.changes);
}
static inline cgr__edit *cgr__ring_edits(const cgr__ring *ring, cgr__ring_slot_header *slot) {
  return (cgr__edit *)((unsigned char *)slot + ring->slot.edits);
}

#define CGR__MOST_PREFETCHED 16 /* cache lines of changes */

/* Step `seq` is about to be written, with changes of `num_rows` rows, usually one for each. The device has read the ring slot
 * since it was last written, so stores would wait for cache line after cache line. */
static inline void cgr__ring_prefetch(const cgr__ring *ring, uint64_t seq, int32_t num_rows) {
  const int64_t bytes = num_rows * (int64_t)sizeof(cgr__change), room = ring->slot.edits - ring->slot.changes;
  __builtin_prefetch(ring, 1);
  __builtin_prefetch(ring->completion);
  cgr__ring_slot_header *slot = cgr__ring_slot(ring, seq);
  __builtin_prefetch(slot, 1);
  for (int64_t at = 0; at < bytes && at < room && at < CGR__MOST_PREFETCHED * CGR__CACHE_LINE_BYTES; at += CGR__CACHE_LINE_BYTES)
    __builtin_prefetch((unsigned char *)cgr__ring_changes(ring, slot) + at, 1);
}

/* The result of a completed step. */
static inline const cgr__result_record *cgr__ring_result(const cgr__ring *ring, uint64_t seq) {
  return (const cgr__result_record *)(ring->readback + (int64_t)cgr__ring_index(ring, seq) * ring->readback_slot.stride);
}
static inline const int32_t *cgr__ring_result_counts(const cgr__ring *ring, const cgr__result_record *result) {
  return (const int32_t *)((const unsigned char *)result + ring->readback_slot.num_tokens);
}
static inline const int32_t *cgr__ring_result_tokens(const cgr__ring *ring, const cgr__result_record *result) {
  return (const int32_t *)((const unsigned char *)result + ring->readback_slot.tokens);
}

/* Only in a runtime whose rows have stops. */
static inline const int32_t *cgr__ring_result_ended(const cgr__ring *ring, const cgr__result_record *result) {
  return (const int32_t *)((const unsigned char *)result + cgr__readback_ended(&ring->readback_slot));
}
static inline const int32_t *cgr__ring_result_lengths(const cgr__ring *ring, const cgr__result_record *result) {
  return (const int32_t *)((const unsigned char *)result + cgr__readback_lengths(&ring->readback_slot));
}

/* Only in a runtime that checks values. */
static inline const uint32_t *cgr__ring_result_values(const cgr__ring *ring, const cgr__result_record *result) {
  return (const uint32_t *)((const unsigned char *)result + ring->readback_slot.values);
}

#ifdef __cplusplus
}
#endif
#endif
