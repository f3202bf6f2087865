/* Keys, the ladder of buckets, dispatch, capture and replay of graphs, and what each costs. Knows nothing of attention: what
 * is captured is a callback that enqueues.
 *
 * Dispatch is total and O(1): a table maps a number of requests to the smallest bucket that holds it. Every step gets exactly
 * one (kind, reason). */
#ifndef CGR_GRAPHS_GRAPHS_H
#define CGR_GRAPHS_GRAPHS_H

#include <stdint.h>

#include "cgr/cgr.h"
#include "devices/device.h"

#define CGR__BUCKETS_MAX 512

enum cgr__graph_state { CGR__GRAPH_EMPTY = 0, CGR__GRAPH_READY = 1, CGR__GRAPH_FAILED = 2, CGR__GRAPH_STALE = 3 };

typedef struct cgr__graph_entry {
  cgr_key key;
  int32_t state; /* EMPTY, READY or FAILED; staleness is read off the epoch */
  int32_t records;
  cgr__exec *exec;
  uint64_t epoch;       /* of the region registry at capture */
  uint64_t layout_hash; /* of everything that decides a launch, at capture */
  uint64_t replays, real_requests;
  int64_t num_nodes, device_bytes;
  double capture_ms;
} cgr__graph_entry;

typedef struct cgr__graphs {
  cgr_graph_mode mode;     /* after lowering */
  const char *mode_reason; /* "" when it was not lowered */
  int32_t count;           /* keys, ascending by bucket */
  int32_t max_requests;
  uint64_t failures;
  int16_t *bucket_of; /* [max_requests + 1] index of the smallest bucket >= n, -1 above the ladder */
  cgr__graph_entry entry[CGR__BUCKETS_MAX];
} cgr__graphs;

/* What dispatch decided. `entry` is NULL for an eager step. */
typedef struct cgr__choice {
  cgr__graph_entry *entry;
  cgr_key key;
  cgr_reason reason;
} cgr__choice;

/* Lowers a mode to what the attention of the engine and this version can do. `*reason` gets static text, "" if unchanged. */
cgr_graph_mode cgr__mode_lower(cgr_graph_mode mode, cgr_attention_support support, const char **reason);

/* The usual ladder: 1, 2, 4, then every 8 up to 256, then every 16; ends with `max` itself. Returns the number of buckets. */
int32_t cgr__ladder_default(int32_t max, int32_t *buckets);

/* Fills the keys and the table from ascending buckets; `bucket_of` has room for max_requests + 1. */
void cgr__graphs_init(cgr__graphs *graphs, const int32_t *buckets, int32_t num_buckets, int32_t max_requests, int16_t *bucket_of);

/* Chooses for a batch of `num_requests` requests with `num_tokens` tokens and uniform query length `query_len` (0: mixed). */
void cgr__graphs_choose(cgr__graphs *graphs, int32_t num_requests, int32_t num_tokens, int32_t query_len, uint32_t variant,
                        cgr__choice *choice);

/* The entry of a key, or NULL. */
cgr__graph_entry *cgr__graphs_find(cgr__graphs *graphs, const cgr_key *key);

static inline int cgr__graph_is_stale(const cgr__graph_entry *entry, uint64_t epoch, uint64_t layout_hash) {
  return entry->epoch != epoch || entry->layout_hash != layout_hash;
}

/* Captures what `body` enqueues on `stream` and instantiates it. On failure the capture is ended and dropped, the stream is
 * usable, the entry is FAILED and counted. `*device_error` gets the device's error when one is the cause. */
typedef cgr_status (*cgr__capture_body)(void *context, cudaStream_t stream);
cgr_status cgr__graphs_capture(cgr__graphs *graphs, cgr__graph_entry *entry, cgr_device *dev, cudaStream_t stream,
                               cgr__capture_body body, void *context, int *device_error);

/* Destroys the exec of an entry. */
void cgr__graphs_drop(cgr__graph_entry *entry, cgr_device *dev);

#endif
