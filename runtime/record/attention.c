/* cgr_record_attention: checks the struct of the engine and calls the backend of the layer, after an append if it has none. */
#include "cgr/names.h"
#include "runtime/record/record.h"
#include "runtime/record/overlap.h"
#include "runtime/report/ranges.h"
#include "runtime/report/timing.h"

/* ---------------------------------------------------------------------------------------------------------------- checks */

/* What a view of the layer must hold: tokens of the step x heads x dim elements. */
static cgr__extent extent_of(const cgr__step_recorder *rec, const char *name, int32_t dtype, int32_t heads, int32_t dim) {
  cgr__extent extent = cgr__extent_of(name, dtype, rec->base.key.num_tokens, heads, dim);
  extent.whose = ", the layer's";
  return extent;
}

static cgr_status check_view(const cgr_view *view, const cgr__extent *extent) {
  return cgr__extent_check("cgr_record_attention", view, extent);
}

static cgr_status check_call(const cgr__step_recorder *rec, const cgr_attention *a) {
  const uint32_t known = CGR_ATTENTION_NO_APPEND | CGR_ATTENTION_APPEND_ONLY;
  if (rec->base.in_call)
    return cgr__fail(CGR_ERROR_STATE, "cgr_record_attention: called inside a function of cgr_record_call or of a backend, "
                                      "expected a call outside of it");
  if (a->layer < 0 || a->layer >= rec->runtime->setup.config.num_layers)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: layer is %d, expected one of the %d configured (cgr_config.num_layers)", a->layer,
                     rec->runtime->setup.config.num_layers);
  if (a->flags & ~known)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "cgr_record_attention: flags is %#x, expected CGR_ATTENTION_* bits", a->flags);
  if (a->flags == known)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: flags has NO_APPEND and APPEND_ONLY, expected one of them at most");
  CGR__TRY(cgr__check_layer_call(rec, a));
  CGR__TRY(cgr__check_unused("cgr_record_attention: reserved", a->reserved));
  if (a->q_scale || a->out_scale)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "cgr_record_attention: %s is given, expected NULL in this version",
                     a->q_scale ? "q_scale" : "out_scale");
  return CGR_OK;
}

static bool is_marked(const uint8_t *layers, int32_t layer) { return layers[layer / 8] & 1u << layer % 8; }

/* The layer whose cache this one reads: its own, or an earlier one's. */
static int32_t source_of(const cgr__step_recorder *rec, int32_t layer) {
  int32_t source = rec->runtime->setup.layers[layer].kv_source;
  return source == 0 ? layer : source_of(rec, source - 1);
}

/* Marks the layer; CGR_ERROR_INVALID_ARGUMENT when it is marked already. */
static cgr_status mark(uint8_t *layers, int32_t layer, const char *what) {
  if (is_marked(layers, layer))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_record_attention: layer %d was %s already in this step, expected once",
                     layer, what);
  layers[layer / 8] |= (uint8_t)(1u << layer % 8);
  return CGR_OK;
}

/* --------------------------------------------------------------------------------------------------------------- enqueue */

/* What a call by the engine amounts to: the library's append, the layer's backend, or both, with timestamps around them if layers
 * are timed. In a PIECEWISE capture all of it is between two pieces. */
typedef struct calls {
  bool appends, calls_backend; /* the library's append kernel; the backend, which may append by itself */
  cgr__append_args append;
  struct backend_call {
    const cgr_backend *backend;
    cgr_attention attention;
  } backend;
  cgr__stamp_args before, between, after; /* used only where layers are timed; `between`: after the library's append */
} calls;

enum { MAX_CALLS = 5 }; /* those two, and three timestamps */

static cgr_status call_backend(cgr_recorder *recorder, const void *args) {
  const struct backend_call *call = args;
  cgr__step_recorder *rec = (cgr__step_recorder *)(void *)recorder;
  uint64_t before = cgr__failures();
  const cgr__running running = { call->backend->name, "record", call->attention.layer };
  rec->backend = (int32_t)(call->backend - rec->runtime->setup.backends) + 1;
  recorder->running = running;
  cgr__range_begin_layer(rec->runtime, CGR__RANGE_ATTENTION, call->attention.layer);
  cgr_status status = call->backend->record(call->backend->context, recorder, &call->attention);
  cgr__range_end(rec->runtime);
  recorder->running.backend = NULL;
  bool is_own = rec->backend == 1; /* it reports itself what its device has refused */
  rec->backend = 0;
  if (status == CGR_OK || is_own)
    return status;
  return cgr__recorder_latch_named(recorder, cgr__fail_returned(status, cgr__title_of(&running).text, status, before));
}

/* Between two pieces, where timestamps are taken as the calls are made. */
static cgr_status enqueue_break(cgr__step_recorder *rec, const calls *c, bool timed) {
  cgr__call call[MAX_CALLS];
  int32_t count = 0;
  if (timed)
    call[count++] = (cgr__call){ &cgr__kernel_stamp, NULL, &c->before, sizeof c->before };
  if (c->appends)
    call[count++] = (cgr__call){ &cgr__kernel_append, NULL, &c->append, sizeof c->append };
  if (c->appends && timed)
    call[count++] = (cgr__call){ &cgr__kernel_stamp, NULL, &c->between, sizeof c->between };
  if (c->calls_backend)
    call[count++] = (cgr__call){ NULL, call_backend, &c->backend, sizeof c->backend };
  if (c->calls_backend && timed)
    call[count++] = (cgr__call){ &cgr__kernel_stamp, NULL, &c->after, sizeof c->after };
  return cgr__recorder_break(&rec->base, call, count, "cgr_record_attention");
}

static cgr_status enqueue_stamp(const cgr__step_recorder *rec, const cgr__stamp_args *args, bool timed) {
  int error = timed ? cgr__timing_enqueue(rec->runtime, rec->base.stream, args) : 0;
  return error ? cgr__runtime_device_error(rec->runtime, error, CGR__STAMPING) : CGR_OK;
}

static cgr_status enqueue(cgr__step_recorder *rec, int32_t layer, const calls *c) {
  bool timed = cgr__times_layers(rec->runtime);
  if (rec->base.pieces)
    return enqueue_break(rec, c, timed);
  CGR__TRY(enqueue_stamp(rec, &c->before, timed));
  if (c->appends) {
    CGR__TRY(cgr__native_append(rec, &c->append, layer));
    CGR__TRY(enqueue_stamp(rec, &c->between, timed));
  }
  if (!c->calls_backend)
    return CGR_OK;
  CGR__TRY(cgr__recorder_call(&rec->base, call_backend, &c->backend));
  return enqueue_stamp(rec, &c->after, timed);
}

/* Whether the layer's backend writes k and v itself. */
static bool backend_appends(const cgr__step_recorder *rec, const cgr_layer *l) {
  return rec->runtime->setup.backends[l->backend].flags & CGR_BACKEND_APPENDS;
}

static cgr_status check_kv(const cgr__step_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  const cgr__extent k = extent_of(rec, "k", l->dtype, l->num_kv_heads, l->head_dim);
  const cgr__extent v = extent_of(rec, "v", l->dtype, l->num_kv_heads, l->head_dim_v);
  CGR__TRY(check_view(&a->k, &k));
  return check_view(&a->v, &v);
}

static cgr_status check_append(cgr__step_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  CGR__TRY(check_kv(rec, a, l));
  if (is_marked(rec->marks.read, a->layer) && !is_marked(rec->marks.appended, a->layer))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: layer %d is appended after its cache was read in this step, expected before",
                     a->layer);
  return mark(rec->marks.appended, a->layer, "appended");
}

/* One CTA must not write queries that another has yet to read; nor keys, in a layer whose keys are the step's own. An out that is
 * q is read by the CTA that writes it. */
static cgr_status check_overlaps(const cgr__step_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  const cgr__tensor q = { &a->q, extent_of(rec, "q", l->dtype, l->num_q_heads, l->head_dim) };
  const cgr__tensor k = { &a->k, extent_of(rec, "k", l->dtype, l->num_kv_heads, l->head_dim) };
  const cgr__tensor v = { &a->v, extent_of(rec, "v", l->dtype, l->num_kv_heads, l->head_dim_v) };
  const cgr__tensor out = { &a->out, extent_of(rec, "out", l->out_dtype, l->num_q_heads, l->head_dim_v) };
  const cgr__tensor lse = { &a->lse, cgr__extent_of_lse("lse", rec->base.key.num_tokens, l->num_q_heads) };
  const cgr__tensor *const written[] = { &out, &lse }, *const kv[] = { &k, &v };
  CGR__TRY(cgr__tensor_check_apart("cgr_record_attention", &out, &q, true));
  CGR__TRY(cgr__tensor_check_apart("cgr_record_attention", &lse, &q, false));
  for (int i = 0; l->flags & CGR_LAYER_NO_CACHE && i < 4; i++)
    CGR__TRY(cgr__tensor_check_apart("cgr_record_attention", written[i / 2], kv[i % 2], false));
  return cgr__tensor_check_apart("cgr_record_attention", &lse, &out, false);
}

static cgr_status check_attend(cgr__step_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  const cgr__extent q = extent_of(rec, "q", l->dtype, l->num_q_heads, l->head_dim);
  const cgr__extent out = extent_of(rec, "out", l->out_dtype, l->num_q_heads, l->head_dim_v);
  const cgr__extent lse = cgr__extent_of_lse("lse", rec->base.key.num_tokens, l->num_q_heads);
  CGR__TRY(check_view(&a->q, &q));
  if (l->flags & CGR_LAYER_NO_CACHE)
    CGR__TRY(check_kv(rec, a, l));
  CGR__TRY(check_view(&a->out, &out));
  if (a->lse.data)
    CGR__TRY(check_view(&a->lse, &lse));
  CGR__TRY(check_overlaps(rec, a, l));
  CGR__TRY(mark(rec->marks.attended, a->layer, "attended"));
  int32_t source = source_of(rec, a->layer);
  if (!(a->flags & CGR_ATTENTION_NO_APPEND)) /* with the flag the engine answers for what is in the cache */
    rec->marks.read[source / 8] |= (uint8_t)(1u << source % 8);
  return CGR_OK;
}

/* A graph holds what its attention reads and writes. */
static cgr_status hold_views(const cgr__step_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  const void *const addresses[] = { a->q.data, a->k.data, a->v.data, a->out.data, a->lse.data, l->alibi_slopes, l->sinks };
  for (size_t i = 0; rec->base.capture && i < sizeof addresses / sizeof addresses[0]; i++)
    if (addresses[i])
      CGR__TRY(cgr__capture_hold_address(rec->base.capture, addresses[i]));
  return CGR_OK;
}

/* The fetch of the next step runs beside the last two layers that `record` comes to: one alone may be shorter than the bus takes,
 * if nothing comes after it. */
static cgr_status come_to_layer(cgr__step_recorder *rec, int32_t layer, bool *comes) {
  cgr__range_enter_layer(rec, layer);
  *comes = !is_marked(rec->marks.appended, layer) && !is_marked(rec->marks.attended, layer);
  if (!*comes)
    return CGR_OK;
  return rec->layers_left > 0 && --rec->layers_left == 0 ? cgr__fork_fetch(rec) : CGR_OK;
}

/* The timestamps around the calls. The layer begins with the first of its calls (`comes`), which ends the layer before it. A
 * backend that appends by itself does so while it attends, so its append has no time of its own. The library's backend is the
 * exception: it appends first, and takes the time after that (native.c). */
static void set_stamps(cgr__step_recorder *rec, const cgr_attention *a, bool appends, bool comes, calls *c) {
  const cgr_runtime *rt = rec->runtime;
  bool attends = !(a->flags & CGR_ATTENTION_APPEND_ONLY), is_native = rt->setup.layers[a->layer].backend == 0;
  int32_t phase = attends ? CGR_PHASE_ATTENTION : CGR_PHASE_APPEND; /* of the backend's call */
  int32_t first = c->appends || (appends && is_native) ? CGR_PHASE_APPEND : phase;
  cgr__stamp_words before = { { 0, 0, cgr__stamp_layer_word(first, a->layer, 0) } };
  if (comes && rec->timed_layer > 0)
    before.word[0] = cgr__stamp_layer_word(CGR_PHASE_LAYER, rec->timed_layer - 1, 1);
  if (comes) {
    before.word[1] = cgr__stamp_layer_word(CGR_PHASE_LAYER, a->layer, 0);
    rec->timed_layer = a->layer + 1;
  }
  cgr__stamp_words between = { { cgr__stamp_layer_word(CGR_PHASE_APPEND, a->layer, 1) } };
  if (c->calls_backend)
    between.word[1] = cgr__stamp_layer_word(phase, a->layer, 0);
  c->before = cgr__timing_args(rt, before, false);
  c->between = cgr__timing_args(rt, between, false);
  c->after = cgr__timing_args(rt, (cgr__stamp_words){ { cgr__stamp_layer_word(phase, a->layer, 1) } }, false);
}

/* `comes`: this is the layer's first call. */
static void set_calls(cgr__step_recorder *rec, const cgr_attention *a, bool appends, bool comes, calls *c) {
  const cgr_layer *l = &rec->runtime->setup.layers[a->layer];
  c->appends = appends && !backend_appends(rec, l);
  c->calls_backend = !c->appends || !(a->flags & CGR_ATTENTION_APPEND_ONLY);
  if (c->appends)
    c->append = cgr__native_append_args(rec, a);
  if (c->calls_backend)
    c->backend = (struct backend_call){ &rec->runtime->setup.backends[l->backend], *a };
  if (cgr__times_layers(rec->runtime))
    set_stamps(rec, a, appends, comes, c);
}

static cgr_status record_attention(cgr__step_recorder *rec, const cgr_attention *attention) {
  cgr_attention a;
  calls list;
  CGR__TRY(cgr__sized_read("cgr_record_attention: attention", attention, &a, sizeof a));
  CGR__TRY(check_call(rec, &a));
  const cgr_layer *layer = &rec->runtime->setup.layers[a.layer];
  if (cgr__layer_need_of(rec->runtime, a.layer, rec->set) == CGR__LAYER_READS)
    a.flags |= CGR_ATTENTION_NO_APPEND; /* the step's tokens do not belong to its cache */
  bool appends = cgr__owns_cache(layer) && !(a.flags & CGR_ATTENTION_NO_APPEND);
  bool attends = !(a.flags & CGR_ATTENTION_APPEND_ONLY), comes;
  CGR__TRY(hold_views(rec, &a, layer));
  CGR__TRY(cgr__join_branch(rec)); /* before the append, so that append and attention have one edge between them */
  CGR__TRY(come_to_layer(rec, a.layer, &comes));
  if (appends)
    CGR__TRY(check_append(rec, &a, layer));
  if (attends)
    CGR__TRY(check_attend(rec, &a, layer));
  set_calls(rec, &a, appends, comes, &list);
  return enqueue(rec, a.layer, &list);
}

cgr_status cgr_record_attention(cgr_recorder *recorder, const cgr_attention *attention) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_attention"));
  cgr__step_recorder *rec = (cgr__step_recorder *)(void *)recorder;
  return cgr__recorder_latch(recorder, record_attention(rec, attention));
}

/* Buffers on demand are ready for what is enqueued from here on. */
static cgr_status join_derived(cgr__step_recorder *rec, cgr_buffer buffer) {
  if (rec->plans_first)
    return cgr__fail(CGR_ERROR_STATE,
                     "cgr_record_buffer: buffer is %s inside the plan of a backend with PLANS_FIRST, expected one that is not on "
                     "demand",
                     cgr_buffer_name(buffer));
  return rec->base.in_plan ? CGR_OK : cgr__join_branch(rec); /* a plan is on the branch itself */
}

cgr_status cgr_record_buffer(cgr_recorder *recorder, cgr_buffer buffer, int32_t index, cgr_buffer_view *view) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_buffer"));
  cgr__step_recorder *rec = (cgr__step_recorder *)(void *)recorder;
  const cgr_where where = { recorder->key.lane, recorder->key.program };
  cgr_status status = buffer >= CGR_BUFFER_KV_INDICES && buffer != CGR_BUFFER_DECLARED ? join_derived(rec, buffer) : CGR_OK;
  if (status == CGR_OK)
    status = cgr__buffer_get(rec->runtime, "cgr_record_buffer", &where, buffer, index, view);
  return cgr__recorder_latch(recorder, status);
}
