/* Data of the engine's own buffers: of tokens and requests, which comes with the batch, and of rows. Part of the hot path: no
 * allocation, lock, wait or environment below this line. */
#include <string.h>

#include "runtime/step/step.h"

static int32_t place_of_buffer(const cgr_staged *staged, int32_t buffer) {
  int32_t i = 0;
  while (staged[i].buffer != buffer)
    i++;
  return i;
}

static cgr_status check_one(const cgr_runtime *rt, const cgr_staged *staged, int32_t i, uint64_t before) {
  if (staged->buffer < 0 || staged->buffer >= rt->setup.config.num_buffers)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "batch: staged[%d].buffer is %d, expected the index of a declared buffer (num_buffers is %d)", i,
                     staged->buffer, rt->setup.config.num_buffers);
  const cgr__declared *d = &rt->layout.declared[staged->buffer];
  if (d->slot_offset == 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "batch: staged[%d].buffer is %d (%s), which %s, expected one that is staged by tokens or requests", i,
                     staged->buffer, d->name,
                     d->source == CGR_SOURCE_STAGED ? "has data of rows (cgr_request_set_data)" : "is written by the device");
  if (before >> staged->buffer & 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "batch: staged[%d].buffer is %d (%s), as staged[%d].buffer is, expected each buffer once", i, staged->buffer,
                     d->name, place_of_buffer(staged - i, staged->buffer));
  if (staged->reserved != 0)
    return cgr__fail(CGR_ERROR_NEWER_STRUCT, "batch: staged[%d].reserved is %d, expected 0", i, staged->reserved);
  if (!staged->data)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "batch: staged[%d].data is NULL, expected the data of %s", i, d->name);
  return CGR_OK;
}

cgr_status cgr__staged_check(const cgr_runtime *rt, const cgr_batch *batch) {
  uint64_t named = 0;
  if (batch->num_staged < 0 || batch->num_staged > CGR__MAX_DECLARED)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "batch: num_staged is %d, expected 0 .. %d", batch->num_staged,
                     CGR__MAX_DECLARED);
  if (!batch->staged)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "batch: staged is NULL, expected %d entr%s", batch->num_staged,
                     batch->num_staged == 1 ? "y" : "ies");
  for (int32_t i = 0; i < batch->num_staged; i++) {
    CGR__TRY(check_one(rt, &batch->staged[i], i, named));
    named |= (uint64_t)1 << batch->staged[i].buffer;
  }
  return CGR_OK;
}

uint64_t cgr__stage_data(const cgr_runtime *rt, const cgr_batch *batch, const cgr__checked_batch *checked,
                         cgr__ring_slot_header *slot) {
  size_t all = 0;
  for (int32_t i = 0; i < batch->num_staged; i++) {
    const cgr__declared *d = &rt->layout.declared[batch->staged[i].buffer];
    int32_t count = d->dimension == CGR_DIMENSION_TOKENS ? checked->num_tokens : checked->num_requests;
    size_t bytes = (size_t)count * (size_t)cgr__declared_bytes(d);
    memcpy((unsigned char *)slot + d->slot_offset, batch->staged[i].data, bytes);
    slot->staged |= (uint64_t)1 << batch->staged[i].buffer;
    all += bytes;
  }
  return all;
}

/* Why a buffer has no data of rows. */
static cgr_status refuse_data_of(const cgr_runtime *rt, int32_t buffer) {
  const int32_t num_buffers = rt->setup.config.num_buffers;
  if (buffer < 0 || buffer >= num_buffers)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_request_set_data: buffer is %d, expected the index of a declared buffer (num_buffers is %d)", buffer,
                     num_buffers);
  const cgr__declared *d = &rt->layout.declared[buffer];
  return cgr__fail(
      CGR_ERROR_INVALID_ARGUMENT,
      "cgr_request_set_data: buffer is %d (%s), which %s, expected one with CGR_SOURCE_STAGED and CGR_DIMENSION_ROWS", buffer,
      d->name,
      d->source != CGR_SOURCE_STAGED         ? "is written by the device"
      : d->dimension == CGR_DIMENSION_TOKENS ? "has data of tokens (cgr_batch.staged)"
                                             : "has data of requests (cgr_batch.staged)");
}

cgr_status cgr_request_set_data(cgr_runtime *runtime, int32_t row, int32_t buffer, const void *data) {
  CGR__ONE_THREAD(runtime, "cgr_request_set_data");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_request_set_data"));
  CGR__TRY(cgr__rows_check(&runtime->rows, "cgr_request_set_data", row));
  CGR__REQUIRE(data, "cgr_request_set_data");
  if (buffer < 0 || buffer >= runtime->rows.num_data || buffer >= runtime->setup.config.num_buffers ||
      runtime->rows.data[buffer].words == 0)
    return refuse_data_of(runtime, buffer);
  cgr__rows_set_data(&runtime->rows, row, buffer, data);
  return CGR_OK;
}
