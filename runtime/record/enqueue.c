/* Enqueues one step through the engine's `record`: the same code for eager steps, warm-up and captures. Says what a step asks of
 * its layers, and makes the calls between the pieces of a PIECEWISE step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/record/record.h"
#include "runtime/report/ranges.h"
#include "runtime/report/timing.h"

/* ------------------------------------------------------------------------------------------------------ alongside the step */

/* The side stream continues after what `stream` has so far. */
static int fork_side(cgr_runtime *rt, cudaStream_t stream) {
  int error = rt->dev->ops->event_record(rt->dev, rt->fork_event, stream);
  return error ? error : rt->dev->ops->event_wait(rt->dev, rt->fork_event, rt->side_stream);
}

/* A kernel on the side stream, with the timestamps of its phase; an error is reported as `*what`. */
static int launch_on_branch(cgr_runtime *rt, const cgr__kernel *kernel, const void *args, cgr_phase phase, const char **what) {
  int error = cgr__timing_stamp(rt, rt->side_stream, cgr__stamp_begin(phase), what);
  if (!error)
    error = rt->dev->ops->launch(rt->dev, kernel, args, rt->side_stream);
  return error ? error : cgr__timing_stamp(rt, rt->side_stream, cgr__stamp_end(phase), what);
}

/* The same, concurrently with what `stream` gets until it waits for join_event. One at a time. */
static int fork_kernel(cgr_runtime *rt, cudaStream_t stream, const cgr__kernel *kernel, const void *args, cgr_phase phase,
                       const char **what) {
  const cgr__device_ops *ops = rt->dev->ops;
  int error = fork_side(rt, stream);
  if (!error)
    error = launch_on_branch(rt, kernel, args, phase, what);
  if (!error)
    error = ops->event_record(rt->dev, rt->join_event, rt->side_stream);
  return error;
}

/* The branch alongside whatever comes before the first attention: what is now enqueued on the side stream belongs to it. It forks
 * off the step the first time, and once more with `again`, if it must come after what the step has got since. */
static cgr_status begin_branch(cgr__step_recorder *recorder, bool again) {
  bool forks = again || !recorder->branched;
  int error = forks ? fork_side(recorder->runtime, recorder->base.stream) : 0;
  recorder->branched = true;
  recorder->branch_joined = false;
  return cgr__runtime_device_error(recorder->runtime, error, "step: forking the branch of plans and on-demand buffers");
}

static cgr_status end_branch(cgr_runtime *rt) {
  int error = rt->dev->ops->event_record(rt->dev, rt->join_event, rt->side_stream);
  return cgr__runtime_device_error(rt, error, "step: ending the branch of plans and on-demand buffers");
}

/* Whether a function of the engine has failed: the step is given up, but the rest of it is still enqueued. After any other
 * failure, or in a capture, nothing more is enqueued: it might fail for the same cause, and hide it. */
static bool gives_up(const cgr__step_recorder *recorder, cgr_status status) {
  return status == CGR_ERROR_CALLBACK && !recorder->base.capture;
}

/* What backends enqueue to plan the step: those with PLANS_FIRST, then, after what is on demand and staged, the others. A graph
 * starts its branches in the order in which they are enqueued. The planners' branch comes before all work of the engine, so
 * that a planner does not wait for room behind the engine's first kernel (on an H200 it otherwise began when a kernel of 32
 * blocks per SM had ended). A branch in which a backend has failed is still ended: the step, which is given up, waits for it. */
static cgr_status enqueue_plans(cgr__step_recorder *recorder, bool first) {
  cgr_runtime *rt = recorder->runtime;
  if (!(first ? rt->backend_plans.has_first : rt->backend_plans.has_after))
    return CGR_OK;
  cudaStream_t stream = recorder->base.stream;
  /* The kernel of the staged buffers is on the step's stream: a branch that forked earlier is not ordered after it. */
  CGR__TRY(begin_branch(recorder, !first && rt->lane.staged_args.num_buffers > 0));
  cgr__range_begin(rt, CGR__RANGE_PLANNER);
  cgr_phase phase = first ? CGR_PHASE_PLAN_FIRST : CGR_PHASE_PLAN;
  recorder->base.stream = rt->side_stream;
  cgr_status planned = cgr__timing_try(rt, rt->side_stream, cgr__stamp_begin(phase));
  if (planned == CGR_OK)
    planned = cgr__backend_plans_enqueue(recorder, first);
  if (planned == CGR_OK)
    planned = cgr__timing_try(rt, rt->side_stream, cgr__stamp_end(phase));
  recorder->base.stream = stream;
  cgr__range_end(rt);
  if (planned == CGR_OK || gives_up(recorder, planned))
    CGR__TRY(end_branch(rt));
  return planned;
}

/* Groups of other programs have buffers of their own, which stay as they are. */
static void keep_own_groups(const cgr_runtime *rt, int32_t program, cgr__on_demand_args *args) {
  const uint32_t others = rt->lane.other_groups[program];
  const int32_t count = args->num_groups;
  args->num_groups = 0;
  for (int32_t g = 0; g < count; g++)
    if (!(others >> g & 1u))
      args->group[args->num_groups++] = args->group[g];
}

static cgr_status enqueue_on_demand(cgr__step_recorder *recorder) {
  cgr_runtime *rt = recorder->runtime;
  if (rt->lane.on_demand_args.asked == 0)
    return CGR_OK;
  cgr__on_demand_args args = rt->lane.on_demand_args;
  const char *what = "step: enqueuing the on-demand buffers";
  keep_own_groups(rt, recorder->base.key.program, &args);
  args.batch.padded_requests = recorder->base.key.num_requests;
  args.batch.set = recorder->set;
  CGR__TRY(begin_branch(recorder, false)); /* it reads only what the prologue has left */
  cgr__range_begin(rt, CGR__RANGE_ON_DEMAND);
  int error = launch_on_branch(rt, &cgr__kernel_on_demand, &args, CGR_PHASE_ON_DEMAND, &what);
  cgr__range_end(rt);
  CGR__TRY(cgr__runtime_device_error(rt, error, what));
  return end_branch(rt);
}

/* The engine's own buffers. Enqueued after the fork of the branch, so as not to delay it. */
static cgr_status enqueue_staged(const cgr__step_recorder *recorder) {
  cgr_runtime *rt = recorder->runtime;
  if (rt->lane.staged_args.num_buffers == 0)
    return CGR_OK;
  cgr__staged_args args = rt->lane.staged_args;
  const char *what = "step: enqueuing the engine's staged buffers";
  args.padded_requests = recorder->base.key.num_requests;
  args.padded_tokens = recorder->base.key.num_tokens;
  cgr__range_begin(rt, CGR__RANGE_STAGED);
  int error = rt->dev->ops->launch(rt->dev, &cgr__kernel_staged, &args, recorder->base.stream);
  if (!error)
    error = cgr__timing_stamp(rt, recorder->base.stream, cgr__stamp_between(CGR_PHASE_STAGED, CGR_PHASE_RECORD), &what);
  cgr__range_end(rt);
  return cgr__runtime_device_error(rt, error, what);
}

/* All that comes before `record`. `plans`: also what backends plan, which only `record` reads. The on-demand buffers outlive the
 * step, so they are made even in one that a backend has given up. */
static cgr_status enqueue_metadata(cgr__step_recorder *recorder, bool plans) {
  cgr_status planned = plans ? enqueue_plans(recorder, true) : CGR_OK;
  if (planned != CGR_OK && !gives_up(recorder, planned))
    return planned;
  CGR__TRY(enqueue_on_demand(recorder));
  CGR__TRY(enqueue_staged(recorder));
  return plans && planned == CGR_OK ? enqueue_plans(recorder, false) : planned;
}

static int wait_for_branch(cgr__step_recorder *recorder) {
  cgr_runtime *rt = recorder->runtime;
  if (recorder->branch_joined)
    return 0;
  int error = rt->dev->ops->event_wait(rt->dev, rt->join_event, recorder->base.stream);
  recorder->branch_joined = !error;
  return error;
}

cgr_status cgr__join_branch(cgr__step_recorder *recorder) {
  return cgr__runtime_device_error(recorder->runtime, wait_for_branch(recorder),
                                   "step: joining the branch of plans and on-demand buffers");
}

cgr_status cgr__record_kernel(cgr__step_recorder *recorder, const cgr__kernel *kernel, const void *args, const char *what) {
  cgr_runtime *rt = recorder->runtime;
  cgr_status status = cgr__runtime_device_error(rt, rt->dev->ops->launch(rt->dev, kernel, args, recorder->base.stream), what);
  if (status != CGR_OK)
    recorder->refused = status;
  return status;
}

/* ---------------------------------------------------------------------------------------------------------------- layers */

/* A layer is in the steps of its program alone. A step has the tokens of one length set. A layer without a cache takes part in
 * steps of its own set alone, and sees their tokens. A layer with a cache appends the tokens of its own set, or with kv_source
 * may attend to those appended so far. In steps of the sequences (set 0), a layer of another set attends to its cache and appends
 * nothing. */
cgr__layer_need cgr__layer_need_of(const cgr_runtime *rt, int32_t layer, int32_t program, int32_t set) {
  const cgr_layer *l = &rt->setup.layers[layer];
  if (l->program != program)
    return CGR__LAYER_STAYS_OUT;
  if (l->flags & CGR_LAYER_NO_CACHE)
    return l->length_set == set ? CGR__LAYER_ATTENDS : CGR__LAYER_STAYS_OUT;
  if (l->length_set != set)
    return set == 0 ? CGR__LAYER_READS : CGR__LAYER_STAYS_OUT;
  if (set == 0)
    return CGR__LAYER_WORKS;
  return cgr__owns_cache(l) ? CGR__LAYER_FILLS : CGR__LAYER_MAY_READ;
}

/* A backend that appends by itself says with its own `record` how the cache is filled. */
static bool is_done(const cgr__step_recorder *rec, int32_t layer) {
  const cgr__setup *setup = &rec->runtime->setup;
  bool attended = cgr__layer_is_marked(rec->marks.attended, layer), appended = cgr__layer_is_marked(rec->marks.appended, layer);
  int32_t backend = setup->layers[layer].backend;
  switch (cgr__layer_need_of(rec->runtime, layer, rec->base.key.program, rec->set)) {
  case CGR__LAYER_STAYS_OUT:
  case CGR__LAYER_MAY_READ:
    return true;
  case CGR__LAYER_FILLS:
    return appended || (attended && setup->backends[backend].flags & CGR_BACKEND_APPENDS);
  default:
    return attended || appended;
  }
}

/* That `record` has done what the step asks of each layer. One that it forgets is named by its index. */
static cgr_status check_layers(const cgr__step_recorder *rec) {
  int32_t num_layers = rec->runtime->setup.config.num_layers;
  for (int32_t l = 0; l < num_layers; l++)
    if (!is_done(rec, l) && rec->set > 0)
      return cgr__fail(CGR_ERROR_CALLBACK,
                       "record: layer %d of %d was left out of a step of length set %d, expected cgr_record_attention to %s it",
                       l, num_layers, rec->set,
                       cgr__layer_need_of(rec->runtime, l, rec->base.key.program, rec->set) == CGR__LAYER_FILLS ? "append to"
                                                                                                                : "attend");
    else if (!is_done(rec, l))
      return cgr__fail(CGR_ERROR_CALLBACK, "record: layer %d of %d was left out, expected cgr_record_attention for each", l,
                       num_layers);
  return CGR_OK;
}

/* How many layers `record` must come to. */
static int32_t count_layers(const cgr_runtime *rt, int32_t program, int32_t set) {
  int32_t count = 0;
  for (int32_t l = 0; l < rt->setup.config.num_layers; l++) {
    cgr__layer_need need = cgr__layer_need_of(rt, l, program, set);
    count += need != CGR__LAYER_STAYS_OUT && need != CGR__LAYER_MAY_READ;
  }
  return count;
}

/* ----------------------------------------------------------------------------------------------------------------- fetch */

/* The ring slot of the next step is fetched alongside the last two layers and what comes after them: late, so that the host has
 * had time to commit it, and early enough to be done before the epilogue. An eager step does without, since the two launches
 * would cost the host more than they save; so does a PIECEWISE one, whose pieces end at the attentions. */
static bool fetches_ahead(const cgr__enqueue *enqueue) { return enqueue->capture && enqueue->key.kind == CGR_KIND_FULL; }

static int32_t count_layers_before_fetch(const cgr_runtime *rt, int32_t program, int32_t set) {
  int32_t num_layers = count_layers(rt, program, set);
  return num_layers > 1 ? num_layers - 1 : num_layers;
}

cgr_status cgr__fork_fetch(cgr__step_recorder *recorder) {
  cgr_runtime *rt = recorder->runtime;
  const char *what = "cgr_record_attention: enqueuing the fetch of the next step";
  cgr__range_begin(rt, CGR__RANGE_FETCH);
  int error = fork_kernel(rt, recorder->base.stream, &cgr__kernel_fetch, &rt->lane.args, CGR_PHASE_FETCH, &what);
  cgr__range_end(rt);
  recorder->fetch_forked = !error;
  return cgr__runtime_device_error(rt, error, what);
}

/* Whether anything still runs alongside the step. */
static bool has_branches(const cgr__step_recorder *recorder) { return !recorder->branch_joined || recorder->fetch_forked; }

static int wait_for_branches(cgr__step_recorder *recorder) {
  cgr_runtime *rt = recorder->runtime;
  int error = wait_for_branch(recorder);
  if (!error && recorder->fetch_forked)
    error = rt->dev->ops->event_wait(rt->dev, rt->join_event, recorder->base.stream);
  return error;
}

/* ---------------------------------------------------------------------------------------------------------------- record */

static cgr_status run_record(cgr__step_recorder *recorder, const cgr__enqueue *enqueue) {
  if (!enqueue->record)
    return CGR_OK;
  memset(&recorder->marks, 0, sizeof recorder->marks);
  if (recorder->runtime->lane.on_demand_args.asked != 0 && recorder->runtime->setup.config.num_layers == 0)
    CGR__TRY(cgr__join_branch(recorder)); /* the engine's attention may come at any time */
  cgr__range_begin(recorder->runtime, CGR__RANGE_RECORD);
  bool was_inside = cgr__step_enter(recorder->runtime);
  cgr_status status = cgr__recorder_run(&recorder->base, enqueue->record, enqueue->engine);
  cgr__step_leave(recorder->runtime, was_inside);
  cgr__range_leave_layer(recorder);
  cgr__range_end(recorder->runtime);
  CGR__TRY(status);
  return check_layers(recorder);
}

static cgr_status join_before_break(cgr_recorder *recorder) { return cgr__join_branch(recorder->owner); }

static void find_bounds(cgr_recorder *recorder) {
  const cgr__step_recorder *rec = recorder->owner;
  recorder->max_seq_len = cgr__fill_seq_lens(rec->runtime, rec->batch, recorder->key.program, rec->set, NULL);
  recorder->max_query_len = cgr__longest_query(rec->batch);
  recorder->num_decodes = cgr__count_decodes(rec->runtime, rec->batch, &recorder->num_decode_tokens);
}

static void set_recorder(cgr__step_recorder *recorder, cgr_runtime *rt, const cgr__enqueue *enqueue) {
  memset(recorder, 0, offsetof(cgr__step_recorder, marks)); /* which run_record clears: calls between pieces have none */
  recorder->runtime = rt;
  recorder->base.owner = recorder;
  recorder->base.dev = rt->dev;
  recorder->base.stream = enqueue->stream;
  recorder->base.key = enqueue->key;
  recorder->set = cgr__graphs_set_of(&rt->graphs, enqueue->key.variant);
  recorder->base.watched = rt->flags & (CGR__RUNTIME_RANGES | CGR__RUNTIME_LABELS);
  recorder->base.capturing = enqueue->capture != NULL;
  recorder->base.capture = enqueue->capture;
  recorder->base.pieces = enqueue->key.kind == CGR_KIND_PIECEWISE ? enqueue->capture : NULL;
  recorder->base.before_break = join_before_break;
  recorder->base.real_tokens = enqueue->real_tokens;
  recorder->base.real_requests = enqueue->real_requests;
  recorder->base.max_seq_len = rt->setup.limits.max_lens[recorder->set];
  recorder->base.max_query_len = enqueue->key.query_len > 0 ? enqueue->key.query_len : enqueue->key.num_tokens;
  recorder->base.num_decodes = recorder->base.num_decode_tokens = -1;
  recorder->batch = enqueue->batch;
  recorder->plan_flags = enqueue->plan_flags;
  recorder->branch_joined = true; /* until there is a branch */
  recorder->states = cgr__backend_plans_states(rt, enqueue->entry);
  recorder->of_eager = !enqueue->entry;
  recorder->records = enqueue->record != NULL;
  recorder->checks_ends = enqueue->capture || enqueue->warms_up || rt->setup.checks;
  recorder->base.find_plan = cgr__backend_plans_find;
  recorder->base.find_bounds = enqueue->capture ? NULL : find_bounds;
  recorder->layers_left = fetches_ahead(enqueue) ? count_layers_before_fetch(rt, enqueue->key.program, recorder->set) : 0;
}

static cgr__step_args step_args(const cgr_runtime *rt, const cgr__enqueue *enqueue) {
  cgr__step_args args = rt->lane.args;
  args.padded_requests = enqueue->key.num_requests;
  args.padded_tokens = enqueue->key.num_tokens;
  args.empty = enqueue->empty;
  args.set = cgr__graphs_set_of(&rt->graphs, enqueue->key.variant);
  args.program = enqueue->key.program;
  args.other_groups = rt->lane.other_groups[enqueue->key.program];
  args.buffers.row_computed += (int64_t)enqueue->key.program * (args.max_rows + 1);
  args.max_query_len = enqueue->key.query_len;
  if (args.max_query_len == 0 && enqueue->batch) /* an eager step is launched for its own batch */
    args.max_query_len = cgr__longest_query(enqueue->batch);
  return args;
}

/* Ends the layer that is under way, and `record`; begins the epilogue, unless that waits for something alongside the step. */
static int stamp_record_end(const cgr__step_recorder *recorder, bool waits, const char **what) {
  if (!recorder->records && waits)
    return 0;
  const cgr__stamp_words words = { {
      recorder->timed_layer > 0 ? cgr__stamp_layer_word(CGR_PHASE_LAYER, recorder->timed_layer - 1, 1) : 0,
      recorder->records ? cgr__end_of(CGR_PHASE_RECORD) : 0,
      waits ? 0 : cgr__begin_of(CGR_PHASE_EPILOGUE),
  } };
  return cgr__timing_stamp(recorder->runtime, recorder->base.stream, words, what);
}

/* What the step waits for before its epilogue; an error is reported as `*what`. */
static int join_all(cgr__step_recorder *recorder, const char **what) {
  bool waits = has_branches(recorder);
  int error = stamp_record_end(recorder, waits, what);
  if (!error)
    error = wait_for_branches(recorder);
  if (!error && waits)
    error = cgr__timing_stamp(recorder->runtime, recorder->base.stream, cgr__stamp_begin(CGR_PHASE_EPILOGUE), what);
  return error;
}

/* A step that `record` or a call gave up still ends with an epilogue, which commits nothing, so that the device's counter and the
 * host's stay together. If the device is lost here, the earlier failure is reported as the cause. */
static cgr_status end_step(cgr__step_recorder *recorder, cgr__step_args *args, cgr_status recorded, cgr__enqueue_result *result) {
  cgr_runtime *rt = recorder->runtime;
  const char *what = "step: joining the branch of plans and on-demand buffers, or the fetch of the next step";
  char cause[400];
  strncpy(cause, cgr_last_message(), sizeof cause - 1);
  cause[sizeof cause - 1] = 0;
  cgr__range_begin(rt, CGR__RANGE_EPILOGUE);
  int error = join_all(recorder, &what);
  if (!error && !recorder->base.capture && (recorded != CGR_OK || args->empty)) {
    what = "step: zeroing the workspaces of backends"; /* whoever sees the step complete finds zeros */
    error = cgr__backend_plans_clear(rt, recorder->base.stream);
  }
  if (!error) {
    what = "step: enqueuing the epilogue";
    args->abandon = recorded != CGR_OK;
    error = rt->dev->ops->launch(rt->dev, &cgr__kernel_epilogue, args, recorder->base.stream);
  }
  cgr__range_end(rt);
  if (!error)
    *result = recorded == CGR_OK ? CGR__ENQUEUE_WHOLE : CGR__ENQUEUE_ABANDONED;
  cgr_status ended = cgr__runtime_device_error(rt, error, recorded == CGR_OK ? what : cause);
  return recorded == CGR_OK || ended == CGR_ERROR_DEAD ? ended : cgr__fail(recorded, "%s", cause);
}

/* What comes next on the stream begins where the prologue ends. */
static cgr_status enqueue_prologue(cgr_runtime *rt, const cgr__enqueue *enqueue, const cgr__step_args *args) {
  cgr_phase next = rt->lane.staged_args.num_buffers > 0 ? CGR_PHASE_STAGED : CGR_PHASE_RECORD;
  const char *what = "step: enqueuing the prologue";
  cgr__range_begin(rt, CGR__RANGE_PROLOGUE);
  int error = cgr__timing_begin(rt, enqueue->stream, &what);
  if (!error)
    error = rt->dev->ops->launch(rt->dev, &cgr__kernel_prologue, args, enqueue->stream);
  if (!error)
    error = cgr__timing_stamp(rt, enqueue->stream, cgr__stamp_between(CGR_PHASE_PROLOGUE, next), &what);
  cgr__range_end(rt);
  return cgr__runtime_device_error(rt, error, what);
}

cgr_status cgr__enqueue_step(cgr_runtime *rt, const cgr__enqueue *enqueue, cgr__enqueue_result *result) {
  cgr__step_recorder *recorder = &rt->recorder;
  cgr__step_args args = step_args(rt, enqueue);
  set_recorder(recorder, rt, enqueue);
  *result = CGR__ENQUEUE_BROKEN;
  CGR__TRY(enqueue_prologue(rt, enqueue, &args));
  cgr_status recorded = enqueue_metadata(recorder, enqueue->record != NULL);
  if (recorded != CGR_OK && !gives_up(recorder, recorded))
    return recorded;
  if (recorded == CGR_OK)
    recorded = run_record(recorder, enqueue);
  if (enqueue->capture && !enqueue->capture->open)
    return recorded; /* nothing captures any more: the epilogue would run */
  return end_step(recorder, &args, recorded, result);
}

/* ---------------------------------------------------------------------------------------------------------------- pieces */

cgr_status cgr__enqueue_breaks(cgr_runtime *rt, const cgr__enqueue *enqueue, cgr__graph_entry *entry,
                               cgr__enqueue_result *result) {
  cgr__step_recorder *recorder = &rt->recorder;
  int error;
  set_recorder(recorder, rt, enqueue);
  recorder->base.pieces = NULL;
  *result = CGR__ENQUEUE_BROKEN;
  bool was_inside = cgr__step_enter(rt);
  cgr_status status = cgr__graphs_launch_breaks(&rt->graphs, entry, &recorder->base, &error);
  cgr__step_leave(rt, was_inside);
  if (error)
    return cgr__runtime_device_error(rt, error, "cgr_step_launch: launching what is between two pieces, or a piece");
  if (status == CGR_OK) {
    *result = CGR__ENQUEUE_WHOLE;
    return CGR_OK;
  }
  cgr__step_args args = step_args(rt, enqueue);
  return end_step(recorder, &args, status, result);
}
