/* The library's own kernels as a backend: the one that layers with backend 0 name. It is asked, planned and recorded as those of
 * engines are, through the same struct. */
#include "runtime/ranges.h"

/* ------------------------------------------------------------------------------------------------------------ at creation */

/* `context`: the setup. */
static int32_t check(void *context, const cgr_device_info *device, const cgr_group *group, const cgr_layer *layer,
                     cgr_finding *out, int32_t capacity) {
  const cgr__setup *setup = context;
  cgr__findings reasons;
  (void)group;
  cgr__findings_init(&reasons, out, capacity);
  cgr__variant_choose(device, layer, setup->config.max_tokens, &reasons);
  return reasons.count;
}

static cgr_graph_support support(void *context, const cgr_device_info *device, const cgr_group *group) {
  (void)context;
  (void)device;
  (void)group;
  return CGR_SUPPORT_ALWAYS;
}

/* Its plans are in CGR_BUFFER_PLAN, and made anew from the step's own buffers alone; a layer's kind is a class of its own. */
void cgr__setup_native(cgr__setup *setup, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  const cgr__plan_options options = { c->num_parts, c->max_requests, c->max_tokens, c->batch_invariant != 0 };
  for (int32_t i = 0; i < c->num_layers; i++) {
    const cgr_layer *l = &setup->layers[i];
    cgr__findings reasons; /* which check has told */
    cgr__findings_init(&reasons, NULL, 0);
    bool known = l->size != 0 && l->num_q_heads != 0 && l->num_kv_heads != 0 && l->head_dim != 0;
    if (known && l->backend == 0 && setup->device.kind != 0)
      setup->variants[i] = cgr__variant_choose(&setup->device, l, c->max_tokens, &reasons);
  }
  cgr__plans_make(&setup->device, setup->layers, setup->variants, c->num_layers, &options, &setup->plans, f);
}

/* -------------------------------------------------------------------------------------------------------------- in a step */

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
  return args;
}

static cgr__attention_args attention_args(const cgr__step_recorder *rec, const cgr_attention *a) {
  const cgr__setup *setup = &rec->runtime->setup;
  const cgr__step_args *step = &rec->runtime->lane.args;
  const cgr__buffers *b = &step->buffers;
  const cgr__plans *plans = &setup->plans;
  const cgr_layer *l = &setup->layers[a->layer];
  int32_t class = plans->class_of[a->layer];
  cgr__attention_args args = { .q = a->q, .out = a->out, .lse = a->lse, .k_cache = l->k, .v_cache = l->v };
  args.group = step->group[l->group];
  args.page_table = b->group[l->group].page_table;
  args.query_start_loc = b->query_start_loc;
  args.seq_lens = b->seq_lens[l->length_set];
  args.request_rows = b->request_rows;
  args.counts = b->counts;
  args.plan = b->plan + plans->offset[class];
  args.plan_counters = b->plan_counters;
  args.queue = b->plan_counters + plans->num_slots + a->layer;
  args.plan_class = plans->classes[class];
  cgr__attention_set_heads(&args, l->num_q_heads, l->num_kv_heads, cgr__variant_block_heads(setup->variants[a->layer], l));
  args.line_lines = plans->line_lines[class];
  args.queue_lines = plans->queue_lines[class];
  args.partial_out = b->partial_out;
  args.partial_state = b->partial_state;
  args.error = &step->state->error;
  args.num_tokens = rec->base.key.num_tokens;
  args.head_dim = l->head_dim;
  args.scale = l->scale;
  return args;
}

static cgr_status enqueue_append(const cgr__step_recorder *rec, const cgr_attention *a) {
  cgr_runtime *rt = rec->runtime;
  if ((a->flags & CGR_ATTENTION_NO_APPEND) || rt->setup.layers[a->layer].kv_source != 0)
    return CGR_OK;
  const cgr__append_args args = cgr__native_append_args(rec, a);
  cgr__range_begin_layer(rt, CGR__RANGE_APPEND, a->layer);
  int error = rt->dev->ops->launch(rt->dev, &cgr__kernel_append, &args, rec->base.stream);
  cgr__range_end(rt);
  return cgr__runtime_device_error(rt, error, "cgr_record_attention: enqueuing the append");
}

static cgr_status enqueue_attention(const cgr__step_recorder *rec, const cgr_attention *a) {
  cgr_runtime *rt = rec->runtime;
  if (a->flags & CGR_ATTENTION_APPEND_ONLY)
    return CGR_OK;
  const cgr__attention_args args = attention_args(rec, a);
  int error = rt->dev->ops->launch(rt->dev, &cgr__kernel_attention, &args, rec->base.stream);
  return cgr__runtime_device_error(rt, error, "cgr_record_attention: enqueuing the attention");
}

static cgr_status record(void *context, cgr_recorder *recorder, const cgr_attention *attention) {
  const cgr__step_recorder *rec = (const cgr__step_recorder *)(const void *)recorder;
  (void)context;
  CGR__TRY(enqueue_append(rec, attention));
  return enqueue_attention(rec, attention);
}

cgr_backend cgr__native_backend(cgr__setup *setup) {
  cgr_backend b = CGR_BACKEND_INIT;
  b.name = "cgr";
  b.context = setup;
  b.check = check;
  b.support = support;
  b.record = record;
  b.flags = CGR_BACKEND_APPENDS | CGR_BACKEND_PLANS_FIRST;
  b.plan = plan;
  return b;
}
