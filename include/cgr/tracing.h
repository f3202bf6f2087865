/* cgr: what a runtime reports about itself: statistics of the whole and per key, also as text; the flight recorder; times taken
 * inside steps; traces. base.h says how texts are written. Not included by cgr.h.
 *
 * A record of 64 bytes is always kept of every step that is launched, cancelled, abandoned or refused (refusals in a
 * row that say the same share one): the last cgr_config.flight_depth of them are the flight recorder, and all statistics are
 * sums over them. Host times come from the processor's time stamp counter, for one step in cgr_config.time_every; a time above
 * 2^32 ticks of it (0.9 s at 4.8 GHz, 2.1 s at 2 GHz) counts as 2^32 - 1. After a checkpoint is restored or a virtual machine
 * moves, times from before may be off by any amount; later ones are right.
 *
 * All of this also works on a dead runtime, whose last steps are the ones to look at, except what asks the device:
 * cgr_runtime_timing and cgr_runtime_trace_step answer CGR_ERROR_DEAD, and cgr_runtime_trace writes only the host's part.
 *
 * Calls with a runtime fold pending records into its statistics. Make them on the thread that makes its steps, between two steps,
 * or under the lock around the steps. To answer a scrape from another thread, hand it a text written this way.
 * They refuse a bad handle (CGR_ERROR_NULL_POINTER, CGR_ERROR_INVALID_ARGUMENT), NULL where an address is needed
 * (CGR_ERROR_NULL_POINTER), and a struct without its _INIT macro (CGR_ERROR_INVALID_STRUCT). */
#ifndef CGR_TRACING_H
#define CGR_TRACING_H

#include "cgr/graphs.h"
#include "cgr/step.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------------- histograms */

enum { CGR_HISTOGRAM_BUCKETS = 48 };

/* Durations in nanoseconds (of long ones see above). Bucket i counts those above the border of bucket i - 1, up to its own;
 * borders are 128, 192, 256, 384 and so on, two to each doubling, up to 1.07 s; the last bucket has no border. */
typedef struct cgr_histogram {
  uint64_t count, sum_ns, max_ns;
  uint64_t bucket[CGR_HISTOGRAM_BUCKETS];
} cgr_histogram;

/* The largest time that a bucket counts; UINT64_MAX for the last one, 0 for one that is not there.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API uint64_t cgr_histogram_border(int32_t bucket);
/* A time that this percentage of those counted does not exceed: the border of the bucket in which the percentile is, or the
 * largest time if that is less. 0 if nothing was counted, or for a NULL histogram; percent is taken as 0 .. 100.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API uint64_t cgr_histogram_percentile(const cgr_histogram *histogram, double percent);

/* ------------------------------------------------------------------------------------------- statistics of a runtime */

typedef struct cgr_stats {
  uint32_t size;
  int32_t num_graphs;         /* usable now */
  uint64_t steps;             /* launched, those of the runtime itself included */
  uint64_t by_reason[3][16];  /* [cgr_graph_kind][cgr_reason]; adds up to steps */
  uint64_t real_tokens;       /* of steps with requests */
  uint64_t padded_tokens;     /* that they were launched for */
  uint64_t bytes_staged;      /* that the device read for launched steps */
  uint64_t cancelled;         /* prepared steps that were cancelled */
  uint64_t abandoned;         /* prepared steps that a failed call of cgr_step_launch has ended */
  uint64_t refused;           /* prepare calls that failed, except on a dead runtime or from inside `record` */
  uint64_t captures_failed;
  uint64_t guard_errors;      /* steps that reported a guard error, as far as they have completed */
  uint64_t graph_bytes;       /* device memory of the existing graphs */
  double capture_ms;          /* what capturing them took */
  uint64_t refused_launches;  /* calls of cgr_step_launch that failed and left the step prepared */
  uint64_t drafts;            /* guesses that completed steps have verified, as far as results were taken (cgr_request_info): not
                                 those of requests that a guard refused */
  uint64_t drafts_accepted;   /* of these */
} cgr_stats;
#define CGR_STATS_INIT { (uint32_t)sizeof(cgr_stats), 0, 0, { { 0 } }, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0 }
/* What the runtime has counted since it was created, and the graphs that it holds now. A dead runtime answers too.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_stats(cgr_runtime *runtime, cgr_stats *stats);

/* ---------------------------------------------------------------------------------------------------- statistics per key */

/* Sums over the launched steps of one key. Over all keys and the eager steps `steps` adds up to cgr_stats.steps, and `reasons`
 * to cgr_stats.by_reason. */
typedef struct cgr_key_stats {
  uint32_t size;
  int32_t state;             /* cgr_graph_state; of eager steps EMPTY */
  cgr_key key;               /* of eager steps kind NONE and zeros */
  uint64_t steps;            /* launched. The runtime's own steps count as eager ones */
  uint64_t reasons[16];      /* [cgr_reason]; adds up to steps */
  uint64_t real_requests;    /* of steps with requests */
  uint64_t padded_requests;  /* the same, with the padding that they were launched with */
  uint64_t real_tokens, padded_tokens; /* the same */
  uint64_t bytes_staged;     /* that the device read for them */
  uint64_t misses;           /* steps that would have used its graph and could not, since it was last captured */
  int64_t num_nodes;         /* of its graph, like the next two, as in cgr_graph_stats; 0: it has none */
  int64_t device_bytes;
  double capture_ms;         /* what capturing it took */
  cgr_histogram prepare;     /* host time in cgr_step_prepare, of those steps that were timed (cgr_config.time_every) */
  cgr_histogram launch;      /* the same for cgr_step_launch; neither has the runtime's own steps. It ends when the record is
                                written: every 256th call also counts 256 records; those microseconds are not in it */
  uint64_t turned_down;      /* steps that would have used or missed its graph without cgr_config.max_padding */
  int32_t bytes_estimated;   /* as in cgr_graph_stats */
  int32_t reserved;
} cgr_key_stats;
#define CGR_KEY_STATS_INIT                                                                                               \
  { (uint32_t)sizeof(cgr_key_stats), 0, { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }, 0, { 0 }, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, \
    { 0, 0, 0, { 0 } }, { 0, 0, 0, { 0 } }, 0, 0, 0 }

/* For the key with this index, as in cgr_runtime_graph_stats; -1: the eager steps. CGR_ERROR_INVALID_ARGUMENT for any other.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_key_stats(cgr_runtime *runtime, int32_t index, cgr_key_stats *stats);

/* A table for people: every key that steps have used, missed or turned down, then what the runtime counts as a whole.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_stats_text(cgr_runtime *runtime, char *out, size_t capacity, size_t *length);

typedef struct cgr_label {
  const char *name;  /* letters, digits and _, no digit first, no __ first, and none of cgr's own: key, kind, reason, le, version,
                        device */
  const char *value; /* any text */
} cgr_label;

/* The same for Prometheus, in its text exposition format 0.0.4. Each sample carries the 0 .. 16 `labels` (an engine's name, a
 * rank); they may be NULL if there are none. CGR_ERROR_INVALID_ARGUMENT for a name that is not allowed or comes twice. Counters
 * are per key ("full 8r 8t q1 v0": kind, padded requests and tokens, query length and variant; "eager"), starting with the first
 * call that finds the key captured, used, missed or turned down. Reasons are per kind; times are histograms per kind, with a
 * border at each doubling. 11 samples a key, about 1 us each with two labels.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_metrics(cgr_runtime *runtime, const cgr_label *labels, int32_t num_labels, char *out,
                                       size_t capacity, size_t *length);

/* -------------------------------------------------------------------------------------------------------- flight recorder */

typedef enum cgr_flight_outcome {
  CGR_FLIGHT_PREPARED = 0,  /* neither launched nor cancelled yet; in dumps alone */
  CGR_FLIGHT_LAUNCHED = 1,
  CGR_FLIGHT_CANCELLED = 2,
  CGR_FLIGHT_ABANDONED = 3, /* its launch failed. Its number, if it has one, was used by the INTERNAL step before it, unless the
                               runtime died. With CGR_REASON_INTERNAL: a step of the runtime itself has failed */
  CGR_FLIGHT_REFUSED = 4,   /* its prepare failed; refusals in a row that say the same are one record */
  CGR_FLIGHT_INTERNAL = 5   /* a step of the runtime itself: CGR_REASON_INTERNAL */
} cgr_flight_outcome;

typedef struct cgr_flight_record {
  uint32_t size;
  int32_t outcome;       /* cgr_flight_outcome */
  int32_t reason;        /* cgr_reason; of a refused step, why it had no graph, or -1 if it was refused for something else */
  int32_t status;        /* cgr_status of the call that failed; if cancelled, of its launch if that was refused; else CGR_OK */
  int32_t key_index;     /* as in cgr_runtime_graph_stats; -1: an eager step; of a refused one the key that it missed, or -1 */
  int32_t num_requests;  /* real, and so are the tokens; the key has the padded counts. A refused step has neither */
  int32_t num_tokens;
  uint32_t layout;       /* hash of what graphs are made from: layout, configuration, arguments (its low 32 bits) */
  cgr_key key;
  uint64_t seq;          /* the step's number; 0: it has none */
  uint64_t bytes_staged; /* of a step that was preceded by changes sent ahead, theirs included */
  uint64_t at_ns;        /* when prepare began, or when a step of the runtime's was launched: CLOCK_MONOTONIC */
  uint64_t prepare_ns;   /* host time in cgr_step_prepare; 0: the step was not timed */
  uint64_t launch_ns;    /* the same for cgr_step_launch */
  cgr_guard guard;       /* what the device refused of the step: kept for ring_depth steps; for the last 16 that cgr_step_wait
                            returned with CGR_ERROR_STEP, as long as the record */
  uint64_t launch_at_ns; /* when launch began, in a runtime with cgr_config.timing; 0: not known, or not launched */
  uint64_t repeats;      /* of a refused step: how often the same was refused again after it; times are those of the first */
  int32_t completed;     /* 1: the device has completed the step of this number */
  int32_t reserved;
} cgr_flight_record;
#define CGR_FLIGHT_RECORD_INIT                                                                                              \
  { (uint32_t)sizeof(cgr_flight_record), 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }, 0, 0, 0, 0, 0,    \
    { 0, 0, 0, 0, 0 }, 0, 0, 0, 0 }

/* The last steps, the newest last. *count says how many are kept; the newest `capacity` of them are written, records[0].size
 * bytes apart: each must have that size (CGR_ERROR_INVALID_STRUCT). capacity is 0 or more (CGR_ERROR_INVALID_ARGUMENT); with 0
 * records may be NULL.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_flight(cgr_runtime *runtime, cgr_flight_record *records, int32_t capacity, int32_t *count);

/* ---------------------------------------------------------------------------------------------------------- in-graph timing */

/* cgr_config.timing: which timestamps steps take. */
typedef enum cgr_timing_mode {
  CGR_TIMING_OFF = 0,
  CGR_TIMING_PHASES = 1, /* of all phases but the last three */
  CGR_TIMING_LAYERS = 2  /* of all: LAYER, APPEND and ATTENTION, too */
} cgr_timing_mode;

/* What a step is made of on the device. A phase that a step does not have has no span. */
typedef enum cgr_phase {
  CGR_PHASE_STEP = 0,      /* all of it: from the first timestamp, before the prologue, to the epilogue's end */
  CGR_PHASE_PROLOGUE = 1,
  CGR_PHASE_STAGED = 2,    /* the engine's own buffers */
  CGR_PHASE_PLAN_FIRST = 3, /* plans of backends with PLANS_FIRST, the library's own among them; runs alongside the step, as do the
                               next two and the fetch */
  CGR_PHASE_ON_DEMAND = 4, /* on-demand buffers */
  CGR_PHASE_PLAN = 5,      /* the other plans */
  CGR_PHASE_RECORD = 6,    /* what `record` enqueues; begins when what is before it on the step's stream has ended */
  CGR_PHASE_FETCH = 7,     /* of the next step's ring slot; FULL graphs alone */
  CGR_PHASE_EPILOGUE = 8,
  CGR_PHASE_LAYER = 9,     /* from its first attention call to that of the layer that comes next, or to the end of RECORD */
  CGR_PHASE_APPEND = 10,   /* of a layer, with its transform; none if a backend of the engine appends while it attends */
  CGR_PHASE_ATTENTION = 11, /* of a layer */
  CGR_PHASE_COUNT_ = 12
} cgr_phase;

typedef struct cgr_span {
  uint32_t size;
  int32_t phase;       /* cgr_phase */
  int32_t layer;       /* of LAYER, APPEND and ATTENTION; else -1 */
  int32_t reserved;
  uint64_t begin_ns;   /* device clock: the GPU's global timer, on the host device CLOCK_MONOTONIC */
  uint64_t end_ns;     /* at least begin_ns */
  uint64_t host_ns;    /* begin_ns as CLOCK_MONOTONIC, by the last comparison of the two clocks */
} cgr_span;
#define CGR_SPAN_INIT { (uint32_t)sizeof(cgr_span), 0, 0, 0, 0, 0, 0 }

/* The spans of the step that `mark` names on the device, ordered by when they began; of those that began together, the outer
 * first. Abandoned steps and those of the runtime itself have spans too (but in a PIECEWISE step that was abandoned in a call,
 * the layer under way has no LAYER span). *count says how many there are, at most 9 plus 3 per layer; the first `capacity` are
 * written, spans[0].size bytes apart: each must have that size (CGR_ERROR_INVALID_STRUCT). capacity is 0 or more
 * (CGR_ERROR_INVALID_ARGUMENT); with 0 spans may be NULL. The step must have been launched (CGR_ERROR_INVALID_ARGUMENT) and
 * have completed (CGR_NOT_READY), and be one of the last ring_depth (CGR_ERROR_EXPIRED). CGR_ERROR_STATE without
 * cgr_config.timing and inside `record`, CGR_ERROR_DEAD on a dead runtime. Copies a few KB from the device on a stream of the
 * runtime's own and waits for that, not for any step; once a second it also compares the clocks, which takes some 100 us.
 * CGR_ERROR_DEVICE if one of these fails.
 * Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_runtime_timing(cgr_runtime *runtime, cgr_mark mark, cgr_span *spans, int32_t capacity, int32_t *count);

/* ------------------------------------------------------------------------------------------------------------------- traces */

/* Trace events as Perfetto and chrome://tracing read them: JSON of the object form, times in us of CLOCK_MONOTONIC. pid is the
 * process; tid 1 is the host (prepare, launch), 2 the device's step with its layers, 3 what runs alongside it; tids from 16 on are
 * free for the engine's own events. prepare, launch and the whole step on the device carry its number, key, reason, real and
 * padded counts (a step of the runtime itself has none); its phases and layers carry only the number. An arrow leads from its
 * launch to its start on the device. prepare is there for steps whose host times were taken (cgr_config.time_every; for all with
 * cgr_config.timing), launch only in a runtime with cgr_config.timing. Device times are moved to the host's clock by a measured
 * offset, whose error, half the time that the measurement took, is in "otherData" as device_clock_error_ns. */

/* A whole trace: the host's part for the steps in the flight recorder, the device's for those of the last ring_depth that have
 * completed. On a dead runtime, or without cgr_config.timing, only the host's part. CGR_ERROR_STATE inside `record`, and
 * CGR_ERROR_DEVICE if the device cannot be read; then there is no text. While steps run, a second
 * call may have much more to write than the first, so repeat it until *length < capacity.
 * Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_runtime_trace(cgr_runtime *runtime, char *out, size_t capacity, size_t *length);

/* The same in sections, for a trace of more steps than are kept: the head once, then each step once it has completed, and at last
 * CGR_TRACE_TAIL. Each section of a step begins with a comma, so that an engine can put events of its own between them in the
 * same way. trace_step takes a step as cgr_runtime_timing does, with its errors for `mark` and for the runtime; trace_head has
 * those of cgr_runtime_trace.
 * Threads one · Capture no · Sync may · Alloc never */
CGR_API cgr_status cgr_runtime_trace_head(cgr_runtime *runtime, char *out, size_t capacity, size_t *length);
CGR_API cgr_status cgr_runtime_trace_step(cgr_runtime *runtime, cgr_mark mark, char *out, size_t capacity, size_t *length);
#define CGR_TRACE_TAIL "\n]}\n"

#ifdef __cplusplus
}
#endif
#endif
