/* cgr: what a runtime tells of itself: statistics per key, the flight recorder, and both as text. Included by cgr.h, where steps
 * and the statistics of the whole runtime (cgr_stats) are.
 *
 * A record of 64 bytes is kept of every step that is launched, cancelled, abandoned or refused, always: the last
 * cgr_config.flight_depth of them are the flight recorder, and all statistics are sums over them. Host times come from the
 * processor's time stamp counter, of one step in cgr_config.time_every; what has taken longer than 2^32 ticks of it (0.9 s at
 * 4.8 GHz, 2.1 s at 2 GHz) counts as that. After a checkpoint was restored, or a virtual machine has moved, times from before may
 * be off by any amount; later ones are right. All of this also works on a dead runtime, whose last steps are the ones to look at.
 *
 * Calls with a runtime take in the records that have not been counted yet, so they belong on the thread that makes its steps,
 * between two of them, or under the lock around them: to answer a scrape from another thread, hand over a text that was written
 * here. They refuse a bad handle (CGR_ERROR_NULL_POINTER, CGR_ERROR_INVALID_ARGUMENT), NULL where an address is needed
 * (CGR_ERROR_NULL_POINTER), and a struct without its _INIT macro (CGR_ERROR_INVALID_STRUCT). */
#ifndef CGR_TRACING_H
#define CGR_TRACING_H

#include "cgr/graphs.h"
#include "cgr/planners.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------------- histograms */

#define CGR_HISTOGRAM_BUCKETS 48

/* Durations in nanoseconds (of long ones see above). Bucket i counts those above the border of bucket i - 1, up to its own;
 * borders are 128, 192, 256, 384 and so on, two to each doubling, up to 1.07 s; the last bucket has no border. */
typedef struct cgr_histogram {
  uint64_t count, sum_ns, max_ns;
  uint64_t bucket[CGR_HISTOGRAM_BUCKETS];
} cgr_histogram;

/* The largest time that a bucket counts; UINT64_MAX for the last one, 0 for one that is not there.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API uint64_t cgr_histogram_border(int32_t bucket);
/* A time that this many percent of those counted do not pass: the border of the bucket that the percentile lies in, or the
 * largest time if that is less. 0 when nothing was counted, or for a NULL histogram; percent is taken as 0 .. 100.
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API uint64_t cgr_histogram_percentile(const cgr_histogram *histogram, double percent);

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
  uint64_t real_tokens, padded_tokens; /* likewise */
  uint64_t bytes_staged;     /* that the device read for them */
  uint64_t misses;           /* steps that would have used its graph and could not, since it was last captured */
  int64_t num_nodes;         /* of its graph, as the next two and in cgr_graph_stats; 0: it has none */
  int64_t device_bytes;
  double capture_ms;         /* that capturing it took */
  cgr_histogram prepare;     /* host time in cgr_step_prepare, of those steps that were timed (cgr_config.time_every) */
  cgr_histogram launch;      /* and in cgr_step_launch; neither of the runtime's own steps. Up to the moment when the record is
                                written: the counting of 256 records, some microseconds in one call of 256, is not in it */
} cgr_key_stats;
#define CGR_KEY_STATS_INIT                                                                                               \
  { (uint32_t)sizeof(cgr_key_stats), 0, { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }, 0, { 0 }, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, \
    { 0, 0, 0, { 0 } }, { 0, 0, 0, { 0 } } }

/* Of the key with this index, as in cgr_runtime_graph_stats; -1: of the eager steps. CGR_ERROR_INVALID_ARGUMENT for any other.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_key_stats(cgr_runtime *runtime, int32_t index, cgr_key_stats *stats);

/* The texts below are written as far as they fit into `capacity` bytes, a closing zero included; `*length` is the length of the
 * whole text without that zero, so that a call with capacity 0 and `out` NULL asks for it. The next call may have more to write:
 * steps have completed, and times get longer. A text is whole if *length < capacity. */

/* A table for people: every key that steps have used or missed, then what the runtime counts as a whole.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_stats_text(cgr_runtime *runtime, char *out, size_t capacity, size_t *length);

typedef struct cgr_label {
  const char *name;  /* letters, digits and _, no digit first, no __ first, and none of cgr's own: key, kind, reason, le, version,
                        device */
  const char *value; /* any text */
} cgr_label;

/* The same for Prometheus, in its text exposition format 0.0.4. Each sample bears `labels` (an engine's name, a rank), of which
 * there are 0 .. 16, and NULL will do for none; CGR_ERROR_INVALID_ARGUMENT for a name that is not allowed or comes twice.
 * Counters are per key ("full 8r 8t q1 v0": kind, padded requests and tokens, query length and variant; "eager"), from the first
 * call on that finds the key captured, used or missed. Reasons are per kind; times are histograms per kind, with a border at each
 * doubling. 10 samples a key, about 1 us each with two labels.
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
/* Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_flight_outcome_name(cgr_flight_outcome outcome);

typedef struct cgr_flight_record {
  uint32_t size;
  int32_t outcome;       /* cgr_flight_outcome */
  int32_t reason;        /* cgr_reason; of a refused step why it had no graph, or -1 if it was refused for something else */
  int32_t status;        /* cgr_status of the call that failed, of a cancelled step its launch if that was refused; else CGR_OK */
  int32_t key_index;     /* as in cgr_runtime_graph_stats; -1: an eager step; of a refused one the key that it missed, or -1 */
  int32_t num_requests;  /* real, and so are the tokens; the key has the padded counts. A refused step has neither */
  int32_t num_tokens;
  uint32_t layout;       /* hash of what graphs are made from: layout, configuration, arguments (its low 32 bits) */
  cgr_key key;
  uint64_t seq;          /* the step's number; 0: it has none */
  uint64_t bytes_staged; /* of a step that was preceded by changes sent ahead, theirs included */
  uint64_t at_ns;        /* when prepare began, or when a step of the runtime's was launched: CLOCK_MONOTONIC */
  uint64_t prepare_ns;   /* host time in cgr_step_prepare; 0: the step was not timed */
  uint64_t launch_ns;    /* likewise in cgr_step_launch */
  cgr_guard guard;       /* what the device refused of the step; known as long as its result is: ring_depth steps */
  uint64_t repeats;      /* of a refused step: how often the same was refused again after it; times are those of the first */
  int32_t completed;     /* 1: the device has completed the step of this number */
  int32_t reserved;
} cgr_flight_record;
#define CGR_FLIGHT_RECORD_INIT                                                                                              \
  { (uint32_t)sizeof(cgr_flight_record), 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0, 0, 0 } }, 0, 0, 0, 0, 0,    \
    { 0, 0, 0, 0, 0 }, 0, 0, 0 }

/* The last steps, the newest last. *count says how many are kept; the newest `capacity` of them are written, records[0].size
 * bytes apart: each must have that size (CGR_ERROR_INVALID_STRUCT). capacity is 0 or more (CGR_ERROR_INVALID_ARGUMENT); with 0
 * records may be NULL.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_flight(cgr_runtime *runtime, cgr_flight_record *records, int32_t capacity, int32_t *count);

/* The same as JSON, with what else tells why a runtime is as it is: version, device, layout, the step that is prepared, the last
 * launch that failed, what a dead runtime has died of, and the first step that the device has not completed: a device reports the
 * fault of a kernel at a later call, by which time other steps may have been launched.
 * Threads one · Capture ok · Sync never · Alloc never */
CGR_API cgr_status cgr_runtime_dump(cgr_runtime *runtime, char *out, size_t capacity, size_t *length);

/* cgr_config.dump gets that JSON, zero-terminated, and the dump_context, when the runtime dies and after a step that was
 * abandoned; of a step whose launch was the death it hears once. Called by the thread that calls cgr, whose call has not returned
 * yet; must not call cgr. */
typedef void (*cgr_dump_function)(void *context, const char *json, size_t length);

#ifdef __cplusplus
}
#endif
#endif
