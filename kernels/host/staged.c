/* The engine's own buffers, from the ring slot (kernels/staged.h). */
#include "kernels/staged.h"

#include <string.h>

#include "kernels/host/launchers.h"

static void fill(unsigned char *to, int64_t from, int64_t end, uint64_t pattern) {
  const unsigned char *bytes = (const unsigned char *)&pattern;
  for (int64_t i = from; i < end; i++)
    to[i] = bytes[i % 8];
}

void cgr__host_staged(const void *pointer) {
  const cgr__staged_args *a = (const cgr__staged_args *)pointer;
  const unsigned char *slot = a->staging + (int64_t)((a->state->seq + 1) % (uint64_t)a->ring_depth) * a->slot_stride;
  for (int32_t i = 0; i < a->num_buffers; i++) {
    const cgr__staged_buffer *b = &a->buffer[i];
    int64_t real = cgr__staged_count(b->per, a->counts[CGR_COUNT_TOKENS], a->counts[CGR_COUNT_REQUESTS]) * b->row_bytes;
    int64_t padded = cgr__staged_count(b->per, a->padded_tokens, a->padded_requests) * b->row_bytes;
    if (!(a->state->staged >> b->index & 1))
      real = 0;
    memcpy(b->data, slot + b->slot_offset, (size_t)real);
    fill((unsigned char *)b->data, real, padded, b->pattern);
  }
}
