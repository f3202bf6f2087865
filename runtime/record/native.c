/* What the library's own backend does in a step; what it is asked at creation is in config/native.c. It is called through the
 * same struct as the backends of engines. */
#include "runtime/record/record.h"
#include "runtime/report/ranges.h"
#include "runtime/report/timing.h"

static cgr_status plan(void *context, void *state, cgr_recorder *recorder, uint32_t flags, int32_t draft) {
  cgr_runtime *rt = ((cgr__step_recorder *)(void *)recorder)->runtime;
  cgr__planner_args args = rt->lane.planner_args;
  (void)context;
  (void)state;
  (void)flags;
  (void)draft;
  args.padded_requests = recorder->key.num_requests;
  int error = rt->dev->ops->launch(rt->dev, &cgr__kernel_planner, &args, recorder->stream);
  return cgr__runtime_device_error(rt, error, "step: enqueuing the planner");
}

cgr__append_args cgr__native_append_args(const cgr__step_recorder *rec, const cgr_attention *a) {
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

static cgr__attention_args attention_args(const cgr__step_recorder *rec, const cgr_attention *a) {
  const cgr__setup *setup = &rec->runtime->setup;
  const cgr__step_args *step = &rec->runtime->lane.args;
  const cgr__buffers *b = &step->buffers;
  const cgr__plans *plans = &setup->plans;
  const cgr_layer *l = &setup->layers[a->layer];
  int32_t class = plans->class_of[a->layer];
  cgr__attention_args args = { .q = a->q, .k = a->k, .v = a->v, .out = a->out, .lse = a->lse, .k_cache = l->k, .v_cache = l->v };
  if (l->flags & CGR_LAYER_NO_CACHE) {
    args.group.page_size = CGR__PAGE_SIZE_UNIT; /* there may be no group: nothing divides by 0 */
  } else {
    args.group = step->group[l->group];
    args.page_table = b->group[l->group].page_table;
  }
  args.query_start_loc = b->query_start_loc;
  args.seq_lens = b->seq_lens[l->length_set];
  args.request_rows = b->request_rows;
  args.counts = b->counts;
  args.plan = b->plan + plans->offset[class];
  args.plan_counters = b->plan_counters;
  args.prefill_queue = b->plan_counters + plans->num_partials + a->layer;
  args.plan_class = plans->classes[class];
  cgr__attention_set_heads(&args, l->num_q_heads, l->num_kv_heads, cgr__plan_block_heads(&setup->kinds[a->layer]->plan, l));
  args.decode_lines = plans->decode_lines[class];
  args.prefill_lines = plans->prefill_lines[class];
  args.partial_out = b->partial_out;
  args.partial_state = b->partial_state;
  args.error = &step->state->error;
  args.num_tokens = rec->base.key.num_tokens;
  args.max_query_len = rec->base.max_query_len;
  args.shared_bytes = plans->shared_bytes[class];
  args.head_dim = l->head_dim;
  args.head_dim_v = l->head_dim_v;
  args.scale = l->scale;
  args.softcap = l->softcap;
  args.alibi_slopes = l->alibi_slopes;
  args.alibi_sqrt = (l->flags & CGR_LAYER_ALIBI_SQRT) != 0;
  args.sinks = l->sinks;
  return args;
}

cgr_status cgr__native_append(const cgr__step_recorder *rec, const cgr__append_args *args, int32_t layer) {
  cgr_runtime *rt = rec->runtime;
  cgr__range_begin_layer(rt, CGR__RANGE_APPEND, layer);
  int error = rt->dev->ops->launch(rt->dev, &cgr__kernel_append, args, rec->base.stream);
  cgr__range_end(rt);
  return cgr__runtime_device_error(rt, error, "cgr_record_attention: enqueuing the append");
}

/* Whether an append comes first. */
static bool appends(const cgr__step_recorder *rec, const cgr_attention *a) {
  return !(a->flags & CGR_ATTENTION_NO_APPEND) && cgr__owns_cache(&rec->runtime->setup.layers[a->layer]);
}

/* Whether attention may begin before its append ends: no timestamp comes between them. */
static bool overlaps(const cgr__step_recorder *rec, const cgr_attention *a) {
  return appends(rec, a) && !(a->flags & CGR_ATTENTION_APPEND_ONLY) && !cgr__times_layers(rec->runtime);
}

static cgr_status enqueue_append(const cgr__step_recorder *rec, const cgr_attention *a) {
  if (!appends(rec, a))
    return CGR_OK;
  cgr__append_args args = cgr__native_append_args(rec, a);
  args.attention_follows = overlaps(rec, a);
  CGR__TRY(cgr__native_append(rec, &args, a->layer));
  if (!cgr__times_layers(rec->runtime) || (a->flags & CGR_ATTENTION_APPEND_ONLY))
    return CGR_OK;
  const cgr__stamp_words words = { { cgr__stamp_layer_word(CGR_PHASE_APPEND, a->layer, 1),
                                     cgr__stamp_layer_word(CGR_PHASE_ATTENTION, a->layer, 0) } };
  return cgr__timing_try(rec->runtime, rec->base.stream, words);
}

static cgr_status enqueue_attention(const cgr__step_recorder *rec, const cgr_attention *a) {
  cgr_runtime *rt = rec->runtime;
  if (a->flags & CGR_ATTENTION_APPEND_ONLY)
    return CGR_OK;
  cgr__attention_args args = attention_args(rec, a);
  args.after_append = overlaps(rec, a);
  const cgr__kernel *kernel = rt->setup.kinds[a->layer]->attention;
  int error = rt->dev->ops->launch(rt->dev, kernel, &args, rec->base.stream);
  return cgr__runtime_device_error(rt, error, "cgr_record_attention: enqueuing the attention");
}

static cgr_status record(void *context, cgr_recorder *recorder, const cgr_attention *attention) {
  const cgr__step_recorder *rec = (const cgr__step_recorder *)(const void *)recorder;
  (void)context;
  CGR__TRY(enqueue_append(rec, attention));
  return enqueue_attention(rec, attention);
}

void cgr__native_complete(cgr_backend *backend) {
  backend->plan = plan;
  backend->record = record;
}
