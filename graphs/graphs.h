/* Keys, buckets, dispatch, capture and replay of graphs, and what each costs. Knows nothing of attention: what is captured is a
 * callback that enqueues.
 *
 * Dispatch is total and O(1): a table maps a number of requests to the smallest bucket that holds it. Every step gets exactly
 * one (kind, reason). */
#ifndef CGR_GRAPHS_GRAPHS_H
#define CGR_GRAPHS_GRAPHS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "buffers/regions.h"
#include "cgr/cgr.h"
#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------------------------------------------------------- entry */

/* A key and what was captured for it. */
typedef struct cgr__graph_entry {
  cgr_key key;
  int32_t state; /* cgr_graph_state, but for STALE, which follows from what is below */
  int32_t records;
  cgr__exec *exec;
  uint64_t epoch;       /* of the regions, at capture */
  uint64_t layout_hash; /* of everything that decides a launch, at capture */
  uint64_t replays, real_requests;
  int64_t num_nodes, device_bytes;
  double capture_ms;
} cgr__graph_entry;

typedef struct cgr__graphs {
  cgr_device *dev;
  const cgr__regions *regions;
  uint64_t layout_hash;
  cgr_graph_mode mode;     /* after lowering */
  const char *mode_reason; /* "" when it was not lowered */
  bool strict;
  int32_t max_requests, max_tokens;
  int32_t count;      /* of entries, ascending by bucket */
  int16_t *bucket_of; /* [max_requests + 1] index of the smallest bucket >= n, -1 above the largest */
  uint64_t failures;  /* of captures */
  cgr__graph_entry entry[CGR__MAX_BUCKETS];
} cgr__graphs;

/* entry.c. The state that the entry is in now, and whether it can be replayed. */
cgr_graph_state cgr__graph_state_of(const cgr__graphs *graphs, const cgr__graph_entry *entry);
static inline bool cgr__graph_is_stale(const cgr__graphs *graphs, const cgr__graph_entry *entry) {
  return entry->epoch != graphs->regions->epoch || entry->layout_hash != graphs->layout_hash;
}
void cgr__graph_get_stats(const cgr__graphs *graphs, const cgr__graph_entry *entry, cgr_graph_stats *stats);
int32_t cgr__graphs_num_usable(const cgr__graphs *graphs);
/* Destroys the graph of an entry. What still runs finishes. */
void cgr__graph_drop(cgr__graphs *graphs, cgr__graph_entry *entry);
void cgr__graphs_drop_all(cgr__graphs *graphs);

/* -------------------------------------------------------------------------------------------------------- mode, buckets */

/* mode.c. Lowers a mode to what the attention of the engine and this version can do. `*reason` gets static text, "" if
 * unchanged. */
cgr_graph_mode cgr__mode_lower(cgr_graph_mode mode, cgr_graph_support support, const char **reason);

/* buckets.c. The usual sizes: 1, 2, 4, then every 8 up to 256, then every 16; ends with `max` itself. Returns how many. */
int32_t cgr__buckets_default(int32_t max, int32_t *buckets);
/* Makes the keys and the table from ascending buckets. `bucket_of` has room for max_requests + 1. */
void cgr__graphs_set_buckets(cgr__graphs *graphs, const int32_t *buckets, int32_t num_buckets, int16_t *bucket_of);

/* -------------------------------------------------------------------------------------------------------------- dispatch */

/* What dispatch looks at. */
typedef struct cgr__batch_shape {
  int32_t num_requests, num_tokens;
  int32_t query_len; /* of all requests; 0: mixed */
} cgr__batch_shape;

/* What dispatch decided. `entry` is NULL for an eager step. */
typedef struct cgr__choice {
  cgr__graph_entry *entry;
  cgr_key key;
  cgr_reason reason;
} cgr__choice;

/* dispatch.c. `forced` NULL: the smallest graph that fits, or eager. */
cgr_status cgr__graphs_choose(cgr__graphs *graphs, const cgr__batch_shape *shape, const cgr_key *forced, cgr__choice *choice);
/* CGR_ERROR_STALE_GRAPH when the chosen graph has become stale since. */
cgr_status cgr__graphs_check_fresh(const cgr__graphs *graphs, const cgr__graph_entry *entry);

/* ---------------------------------------------------------------------------------------------------- capture and replay */

/* capture.c. Captures what `body` enqueues on `stream` and instantiates it. On failure the capture is ended and dropped, the
 * stream is usable, the entry is FAILED and counted. A device error that is the cause, or that came on the way, is in
 * *device_error. */
typedef cgr_status (*cgr__capture_body)(void *context, cudaStream_t stream);
cgr_status cgr__graphs_capture(cgr__graphs *graphs, cgr__graph_entry *entry, cudaStream_t stream, cgr__capture_body body,
                               void *context, int *device_error);

/* replay.c: the only launch of a graph. Returns the device's error. */
int cgr__graphs_launch(cgr__graphs *graphs, cgr__graph_entry *entry, int32_t real_requests, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
