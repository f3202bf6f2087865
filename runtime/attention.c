/* cgr_record_attention: checks the struct of the engine and enqueues append and attention. */
#include "runtime/runtime.h"

/* Times the largest number of tokens it stays far inside 64 bits. */
#define MAX_STRIDE ((int64_t)1 << 31)

static cgr_status check_view(const cgr_view *view, const char *name, int32_t dtype) {
  if (!view->data)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_record_attention: %s.data is NULL, expected an address", name);
  if (view->dtype != dtype)
    return cgr__fail(cgr_dtype_size((cgr_dtype)view->dtype) ? CGR_ERROR_UNSUPPORTED : CGR_ERROR_INVALID_ENUM,
                     "cgr_record_attention: %s.dtype is %d, expected %d (the cache's)", name, view->dtype, dtype);
  int64_t unit = (int64_t)(16 / cgr_dtype_size((cgr_dtype)dtype));
  if (((uintptr_t)view->data & 15) != 0 || ((view->stride_token | view->stride_head) & (unit - 1)) != 0 ||
      view->stride_token <= 0 || view->stride_head <= 0 || view->stride_token > MAX_STRIDE || view->stride_head > MAX_STRIDE)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: %s has data %p and strides %lld, %lld, expected positive multiples of 16 bytes", name,
                     view->data, (long long)view->stride_token, (long long)view->stride_head);
  return CGR_OK;
}

static cgr_status check_attention(const cgr_runtime *rt, const cgr_attention *a) {
  const uint32_t known = CGR_ATTENTION_NO_APPEND | CGR_ATTENTION_APPEND_ONLY | CGR_ATTENTION_NON_CAUSAL | CGR_ATTENTION_NO_CACHE;
  if (a->size < sizeof *a)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "cgr_record_attention: size is %u, expected %zu: use CGR_ATTENTION_INIT", a->size,
                     sizeof *a);
  if (a->layer < 0 || a->layer >= rt->setup.config.num_layers)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_record_attention: layer is %d, expected 0 .. %d", a->layer,
                     rt->setup.config.num_layers - 1);
  if (a->flags & ~known)
    return cgr__fail(CGR_ERROR_INVALID_ENUM, "cgr_record_attention: flags is %#x, expected CGR_ATTENTION_* bits", a->flags);
  if ((a->flags & CGR_ATTENTION_NO_APPEND) && (a->flags & CGR_ATTENTION_APPEND_ONLY))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: flags has NO_APPEND and APPEND_ONLY, expected one of them");
  if (a->flags & (CGR_ATTENTION_NON_CAUSAL | CGR_ATTENTION_NO_CACHE))
    return cgr__fail(CGR_ERROR_UNSUPPORTED,
                     "cgr_record_attention: flags is %#x, expected neither NON_CAUSAL nor NO_CACHE in this "
                     "version",
                     a->flags);
  if (a->length_set != 0)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "cgr_record_attention: length_set is %d, expected 0 in this version", a->length_set);
  if (a->k_scale || a->v_scale || a->sinks)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "cgr_record_attention: %s is given, expected NULL in this version",
                     a->k_scale   ? "k_scale"
                     : a->v_scale ? "v_scale"
                                  : "sinks");
  return CGR_OK;
}

static cgr_status append(cgr_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  cgr_runtime *rt = rec->runtime;
  const cgr__group_args *group = &rt->args.groups[l->group];
  CGR__TRY(check_view(&a->k, "k", l->k.dtype));
  CGR__TRY(check_view(&a->v, "v", l->k.dtype));
  cgr__append_args args = { .k_cache = l->k, .v_cache = l->v, .k = a->k, .v = a->v };
  args.slot_mapping = group->slot_mapping;
  args.num_pages = group->num_pages;
  args.page_size = group->page_size;
  args.num_tokens = rec->key.num_tokens;
  args.num_kv_heads = l->num_kv_heads;
  args.head_dim = l->head_dim;
  int error = rt->dev->ops->launch(rt->dev, &cgr__kernel_append, &args, rec->stream);
  return error ? cgr__runtime_device_error(rt, error, "cgr_record_attention: enqueuing the append") : CGR_OK;
}

static cgr_status attend(cgr_recorder *rec, const cgr_attention *a, const cgr_layer *l) {
  cgr_runtime *rt = rec->runtime;
  const cgr__group_args *group = &rt->args.groups[l->group];
  CGR__TRY(check_view(&a->q, "q", l->k.dtype));
  CGR__TRY(check_view(&a->out, "out", l->k.dtype));
  if (a->lse && (a->lse_stride < l->num_q_heads || a->lse_stride > MAX_STRIDE || (uintptr_t)a->lse % sizeof(float) != 0))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: lse is %p with lse_stride %lld, expected an aligned address and "
                     "%d .. 2^31",
                     (void *)a->lse, (long long)a->lse_stride, l->num_q_heads);
  cgr__attention_args args = {
    .q = a->q, .out = a->out, .k_cache = l->k, .v_cache = l->v, .lse = a->lse, .lse_stride = a->lse_stride
  };
  args.page_table = group->page_table;
  args.page_table_stride = group->page_table_stride;
  args.num_pages = group->num_pages;
  args.page_size = group->page_size;
  args.read_trash_page = group->read_trash_page;
  args.write_trash_page = group->write_trash_page;
  args.num_tokens = rec->key.num_tokens;
  args.padded_requests = rec->key.num_requests;
  args.num_q_heads = l->num_q_heads;
  args.num_kv_heads = l->num_kv_heads;
  args.head_dim = l->head_dim;
  args.scale = l->scale;
  args.query_start_loc = rt->args.query_start_loc;
  args.seq_lens = rt->args.seq_lens;
  args.request_rows = rt->args.request_rows;
  args.counts = rt->args.counts;
  args.plan = rt->args.plan;
  args.num_parts = rt->args.num_parts;
  args.tile_q = rt->args.tile_q;
  args.plan_counters = rt->args.plan_counters;
  args.partial_out = cgr__runtime_buffer(rt, CGR__BUFFER_PARTIAL_OUT, 0);
  args.partial_max_sum = cgr__runtime_buffer(rt, CGR__BUFFER_PARTIAL_MAX_SUM, 0);
  args.error = &rt->args.state->error;
  CGR__TRY(cgr__join_planner(rec));
  int error = rt->dev->ops->launch(rt->dev, &cgr__kernel_attention, &args, rec->stream);
  return error ? cgr__runtime_device_error(rt, error, "cgr_record_attention: enqueuing the attention") : CGR_OK;
}

cgr_status cgr_record_attention(cgr_recorder *recorder, const cgr_attention *attention) {
  CGR__REQUIRE(recorder, "cgr_record_attention");
  CGR__REQUIRE(attention, "cgr_record_attention");
  CGR__TRY(check_attention(recorder->runtime, attention));
  const cgr_layer *layer = &recorder->runtime->setup.layers[attention->layer];
  if (layer->kv_source == 0 && !(attention->flags & CGR_ATTENTION_NO_APPEND))
    CGR__TRY(append(recorder, attention, layer));
  if (attention->flags & CGR_ATTENTION_APPEND_ONLY)
    return CGR_OK;
  return attend(recorder, attention, layer);
}
