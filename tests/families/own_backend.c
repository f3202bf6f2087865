#include "tests/families/own_backend.h"

#include <stdio.h>
#include <stdlib.h>

/* What it cannot run, by name: cgr_validate and cgr_runtime_create refuse such layers. */
static int32_t check(void *context, const cgr_device_info *device, const cgr_group *group, const cgr_layer *layer,
                     cgr_finding *findings, int32_t capacity) {
  (void)context, (void)group;
  int plain = !layer->window_left && !layer->window_right && !layer->chunk && !layer->softcap && !layer->alibi_slopes &&
              !layer->sinks && !layer->flags && layer->group == 0 && layer->head_dim_v == layer->head_dim;
  int can =
      plain && device->kind == CGR_DEVICE_KIND_HOST && layer->k.dtype == CGR_DTYPE_FP32 && layer->out_dtype == CGR_DTYPE_FP32;
  if (!can && capacity > 0) {
    findings[0].status = CGR_ERROR_UNSUPPORTED;
    snprintf(findings[0].field, sizeof findings[0].field, "backend");
    snprintf(findings[0].text, sizeof findings[0].text, "is for plain attention in fp32 on the host, in group 0");
  }
  return !can;
}

/* What a FULL graph can hold of it: any batch, for nothing that it launches depends on lengths. */
static cgr_graph_support support(void *context, const cgr_device_info *device, const cgr_group *group) {
  (void)context, (void)device, (void)group;
  return CGR_SUPPORT_ALWAYS;
}

/* The family is asked with the key's numbers alone; its arrays come in `plan`. */
static cgr_status ask(const own_engine *e, int32_t num_requests, int32_t query_len, own_args *s) {
  *s = (own_args){ .in = CGR_BLOCK_TABLE_INPUT_INIT, .at = CGR_BLOCK_TABLE_LAYOUT_INIT };
  s->in.num_requests = num_requests, s->in.query_len = query_len;
  s->in.max_seq_len = e->max_seq_len, s->in.page_size = e->group.page_size, s->in.num_pages = e->group.num_pages;
  s->in.max_pages = (e->max_seq_len + e->group.page_size - 1) / e->group.page_size;
  s->in.page_table_stride = s->in.max_pages, s->in.num_rows = e->max_rows + 1;
  s->in.kv_layout = CGR_LAYOUT_HND, s->in.read_trash_page = e->group.read_trash_page;
  return cgr_block_table_get_layout(&s->in, &s->at);
}

/* State for a key: here what `plan` and `record` need of it. */
static cgr_status create(void *context, const cgr_plan_key *key, void **state) {
  own_engine *e = context;
  own_args *s = malloc(sizeof *s);
  if (!s)
    return CGR_ERROR_OUT_OF_MEMORY;
  cgr_status status = ask(e, key->num_requests, key->query_len > 0 ? key->query_len : key->num_tokens, s);
  if (status != CGR_OK) {
    free(s);
    return status;
  }
  s->plan = key->workspace;
  e->num_states++;
  *state = s;
  return CGR_OK;
}
static void destroy(void *context, void *state) {
  ((own_engine *)context)->num_states--;
  free(state);
}

static const int32_t *buffer(cgr_recorder *recorder, cgr_buffer which) {
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  return cgr_record_buffer(recorder, which, 0, &view) == CGR_OK ? view.data : NULL;
}

/* Once a step, before the first attention: the planner, which reads the persistent buffers when it runs. */
static cgr_status plan(void *context, void *state, cgr_recorder *recorder, uint32_t flags, int32_t draft) {
  own_args *s = state;
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_plan_key key = CGR_PLAN_KEY_INIT;
  (void)context, (void)flags, (void)draft;
  if (cgr_record_get_info(recorder, &info) != CGR_OK || cgr_record_get_plan(recorder, &key, &state) != CGR_OK)
    return CGR_ERROR_STATE;
  s->in.page_table = buffer(recorder, CGR_BUFFER_PAGE_TABLE), s->in.rows = buffer(recorder, CGR_BUFFER_REQUEST_ROWS);
  s->in.seq_lens = buffer(recorder, CGR_BUFFER_SEQ_LENS), s->in.query_start_loc = buffer(recorder, CGR_BUFFER_QUERY_START_LOC);
  s->in.live_requests = buffer(recorder, CGR_BUFFER_COUNTS) + CGR_COUNT_REQUESTS;
  return cgr_block_table_enqueue(key.device, &s->in, key.workspace, key.workspace_bytes, info.stream);
}

/* Once a layer: k and v are in the cache already. */
static cgr_status record(void *context, cgr_recorder *recorder, const cgr_attention *attention) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_plan_key key = CGR_PLAN_KEY_INIT;
  void *state;
  if (cgr_record_get_info(recorder, &info) != CGR_OK || cgr_record_get_plan(recorder, &key, &state) != CGR_OK)
    return CGR_ERROR_STATE;
  own_args args = *(const own_args *)state;
  args.a = *attention, args.l = ((const own_engine *)context)->layers[attention->layer], args.num_tokens = info.num_tokens;
  return cgr_launch_host(key.device, own_kernel, &args, sizeof args, info.stream);
}

cgr_status own_backend(own_engine *engine, cgr_backend *b) {
  own_args largest;
  *b = (cgr_backend)CGR_BACKEND_INIT;
  b->name = "own", b->context = engine, b->flags = CGR_BACKEND_PLANS_FIRST, b->check = check, b->support = support;
  b->create = create, b->destroy = destroy, b->plan = plan, b->record = record;
  cgr_status status = ask(engine, engine->max_requests, 1, &largest);
  b->workspace_bytes = largest.at.bytes;
  return status;
}
