/* Makes and destroys a runtime. Cold. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/capture/capture.h"
#include "runtime/record/record.h"
#include "runtime/step/step.h"
#include "runtime/config/strided_set.h"
#include "runtime/report/ranges.h"
#include "runtime/report/report.h"
#include "runtime/report/timing.h"

#define LEAST_PAGE_BYTES 4096                /* of the host; others are larger */
#define MOST_TOUCHED_BYTES ((size_t)1 << 28) /* a block that is larger is page tables of very many rows for the most part */

_Static_assert((int)CGR_REASON_COUNT_ <= 16, "cgr_stats.by_reason has room for every reason");
_Static_assert(sizeof(cgr__step_state) <= 128, "the table gives the step state 16 words");

/* ---------------------------------------------------------------------------------------------------------------- memory */

static cgr_status allocate_memory(cgr_runtime *rt, size_t bytes, enum cgr__memory_kind kind, const char *what, void **memory) {
  char text[128];
  snprintf(text, sizeof text, "cgr_runtime_create: allocating %zu bytes for the %s", bytes, what);
  return cgr__device_fail(rt->dev, rt->dev->ops->mem_alloc(rt->dev, bytes, kind, memory), text);
}

static cgr_status take_runtime_device_memory(cgr_runtime *rt) {
  const cgr_config *c = &rt->setup.config;
  void *arena = c->device_memory;
  if (!arena) {
    CGR__TRY(allocate_memory(rt, rt->layout.bytes, CGR__MEMORY_DEVICE, "arena", &arena));
    rt->owns_arena = true;
  }
  rt->arena = arena;
  void *copies = NULL;
  size_t copies_bytes = rt->checks ? cgr__read_trash_bytes(&rt->setup) : 0;
  if (copies_bytes > 0)
    CGR__TRY(allocate_memory(rt, copies_bytes, CGR__MEMORY_PINNED, "copies of the read-trash pages", &copies));
  rt->read_trash.copies = copies;
  copies = NULL;
  if (rt->checks)
    CGR__TRY(allocate_memory(rt, cgr__starts_bytes(&rt->setup), CGR__MEMORY_PINNED, "copy of query_start_loc", &copies));
  rt->starts.copy = copies;
  rt->pinned = c->pinned_memory;
  if (rt->pinned)
    return CGR_OK;
  CGR__TRY(allocate_memory(rt, rt->layout.pinned_bytes, CGR__MEMORY_PINNED, "rings", &rt->pinned));
  rt->owns_pinned = true;
  return CGR_OK;
}

/* Ring and sums are written here, so that no step is the first to touch their pages. */
static void take_flight(cgr_runtime *rt, unsigned char *memory) {
  const cgr_config *c = &rt->setup.config;
  size_t bytes = (size_t)c->flight_depth * sizeof(cgr__flight_entry);
  memset(memory, 0xff, bytes);
  cgr__flight_init(&rt->flight, (uint32_t)c->flight_depth, c->timing != CGR_TIMING_OFF ? 1 : c->time_every, memory);
  cgr__statistics_init(&rt->statistics, cgr__keys_count(&rt->setup.keys), memory + bytes);
  cgr__timing_init(rt, memory + cgr__setup_flight_bytes(&rt->setup) - cgr__setup_timing_bytes(&rt->setup));
}

/* Zeros, written to every page of the block: untouched memory costs the first step that writes to it a page fault. */
static void *allocate_touched_zeros(size_t bytes) {
  volatile unsigned char *block = calloc(1, bytes);
  size_t touched = bytes < MOST_TOUCHED_BYTES ? bytes : MOST_TOUCHED_BYTES;
  for (size_t at = 0; block && at < touched; at += LEAST_PAGE_BYTES)
    block[at] = 0;
  if (block)
    block[touched - 1] = 0; /* the block does not begin where a page does */
  return (void *)(uintptr_t)block;
}

/* One block for everything that the host keeps: records, rows, batches, keys. */
static cgr_status take_runtime_host_memory(cgr_runtime *rt) {
  const cgr_config *c = &rt->setup.config;
  cgr__rows_config rows = cgr__setup_rows(&rt->setup);
  size_t bytes = cgr__setup_host_bytes(&rt->setup);
  rt->host_block = allocate_touched_zeros(bytes);
  if (!rt->host_block)
    return cgr__fail(
        CGR_ERROR_OUT_OF_MEMORY,
        "cgr_runtime_create: no host memory (%zu bytes: of these the flight recorder of %d steps takes %zu, the rest "
        "is for %d rows and the keys)",
        bytes, c->flight_depth, cgr__setup_flight_bytes(&rt->setup) + cgr__setup_dump_bytes(&rt->setup), c->max_rows);
  unsigned char *at = rt->host_block;
  at += -(uintptr_t)at % CGR__ROW_BYTES; /* what consists of cache lines comes first: records, statistics, rows */
  take_flight(rt, at);
  at += cgr__setup_flight_bytes(&rt->setup);
  cgr__rows_init(&rt->rows, &rt->lane.batches, &rows, at);
  at += cgr__rows_bytes(&rows);
  cgr__lane_batches_init(&rt->lane.batches, &rt->setup.limits, at);
  at += cgr__lane_batches_bytes(&rt->setup.limits);
  cgr__keys_make(&rt->graphs, &rt->setup.keys, at);
  at += cgr__keys_bytes(&rt->setup.keys);
  cgr__backend_plans_init(rt, at);
  rt->dump_bytes = cgr__setup_dump_bytes(&rt->setup);
  if (rt->dump_bytes > 0)
    rt->dump = (char *)at + cgr__setup_backend_plans_layout(&rt->setup).bytes;
  return CGR_OK;
}

static int fill_buffer(void *context, const cgr__first_fill *first) {
  cgr_runtime *rt = context;
  return rt->dev->ops->fill(rt->dev, rt->arena + first->offset, first->value, first->width, first->count, rt->own_stream);
}

/* If anything fails, destroying the stream waits for what is on it before the memory is freed. */
static cgr_status fill_arena(cgr_runtime *rt) {
  int error = rt->dev->ops->fill(rt->dev, rt->arena, 0, 1, rt->layout.bytes, rt->own_stream);
  if (!error)
    error = cgr__layout_first_fills(&rt->setup.limits, &rt->layout, fill_buffer, rt);
  if (!error)
    error = rt->dev->ops->stream_sync(rt->dev, rt->own_stream);
  return cgr__device_fail(rt->dev, error, "cgr_runtime_create: filling the buffers");
}

/* ------------------------------------------------------------------------------------------------------------- arguments */

static void make_group_args(cgr_runtime *rt, int32_t i) {
  const cgr_group *g = &rt->setup.groups[i];
  cgr__group_geometry *a = &rt->lane.args.group[i];
  a->page_size = g->page_size;
  a->kernel_page_size = g->kernel_page_size < g->page_size ? g->kernel_page_size : 0;
  a->read_trash_page = g->read_trash_page;
  a->write_trash_page = g->write_trash_page;
  a->engine_table = g->page_table != NULL;
  a->length_set = g->length_set;
  a->num_pages = g->num_pages;
  a->page_table_stride = g->page_table ? g->page_table_stride : rt->setup.limits.pages_per_row[i];
  if (g->page_table) /* only ever read: kernels test engine_table before they write */
    rt->lane.args.buffers.group[i].page_table = (int32_t *)(uintptr_t)g->page_table;
}

static void make_args(cgr_runtime *rt) {
  cgr__step_args *a = &rt->lane.args;
  const cgr__limits *l = &rt->setup.limits;
  cgr__layout_view(l, &rt->layout, rt->arena, &a->buffers);
  a->staging = rt->lane.ring.staging;
  a->readback = rt->lane.ring.readback;
  a->completion = rt->lane.ring.completion;
  a->slot = rt->layout.slot;
  a->readback_slot = rt->layout.readback;
  a->state = (cgr__step_state *)(void *)a->buffers.step_state;
  a->ring_depth = l->ring_depth;
  a->max_requests = l->max_requests;
  a->max_rows = l->max_rows;
  a->max_tokens = l->max_tokens;
  memcpy(a->max_lens, l->max_lens, sizeof a->max_lens);
  a->max_changes = l->max_changes;
  a->token_stride = l->token_stride;
  a->vocab_size = rt->setup.config.vocab_size;
  a->num_groups = l->num_groups;
  a->num_sets = l->num_sets;
  a->num_programs = l->num_programs;
  for (int32_t p = 0; p < l->num_programs; p++)
    rt->lane.other_groups[p] = cgr__setup_other_groups(&rt->setup, p);
  a->other_groups = rt->lane.other_groups[0];
  if (rt->setup.lengths >= 0)
    a->lengths = (const int32_t *)(void *)(rt->arena + rt->layout.declared[rt->setup.lengths].offset);
  if (rt->setup.stops >= 0)
    a->stops = (const int32_t *)(void *)(rt->arena + rt->layout.declared[rt->setup.stops].offset);
  a->stop_words = l->stop_words;
  a->split = rt->setup.split;
  a->stamp_stride = (int32_t)l->stamp_stride;
  for (int32_t i = 0; i < l->num_groups; i++)
    make_group_args(rt, i);
}

static int32_t staged_per(const cgr__declared *d) {
  return d->dimension == CGR_DIMENSION_TOKENS  ? CGR__STAGED_PER_TOKEN
         : d->dimension == CGR__DIMENSION_STEP ? CGR__STAGED_PER_STEP
                                               : CGR__STAGED_PER_REQUEST;
}

/* The engine's own buffers that are staged, by tokens and requests and by rows; and the plans of backends. */
static void make_staged_args(cgr_runtime *rt) {
  cgr__staged_args *a = &rt->lane.staged_args;
  const cgr__step_args *step = &rt->lane.args;
  a->staging = step->staging;
  a->slot_stride = step->slot.stride;
  a->state = step->state;
  a->counts = step->buffers.counts;
  a->ring_depth = step->ring_depth;
  for (int32_t i = 0; i < rt->layout.num_declared; i++) {
    const cgr__declared *d = &rt->layout.declared[i];
    void *data = rt->arena + d->offset;
    if (d->slot_offset != 0)
      a->buffer[a->num_buffers++] =
          (cgr__staged_buffer){ data, d->slot_offset, cgr__declared_bytes(d), cgr__declared_pattern(d), i, staged_per(d) };
    else if (d->source == CGR_SOURCE_STAGED)
      rt->lane.args.rows[i] = (cgr__row_buffer){ data, rt->rows.data[i].words };
  }
}

static void make_planner_args(cgr_runtime *rt) {
  cgr__planner_args *a = &rt->lane.planner_args;
  const cgr__buffers *b = &rt->lane.args.buffers;
  const cgr__plans *plans = &rt->setup.plans;
  a->counts = b->counts;
  a->query_start_loc = b->query_start_loc;
  for (int32_t i = 0; i < rt->setup.limits.num_sets; i++)
    a->seq_lens[i] = b->seq_lens[i];
  a->plan = b->plan;
  a->counters = b->plan_counters;
  a->num_counters = (int32_t)plans->num_counters;
  a->num_classes = plans->num_classes;
  memcpy(a->offset, plans->offset, sizeof a->offset);
  memcpy(a->classes, plans->classes, sizeof a->classes);
}

static void make_on_demand_group(cgr_runtime *rt, int32_t i) {
  const cgr__step_args *step = &rt->lane.args;
  const cgr__group_buffers *b = &step->buffers.group[i];
  cgr__on_demand_group *g = &rt->lane.on_demand_args.group[i];
  g->page_table = b->page_table;
  g->page_table_stride = step->group[i].page_table_stride;
  g->num_pages = step->group[i].num_pages;
  g->read_trash_page = step->group[i].read_trash_page;
  g->write_trash_page = step->group[i].write_trash_page;
  g->kv_indptr = b->kv_indptr;
  g->kv_last_page_len = b->kv_last_page_len;
  g->kv_indices = b->kv_indices;
  g->block_table = b->block_table;
  g->pages_each = rt->setup.limits.pages_each[i];
  g->block_table_stride = cgr__limits_kernel_pages(&rt->setup.limits, i);
  g->block_extents = b->block_extents;
  g->prefill_block_table = b->prefill_block_table;
  g->prefill_block_extents = b->prefill_block_extents;
  g->prefill_kv_indptr = b->prefill_kv_indptr;
  g->prefill_kv_last_page_len = b->prefill_kv_last_page_len;
}

/* What was not asked for is NULL. */
static void make_on_demand_args(cgr_runtime *rt) {
  cgr__on_demand_args *a = &rt->lane.on_demand_args;
  const cgr__buffers *b = &rt->lane.args.buffers;
  const cgr__limits *l = &rt->setup.limits;
  a->counts = b->counts;
  a->error = &rt->lane.args.state->error;
  a->asked = l->on_demand;
  a->num_groups = l->num_groups;
  a->batch.query_start_loc = b->query_start_loc;
  a->batch.request_rows = b->request_rows;
  a->batch.num_sets = l->num_sets;
  memcpy(a->batch.seq_lens, b->seq_lens, sizeof a->batch.seq_lens);
  memcpy(a->batch.kv_start_loc, b->kv_start_loc, sizeof a->batch.kv_start_loc);
  a->batch.context_lens = b->context_lens;
  a->batch.context_start_loc = b->context_start_loc;
  a->batch.prefill_query_start_loc = b->prefill_query_start_loc;
  memcpy(a->batch.prefill_seq_lens, b->prefill_seq_lens, sizeof a->batch.prefill_seq_lens);
  memcpy(a->batch.prefill_kv_start_loc, b->prefill_kv_start_loc, sizeof a->batch.prefill_kv_start_loc);
  for (int32_t i = 0; i < l->num_groups; i++)
    make_on_demand_group(rt, i);
}

/* ------------------------------------------------------------------------------------------------- what a runtime owns */

static cgr_status make_streams(cgr_runtime *rt) {
  const cgr__device_ops *ops = rt->dev->ops;
  int error = ops->stream_create(rt->dev, CGR__STREAM_NORMAL, &rt->own_stream);
  /* Urgent, so that in eager steps the planner is not queued after the engine's blocks. In graphs, order decides. */
  if (!error)
    error = ops->stream_create(rt->dev, CGR__STREAM_URGENT, &rt->side_stream);
  if (!error)
    error = ops->event_create(rt->dev, &rt->fork_event);
  if (!error)
    error = ops->event_create(rt->dev, &rt->join_event);
  if (!error)
    error = ops->event_create(rt->dev, &rt->order_event);
  return cgr__device_fail(rt->dev, error, "cgr_runtime_create: making streams and events");
}

/* After the rings: it waits for the number of the last completed step. */
static cgr_status make_waiter(cgr_runtime *rt) {
  const int32_t mode = rt->setup.config.wait_mode;
  if (mode != CGR_WAIT_DEFAULT && mode != CGR_WAIT_BLOCK)
    return CGR_OK;
  int error = rt->dev->ops->waiter_create(rt->dev, &rt->lane.ring.completion->completed_seq, &rt->waiter);
  return cgr__device_fail(rt->dev, error, "cgr_runtime_create: making a waiter");
}

/* Modules are loaded now, so that no capture and no step ever does. */
static cgr_status preload_kernels(cgr_runtime *rt) {
  const cgr__kernel *kernels[] = { &cgr__kernel_prologue,     &cgr__kernel_planner,     &cgr__kernel_epilogue,
                                   &cgr__kernel_append,       &cgr__kernel_transform,   &cgr__kernel_staged,
                                   &cgr__kernel_fetch,        &cgr__kernel_fill_pages,  &cgr__kernel_digest_pages,
                                   &cgr__kernel_on_demand,    &cgr__kernel_merge,       &cgr__kernel_measure,
                                   &cgr__kernel_check_values, &cgr__kernel_fingerprint, &cgr__kernel_compare_fingerprints };
  int error = 0;
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0] && !error; i++)
    error = rt->dev->ops->preload(rt->dev, kernels[i]);
  if (!error)
    error = cgr__kernel_kinds_preload(rt->dev, &rt->setup.device);
  return cgr__device_fail(rt->dev, error, "cgr_runtime_create: loading the kernels");
}

/* A layer's cache and its scales. */
static cgr_status register_layer(cgr_runtime *rt, const cgr_layer *l) {
  for (int tensor = CGR__LAYER_TENSOR_K; tensor <= CGR__LAYER_TENSOR_V_SCALE; tensor++) {
    cgr__strided_set strided;
    if (cgr__layer_strided_set(l, &rt->setup.groups[l->group], (cgr__layer_tensor)tensor, &strided))
      CGR__TRY(cgr__regions_register(&rt->regions, (const void *)(uintptr_t)strided.base, (size_t)strided.span, NULL));
  }
  return CGR_OK;
}

static cgr_status register_regions(cgr_runtime *rt) {
  const cgr_config *c = &rt->setup.config;
  CGR__TRY(cgr__regions_register(&rt->regions, rt->arena, rt->layout.bytes, NULL));
  CGR__TRY(cgr__regions_register(&rt->regions, rt->pinned, rt->layout.pinned_bytes, NULL));
  for (int32_t i = 0; i < c->num_groups; i++) {
    const cgr_group *g = &rt->setup.groups[i];
    if (g->page_table)
      CGR__TRY(cgr__regions_register(&rt->regions, g->page_table, cgr__page_table_bytes(&rt->setup, i), NULL));
  }
  for (int32_t i = 0; i < c->num_layers; i++)
    CGR__TRY(register_layer(rt, &rt->setup.layers[i]));
  rt->regions.first_movable = rt->regions.count;
  return CGR_OK;
}

static void make_graphs(cgr_runtime *rt) {
  const cgr_config *c = &rt->setup.config;
  cgr__graphs *graphs = &rt->graphs;
  graphs->dev = rt->dev;
  graphs->regions = &rt->regions;
  graphs->strict = c->strict != 0;
  graphs->max_padding = c->max_padding;
  graphs->labels = c->labels != 0;
  graphs->exact_lengths = rt->setup.exact_lengths;
}

static cgr_status read_setup(cgr_runtime *rt, const cgr_config *config) {
  cgr__findings findings;
  cgr__findings_init(&findings, NULL, 0);
  findings.see = "cgr_validate";
  cgr_status status = cgr__setup_read(config, &rt->dev, &rt->owns_device, &rt->setup, &rt->layout, &findings);
  if (rt->dev)
    cgr__device_retain_runtime(rt->dev);
  CGR__TRY(status);
  return cgr__findings_status(&findings, "cgr_runtime_create: config");
}

/* Every runtime's tickets are its own: a step of one cannot be launched on another. */
static uint64_t first_ticket(void) {
  static uint64_t runtimes;
  return __atomic_add_fetch(&runtimes, 1, __ATOMIC_RELAXED) << CGR__TICKETS_BITS;
}

/* A device with more shared memory than the kernels were made for: its multiprocessors may hold CTAs that the plan does not
 * count on, which then get more of the work than others. Results are the same. */
static void tell_shared_memory(const cgr_runtime *rt) {
  const cgr_config *c = &rt->setup.config;
  char text[192];
  int32_t most = 0, expected = 0;
  for (int32_t i = 0; i < c->num_layers; i++) {
    const cgr__kernel_kind *kind = rt->setup.kinds[i];
    int32_t bytes = kind ? rt->setup.plans.shared_bytes[rt->setup.plans.class_of[i]] : 0;
    if (!kind || bytes <= kind->plan.max_padding || bytes <= most)
      continue;
    most = bytes;
    expected = kind->plan.max_padding;
  }
  if (most == 0)
    return;
  snprintf(text, sizeof text,
           "attention: a CTA would need %d bytes of shared memory to keep others off its multiprocessor, expected at most %d: "
           "steps may be slower than this device allows",
           most, expected);
  c->log(c->log_context, CGR_LOG_WARNING, text);
}

/* Logs what the engine may not have intended. */
static void tell_setup(const cgr_runtime *rt) {
  const cgr_config *c = &rt->setup.config;
  char text[128];
  if (!c->log)
    return;
  if (rt->setup.mode_reason[0])
    c->log(c->log_context, CGR_LOG_INFO, rt->setup.mode_reason);
  tell_shared_memory(rt);
  if (c->num_layers == 0 && c->layers)
    c->log(c->log_context, CGR_LOG_WARNING, "cgr_runtime_create: config: num_layers is 0 and layers is given: none is read");
  for (int32_t i = 0; i < c->num_backends; i++) {
    if (cgr__setup_uses(&rt->setup, 1 + i))
      continue;
    snprintf(text, sizeof text, "backends[%d] (%s) is named by no layer: layer.backend is the index + 1", i,
             rt->setup.backend_names[1 + i]);
    c->log(c->log_context, CGR_LOG_WARNING, text);
  }
}

static cgr_status build_runtime(cgr_runtime *rt, const cgr_config *config) {
  CGR__TRY(read_setup(rt, config));
  rt->tell_dump = cgr__dump_tell;
  cgr__native_complete(&rt->setup.backends[0]);
  cgr__ranges_open(rt);
  cgr__range_begin(rt, CGR__RANGE_CREATE); /* from here on it is known whether there are ranges */
  rt->checks = rt->setup.checks;
  rt->at_return |= rt->checks ? CGR__RETURN_LEAVES : 0;
  rt->reorder_threshold = rt->setup.split.threshold;
  rt->flags |= rt->setup.config.num_programs > 1 ? CGR__RUNTIME_PROGRAMS : 0;
  make_graphs(rt);
  CGR__TRY(take_runtime_host_memory(rt));
  CGR__TRY(take_runtime_device_memory(rt));
  CGR__TRY(make_streams(rt));
  cgr__ranges_name(rt);
  cgr__ring_init(&rt->lane.ring, &rt->layout, rt->setup.config.ring_depth, rt->pinned);
  CGR__TRY(make_waiter(rt));
  CGR__TRY(fill_arena(rt));
  make_args(rt);
  make_staged_args(rt);
  make_planner_args(rt);
  make_on_demand_args(rt);
  CGR__TRY(register_regions(rt));
  CGR__TRY(preload_kernels(rt));
  CGR__TRY(cgr__timing_start(rt));
  cgr__captured_inputs_refresh(rt);
  rt->tickets = first_ticket();
  cgr__tick_clock_compare(&rt->statistics.clock);
  cgr__memory_hold(rt);
  tell_setup(rt);
  return CGR_OK;
}

/* Graphs are destroyed before the buffers that they use, and streams, which finish their work first, and the waiter, which looks
 * at the rings, before memory. Errors are ignored: a dead device refuses everything. */
static void release_device(cgr_runtime *rt) {
  const cgr__device_ops *ops = rt->dev->ops;
  cgr__graphs_drop_all(&rt->graphs);
  cgr__resources_end(rt);
  cgr__backend_plans_destroy_all(rt);
  if (rt->fork_event)
    ops->event_destroy(rt->dev, rt->fork_event);
  if (rt->join_event)
    ops->event_destroy(rt->dev, rt->join_event);
  if (rt->order_event)
    ops->event_destroy(rt->dev, rt->order_event);
  if (rt->side_stream)
    ops->stream_destroy(rt->dev, rt->side_stream);
  if (rt->own_stream)
    ops->stream_destroy(rt->dev, rt->own_stream);
  if (rt->waiter)
    ops->waiter_destroy(rt->dev, rt->waiter);
  if (rt->owns_arena)
    ops->mem_free(rt->dev, rt->arena, CGR__MEMORY_DEVICE);
  if (rt->owns_pinned)
    ops->mem_free(rt->dev, rt->pinned, CGR__MEMORY_PINNED);
  if (rt->read_trash.copies)
    ops->mem_free(rt->dev, rt->read_trash.copies, CGR__MEMORY_PINNED);
  if (rt->starts.copy)
    ops->mem_free(rt->dev, rt->starts.copy, CGR__MEMORY_PINNED);
  cgr__device_release_runtime(rt->dev);
  if (rt->owns_device)
    cgr_device_close(rt->dev);
}

static void tear_down(cgr_runtime *rt) {
  cgr__memory_let_go(rt);
  if (rt->dev)
    release_device(rt);
  free(rt->setup.layers);
  free(rt->host_block);
  rt->magic = 0;
  free(rt);
}

cgr_status cgr_runtime_create(const cgr_config *config, cgr_runtime **runtime) {
  CGR__REQUIRE(runtime, "cgr_runtime_create");
  *runtime = NULL;
  cgr_runtime *rt = aligned_alloc(CGR__CACHE_LINE_BYTES, sizeof *rt);
  if (!rt)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_create: no host memory (%zu bytes)", sizeof *rt);
  memset(rt, 0, sizeof *rt);
  rt->magic = CGR__RUNTIME_MAGIC;
  cgr_status status = build_runtime(rt, config);
  cgr__range_end(rt);
  if (status != CGR_OK) {
    cgr__fail_in("cgr_runtime_create", status);
    cgr__dump_tell(rt);
    tear_down(rt);
    return status;
  }
  *runtime = rt;
  return CGR_OK;
}

/* A stream that the engine has destroyed has finished its work, and a lost device does none. */
static int wait_for_stream(cgr_runtime *rt, cudaStream_t stream, double deadline) {
  int error = cgr__wait_idle(rt, stream, deadline);
  return error == CGR__DEVICE_INVALID || error == CGR__DEVICE_DEAD ? CGR__DEVICE_OK : error;
}

/* The memory is about to be freed, so this waits for streams, not for numbers. */
static cgr_status wait_for_steps(cgr_runtime *rt) {
  const cgr__lane *lane = &rt->lane;
  const double deadline = cgr__wait_deadline(rt);
  int error = CGR__DEVICE_OK;
  if (lane->last_stream && (cgr__runtime_is_dead(rt) || cgr__ring_completed(&lane->ring) != lane->launched))
    error = wait_for_stream(rt, lane->last_stream, deadline);
  if (error == CGR__DEVICE_OK)
    error = wait_for_stream(rt, rt->own_stream, deadline);
  if (error == CGR__DEVICE_OK)
    error = wait_for_stream(rt, rt->side_stream, deadline);
  if (error == CGR__DEVICE_NOT_READY)
    return cgr__fail(CGR_NOT_READY,
                     "cgr_runtime_destroy: after %d ms the steps in flight have not completed (%llu of %llu have), expected them "
                     "to: nothing is destroyed, call again",
                     rt->setup.config.wait_timeout_ms, (unsigned long long)cgr__ring_completed(&lane->ring),
                     (unsigned long long)lane->launched);
  return cgr__device_fail(rt->dev, error, "cgr_runtime_destroy: waiting for the steps in flight");
}

/* A device that is destroyed with its runtime must not leave streams, events or memory of the engine. */
static cgr_status check_own_device(const cgr_runtime *rt) {
  const struct cgr__device_live *live = &rt->dev->live;
  const int32_t allocations = live->allocations - cgr__resources_allocations(rt);
  if (!rt->owns_device || live->streams + live->events + allocations == 0)
    return CGR_OK;
  return cgr__fail(
      CGR_ERROR_STATE,
      "cgr_runtime_destroy: %d stream%s, %d event%s and %d allocation%s of the runtime's own device are alive, expected "
      "none",
      live->streams, cgr__plural(live->streams), live->events, cgr__plural(live->events), allocations, cgr__plural(allocations));
}

cgr_status cgr_runtime_destroy(cgr_runtime *runtime) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_destroy");
  if (!runtime)
    return CGR_OK;
  if (!cgr__runtime_is(runtime))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_destroy: runtime is %p, expected one from cgr_runtime_create",
                     (void *)runtime);
  if (runtime->recording)
    return cgr__fail(CGR_ERROR_STATE,
                     "cgr_runtime_destroy: called from inside record or a call of a step, expected a call outside of it");
  CGR__TRY(check_own_device(runtime));
  bool has_ranges = cgr__has_ranges(runtime);
  cgr__range_begin(runtime, CGR__RANGE_DESTROY);
  cgr_status status = wait_for_steps(runtime);
  if (status == CGR_OK) {
    inside = NULL;
    tear_down(runtime);
  }
  if (has_ranges)
    cgr__nvtx_end();
  return status;
}

cgr_status cgr_runtime_device(cgr_runtime *runtime, cgr_device **device) {
  if (!cgr__runtime_is(runtime)) /* a dead one still has it */
    return cgr__runtime_check(runtime, "cgr_runtime_device");
  CGR__REQUIRE(device, "cgr_runtime_device");
  *device = runtime->dev;
  return CGR_OK;
}
