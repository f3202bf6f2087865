/* cgr_record_attention: checks the engine's struct, then enqueues the library's append or transform, unless the layer's backend
 * does both by itself, and the backend's call. */
#include <string.h>

#include "cgr/names.h"
#include "runtime/record/record.h"
#include "runtime/record/scales.h"
#include "runtime/record/view_check.h"
#include "runtime/report/ranges.h"
#include "runtime/report/timing.h"

/* ---------------------------------------------------------------------------------------------------------------- checks */

/* What a view of the layer must hold: tokens of the step x heads x dim elements. */
static cgr__view_shape view_shape_of(const cgr__step_recorder *rec, const char *name, int32_t dtype, int32_t heads, int32_t dim) {
  cgr__view_shape shape = cgr__view_shape_of(name, dtype, rec->base.key.num_tokens, heads, dim);
  shape.whose = ", the layer's";
  return shape;
}

static cgr_status check_view(const cgr__step_recorder *rec, const cgr_view *view, const cgr__view_shape *shape) {
  return cgr__view_check(rec, "cgr_record_attention", view, shape);
}

static cgr_status refuse_flags(const cgr_attention *a, const char *which, const char *expected) {
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_record_attention: flags has %s for layer %d, %s, expected %s",
                   a->flags & CGR_ATTENTION_APPEND_ONLY ? "APPEND_ONLY" : "NO_APPEND", a->layer, which, expected);
}

/* Each leaves out a half of the call: the append or the attention. */
enum { LEFT_OUT_FLAGS = CGR_ATTENTION_NO_APPEND | CGR_ATTENTION_APPEND_ONLY };

/* A step decides whether it is causal only for kernels that can be told. */
static cgr_status check_causality(const cgr_attention *a, const cgr_layer *l) {
  if (!(a->flags & CGR_ATTENTION_NON_CAUSAL))
    return CGR_OK;
  if (a->flags & CGR_ATTENTION_APPEND_ONLY)
    return cgr__fail(
        CGR_ERROR_INVALID_ARGUMENT,
        "cgr_record_attention: flags has NON_CAUSAL and APPEND_ONLY for layer %d, expected NON_CAUSAL only in a call "
        "that attends",
        a->layer);
  if (l->backend != 0 || l->flags & CGR_LAYER_BIDIRECTIONAL)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_UNSUPPORTED,
                   "cgr_record_attention: flags has NON_CAUSAL for layer %d, which the library's own kernels attend causally, "
                   "expected a layer with a backend, or with CGR_LAYER_BIDIRECTIONAL",
                   a->layer);
}

static cgr__layer_need need_of(const cgr__step_recorder *rec, int32_t layer) {
  return cgr__layer_need_of(rec->runtime, layer, rec->base.key.program, rec->set);
}

/* Whether the layer may be called in such a step, and with such flags. */
static cgr_status check_layer_call(const cgr__step_recorder *rec, const cgr_attention *a) {
  const cgr_layer *l = &rec->runtime->setup.layers[a->layer];
  const uint32_t only = a->flags & CGR_ATTENTION_APPEND_ONLY;
  if (l->program != rec->base.key.program)
    return cgr__fail(
        CGR_ERROR_INVALID_ARGUMENT,
        "cgr_record_attention: layer %d of program %d is called in a step of program %d, expected a layer of that one", a->layer,
        l->program, rec->base.key.program);
  if (need_of(rec, a->layer) == CGR__LAYER_STAYS_OUT)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: layer %d of length set %d is called in a step of set %d (variant %u), expected it in "
                     "those of %s",
                     a->layer, l->length_set, rec->set, rec->base.key.variant,
                     l->flags & CGR_LAYER_NO_CACHE || l->length_set == 0 ? "its own set" : "its own set or of set 0");
  if (l->flags & CGR_LAYER_NO_CACHE && a->flags & LEFT_OUT_FLAGS)
    return refuse_flags(a, "which has CGR_LAYER_NO_CACHE", "none");
  if (only && l->kv_source != 0)
    return cgr__fail(
        CGR_ERROR_INVALID_ARGUMENT,
        "cgr_record_attention: flags has APPEND_ONLY for layer %d, which reads layer %d's cache, expected a layer with a "
        "cache of its own",
        a->layer, l->kv_source - 1);
  if (only && l->length_set != rec->set)
    return refuse_flags(a, "whose cache the steps of another length set fill", "none");
  return check_causality(a, l);
}

/* The library's append takes k from one view. */
static cgr_status check_k2(const cgr__step_recorder *rec, const cgr_attention *a) {
  const cgr__setup *setup = &rec->runtime->setup;
  const cgr_layer *l = &setup->layers[a->layer];
  if (!a->k2.data)
    return CGR_OK;
  if (l->backend == 0)
    return cgr__fail(CGR_ERROR_UNSUPPORTED,
                     "cgr_record_attention: k2 is given for layer %d, which the library's own kernels attend, expected NULL in "
                     "this version",
                     a->layer);
  if (!cgr__layer_appends_itself(setup, l))
    return cgr__fail(
        CGR_ERROR_UNSUPPORTED,
        "cgr_record_attention: k2 is given for layer %d, for whose backend %s the library appends, expected NULL, or "
        "a backend with CGR_BACKEND_APPENDS",
        a->layer, setup->backend_names[l->backend]);
  if (l->head_dim > l->head_dim_v)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                   "cgr_record_attention: k2 is given for layer %d, whose head_dim is %d and head_dim_v %d, expected a larger "
                   "head_dim: k has head_dim_v elements of each head, and k2 the rest",
                   a->layer, l->head_dim, l->head_dim_v);
}

static cgr_status check_call(const cgr__step_recorder *rec, const cgr_attention *a) {
  if (rec->base.in_call)
    return cgr__fail(CGR_ERROR_STATE, "cgr_record_attention: called inside a function of cgr_record_call or of a backend, "
                                      "expected a call outside of it");
  if (a->layer < 0 || a->layer >= rec->runtime->setup.config.num_layers)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: layer is %d, expected one of the %d configured (cgr_config.num_layers)", a->layer,
                     rec->runtime->setup.config.num_layers);
  CGR__TRY(cgr__check_choice("cgr_record_attention", "flags", &cgr__attention_flags, a->flags));
  if ((a->flags & LEFT_OUT_FLAGS) == LEFT_OUT_FLAGS)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: flags has NO_APPEND and APPEND_ONLY, expected one of them at most");
  CGR__TRY(check_layer_call(rec, a));
  CGR__TRY(cgr__check_unused("cgr_record_attention: reserved", a->reserved));
  CGR__TRY(check_k2(rec, a));
  return cgr__scales_check(rec, a);
}

/* The layer whose cache this one reads: its own, or an earlier one's. */
static int32_t source_of(const cgr__step_recorder *rec, int32_t layer) {
  int32_t source = rec->runtime->setup.layers[layer].kv_source;
  return source == 0 ? layer : source_of(rec, source - 1);
}

/* Marks the layer; CGR_ERROR_INVALID_ARGUMENT when it is marked already. */
static cgr_status mark_layer(uint8_t *layers, int32_t layer, const char *what) {
  if (cgr__layer_is_marked(layers, layer))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_record_attention: layer %d was %s already in this step, expected once",
                     layer, what);
  cgr__layer_mark(layers, layer);
  return CGR_OK;
}

/* --------------------------------------------------------------------------------------------------------------- enqueue */

/* What a call of the engine's takes. */
typedef struct work {
  bool fills;   /* k and v go to the cache */
  bool appends; /* and the library's append kernel writes them; otherwise the layer's backend does */
  bool attends;
  bool transforms;    /* the library's transform changes q, k or v; it appends, too, in place of the append */
  bool calls_kernel;  /* the append or the transform is enqueued */
  bool calls_backend; /* to attend, or to append by itself */
  bool concurrent;    /* the attention may begin while the append runs: one directly follows the other */
} work;

/* Decides whether k and v are appended, and by whom. A layer that only reads its cache in this step appends nothing, and its
 * backend learns that from the flags. */
static work decide_work(const cgr__step_recorder *rec, cgr_attention *a) {
  const cgr_layer *l = &rec->runtime->setup.layers[a->layer];
  const uint32_t flags = rec->runtime->setup.backends[l->backend].flags;
  work w;
  if (need_of(rec, a->layer) == CGR__LAYER_READS)
    a->flags |= CGR_ATTENTION_NO_APPEND; /* the step's tokens do not belong to its cache */
  w.fills = cgr__owns_cache(l) && !(a->flags & CGR_ATTENTION_NO_APPEND);
  w.appends = w.fills && !(flags & CGR_BACKEND_APPENDS);
  w.attends = !(a->flags & CGR_ATTENTION_APPEND_ONLY);
  w.calls_backend = w.attends || !w.appends;
  w.transforms = false;
  w.calls_kernel = w.appends;
  w.concurrent = w.appends && w.attends && (flags & CGR__BACKEND_KNOWS_APPEND) != 0 && !cgr__times_layers(rec->runtime);
  return w;
}

/* Reads the engine's transform, if there is one. Attention that finds q written by the kernel before it does not begin early. */
static cgr_status read_transform(const cgr__step_recorder *rec, const cgr_attention *a, work *w, cgr__transform_call *call) {
  const int32_t backend = rec->runtime->setup.layers[a->layer].backend;
  const bool appends_itself = rec->runtime->setup.backends[backend].flags & CGR_BACKEND_APPENDS;
  const cgr__transform_scope scope = { w->attends, w->appends, appends_itself };
  memset(call, 0, sizeof *call);
  if (!a->transform)
    return CGR_OK;
  CGR__TRY(cgr__transform_read(rec, a, &scope, call));
  CGR__TRY(cgr__transform_hold(rec, &rec->runtime->setup.layers[a->layer], &call->given));
  w->transforms = cgr__transform_is_needed(call);
  w->calls_kernel = w->appends || w->transforms;
  w->concurrent = w->concurrent && !w->transforms;
  return CGR_OK;
}

/* Kept by value, and compared by the audit: without holes. */
typedef struct append_call {
  cgr__append_args args;
  int32_t layer, reserved;
} append_call;

typedef struct transform_call {
  cgr__transform_args args;
  int32_t layer, reserved;
} transform_call;

typedef struct backend_call {
  const cgr_backend *backend;
  cgr_attention attention; /* whose transform is NULL here */
  cgr_qkv_transform transform;
  int32_t has_transform; /* 1: it is the backend's to do */
  int32_t after_append;  /* 1: the call before it is the append, and it may begin concurrently */
} backend_call;

enum { MAX_CALLS = 5, MAX_STAMPS = 3 }; /* the append or transform, the backend's call, and the timestamps around them */

/* The calls that a step enqueues for one call by the engine, in order. In a PIECEWISE capture all of them are between two
 * pieces. */
typedef struct call_list {
  cgr__call call[MAX_CALLS];
  int32_t count, num_stamps;
  append_call append;
  transform_call transform;
  backend_call backend;
  cgr__stamp_args stamp[MAX_STAMPS];
} call_list;

static cgr__append_args append_args(const cgr__step_recorder *rec, const cgr_attention *a) {
  const cgr_runtime *rt = rec->runtime;
  const cgr_layer *l = &rt->setup.layers[a->layer];
  cgr__append_args args = { .k_cache = l->k, .v_cache = l->v, .k = a->k, .v = a->v };
  args.slot_mapping = rt->lane.args.buffers.group[l->group].slot_mapping;
  args.num_pages = rt->lane.args.group[l->group].num_pages;
  args.page_size = rt->lane.args.group[l->group].page_size;
  args.num_tokens = rec->base.key.num_tokens;
  args.num_kv_heads = l->num_kv_heads;
  args.head_dim = l->head_dim;
  args.head_dim_v = l->head_dim_v;
  return args;
}

/* A kernel in the layer's range of appends. */
static cgr_status call_kernel(cgr_recorder *recorder, int32_t layer, const cgr__kernel *kernel, const void *args,
                              const char *what) {
  const cgr_runtime *rt = recorder->owner->runtime;
  cgr__range_begin_layer(rt, CGR__RANGE_APPEND, layer);
  cgr_status status = cgr__record_kernel(recorder->owner, kernel, args, what);
  cgr__range_end(rt);
  return status;
}

static cgr_status call_append(cgr_recorder *recorder, const void *args) {
  const append_call *call = args;
  return call_kernel(recorder, call->layer, &cgr__kernel_append, &call->args, "cgr_record_attention: enqueuing the append");
}

static cgr_status call_transform(cgr_recorder *recorder, const void *args) {
  const transform_call *call = args;
  return call_kernel(recorder, call->layer, &cgr__kernel_transform, &call->args, "cgr_record_attention: enqueuing the transform");
}

static cgr_status call_backend(cgr_recorder *recorder, const void *args) {
  const backend_call *call = args;
  cgr__step_recorder *rec = recorder->owner;
  uint64_t before = cgr__failures();
  cgr_attention attention = call->attention;
  attention.transform = call->has_transform ? &call->transform : NULL;
  const cgr__running running = { call->backend->name, "record", call->attention.layer };
  rec->backend = (int32_t)(call->backend - rec->runtime->setup.backends) + 1;
  rec->after_append = call->after_append;
  rec->refused = CGR_OK;
  recorder->running = running;
  cgr__range_begin_layer(rec->runtime, CGR__RANGE_ATTENTION, call->attention.layer);
  cgr_status status = call->backend->record(call->backend->context, recorder, &attention);
  cgr__range_end(rec->runtime);
  recorder->running.backend = NULL;
  rec->backend = 0;
  if (status == CGR_OK || status == rec->refused)
    return status;
  return cgr__recorder_latch_named(recorder, cgr__fail_returned(status, cgr__title_of(&running).text, status, before));
}

static void add_stamp(const cgr__step_recorder *rec, call_list *list, cgr__stamp_words words) {
  cgr__stamp_args *args = &list->stamp[list->num_stamps++];
  *args = cgr__timing_args(rec->runtime, words, false);
  list->call[list->count++] = (cgr__call){ &cgr__kernel_stamp, NULL, args, sizeof *args };
}

/* What ends and begins before a call of the layer. The layer's first call (`is_first`) also ends the layer before it. */
static cgr__stamp_words words_before(cgr__step_recorder *rec, int32_t layer, int32_t phase, bool is_first) {
  cgr__stamp_words before = { { 0, 0, cgr__stamp_layer_word(phase, layer, 0) } };
  if (!is_first)
    return before;
  if (rec->timed_layer > 0)
    before.word[0] = cgr__stamp_layer_word(CGR_PHASE_LAYER, rec->timed_layer - 1, 1);
  before.word[1] = cgr__stamp_layer_word(CGR_PHASE_LAYER, layer, 0);
  rec->timed_layer = layer + 1;
  return before;
}

/* The append, or the kernel that transforms and appends. */
static void add_append(const cgr__step_recorder *rec, const cgr_attention *a, const work *w, const cgr__transform_call *transform,
                       call_list *list) {
  cgr__call *call = &list->call[list->count++];
  if (w->transforms) {
    list->transform = (transform_call){ cgr__transform_args_of(rec, a, transform), a->layer, 0 };
    *call = (cgr__call){ &cgr__kernel_transform, call_transform, &list->transform, sizeof list->transform };
    return;
  }
  list->append = (append_call){ append_args(rec, a), a->layer, 0 };
  list->append.args.attention_follows = w->concurrent;
  *call = (cgr__call){ &cgr__kernel_append, call_append, &list->append, sizeof list->append };
}

static void add_backend(const cgr__step_recorder *rec, const cgr_attention *a, const work *w,
                        const cgr__transform_call *transform, call_list *list) {
  const cgr__setup *setup = &rec->runtime->setup;
  list->backend = (backend_call){ .backend = &setup->backends[setup->layers[a->layer].backend], .attention = *a };
  list->backend.attention.transform = NULL;
  list->backend.has_transform = transform->by_backend;
  if (transform->by_backend)
    list->backend.transform = transform->given;
  list->backend.after_append = w->concurrent;
  list->call[list->count++] = (cgr__call){ NULL, call_backend, &list->backend, sizeof list->backend };
}

/* The append or transform and the backend's call, with timestamps around them if layers are timed. A backend that appends by
 * itself does so while it attends, so its append has no time of its own. */
static void make_list(cgr__step_recorder *rec, const cgr_attention *a, const work *w, const cgr__transform_call *transform,
                      bool is_first, call_list *list) {
  const bool timed = cgr__times_layers(rec->runtime);
  const int32_t phase = w->attends ? CGR_PHASE_ATTENTION : CGR_PHASE_APPEND; /* of the backend's call */
  list->count = list->num_stamps = 0;
  if (timed)
    add_stamp(rec, list, words_before(rec, a->layer, w->calls_kernel ? CGR_PHASE_APPEND : phase, is_first));
  if (w->calls_kernel) {
    cgr__stamp_words between = { { cgr__stamp_layer_word(CGR_PHASE_APPEND, a->layer, 1),
                                   w->calls_backend ? cgr__stamp_layer_word(phase, a->layer, 0) : 0 } };
    add_append(rec, a, w, transform, list);
    if (timed)
      add_stamp(rec, list, between);
  }
  if (w->calls_backend) {
    add_backend(rec, a, w, transform, list);
    if (timed)
      add_stamp(rec, list, (cgr__stamp_words){ { cgr__stamp_layer_word(phase, a->layer, 1) } });
  }
}

/* Makes the calls, or keeps them for every replay. */
static cgr_status enqueue_attention(cgr__step_recorder *rec, const call_list *list) {
  cgr_status status = CGR_OK;
  if (rec->base.pieces)
    return cgr__recorder_break(&rec->base, list->call, list->count, "cgr_record_attention");
  for (int32_t i = 0; i < list->count && status == CGR_OK; i++) {
    const cgr__call *call = &list->call[i];
    status = call->function ? cgr__recorder_call(&rec->base, call->function, call->args)
                            : cgr__record_kernel(rec, call->kernel, call->args, CGR__STAMPING);
  }
  return status;
}

/* ---------------------------------------------------------------------------------------------------------- the engine's */

/* What the engine gives of K and V, k2 last. */
typedef struct given_kv {
  cgr__tensor part[3];
  int count;
} given_kv;

static given_kv kv_of(const cgr__step_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  const int32_t heads = l->num_kv_heads, dim = a->k2.data ? l->head_dim_v : l->head_dim;
  given_kv kv = { .count = a->k2.data ? 3 : 2 };
  kv.part[0] = (cgr__tensor){ &a->k, view_shape_of(rec, "k", l->dtype, heads, dim) };
  kv.part[1] = (cgr__tensor){ &a->v, view_shape_of(rec, "v", l->dtype, heads, l->head_dim_v) };
  kv.part[2] = (cgr__tensor){ &a->k2, view_shape_of(rec, "k2", l->dtype, heads, l->head_dim - dim) };
  return kv;
}

static cgr_status check_kv(const cgr__step_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  const given_kv kv = kv_of(rec, a, l);
  for (int i = 0; i < kv.count; i++)
    CGR__TRY(check_view(rec, kv.part[i].view, &kv.part[i].shape));
  return CGR_OK;
}

static cgr_status check_append_views(cgr__step_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  CGR__TRY(check_kv(rec, a, l));
  if (cgr__layer_is_marked(rec->marks.read, a->layer) && !cgr__layer_is_marked(rec->marks.appended, a->layer))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: layer %d is appended after its cache was read in this step, expected before",
                     a->layer);
  return mark_layer(rec->marks.appended, a->layer, "appended");
}

/* One CTA must not write queries that another has yet to read; nor keys, in a layer whose keys are the step's own. An out that is
 * q is read by the CTA that writes it. */
static cgr_status check_attention_overlaps(const cgr__step_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  const cgr__tensor q = { &a->q, view_shape_of(rec, "q", l->q_dtype, l->num_q_heads, l->head_dim) };
  const given_kv kv = kv_of(rec, a, l);
  const cgr__tensor out = { &a->out, view_shape_of(rec, "out", l->out_dtype, l->num_q_heads, l->head_dim_v) };
  const cgr__tensor lse = { &a->lse, cgr__view_shape_of_lse("lse", rec->base.key.num_tokens, l->num_q_heads) };
  const cgr__block_scales blocks = cgr__block_scales_of(rec, a);
  const cgr__tensor scales = { &blocks.view, blocks.shape };
  const cgr__tensor *const written[] = { &out, &lse, &scales };
  for (int w = 0; w < 3; w++) {
    CGR__TRY(cgr__tensor_check_apart("cgr_record_attention", written[w], &q, w == 0));
    for (int i = 0; l->flags & CGR_LAYER_NO_CACHE && i < kv.count; i++)
      CGR__TRY(cgr__tensor_check_apart("cgr_record_attention", written[w], &kv.part[i], false));
    for (int i = 0; i < w; i++)
      CGR__TRY(cgr__tensor_check_apart("cgr_record_attention", written[w], written[i], false));
  }
  return CGR_OK;
}

static cgr_status check_attend(cgr__step_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  const cgr__view_shape q = view_shape_of(rec, "q", l->q_dtype, l->num_q_heads, l->head_dim);
  const cgr__view_shape out = view_shape_of(rec, "out", l->out_dtype, l->num_q_heads, l->head_dim_v);
  const cgr__view_shape lse = cgr__view_shape_of_lse("lse", rec->base.key.num_tokens, l->num_q_heads);
  CGR__TRY(check_view(rec, &a->q, &q));
  if (l->flags & CGR_LAYER_NO_CACHE)
    CGR__TRY(check_kv(rec, a, l));
  CGR__TRY(check_view(rec, &a->out, &out));
  if (a->lse.data)
    CGR__TRY(check_view(rec, &a->lse, &lse));
  CGR__TRY(cgr__block_scales_check(rec, a));
  CGR__TRY(check_attention_overlaps(rec, a, l));
  CGR__TRY(mark_layer(rec->marks.attended, a->layer, "attended"));
  int32_t source = source_of(rec, a->layer);
  if (!(a->flags & CGR_ATTENTION_NO_APPEND)) /* with the flag the engine answers for what is in the cache */
    cgr__layer_mark(rec->marks.read, source);
  return CGR_OK;
}

/* A graph holds what its attention reads and writes. */
static cgr_status hold_attention_views(const cgr__step_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  const void *const addresses[] = { a->q.data,
                                    a->k.data,
                                    a->k2.data,
                                    a->v.data,
                                    a->out.data,
                                    a->lse.data,
                                    l->alibi_slopes,
                                    l->sinks,
                                    a->q_scale,
                                    a->out_scale,
                                    a->out_block_scale.data };
  for (size_t i = 0; rec->base.capture && i < sizeof addresses / sizeof addresses[0]; i++)
    if (addresses[i])
      CGR__TRY(cgr__capture_hold_address(rec->base.capture, addresses[i]));
  return CGR_OK;
}

/* The fetch of the next step runs alongside the last two layers that `record` comes to. A single layer may be shorter than the
 * PCIe read, when nothing follows it. */
static cgr_status come_to_layer(cgr__step_recorder *rec, int32_t layer, bool *is_first) {
  cgr__range_enter_layer(rec, layer);
  *is_first = !cgr__layer_is_marked(rec->marks.appended, layer) && !cgr__layer_is_marked(rec->marks.attended, layer);
  if (!*is_first)
    return CGR_OK;
  return rec->layers_left > 0 && --rec->layers_left == 0 ? cgr__fork_fetch(rec) : CGR_OK;
}

static cgr_status record_attention(cgr__step_recorder *rec, const cgr_attention *attention) {
  cgr_attention a;
  call_list list;
  cgr__transform_call transform;
  bool is_first;
  CGR__TRY(cgr__sized_read("cgr_record_attention: attention", "CGR_ATTENTION_INIT", attention, &a, sizeof a));
  CGR__TRY(check_call(rec, &a));
  const cgr_layer *layer = &rec->runtime->setup.layers[a.layer];
  work w = decide_work(rec, &a);
  CGR__TRY(read_transform(rec, &a, &w, &transform));
  CGR__TRY(hold_attention_views(rec, &a, layer));
  CGR__TRY(cgr__join_branch(rec)); /* before the append, so that append and attention have one edge between them */
  CGR__TRY(come_to_layer(rec, a.layer, &is_first));
  if (w.fills)
    CGR__TRY(check_append_views(rec, &a, layer));
  if (w.attends)
    CGR__TRY(check_attend(rec, &a, layer));
  if (w.transforms)
    CGR__TRY(cgr__transform_check_overlaps(rec, &a, &transform));
  make_list(rec, &a, &w, &transform, is_first, &list);
  return enqueue_attention(rec, &list);
}

cgr_status cgr_record_attention(cgr_recorder *recorder, const cgr_attention *attention) {
  CGR__TRY(cgr__recorder_check(recorder, "cgr_record_attention"));
  cgr__step_recorder *rec = recorder->owner;
  recorder->calls.count[CGR__RECORDED_ATTENTION]++;
  return cgr__recorder_latch(recorder, record_attention(rec, attention));
}
