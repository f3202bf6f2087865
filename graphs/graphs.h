/* Keys, buckets, dispatch, capture and replay of graphs, and what each costs. Knows nothing of attention: what is captured is a
 * callback that enqueues.
 *
 * A step is a list of pieces: FULL is one graph; PIECEWISE is several, with calls between them that are kept by value and made at
 * every replay; an eager step has none: its calls are made as it is enqueued.
 *
 * Dispatch is total and O(1): tables map a number of requests, or of tokens and requests, to the smallest key that holds them.
 * Every step gets exactly one (kind, reason). */
#ifndef CGR_GRAPHS_GRAPHS_H
#define CGR_GRAPHS_GRAPHS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/key.h"
#include "base/limits.h"
#include "buffers/layout.h"
#include "buffers/regions.h"
#include "cgr/cgr.h"
#include "cgr/inspect.h"
#include "devices/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------------------------------------------------------- entry */

typedef struct cgr__labels cgr__labels; /* labels.h */

/* A call that a PIECEWISE graph breaks at: the launch of a kernel of the library, or a function of the engine. */
typedef struct cgr__break {
  struct cgr__break *next;
  const cgr__kernel *kernel;  /* is launched, or names what `function` launches; NULL: nothing is known of it */
  cgr_call_function function; /* NULL: `kernel` is launched with `args` */
  const void *args;           /* a copy, in the same allocation */
  size_t args_size;
  cgr__exec *piece; /* what comes after the call; NULL: another call, or nothing */
} cgr__break;

/* The engine's regions that a graph holds an address in. */
typedef struct cgr__held {
  bool named; /* false: all of them, because `record` named none */
  int32_t count;
  int32_t *region; /* [count] */
} cgr__held;

/* Addresses that a graph may hold, whether or not they are in a region: the words of its nodes' parameters that can be addresses,
 * and what its attention calls name. A capture collects them, and the graph keeps them for the time when memory is freed. Each is
 * there once. All zeros: an empty set. */
typedef struct cgr__addresses {
  uint64_t *word;   /* a hash table while the set grows, in which 0 is no word; [count], ascending, once it has been sorted */
  int64_t capacity; /* of the hash table, a power of two, or 0 */
  int64_t count;
} cgr__addresses;

/* Calls of `record` that add something to a step. */
typedef enum cgr__recorded {
  CGR__RECORDED_ATTENTION,
  CGR__RECORDED_MERGE,
  CGR__RECORDED_MEASURE,
  CGR__RECORDED_CALL,
  CGR__RECORDED_CHECK,
  CGR__RECORDED_BUFFER, /* of an on-demand buffer, which the step then waits for; not in a backend's plan */
  CGR__RECORDED_COUNT
} cgr__recorded;

/* How many of them `record`, its calls and backends have made. */
typedef struct cgr__record_calls {
  int32_t count[CGR__RECORDED_COUNT];
  uint32_t checked; /* bits of the checks */
} cgr__record_calls;

/* A key and what was captured for it. The first cache line is what a replay touches. What says whether it can be replayed, and
 * what it holds, changes under the lock of devices/holders.h. */
typedef struct cgr__graph_entry {
  cgr__exec *exec;        /* the first piece */
  cgr__break *breaks;     /* and what follows it; NULL: nothing, as in every FULL graph */
  uint64_t epoch;         /* of the regions when it was captured, or later if none that it holds has moved since */
  uint64_t captured_hash; /* of all its inputs that no region holds */
  uint64_t replays, real_requests;
  uint64_t last_seq; /* the last step that used it */
  int32_t state;     /* cgr_graph_state, except STALE, which follows from what is above */
  int32_t index;     /* of the entry itself */
  cgr_key key;
  uint64_t misses;  /* steps that would have used it and could not, since it was last captured */
  int32_t failures; /* captures that have failed in a row */
  int32_t num_pieces;
  int32_t num_nodes, width; /* width: of the widest piece */
  uint64_t turned_down;     /* steps that would have used it or missed it, but for max_padding */
  int64_t device_bytes;
  float capture_ms;
  int32_t estimated;        /* pieces with what is expected in device_bytes, not what was measured */
  cgr__held held;           /* regions of the engine's that it holds */
  int32_t records;          /* times that `record` ran for it */
  int32_t expected_kb;      /* that such a graph usually takes (budget.c) */
  cgr__labels *labels;      /* of its nodes; NULL: captured without labels, or there was no memory */
  cgr__addresses addresses; /* that it may hold, sorted */
  cgr__record_calls calls;  /* in its capture; those at its breaks make more in each replay */
  uint64_t resources;       /* bits of the runtime's resources that it uses */
} cgr__graph_entry;

/* ------------------------------------------------------------------------------------------------------------------ keys */

/* What is captured. Lists ascend: numbers of requests, and pairs by tokens, then by requests. */
typedef struct cgr__key_lists {
  const cgr__limits *limits;        /* of requests and tokens; they outlive the graphs */
  int32_t uniform_kind, mixed_kind; /* cgr_graph_kind of the keys; NONE: there are no such keys */
  int32_t num_query_lens, num_decode, num_mixed;
  int32_t query_lens[CGR__MAX_QUERY_LENS];
  int32_t decode[CGR__MAX_BUCKETS]; /* requests of uniform steps, for each query length */
  bool decode_complete; /* each query length also has the most requests whose tokens a step can have, up to the last size */
  cgr_bucket mixed[CGR__MAX_BUCKETS];
  int32_t num_variants; /* 1 or more: the first is variant 0 */
  int32_t num_programs; /* 0: 1. Those after the first have variant 0 alone, with the keys of a captured variant */
  cgr_variant variants[CGR__MAX_VARIANTS];
} cgr__key_lists;

/* A variant of a program's steps. Those that are captured have the same keys, one stretch of entries each. */
typedef struct cgr__step_variant {
  uint32_t word;
  int32_t program;
  int32_t superset; /* the variant whose graphs serve it too; -1: none */
  int32_t base;     /* its first entry; -1: it is not captured */
  int32_t length_set;
} cgr__step_variant;

/* Keys of one query length, ascending by requests. */
typedef struct cgr__uniform_keys {
  int32_t query_len;
  int32_t first, count; /* entries, counted from a variant's first */
  int16_t *of_requests; /* [max_requests + 1] the smallest that holds n, counted from `first`; -1: none */
} cgr__uniform_keys;

/* Pairs of tokens and requests. A level is a number that some pair has. */
typedef struct cgr__mixed_keys {
  int32_t first, count; /* entries, counted from a variant's first */
  int32_t num_token_levels, num_request_levels;
  int32_t shift;        /* tokens are looked up in blocks of 2^shift */
  int32_t *tokens;      /* [num_token_levels] ascending */
  int16_t *of_block;    /* [blocks] the lowest level that reaches the block's begin */
  int16_t *of_requests; /* [max_requests + 1] the lowest level that reaches n; -1: none */
  int16_t *smallest;    /* [token levels][request levels] the first key that reaches both, counted from `first`; -1: none */
} cgr__mixed_keys;

/* Functions of cgr_record_call that were called in a capture and added no node to it, so that no replay does what they do. */
#define CGR__MAX_LOST_CALLS 8
typedef struct cgr__lost_call {
  cgr_call_function function;
  int32_t number;                /* of the call in `record`, from 0 */
  int32_t num_keys;              /* whose captures it added nothing to */
  const cgr__graph_entry *entry; /* of the last of them */
  cgr_key key;                   /* of the first */
} cgr__lost_call;

#define CGR__FREE_PADDING 64 /* padded tokens that cost less than the launches of an eager step */

/* The most tokens of a graph that pads a step of so many within max_padding; and, if nothing else serves the step. */
static inline int32_t cgr__light_tokens(int32_t tokens, float max_padding) {
  double light = (double)max_padding * tokens; /* exact: 24 bits times 24 */
  return light < CGR__MAX_TOKENS ? (int32_t)light : CGR__MAX_TOKENS;
}
static inline int32_t cgr__most_tokens(int32_t tokens, float max_padding) {
  int32_t light = cgr__light_tokens(tokens, max_padding);
  return light > tokens + CGR__FREE_PADDING ? light : tokens + CGR__FREE_PADDING;
}

typedef struct cgr__graphs {
  cgr_device *dev;
  const cgr__regions *regions;
  uint64_t captured_hash;
  bool strict;
  bool disabled;      /* by the caller: no step replays unless its key is forced */
  bool exact_lengths; /* uniform graphs serve only their own query length, not shorter ones */
  float max_padding;  /* cgr_config's */
  const cgr__limits *limits;
  int32_t num_uniform;
  cgr__uniform_keys uniform[CGR__MAX_QUERY_LENS];
  cgr__mixed_keys mixed;
  int32_t num_variants; /* of the first program, which come first; and those of all programs */
  int32_t num_step_variants;
  cgr__step_variant variant[CGR__MAX_VARIANTS + CGR__MAX_PROGRAMS - 1];
  cgr__graph_entry *entry; /* [count] of each variant the uniform ones, then the mixed ones */
  int32_t count;
  uint64_t failures;                /* of captures */
  int64_t device_bytes;             /* of all graphs */
  int64_t expected_kb;              /* the same */
  bool labels;                      /* graphs captured from now on have labels */
  struct cgr__labelling *labelling; /* of the capture under way; NULL: there is none, or it has no labels */
  int32_t num_lost;
  cgr__lost_call lost[CGR__MAX_LOST_CALLS]; /* the first ones since they were last told */
} cgr__graphs;

/* keys.c. The entries and tables of the lists are made in `memory`, which has this size and is all zeros. */
size_t cgr__keys_bytes(const cgr__key_lists *lists);
/* How many keys they make at most. */
int32_t cgr__keys_count(const cgr__key_lists *lists);
/* The entries of a program: `count` from `first` on. */
typedef struct cgr__program_keys {
  int32_t first, count;
} cgr__program_keys;
cgr__program_keys cgr__graphs_of_program(const cgr__graphs *graphs, int32_t program);
/* Index of a variant in the lists; -1: it is not declared. */
int32_t cgr__keys_find_variant(const cgr__key_lists *lists, uint32_t word);
void cgr__keys_make(cgr__graphs *graphs, const cgr__key_lists *lists, void *memory);

/* The length set of a variant's steps; 0: that of the sequences, or the variant is not declared. */
static inline int32_t cgr__graphs_set_of(const cgr__graphs *graphs, uint32_t word) {
  for (int32_t i = 0; word != 0 && i < graphs->num_variants; i++)
    if (graphs->variant[i].word == word)
      return graphs->variant[i].length_set;
  return 0;
}

/* entry.c. The state that the entry is in now, and whether it can be replayed. */
cgr_graph_state cgr__graph_state_of(const cgr__graphs *graphs, const cgr__graph_entry *entry);
static inline bool cgr__graph_is_stale(const cgr__graphs *graphs, const cgr__graph_entry *entry) {
  return entry->epoch != graphs->regions->epoch || entry->captured_hash != graphs->captured_hash;
}
static inline bool cgr__graph_is_usable(const cgr__graphs *graphs, const cgr__graph_entry *entry) {
  return entry->state == CGR_GRAPH_READY && !cgr__graph_is_stale(graphs, entry);
}
void cgr__graph_set_state(cgr__graph_entry *entry, cgr_graph_state state);
/* A region has just moved, or been unregistered: the graphs that do not hold it are as fresh as before. */
void cgr__graphs_region_moved(cgr__graphs *graphs, int32_t region);
bool cgr__holds(const cgr__held *held, int32_t region);
/* How many graphs that can be replayed hold the region; or may hold the address of one of the bytes. Under the lock. */
int32_t cgr__graphs_count_region(const cgr__graphs *graphs, int32_t region);
int32_t cgr__graphs_count_resource(const cgr__graphs *graphs, int32_t resource); /* stale ones, too */
int32_t cgr__graphs_count_addresses(const cgr__graphs *graphs, const void *base, size_t bytes);
/* Adds the word to the set if it can be an address; false: there is no memory. */
bool cgr__addresses_add(cgr__addresses *set, uint64_t word);
/* The same for the words of a parameter that are at multiples of 8 bytes in it. */
bool cgr__addresses_add_words(cgr__addresses *set, const void *data, size_t bytes);
/* Nothing is added any more. Gives back what memory it can. */
void cgr__addresses_sort(cgr__addresses *set);
/* Whether a sorted set has a word that is the address of one of the bytes. */
bool cgr__addresses_meet(const cgr__addresses *set, const void *base, size_t bytes);
/* Empties the set. */
void cgr__addresses_free(cgr__addresses *set);
/* Fails again, with the function and the key before the thread's last message. */
cgr_status cgr__key_fail(cgr_status status, const char *function, const cgr_key *key);
void cgr__graph_get_stats(const cgr__graphs *graphs, const cgr__graph_entry *entry, cgr_graph_stats *stats);
int32_t cgr__graphs_num_usable(const cgr__graphs *graphs);
/* How long capturing the existing graphs took. */
double cgr__graphs_capture_ms(const cgr__graphs *graphs);
/* Destroys the graph of an entry. What still runs finishes. */
void cgr__graph_drop(cgr__graphs *graphs, cgr__graph_entry *entry);
void cgr__graphs_drop_all(cgr__graphs *graphs);
/* Drops graphs, stale ones first, then the least recently used, until the others take at most `keep_bytes` of device memory; with
 * 0, all of them. CGR_ERROR_OUT_OF_MEMORY. */
cgr_status cgr__graphs_drop_oldest(cgr__graphs *graphs, uint64_t keep_bytes);

/* -------------------------------------------------------------------------------------------------------- mode, buckets */

/* mode.c. Lowers a mode to what the attention in use can do. `*reason` gets static text, "" if unchanged. */
cgr_graph_mode cgr__mode_lower(cgr_graph_mode mode, cgr_graph_support support, const char **reason);
/* Kinds of a lowered mode's uniform and mixed keys. */
cgr_graph_kind cgr__mode_uniform_kind(cgr_graph_mode mode);
cgr_graph_kind cgr__mode_mixed_kind(cgr_graph_mode mode);

/* buckets.c. The usual sizes of decode steps: 1, 2, 4, then every 8 up to 256, every 16 up to 512, then eight sizes to each
 * doubling; and of mixed ones: every 8 tokens up to 128, then eight sizes to each doubling, with as many requests as that can be.
 * Both end with the maximum itself. Return how many. */
int32_t cgr__buckets_default(int32_t max, int32_t *buckets);
int32_t cgr__buckets_default_mixed(int32_t max_tokens, int32_t max_requests, cgr_bucket *buckets);

/* -------------------------------------------------------------------------------------------------------------- dispatch */

/* What dispatch looks at. */
typedef struct cgr__batch_shape {
  int32_t num_requests, num_tokens;
  int32_t query_len; /* of all requests; 0: mixed */
  int32_t max_query_len;
  uint32_t variant;
  int32_t program;
} cgr__batch_shape;

/* What dispatch decided. `entry` is NULL for an eager step. */
typedef struct cgr__choice {
  cgr__graph_entry *entry;
  cgr__graph_entry *missed; /* the graph that should have been replayed and could not be; NULL: there is none */
  cgr__batch_shape shape;   /* for which it was made */
  uint8_t reason;           /* cgr_reason */
  bool is_best;             /* right for such a batch while its own graph can be replayed, whatever becomes of other graphs */
  cgr_key key;
  int32_t turned_down; /* index of the graph that would have been replayed or missed, but for max_padding, plus 1; 0: none. Fills
                          the cache line */
} cgr__choice;

/* What the next step needs of the graphs, if it is like the one that `choice` was made for. */
static inline void cgr__graphs_prefetch(const cgr__graphs *graphs, const cgr__choice *choice) {
  __builtin_prefetch(graphs);
  __builtin_prefetch(choice->entry, 1);
}

/* dispatch.c. `forced` NULL: the best graph that fits, or eager. A graph of more than max_padding times the batch's tokens is not
 * taken if another list has a smaller one; beyond 64 padded tokens the step runs eagerly, except in strict mode. */
cgr_status cgr__graphs_choose(cgr__graphs *graphs, const cgr__batch_shape *shape, const cgr_key *forced, cgr__choice *choice);
/* Whether a choice for an earlier batch is also the choice for this one, unless a key is forced. */
static inline bool cgr__choice_holds(const cgr__graphs *graphs, const cgr__batch_shape *shape, const cgr__choice *choice) {
  const cgr__batch_shape *was = &choice->shape;
  bool is_alike = was->num_requests == shape->num_requests && was->num_tokens == shape->num_tokens &&
                  was->query_len == shape->query_len && was->max_query_len == shape->max_query_len &&
                  was->variant == shape->variant && was->program == shape->program;
  return choice->is_best && is_alike && !graphs->disabled && cgr__graph_is_usable(graphs, choice->entry);
}
/* The graph for such a batch of the first variant that has graphs, once all are captured; NULL: an eager step. */
const cgr__graph_entry *cgr__graphs_best(const cgr__graphs *graphs, const cgr__batch_shape *shape);
/* The smallest mixed key that holds both, counted from a variant's first entry; -1: none. */
int32_t cgr__mixed_find(const cgr__graphs *graphs, int32_t num_tokens, int32_t num_requests);
/* Checks that the fields of a key that this version has no use for are 0. `what`: the argument, for the message. */
cgr_status cgr__key_check_unused(const char *what, const cgr_key *key);
/* The entry of a key, whatever its state; NULL: there is no such key. */
cgr__graph_entry *cgr__graphs_find(cgr__graphs *graphs, const cgr_key *key);
/* CGR_ERROR_STALE_GRAPH when the chosen graph has become stale since. */
cgr_status cgr__graphs_check_fresh(const cgr__graphs *graphs, const cgr__graph_entry *entry);

/* ---------------------------------------------------------------------------------------------------- capture and replay */

/* A capture under way. */
typedef struct cgr__open_capture {
  cgr__graphs *graphs;
  cgr__graph_entry *entry;
  cudaStream_t stream;
  cgr__break *last;                 /* that was made; NULL: the first piece is being captured */
  bool open;                        /* the stream captures */
  bool failed;                      /* what is captured from now on is dropped */
  cgr__held held;                   /* the regions that it holds so far */
  cgr__addresses addresses;         /* that it may hold */
  uint64_t resources;               /* bits of the runtime's resources that it uses */
  int device_error;                 /* the device was lost at a break */
  struct cgr__labelling *labelling; /* NULL: the graph gets no labels */
  struct cgr__node_args *node_args; /* the pieces are listed here, and no graph is made; NULL: they become a graph */
} cgr__open_capture;

/* What is called at a break. */
typedef struct cgr__call {
  const cgr__kernel *kernel; /* as in cgr__break */
  cgr_call_function function;
  const void *args;
  size_t args_size;
} cgr__call;

/* capture.c. Captures what `body` enqueues on `stream` and instantiates it. On failure the capture is ended and dropped, the
 * stream is usable, the entry is FAILED and counted. A device error that caused it, or a loss of the device that came on the
 * way, is in *device_error. */
typedef cgr_status (*cgr__capture_body)(void *context, cgr__open_capture *capture);
cgr_status cgr__graphs_capture(cgr__graphs *graphs, cgr__graph_entry *entry, cudaStream_t stream, cgr__capture_body body,
                               void *context, int *device_error);

/* The same, but no graph is made: what the nodes and the breaks hold is listed (node_args.h), in place of what `node_args` held.
 * Counts nothing and leaves the key's entry alone. `node_args` is to be freed in any case. */
typedef struct cgr__node_args cgr__node_args;
cgr_status cgr__graphs_list(cgr__graphs *graphs, const cgr_key *key, cudaStream_t stream, cgr__capture_body body, void *context,
                            cgr__node_args *node_args, int *device_error);

/* Ends the piece, keeps the calls, which come next, and begins another piece. `function` is for the message: a stream that was
 * forked and not joined, for one, is found here. After a failure what the body still enqueues is captured all the same and
 * dropped, as long as the device begins a capture (`open`). */
cgr_status cgr__capture_break(cgr__open_capture *capture, const cgr__call *calls, int32_t count, const char *function);

/* entry.c. What is captured holds `region`; `by_name` when `record` says so, which then names all regions but those of its
 * attention calls. CGR_ERROR_OUT_OF_MEMORY. */
cgr_status cgr__capture_hold(cgr__open_capture *capture, int32_t region, bool by_name);
/* The same for every region of the engine's that the address is in, and for the address itself. */
cgr_status cgr__capture_hold_address(cgr__open_capture *capture, const void *address);

/* How many nodes the open piece has; -1: the device cannot tell. */
int64_t cgr__capture_count_nodes(cgr__open_capture *capture);
/* Call `number` has added none. */
void cgr__capture_lose_call(const cgr__open_capture *capture, cgr_call_function function, int32_t number);

/* advice.c: which keys pay. */
typedef struct cgr__key_use {
  const cgr_key *key;
  uint64_t steps;   /* that used it or missed it */
  uint64_t growth;  /* tokens that all steps would have more without it */
  int32_t fewest;   /* tokens that such a step can have had */
  int32_t at, next; /* the key that serves its steps now, and the one that would without that; -1: none */
  bool pays;
} cgr__key_use;
/* Sets which keys pay: with these alone the steps are padded to at most 1 + max_growth times as many tokens. Returns how many
 * tokens these are. Sums of tokens stay below 2^53. */
uint64_t cgr__keys_advise(cgr__key_use *uses, int32_t count, float max_padding, double max_growth);

/* budget.c: what a list of captures may cost. The next one of a kind is expected to cost what those before it did, on average;
 * the first one of a kind nothing. */
typedef struct cgr__budget {
  double max_ms, begin_ms; /* 0: no limit */
  uint64_t max_bytes;      /* of all graphs of the runtime; 0: no limit */
  bool spent;              /* nothing more is captured */
  int32_t left;            /* keys that were not captured because of it */
  int32_t estimated;       /* graphs whose memory, or some of it, is estimated */
  struct cgr__kind_cost {
    int32_t count;
    double ms, bytes;
  } cost[CGR_KIND_FULL + 1];
} cgr__budget;
void cgr__budget_begin(cgr__budget *budget, double max_ms, uint64_t max_bytes);
/* Whether the entry's capture fits; marks it if not. */
bool cgr__budget_allows(cgr__budget *budget, const cgr__graphs *graphs, cgr__graph_entry *entry);
/* Counts a piece of the entry. A measurement that is far from what such graphs take shows what others did to the device's memory
 * meanwhile: the expected figure takes its place. */
void cgr__budget_count_piece(cgr__graphs *graphs, cgr__graph_entry *entry, const cgr__graph_info *info);
/* The entry has been captured; if that was too much, its graph is dropped. It is too much only if the expected figure is, too. */
void cgr__budget_charge(cgr__budget *budget, cgr__graphs *graphs, cgr__graph_entry *entry);

/* replay.c: the only launches of graphs. The first piece, for step `seq`; returns the device's error. */
int cgr__graphs_launch(cgr__graphs *graphs, cgr__graph_entry *entry, int32_t real_requests, uint64_t seq, cudaStream_t stream);
/* The breaks of a graph that has some, on the recorder's stream. CGR_ERROR_CALLBACK when a function fails; CGR_ERROR_DEVICE, with
 * *device_error, when a launch does. Whatever comes after it is not enqueued. */
cgr_status cgr__graphs_launch_breaks(const cgr__graphs *graphs, const cgr__graph_entry *entry, cgr_recorder *recorder,
                                     int *device_error);

#ifdef __cplusplus
}
#endif

#endif
