/* Makes and destroys a runtime. Cold. */
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

_Static_assert((int)CGR_REASON_COUNT_ <= 16, "cgr_stats.by_reason has room for every reason");
_Static_assert(sizeof(cgr__step_state) <= 128, "the layout reserves 128 bytes for the step state");

cgr_status cgr__runtime_check(cgr_runtime *rt, const char *function) {
  if (!rt)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: runtime is NULL, expected one from cgr_runtime_create", function);
  if (rt->magic != CGR__RUNTIME_MAGIC)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: runtime is %p, which is not a live runtime", function, (void *)rt);
  if (!__atomic_load_n(&rt->dead, __ATOMIC_ACQUIRE))
    return CGR_OK;
  cgr__set_device_code(rt->dead_code);
  return cgr__fail(CGR_ERROR_DEAD, "%s: the device was lost earlier: %s", function, rt->dead_message);
}

cgr_status cgr__runtime_check_outside(cgr_runtime *rt, const char *function) {
  CGR__TRY(cgr__runtime_check(rt, function));
  if (rt->recording)
    return cgr__fail(CGR_ERROR_STATE, "%s: called from inside record, expected a call outside of it", function);
  return CGR_OK;
}

cgr_status cgr__runtime_die(cgr_runtime *rt, int device_code, const char *message) {
  if (!rt->dead) {
    strncpy(rt->dead_message, message, sizeof rt->dead_message - 1);
    rt->dead_code = device_code;
    __atomic_store_n(&rt->dead, 1, __ATOMIC_RELEASE);
  }
  cgr__set_device_code(device_code);
  return cgr__fail(CGR_ERROR_DEAD, "%s", rt->dead_message);
}

cgr_status cgr__runtime_device_error(cgr_runtime *rt, int error, const char *what) {
  cgr_status status = cgr__device_fail(rt->dev, error, what);
  if (status != CGR_ERROR_DEAD)
    return status;
  char message[256];
  strncpy(message, cgr_last_message(), sizeof message - 1);
  message[sizeof message - 1] = 0;
  return cgr__runtime_die(rt, cgr_last_device_code(), message);
}

static cgr_status check_supplied(const char *name, const void *memory, size_t have, size_t need) {
  if (have < need)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: %s_size is %zu, expected at least %zu (cgr_runtime_memory)", name, have,
                     need);
  if ((uintptr_t)memory % 256 != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: %s is %p, expected a multiple of 256", name, memory);
  return CGR_OK;
}

static cgr_status take_memory(cgr_runtime *rt) {
  const cgr_config *c = &rt->setup.config;
  int error = 0;
  rt->arena = c->device_memory;
  rt->pinned = c->pinned_memory;
  if (rt->arena)
    CGR__TRY(check_supplied("device_memory", rt->arena, c->device_memory_size, rt->layout.bytes));
  if (rt->pinned)
    CGR__TRY(check_supplied("pinned_memory", rt->pinned, c->pinned_memory_size, rt->layout.pinned_bytes));
  if (!rt->arena) {
    void *memory = NULL;
    error = rt->dev->ops->mem_alloc(rt->dev, rt->layout.bytes, CGR__MEMORY_DEVICE, &memory);
    if (error)
      return cgr__device_fail(rt->dev, error, "cgr_runtime_create: allocating the arena");
    rt->arena = memory;
    rt->owns_arena = 1;
  }
  if (!rt->pinned) {
    error = rt->dev->ops->mem_alloc(rt->dev, rt->layout.pinned_bytes, CGR__MEMORY_PINNED, &rt->pinned);
    if (error)
      return cgr__device_fail(rt->dev, error, "cgr_runtime_create: allocating the rings");
    rt->owns_pinned = 1;
  }
  return CGR_OK;
}

/* One block for everything that the host keeps: rows, copies of the prepared batch, bucket table. */
static cgr_status take_host_memory(cgr_runtime *rt) {
  const cgr_config *c = &rt->setup.config;
  int32_t pages = rt->setup.limits.pages_per_row[0];
  size_t r = (size_t)c->max_requests;
  size_t rows = cgr__rows_bytes(c->max_rows, c->max_requests, pages);
  rt->host_block = calloc(1, rows + 3 * r * 4 + (r + 1) * sizeof(int16_t));
  if (!rt->host_block)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_create: no host memory for %d rows", c->max_rows);
  unsigned char *at = rt->host_block;
  cgr__rows_init(&rt->rows, at, c->max_rows, c->max_requests, pages);
  rt->batch_rows = (int32_t *)(at + rows);
  rt->batch_lens = rt->batch_rows + r;
  rt->batch_flags = (uint32_t *)(rt->batch_lens + r);
  int16_t *bucket_of = (int16_t *)(rt->batch_flags + r);
  const char *reason;
  rt->graphs.mode = cgr__mode_lower((cgr_graph_mode)c->graph_mode, (cgr_attention_support)c->attention_support, &reason);
  rt->graphs.mode_reason = reason;
  cgr__graphs_init(&rt->graphs, rt->setup.buckets, rt->setup.num_buckets, c->max_requests, bucket_of);
  const cgr_group *g = &rt->setup.groups[0];
  rt->rows.max_seq_len = c->max_seq_len;
  rt->rows.page_size = g->page_size;
  rt->rows.num_pages = g->num_pages;
  rt->rows.read_trash = g->read_trash_page;
  rt->rows.write_trash = g->write_trash_page;
  rt->rows.engine_table = g->page_table != NULL;
  return CGR_OK;
}

/* Uploads the padding values and clears the partials. */
static cgr_status fill_arena(cgr_runtime *rt, cudaStream_t stream) {
  size_t image_bytes = rt->layout.offset[CGR__BUFFER_PARTIAL_OUT][0];
  unsigned char *image = malloc(image_bytes);
  if (!image)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_create: no host memory for the first fill (%zu bytes)", image_bytes);
  memset(image, 0, image_bytes);
  for (int id = 0; id < CGR__BUFFER_PARTIAL_OUT; id++) {
    int32_t copies = cgr__layout_shape(&rt->setup.limits, id, 0).copies;
    for (int32_t copy = 0; copy < copies; copy++) {
      cgr__buffer_shape shape = cgr__layout_shape(&rt->setup.limits, id, copy);
      cgr__layout_first_fill(&shape, rt->setup.groups[copy].read_trash_page, image + rt->layout.offset[id][copy]);
    }
  }
  const cgr__device_ops *ops = rt->dev->ops;
  int error = ops->copy(rt->dev, rt->arena, image, image_bytes, stream);
  if (!error)
    error = ops->fill(rt->dev, rt->arena + image_bytes, 0, rt->layout.bytes - image_bytes, stream);
  int synced = ops->stream_sync(rt->dev, stream);
  free(image);
  return cgr__device_fail(rt->dev, error ? error : synced, "cgr_runtime_create: filling the buffers");
}

/* The engine's own buffers lie behind the partials and begin as zeros; those with another padding value are written now. */
static cgr_status fill_declared(cgr_runtime *rt, cudaStream_t stream) {
  const cgr__device_ops *ops = rt->dev->ops;
  for (int32_t i = 0; i < rt->layout.num_declared; i++) {
    const cgr__declared *declared = &rt->layout.declared[i];
    size_t bytes = (size_t)(declared->rows * declared->width) * cgr_dtype_size((cgr_dtype)declared->dtype);
    if (declared->padding == 0)
      continue;
    void *image = malloc(bytes);
    if (!image)
      return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_create: no host memory to fill buffer %s (%zu bytes)",
                       declared->name, bytes);
    cgr__layout_fill_declared(declared, image);
    int error = ops->copy(rt->dev, rt->arena + declared->offset, image, bytes, stream);
    int synced = ops->stream_sync(rt->dev, stream);
    free(image);
    CGR__TRY(cgr__device_fail(rt->dev, error ? error : synced, "cgr_runtime_create: filling a declared buffer"));
  }
  return CGR_OK;
}

static void make_group_args(cgr_runtime *rt, int32_t i, cgr__group_args *a) {
  const cgr_group *g = &rt->setup.groups[i];
  a->page_size = g->page_size;
  a->read_trash_page = g->read_trash_page;
  a->write_trash_page = g->write_trash_page;
  a->num_pages = g->num_pages;
  a->engine_table = g->page_table != NULL;
  /* The engine's table is only ever read: kernels test engine_table before they write. */
  a->page_table = g->page_table ? (int32_t *)(uintptr_t)g->page_table : cgr__runtime_buffer(rt, CGR__BUFFER_PAGE_TABLE, i);
  a->page_table_stride = g->page_table ? g->page_table_stride : rt->setup.limits.pages_per_row[i];
  a->slot_mapping = cgr__runtime_buffer(rt, CGR__BUFFER_SLOT_MAPPING, i);
  a->kv_indptr = cgr__runtime_buffer(rt, CGR__BUFFER_KV_INDPTR, i);
  a->kv_last_page_len = cgr__runtime_buffer(rt, CGR__BUFFER_KV_LAST_PAGE_LEN, i);
}

static void make_args(cgr_runtime *rt) {
  cgr__step_args *a = &rt->args;
  const cgr_config *c = &rt->setup.config;
  a->staging = rt->ring.staging;
  a->slot = rt->ring.slot;
  a->readback = rt->ring.readback;
  a->readback_stride = rt->ring.readback_stride;
  a->completion = rt->ring.completion;
  a->state = cgr__runtime_buffer(rt, CGR__BUFFER_STEP_STATE, 0);
  a->ring_depth = c->ring_depth;
  a->max_requests = c->max_requests;
  a->max_rows = c->max_rows;
  a->max_tokens = c->max_tokens;
  a->max_seq_len = c->max_seq_len;
  a->max_changes = c->max_changes;
  a->num_groups = c->num_groups;
  a->num_parts = rt->setup.num_parts;
  a->tile_q = rt->setup.tile_q;
  a->num_counters = (int32_t)rt->setup.limits.plan_counters;
  a->input_ids = cgr__runtime_buffer(rt, CGR__BUFFER_INPUT_IDS, 0);
  a->positions = cgr__runtime_buffer(rt, CGR__BUFFER_POSITIONS, 0);
  a->query_start_loc = cgr__runtime_buffer(rt, CGR__BUFFER_QUERY_START_LOC, 0);
  a->seq_lens = cgr__runtime_buffer(rt, CGR__BUFFER_SEQ_LENS, 0);
  a->request_rows = cgr__runtime_buffer(rt, CGR__BUFFER_REQUEST_ROWS, 0);
  a->request_flags = cgr__runtime_buffer(rt, CGR__BUFFER_REQUEST_FLAGS, 0);
  a->logits_indices = cgr__runtime_buffer(rt, CGR__BUFFER_LOGITS_INDICES, 0);
  a->row_computed = cgr__runtime_buffer(rt, CGR__BUFFER_ROW_COMPUTED, 0);
  a->row_last_tokens = cgr__runtime_buffer(rt, CGR__BUFFER_ROW_LAST_TOKENS, 0);
  a->row_num_accepted = cgr__runtime_buffer(rt, CGR__BUFFER_ROW_NUM_ACCEPTED, 0);
  a->next_tokens = cgr__runtime_buffer(rt, CGR__BUFFER_NEXT_TOKENS, 0);
  a->counts = cgr__runtime_buffer(rt, CGR__BUFFER_COUNTS, 0);
  a->plan = cgr__runtime_buffer(rt, CGR__BUFFER_PLAN, 0);
  a->plan_counters = cgr__runtime_buffer(rt, CGR__BUFFER_PLAN_COUNTERS, 0);
  for (int32_t i = 0; i < c->num_groups; i++)
    make_group_args(rt, i, &a->groups[i]);
}

static cgr_status make_streams(cgr_runtime *rt) {
  const cgr__device_ops *ops = rt->dev->ops;
  int error = ops->stream_create(rt->dev, &rt->capture_stream);
  if (!error)
    error = ops->stream_create(rt->dev, &rt->planner_stream);
  if (!error)
    error = ops->event_create(rt->dev, &rt->fork_event);
  if (!error)
    error = ops->event_create(rt->dev, &rt->join_event);
  if (!error)
    error = ops->event_create(rt->dev, &rt->order_event);
  return cgr__device_fail(rt->dev, error, "cgr_runtime_create: making streams and events");
}

/* Modules are loaded now, so that no capture and no step ever does. */
static cgr_status preload_kernels(cgr_runtime *rt) {
  const cgr__kernel *kernels[] = { &cgr__kernel_prologue, &cgr__kernel_planner, &cgr__kernel_epilogue, &cgr__kernel_append,
                                   &cgr__kernel_attention };
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
    int error = rt->dev->ops->preload(rt->dev, kernels[i]);
    if (error)
      return cgr__device_fail(rt->dev, error, "cgr_runtime_create: loading the kernels");
  }
  return CGR_OK;
}

static size_t kv_view_bytes(const cgr_layer *l, const cgr_group *g, const cgr_kv_view *view) {
  int64_t last = (g->num_pages - 1) * view->stride_page + (g->page_size - 1) * view->stride_token +
                 (l->num_kv_heads - 1) * view->stride_head + l->head_dim;
  return (size_t)last * cgr_dtype_size((cgr_dtype)view->dtype);
}

static cgr_status register_regions(cgr_runtime *rt) {
  CGR__TRY(cgr__regions_register(&rt->regions, rt->arena, rt->layout.bytes, NULL));
  for (int32_t i = 0; i < rt->setup.config.num_layers; i++) {
    const cgr_layer *l = &rt->setup.layers[i];
    const cgr_group *g = &rt->setup.groups[l->group];
    CGR__TRY(cgr__regions_register(&rt->regions, l->k.base, kv_view_bytes(l, g, &l->k), NULL));
    CGR__TRY(cgr__regions_register(&rt->regions, l->v.base, kv_view_bytes(l, g, &l->v), NULL));
  }
  rt->regions.first_movable = rt->regions.count;
  return CGR_OK;
}

static cgr_status open_device(const cgr_config *config, cgr_device **dev, int *owns) {
  cgr_config c;
  CGR__TRY(cgr__config_read(config, &c));
  *owns = c.device_handle == NULL;
  *dev = c.device_handle;
  if (*dev && (*dev)->magic != CGR__DEVICE_MAGIC)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: device_handle is %p, which is not an open device",
                     (void *)c.device_handle);
  return *dev ? CGR_OK : cgr_device_open(c.device, NULL, dev);
}

static cgr_status build(cgr_runtime *rt, const cgr_config *config) {
  cgr_status status = open_device(config, &rt->dev, &rt->owns_device);
  if (status != CGR_OK) {
    rt->dev = NULL;
    return status;
  }
  CGR__TRY(cgr__setup_make(config, rt->dev, &rt->setup));
  CGR__TRY(cgr__layout_make(&rt->setup.limits, rt->setup.declared, rt->setup.config.num_buffers, &rt->layout));
  CGR__TRY(take_host_memory(rt));
  CGR__TRY(take_memory(rt));
  CGR__TRY(make_streams(rt));
  cgr__ring_init(&rt->ring, &rt->layout, rt->setup.config.ring_depth, rt->pinned);
  CGR__TRY(fill_arena(rt, rt->capture_stream));
  CGR__TRY(fill_declared(rt, rt->capture_stream));
  make_args(rt);
  CGR__TRY(register_regions(rt));
  CGR__TRY(preload_kernels(rt));
  rt->stats.size = (uint32_t)sizeof rt->stats;
  if (rt->graphs.mode_reason[0] && rt->setup.config.log)
    rt->setup.config.log(rt->setup.config.log_context, CGR_LOG_INFO, rt->graphs.mode_reason);
  return CGR_OK;
}

/* Graphs die before the buffers that they use. Errors are passed over: a dead device refuses everything. */
static void tear_down(cgr_runtime *rt) {
  const cgr__device_ops *ops = rt->dev ? rt->dev->ops : NULL;
  if (ops) {
    for (int32_t i = 0; i < rt->graphs.count; i++)
      cgr__graphs_drop(&rt->graphs.entry[i], rt->dev);
    if (rt->fork_event)
      ops->event_destroy(rt->dev, rt->fork_event);
    if (rt->join_event)
      ops->event_destroy(rt->dev, rt->join_event);
    if (rt->order_event)
      ops->event_destroy(rt->dev, rt->order_event);
    if (rt->planner_stream)
      ops->stream_destroy(rt->dev, rt->planner_stream);
    if (rt->capture_stream)
      ops->stream_destroy(rt->dev, rt->capture_stream);
    if (rt->owns_arena)
      ops->mem_free(rt->dev, rt->arena, CGR__MEMORY_DEVICE);
    if (rt->owns_pinned)
      ops->mem_free(rt->dev, rt->pinned, CGR__MEMORY_PINNED);
    if (rt->owns_device)
      ops->close(rt->dev);
  }
  free(rt->setup.layers);
  free(rt->host_block);
  rt->magic = 0;
  free(rt);
}

cgr_status cgr_runtime_create(const cgr_config *config, cgr_runtime **runtime) {
  CGR__REQUIRE(runtime, "cgr_runtime_create");
  *runtime = NULL;
  CGR__REQUIRE(config, "cgr_runtime_create");
  cgr_runtime *rt = calloc(1, sizeof *rt);
  if (!rt)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_create: no host memory");
  rt->magic = CGR__RUNTIME_MAGIC;
  cgr_status status = build(rt, config);
  if (status != CGR_OK) {
    tear_down(rt);
    return status;
  }
  *runtime = rt;
  return CGR_OK;
}

cgr_status cgr_runtime_destroy(cgr_runtime *runtime) {
  if (!runtime)
    return CGR_OK;
  if (runtime->magic != CGR__RUNTIME_MAGIC)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_destroy: runtime is %p, which is not a live runtime",
                     (void *)runtime);
  if (runtime->recording)
    return cgr__fail(CGR_ERROR_STATE, "cgr_runtime_destroy: called from inside record, expected a call outside of it");
  int in_flight = runtime->has_last_stream && cgr__ring_completed(&runtime->ring) < runtime->launched;
  if (in_flight && !runtime->dead)
    runtime->dev->ops->stream_sync(runtime->dev, runtime->last_stream); /* without a timeout: the memory is about to go */
  tear_down(runtime);
  return CGR_OK;
}

cgr_status cgr_runtime_memory(const cgr_config *config, cgr_memory_sizes *sizes) {
  CGR__REQUIRE(config, "cgr_runtime_memory");
  CGR__REQUIRE(sizes, "cgr_runtime_memory");
  if (sizes->size < sizeof *sizes)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "cgr_runtime_memory: sizes->size is %u, expected %zu: use CGR_MEMORY_SIZES_INIT",
                     sizes->size, sizeof *sizes);
  cgr_device *dev = NULL;
  int owns = 0;
  cgr__setup *setup = calloc(1, sizeof *setup + sizeof(cgr__layout));
  if (!setup)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_memory: no host memory");
  cgr__layout *layout = (cgr__layout *)(setup + 1);
  cgr_status status = open_device(config, &dev, &owns);
  if (status == CGR_OK)
    status = cgr__setup_make(config, dev, setup);
  if (status == CGR_OK)
    status = cgr__layout_make(&setup->limits, setup->declared, setup->config.num_buffers, layout);
  if (status == CGR_OK) {
    sizes->device_bytes = layout->bytes;
    sizes->pinned_bytes = layout->pinned_bytes;
  }
  if (owns && dev)
    dev->ops->close(dev);
  free(setup->layers);
  free(setup);
  return status;
}
