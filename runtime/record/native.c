/* What the library's own backend does in a step; what it is asked at creation is in config/native.c. It is called through the
 * same struct as the backends of engines and, like most of them, does not append. */
#include "runtime/record/record.h"

/* A step plans for the layers of its program alone. */
static void keep_own_classes(const cgr__setup *setup, int32_t program, cgr__planner_args *args) {
  bool own[CGR__MAX_CLASSES] = { false };
  const int32_t count = args->num_classes;
  if (setup->config.num_programs == 1)
    return;
  for (int32_t l = 0; l < setup->config.num_layers; l++)
    if (setup->kinds[l] && setup->layers[l].program == program)
      own[setup->plans.class_of[l]] = true;
  args->num_classes = 0;
  for (int32_t c = 0; c < count; c++) {
    if (!own[c])
      continue;
    args->offset[args->num_classes] = args->offset[c];
    args->classes[args->num_classes++] = args->classes[c];
  }
}

static cgr_status enqueue_planner(void *context, void *state, cgr_recorder *recorder, uint32_t flags, int32_t draft) {
  cgr__planner_args args = recorder->owner->runtime->lane.planner_args;
  (void)context;
  (void)state;
  (void)flags;
  (void)draft;
  args.padded_requests = recorder->key.num_requests;
  keep_own_classes(&recorder->owner->runtime->setup, recorder->key.program, &args);
  return cgr__record_kernel(recorder->owner, &cgr__kernel_planner, &args, "step: enqueuing the planner");
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
  args.out_scale = a->out_scale;
  return args;
}

static cgr_status enqueue_attention(void *context, cgr_recorder *recorder, const cgr_attention *attention) {
  cgr__step_recorder *rec = recorder->owner;
  cgr__attention_args args = attention_args(rec, attention);
  (void)context;
  args.after_append = rec->after_append;
  return cgr__record_kernel(rec, rec->runtime->setup.kinds[attention->layer]->attention, &args,
                            "cgr_record_attention: enqueuing the attention");
}

void cgr__native_complete(cgr_backend *backend) {
  backend->plan = enqueue_planner;
  backend->record = enqueue_attention;
}
