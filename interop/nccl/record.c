/* Collectives in `record`: checked, named, and handed to NCCL. */
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "interop/nccl/nccl.h"

#define MAX_COUNT ((uint64_t)1 << 40)

/* What is checked of each: for messages, the public function and the call's number. */
typedef struct call_place {
  const char *function;
  int32_t number;
} call_place;

/* --------------------------------------------------------------------------------------------------------------- reading */

static bool reduces(int32_t kind) { return kind == CGR_NCCL_ALL_REDUCE || kind == CGR_NCCL_REDUCE_SCATTER; }
static bool has_peer(int32_t kind) { return kind == CGR_NCCL_BROADCAST || kind == CGR_NCCL_SEND || kind == CGR_NCCL_RECV; }

static cgr_status check_numbers(const cgr_nccl *n, const cgr_nccl_call *c, call_place at) {
  const char *f = at.function;
  if (c->kind < CGR_NCCL_ALL_REDUCE || c->kind > CGR_NCCL_ALL_TO_ALL)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "%s: calls[%d].kind is %d, expected 1 .. 7, a cgr_nccl_kind", f, at.number, c->kind);
  if (cgr__nccl_dtype(c->dtype) < 0)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: calls[%d].dtype is %d, expected a cgr_dtype that NCCL has", f, at.number,
                     c->dtype);
  if (c->op < CGR_NCCL_SUM || c->op > (reduces(c->kind) ? CGR_NCCL_AVERAGE : 0))
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "%s: calls[%d].op is %d, expected %s", f, at.number, c->op,
                     reduces(c->kind) ? "0 .. 4, a cgr_nccl_op" : "0 of a kind that does not reduce");
  const int32_t peers = has_peer(c->kind) ? n->num_ranks : 1;
  if (c->peer < 0 || c->peer >= peers)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: calls[%d].peer is %d, expected 0 .. %d", f, at.number, c->peer, peers - 1);
  if (c->count > MAX_COUNT)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: calls[%d].count is %llu, expected at most 2^40", f, at.number,
                     (unsigned long long)c->count);
  if (c->label && strnlen(c->label, CGR__NCCL_LABEL_BYTES) == CGR__NCCL_LABEL_BYTES)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: calls[%d].label is \"%.31s...\", expected at most %d characters", f,
                     at.number, c->label, CGR__NCCL_LABEL_BYTES - 1);
  if (c->label && !cgr__nccl_is_plain(c->label))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: calls[%d].label is \"%s\", expected no control character in it", f,
                     at.number, c->label);
  if (c->reserved != 0)
    return cgr__fail_in(f, cgr__refuse_used("calls.reserved", c->reserved));
  return CGR_OK;
}

static cgr_status check_memory(const cgr_nccl *n, const cgr_nccl_call *c, call_place at) {
  const bool sends = c->kind != CGR_NCCL_RECV && (c->kind != CGR_NCCL_BROADCAST || c->peer == n->rank);
  const bool receives = c->kind != CGR_NCCL_SEND;
  if (c->count == 0)
    return CGR_OK;
  if ((sends && !c->send) || (receives && !c->recv))
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: calls[%d].%s is NULL, expected an address", at.function, at.number,
                     sends && !c->send ? "send" : "recv");
  if (c->kind == CGR_NCCL_ALL_TO_ALL && c->send == c->recv)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: calls[%d].recv is send, expected other memory for an all-to-all",
                     at.function, at.number);
  return CGR_OK;
}

static cgr_status read_call(cgr_nccl *n, const cgr_nccl_call *calls, call_place at, cgr__nccl_call *call) {
  cgr_nccl_call c;
  CGR__TRY(cgr__fail_in(at.function, cgr__sized_read_at("calls", "CGR_NCCL_CALL_INIT", calls, at.number, &c, sizeof c)));
  CGR__TRY(check_numbers(n, &c, at));
  CGR__TRY(check_memory(n, &c, at));
  *call = (cgr__nccl_call){ .send = c.send,
                            .recv = c.recv,
                            .count = c.count,
                            .kind = c.kind,
                            .dtype = cgr__nccl_dtype(c.dtype),
                            .op = c.op,
                            .peer = c.peer,
                            .stream = c.stream,
                            .text = cgr__nccl_text(n, c.kind, c.label) };
  return CGR_OK;
}

static cgr_status read_calls(cgr_nccl *n, const char *function, const cgr_nccl_call *calls, int32_t num_calls, int32_t most,
                             cgr__nccl_call *read) {
  CGR__TRY(cgr__nccl_check_handle(n, function));
  if (__atomic_load_n(&n->aborted, __ATOMIC_ACQUIRE))
    return cgr__nccl_refuse_aborted(n, function);
  if (!calls)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: calls is NULL, expected an address", function);
  if (num_calls < 1 || num_calls > most)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: num_calls is %d, expected 1 .. %d", function, num_calls, most);
  for (int32_t i = 0; i < num_calls; i++)
    CGR__TRY(read_call(n, calls, (call_place){ function, i }, &read[i]));
  for (int32_t i = 1; i < num_calls; i++)
    if (read[i].stream != read[0].stream)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: calls[%d].stream is %p, expected that of calls[0], %p", function, i,
                       (void *)read[i].stream, (void *)read[0].stream);
  return CGR_OK;
}

/* --------------------------------------------------------------------------------------------------------------- calling */

/* Bytes of an element by NCCL's number. */
static size_t element_bytes(int32_t dtype) {
  static const uint8_t bytes[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };
  return bytes[dtype];
}

static int send_to_all(const cgr_nccl *n, const cgr__nccl_call *c, cudaStream_t stream) {
  const size_t bytes = c->count * element_bytes(c->dtype);
  int result = CGR__NCCL_SUCCESS;
  for (int32_t r = 0; r < n->num_ranks && result == CGR__NCCL_SUCCESS; r++) {
    result = n->nccl.send((const char *)c->send + (size_t)r * bytes, c->count, c->dtype, r, n->comm, stream);
    if (result == CGR__NCCL_SUCCESS)
      result = n->nccl.recv((char *)c->recv + (size_t)r * bytes, c->count, c->dtype, r, n->comm, stream);
  }
  return result;
}

static int make_call(const cgr_nccl *n, const cgr__nccl_call *c, cudaStream_t s) {
  const cgr_nccl_functions *f = &n->nccl;
  switch (c->kind) {
  case CGR_NCCL_ALL_REDUCE:
    return f->all_reduce(c->send, c->recv, c->count, c->dtype, c->op, n->comm, s);
  case CGR_NCCL_ALL_GATHER:
    return f->all_gather(c->send, c->recv, c->count, c->dtype, n->comm, s);
  case CGR_NCCL_REDUCE_SCATTER:
    return f->reduce_scatter(c->send, c->recv, c->count, c->dtype, c->op, n->comm, s);
  case CGR_NCCL_BROADCAST:
    return f->broadcast(c->send, c->recv, c->count, c->dtype, c->peer, n->comm, s);
  case CGR_NCCL_SEND:
    return f->send(c->send, c->count, c->dtype, c->peer, n->comm, s);
  case CGR_NCCL_RECV:
    return f->recv(c->recv, c->count, c->dtype, c->peer, n->comm, s);
  default:
    return send_to_all(n, c, s);
  }
}

static cgr_status make_group(const cgr_nccl *n, const char *function, const cgr__nccl_call *calls, int32_t num_calls,
                             cudaStream_t stream) {
  const cgr_nccl_functions *f = &n->nccl;
  const bool groups = num_calls > 1 || calls[0].kind == CGR_NCCL_ALL_TO_ALL;
  cgr_status status = CGR_OK;
  if (groups)
    CGR__TRY(cgr__nccl_result(f, n->comm, function, "ncclGroupStart", f->group_start()));
  for (int32_t i = 0; i < num_calls && status == CGR_OK; i++)
    status = cgr__nccl_result(f, n->comm, function, n->text[calls[i].text], make_call(n, &calls[i], stream));
  if (!groups)
    return status;
  const int ended = f->group_end(); /* of one that has failed, too */
  return status == CGR_OK ? cgr__nccl_result(f, n->comm, function, "ncclGroupEnd", ended) : status;
}

/* Another thread may abort it meanwhile. */
static cgr_status make_group_alive(cgr_nccl *n, const char *function, const cgr__nccl_call *calls, int32_t num_calls,
                                   cudaStream_t stream) {
  CGR__TRY(cgr__nccl_enter(n, function));
  const cgr_status status = make_group(n, function, calls, num_calls, stream);
  cgr__nccl_leave(n);
  return status;
}

static cgr_status enqueue_calls(cgr_recorder *recorder, cgr_nccl *n, const char *function, const cgr__nccl_call *calls,
                                int32_t num_calls) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  CGR__TRY(cgr_record_get_info(recorder, &info));
  const cudaStream_t stream = calls[0].stream ? calls[0].stream : info.stream;
  CGR__TRY(cgr_record_range_begin(recorder, n->text[calls[0].text]));
  cgr_status status = cgr__nccl_mark(n, calls[0].text, false, stream);
  if (status == CGR_OK)
    status = make_group_alive(n, function, calls, num_calls, stream);
  if (status == CGR_OK)
    status = cgr__nccl_mark(n, calls[0].text, true, stream);
  if (status != CGR_OK)
    (void)cgr_record_fail(recorder, status);
  CGR__TRY(cgr_record_range_end(recorder));
  return status;
}

/* ------------------------------------------------------------------------------------------------------ public functions */

/* Latched: a `record` that ignores the failure makes no step. */
static cgr_status give_up(cgr_recorder *recorder, cgr_status status) {
  return status == CGR_OK ? CGR_OK : cgr_record_fail(recorder, status);
}

cgr_status cgr_nccl_record(cgr_recorder *recorder, cgr_nccl *nccl, const cgr_nccl_call *calls, int32_t num_calls) {
  static const char function[] = "cgr_nccl_record";
  cgr__nccl_call read[CGR__NCCL_MAX_CALLS];
  CGR__REQUIRE(recorder, "cgr_nccl_record");
  CGR__TRY(give_up(recorder, read_calls(nccl, function, calls, num_calls, CGR__NCCL_MAX_CALLS, read)));
  CGR__TRY(cgr__fail_as(function, "cgr_record_use_resource", cgr_record_use_resource(recorder, nccl->resource)));
  return enqueue_calls(recorder, nccl, function, read, num_calls);
}

/* What is kept at a break. */
typedef struct kept_calls {
  cgr_nccl *nccl;
  int32_t num_calls, reserved;
  cgr__nccl_call call[CGR__NCCL_MAX_CALLS_BETWEEN];
} kept_calls;

static cgr_status make_kept_calls(cgr_recorder *recorder, const void *args) {
  const kept_calls *kept = args;
  cgr_nccl *n = kept->nccl;
  if (__atomic_load_n(&n->aborted, __ATOMIC_ACQUIRE))
    return cgr__fail(CGR_ERROR_STATE, "cgr_nccl_record_between: %s has been aborted, expected no step after that", n->name);
  return enqueue_calls(recorder, n, "cgr_nccl_record_between", kept->call, kept->num_calls);
}

cgr_status cgr_nccl_record_between(cgr_recorder *recorder, cgr_nccl *nccl, const cgr_nccl_call *calls, int32_t num_calls) {
  static const char function[] = "cgr_nccl_record_between";
  kept_calls kept = { nccl, num_calls, 0, { { NULL, NULL, 0, 0, 0, 0, 0, NULL, 0, 0 } } };
  CGR__REQUIRE(recorder, "cgr_nccl_record_between");
  CGR__TRY(give_up(recorder, read_calls(nccl, function, calls, num_calls, CGR__NCCL_MAX_CALLS_BETWEEN, kept.call)));
  if (kept.call[0].stream)
    return give_up(recorder, cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: calls[0].stream is %p, expected NULL: the step's own",
                                       function, (void *)kept.call[0].stream));
  CGR__TRY(cgr__fail_as(function, "cgr_record_use_resource", cgr_record_use_resource(recorder, nccl->resource)));
  const size_t bytes = offsetof(kept_calls, call) + (size_t)num_calls * sizeof kept.call[0];
  return cgr_record_call(recorder, make_kept_calls, &kept, bytes);
}

cgr_status cgr_nccl_record_comparison(cgr_recorder *recorder, cgr_nccl *nccl, void *memory, int32_t inputs,
                                      const int32_t *sequence) {
  static const char function[] = "cgr_nccl_record_comparison";
  CGR__REQUIRE(recorder, "cgr_nccl_record_comparison");
  CGR__TRY(give_up(recorder, cgr__nccl_check_handle(nccl, function)));
  if (!memory)
    return give_up(recorder, cgr__fail(CGR_ERROR_NULL_POINTER, "%s: memory is NULL, expected an address", function));
  cgr_fingerprint fingerprint = CGR_FINGERPRINT_INIT;
  fingerprint.out = (char *)memory + (size_t)nccl->num_ranks * CGR_FINGERPRINT_BYTES;
  fingerprint.inputs = inputs;
  fingerprint.sequence = sequence;
  cgr_nccl_call gather = CGR_NCCL_CALL_INIT;
  gather.kind = CGR_NCCL_ALL_GATHER;
  gather.send = fingerprint.out;
  gather.recv = memory;
  gather.count = CGR_FINGERPRINT_BYTES;
  gather.dtype = CGR_DTYPE_U8;
  gather.label = "fingerprints";
  CGR__TRY(cgr__fail_as(function, "cgr_record_fingerprint", cgr_record_fingerprint(recorder, &fingerprint)));
  CGR__TRY(cgr__fail_as(function, "cgr_nccl_record", cgr_nccl_record(recorder, nccl, &gather, 1)));
  return cgr__fail_as(function, "cgr_record_compare_fingerprints",
                      cgr_record_compare_fingerprints(recorder, memory, nccl->num_ranks, nccl->rank));
}
