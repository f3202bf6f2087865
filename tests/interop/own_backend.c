#include "tests/interop/own_backend.h"

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

/* The format is asked with the key's numbers alone; its arrays come in `plan`. */
static cgr_status ask(const own_engine *engine, int32_t num_requests, int32_t query_len, own_args *args) {
  *args = (own_args){ .input = CGR_BLOCK_TABLE_INPUT_INIT, .layout = CGR_BLOCK_TABLE_LAYOUT_INIT };
  cgr_block_table_input *in = &args->input;
  in->num_requests = num_requests, in->query_len = query_len, in->max_seq_len = engine->max_seq_len;
  in->page_size = engine->group.page_size, in->num_pages = engine->group.num_pages;
  in->max_pages = (in->max_seq_len + in->page_size - 1) / in->page_size, in->read_trash_page = engine->group.read_trash_page;
  in->page_table_stride = in->max_pages, in->num_rows = engine->max_rows + 1, in->kv_layout = CGR_LAYOUT_HND;
  return cgr_block_table_get_layout(in, &args->layout);
}

/* State for a key: here what `plan` and `record` need of it. */
static cgr_status create(void *context, const cgr_plan_key *key, void **state) {
  own_args *args = malloc(sizeof *args);
  const int32_t query_len = key->query_len > 0 ? key->query_len : key->num_tokens;
  cgr_status status = args ? ask(context, key->num_requests, query_len, args) : CGR_ERROR_OUT_OF_MEMORY;
  if (status != CGR_OK) {
    free(args);
    return status;
  }
  args->device = key->device, args->plan = key->workspace, args->plan_bytes = key->workspace_bytes;
  ((own_engine *)context)->num_states++;
  *state = args;
  return CGR_OK;
}
static void destroy(void *context, void *state) {
  ((own_engine *)context)->num_states--;
  free(state);
}

/* A persistent buffer from a word on. NULL: the call failed. */
static const int32_t *buffer(cgr_recorder *recorder, cgr_buffer which, int32_t first) {
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  return cgr_record_buffer(recorder, which, 0, &view) == CGR_OK ? (const int32_t *)view.data + first : NULL;
}

/* Once a step, before the first attention: the planner, which reads the persistent buffers when it runs. */
static cgr_status plan(void *context, void *state, cgr_recorder *recorder, uint32_t flags, int32_t draft) {
  own_args *args = state;
  cgr_block_table_input *in = &args->input;
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  (void)context, (void)flags, (void)draft;
  in->page_table = buffer(recorder, CGR_BUFFER_PAGE_TABLE, 0), in->rows = buffer(recorder, CGR_BUFFER_REQUEST_ROWS, 0);
  in->seq_lens = buffer(recorder, CGR_BUFFER_SEQ_LENS, 0), in->query_start_loc = buffer(recorder, CGR_BUFFER_QUERY_START_LOC, 0);
  in->live_requests = buffer(recorder, CGR_BUFFER_COUNTS, CGR_COUNT_REQUESTS);
  if (cgr_record_get_info(recorder, &info) != CGR_OK || !in->live_requests) /* NULL would mean that all are live */
    return CGR_ERROR_STATE;
  return cgr_block_table_enqueue(args->device, in, args->plan, args->plan_bytes, info.stream);
}

/* Once a layer: k and v are in the cache already. */
static cgr_status record(void *context, cgr_recorder *recorder, const cgr_attention *attention) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  if (cgr_record_get_info(recorder, &info) != CGR_OK)
    return CGR_ERROR_STATE;
  own_args args = *(const own_args *)info.plan_state;
  args.attention = *attention, args.layer = ((const own_engine *)context)->layers[attention->layer];
  args.num_tokens = info.num_tokens;
  return cgr_launch_host(args.device, own_kernel, &args, sizeof args, info.stream);
}

cgr_status own_backend(own_engine *engine, cgr_backend *backend) {
  own_args largest;
  cgr_status status = ask(engine, engine->max_requests, 1, &largest);
  *backend = (cgr_backend)CGR_BACKEND_INIT;
  backend->name = "own", backend->context = engine, backend->flags = CGR_BACKEND_PLANS_FIRST;
  backend->check = check, backend->support = support, backend->create = create, backend->destroy = destroy;
  backend->plan = plan, backend->record = record, backend->workspace_bytes = largest.layout.bytes;
  return status;
}
