/* What collectives of other libraries need in `record` (cgr/collectives.h): resources, ranges, fingerprints. */
#include "base/hash.h"
#include "cgr/ranks.h"
#include "runtime/record/view_check.h"
#include "runtime/runtime.h"

#define FINGERPRINT_ALIGNMENT 16

static_assert(sizeof(cgr__fingerprint_words) == CGR_FINGERPRINT_BYTES, "what ranks send each other");

static cgr_status use_resource(cgr_recorder *recorder, uint64_t number) {
  const int32_t i = cgr__resources_find(recorder->owner->runtime, "cgr_record_use_resource", number);
  if (i < 0)
    return CGR_ERROR_INVALID_ARGUMENT;
  if (recorder->capture)
    recorder->capture->resources |= (uint64_t)1 << i;
  return CGR_OK;
}

cgr_status cgr_record_use_resource(cgr_recorder *recorder, uint64_t number) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_use_resource"));
  return cgr__recorder_latch(recorder, use_resource(recorder, number));
}

cgr_status cgr_record_fail(cgr_recorder *recorder, cgr_status status) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_fail"));
  if (status == CGR_OK)
    status = cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_record_fail: status is CGR_OK, expected a failure");
  return cgr__recorder_latch(recorder, status);
}

/* ---------------------------------------------------------------------------------------------------------------- ranges */

static cgr_status check_range_name(const char *name) {
  CGR__REQUIRE(name, "cgr_record_range_begin");
  size_t length = 0;
  while (length < CGR__NAMED_RANGE_BYTES && (unsigned char)name[length] >= ' ' && name[length] != 127)
    length++;
  if (length > 0 && length < CGR__NAMED_RANGE_BYTES && name[length] == '\0')
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "cgr_record_range_begin: name is \"%.*s\" and then %s, expected 1 .. %d characters without control characters",
                   (int)length, name,
                   length == CGR__NAMED_RANGE_BYTES ? "more" : (name[length] == '\0' ? "nothing" : "a control character"),
                   CGR__NAMED_RANGE_BYTES - 1);
}

cgr_status cgr_record_range_begin(cgr_recorder *recorder, const char *name) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_range_begin"));
  const cgr_status status = check_range_name(name);
  if (status != CGR_OK)
    return cgr__recorder_latch(recorder, status);
  if (recorder->watched)
    cgr__recorder_watch_begin(recorder, cgr__nvtx_named_range(name));
  recorder->ranges++;
  return CGR_OK;
}

cgr_status cgr_record_range_end(cgr_recorder *recorder) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_range_end"));
  if (recorder->ranges == 0)
    return cgr__recorder_latch(recorder, cgr__fail(CGR_ERROR_STATE, "cgr_record_range_end: no range has begun, expected "
                                                                    "cgr_record_range_begin before"));
  recorder->ranges--;
  cgr__recorder_range_end(recorder);
  return CGR_OK;
}

/* ---------------------------------------------------------------------------------------------------------- fingerprints */

static cgr_status check_address(const char *function, const char *what, const void *address, size_t alignment) {
  if (!address)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: %s is NULL, expected an address", function, what);
  if ((uintptr_t)address % alignment != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s is %p, expected a multiple of %zu bytes", function, what, address,
                     alignment);
  return CGR_OK;
}

/* A graph holds it; it ends where its allocation does. */
static cgr_status hold_words(cgr__step_recorder *rec, const char *function, const char *what, const void *address, size_t bytes) {
  CGR__TRY(cgr__memory_end_check(rec, function, what, address, bytes));
  return rec->base.capture ? cgr__capture_hold_address(rec->base.capture, address) : CGR_OK;
}

static cgr_status enqueue_words(cgr__step_recorder *rec, const cgr__kernel *kernel, const void *args, const char *what) {
  cgr_runtime *rt = rec->runtime;
  return cgr__runtime_device_error(rt, rt->dev->ops->launch(rt->dev, kernel, args, rec->base.stream), what);
}

static cgr_status record_fingerprint(cgr__step_recorder *rec, const cgr_fingerprint *given) {
  static const char function[] = "cgr_record_fingerprint";
  cgr_fingerprint f;
  CGR__TRY(cgr__check_outside_plan(&rec->base, function));
  CGR__TRY(cgr__sized_read("cgr_record_fingerprint: fingerprint", "CGR_FINGERPRINT_INIT", given, &f, sizeof f));
  if (f.inputs < 0 || f.inputs > 1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: inputs is %d, expected 0 or 1", function, f.inputs);
  CGR__TRY(check_address(function, "out", f.out, FINGERPRINT_ALIGNMENT));
  CGR__TRY(hold_words(rec, function, "out", f.out, CGR_FINGERPRINT_BYTES));
  if (f.sequence) {
    CGR__TRY(check_address(function, "sequence", f.sequence, sizeof *f.sequence));
    CGR__TRY(hold_words(rec, function, "sequence", f.sequence, sizeof *f.sequence));
  }
  const cgr__step_args *step = &rec->runtime->lane.args;
  const cgr__fingerprint_args args = { .key = cgr__hash(CGR__HASH_BEGIN, &rec->base.key, sizeof rec->base.key),
                                       .config = cgr__runtime_hash_all_keys(rec->runtime),
                                       .out = f.out,
                                       .sequence = f.sequence,
                                       .counts = step->buffers.counts,
                                       .input_ids = step->buffers.input_ids,
                                       .positions = step->buffers.positions,
                                       .inputs = f.inputs };
  return enqueue_words(rec, &cgr__kernel_fingerprint, &args, "cgr_record_fingerprint: enqueuing the kernel");
}

cgr_status cgr_record_fingerprint(cgr_recorder *recorder, const cgr_fingerprint *fingerprint) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_fingerprint"));
  return cgr__recorder_latch(recorder, record_fingerprint(recorder->owner, fingerprint));
}

static cgr_status compare_fingerprints(cgr__step_recorder *rec, const void *all, int32_t num_ranks, int32_t rank) {
  static const char function[] = "cgr_record_compare_fingerprints";
  CGR__TRY(cgr__check_outside_plan(&rec->base, function));
  CGR__TRY(check_address(function, "all", all, FINGERPRINT_ALIGNMENT));
  if (num_ranks < 1 || num_ranks > CGR_MAX_RANKS)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: num_ranks is %d, expected 1 .. %d", function, num_ranks, CGR_MAX_RANKS);
  if (rank < 0 || rank >= num_ranks)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: rank is %d, expected 0 .. %d", function, rank, num_ranks - 1);
  CGR__TRY(hold_words(rec, function, "all", all, (size_t)num_ranks * CGR_FINGERPRINT_BYTES));
  const cgr__compare_fingerprints_args args = { all, rec->runtime->lane.args.state, num_ranks, rank };
  return enqueue_words(rec, &cgr__kernel_compare_fingerprints, &args, "cgr_record_compare_fingerprints: enqueuing the kernel");
}

cgr_status cgr_record_compare_fingerprints(cgr_recorder *recorder, const void *all, int32_t num_ranks, int32_t rank) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_compare_fingerprints"));
  return cgr__recorder_latch(recorder, compare_fingerprints(recorder->owner, all, num_ranks, rank));
}
