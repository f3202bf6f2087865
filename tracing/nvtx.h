/* Ranges for Nsight and other tools, through NVTX: what a runtime is doing on the calling thread. Ranges nest, and every begin
 * has its end on the same thread.
 *
 * In a build without NVTX (no CUDA toolkit, or --//tools/bazel:nvtx=0) all of this is empty. Only nvtx.c sees NVTX's own
 * headers. */
#ifndef CGR_TRACING_NVTX_H
#define CGR_TRACING_NVTX_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, text, category). Tools tell categories by these numbers and names. Creating and destroying a runtime is in none. */
#define CGR__CATEGORY_LIST(X) \
  X(NONE, "") X(PLAN, "plan") X(STAGE, "stage") X(LAUNCH, "launch") X(CAPTURE, "capture") X(WAIT, "wait")

typedef enum cgr__category {
#define CGR__CATEGORY_ENUM(name, text) CGR__CATEGORY_##name,
  CGR__CATEGORY_LIST(CGR__CATEGORY_ENUM)
#undef CGR__CATEGORY_ENUM
      CGR__CATEGORY_COUNT
} cgr__category;

/* Public calls first. Then what a call by the engine or a capture enqueues: tools find the range in which a node was captured, so
 * these say what a replayed kernel belongs to. */
#define CGR__RANGE_LIST(X)                                                                                         \
  X(CREATE, "cgr_runtime_create", NONE)                                                                            \
  X(DESTROY, "cgr_runtime_destroy", NONE)                                                                          \
  X(CAPTURE, "cgr_runtime_capture", CAPTURE)                                                                       \
  X(ESTIMATE, "cgr_runtime_estimate_capture", CAPTURE)                                                             \
  X(RELEASE, "cgr_runtime_release_graphs", CAPTURE)                                                                \
  X(WARMUP, "cgr_runtime_warmup", CAPTURE)                                                                         \
  X(SELF_TEST, "cgr_runtime_self_test", CAPTURE)                                                                   \
  X(AUDIT, "cgr_runtime_audit", CAPTURE)                                                                           \
  X(CHOOSE, "cgr_step_choose", PLAN)                                                                               \
  X(PREPARE, "cgr_step_prepare", STAGE) /* ends with the step */                                                   \
  X(LAUNCH, "cgr_step_launch", LAUNCH)  /* the step */                                                             \
  X(CANCEL, "cgr_step_cancel", STAGE)   /* the step */                                                             \
  X(FLUSH, "cgr_runtime_flush", LAUNCH)                                                                            \
  X(WAIT, "cgr_step_wait", WAIT) /* the step's number */                                                           \
  X(GRAPH, "graph", CAPTURE)     /* one key's: the key */                                                          \
  X(PROLOGUE, "prologue", STAGE)                                                                                   \
  X(STAGED, "staged", STAGE)          /* the engine's own buffers */                                               \
  X(ON_DEMAND, "on demand", PLAN)     /* on-demand buffers */                                                      \
  X(PLANNER, "planner", PLAN)         /* plans of backends, the library's own among them */                        \
  X(RECORD, "record", LAUNCH)         /* the engine's function */                                                  \
  X(LAYER, "layer", LAUNCH)           /* the layer: its attention, and what comes after it up to the next one's */ \
  X(APPEND, "append", LAUNCH)         /* the layer */                                                              \
  X(ATTENTION, "attention", LAUNCH)   /* the layer */                                                              \
  X(MERGE, "merge", LAUNCH)           /* of cgr_record_merge */                                                    \
  X(MEASURE, "measure", LAUNCH)       /* of cgr_record_measure */                                                  \
  X(BREAK, "break", LAUNCH)           /* between two pieces of a PIECEWISE step */                                 \
  X(CALL, "call", LAUNCH)             /* a function of cgr_record_call, made at once */                            \
  X(COLLECTIVE, "collective", LAUNCH) /* of cgr_record_range_begin, after so many other names */                   \
  X(FETCH, "fetch", STAGE)            /* of the next step's slot */                                                \
  X(EPILOGUE, "epilogue", LAUNCH)

typedef enum cgr__nvtx_range {
#define CGR__RANGE_ENUM(name, text, category) CGR__RANGE_##name,
  CGR__RANGE_LIST(CGR__RANGE_ENUM)
#undef CGR__RANGE_ENUM
      CGR__RANGE_COUNT
} cgr__nvtx_range;

/* Of one of the engine's (cgr_record_range_begin), too. */
const char *cgr__nvtx_range_name(cgr__nvtx_range range);

/* The number of a range of the engine's with this name, CGR__RANGE_COUNT or more: the same for the same name in the whole
 * process. After CGR__MAX_NAMED_RANGES of them all others are COLLECTIVE. Longer names are cut. Any thread; takes a lock. */
#define CGR__MAX_NAMED_RANGES 1024
#define CGR__NAMED_RANGE_BYTES 80
cgr__nvtx_range cgr__nvtx_named_range(const char *name);

/* What ranges carry; tools get the fields by their names. */
typedef struct cgr__nvtx_range_key {
  int32_t graph; /* index of cgr_runtime_graph_stats; -1: an eager step */
  int32_t kind;  /* cgr_graph_kind */
  int32_t padded_requests, padded_tokens, query_len;
  uint32_t variant;
} cgr__nvtx_range_key;

typedef struct cgr__nvtx_range_step {
  cgr__nvtx_range_key key;
  int32_t num_requests, num_tokens; /* real */
  int32_t reason;                   /* cgr_reason */
  int32_t drafts;                   /* guesses that it verifies */
  uint64_t seq;
  uint64_t bytes_staged;
} cgr__nvtx_range_step;

/* Ids of the two as schemas: unique in the domain, and the same in every process. */
#define CGR__SCHEMA_KIND ((1u << 24) + 1u)
#define CGR__SCHEMA_REASON ((1u << 24) + 2u)
#define CGR__SCHEMA_KEY ((1u << 24) + 3u)
#define CGR__SCHEMA_STEP ((1u << 24) + 4u)

#ifdef CGR_WITH_NVTX
#define CGR__NVTX_BUILT 1

/* Makes the domain `cgr`, its names and schemas, once per process. Returns whether a tool listens: one that comes later is never
 * found, so ranges need not be asked for when none does. */
bool cgr__nvtx_open(void);

void cgr__nvtx_begin(cgr__nvtx_range range);
void cgr__nvtx_begin_layer(cgr__nvtx_range range, int32_t layer);
void cgr__nvtx_begin_number(cgr__nvtx_range range, uint64_t number);
/* If the tool knows no schemas, a key is shown as its padded tokens, and a step as its number. */
void cgr__nvtx_begin_key(cgr__nvtx_range range, const cgr__nvtx_range_key *key);
void cgr__nvtx_begin_step(cgr__nvtx_range range, const cgr__nvtx_range_step *step);
void cgr__nvtx_end(void);
/* Ends a range, with a step that was not known when it began. */
void cgr__nvtx_end_step(const cgr__nvtx_range_step *step);

/* CUDA handles. */
void cgr__nvtx_name_stream(void *stream, const char *name);
void cgr__nvtx_name_event(void *event, const char *name);

#else
#define CGR__NVTX_BUILT 0

static inline bool cgr__nvtx_open(void) { return false; }
static inline void cgr__nvtx_begin(cgr__nvtx_range range) { (void)range; }
static inline void cgr__nvtx_begin_layer(cgr__nvtx_range range, int32_t layer) { (void)range, (void)layer; }
static inline void cgr__nvtx_begin_number(cgr__nvtx_range range, uint64_t number) { (void)range, (void)number; }
static inline void cgr__nvtx_begin_key(cgr__nvtx_range range, const cgr__nvtx_range_key *key) { (void)range, (void)key; }
static inline void cgr__nvtx_begin_step(cgr__nvtx_range range, const cgr__nvtx_range_step *step) { (void)range, (void)step; }
static inline void cgr__nvtx_end(void) {}
static inline void cgr__nvtx_end_step(const cgr__nvtx_range_step *step) { (void)step; }
static inline void cgr__nvtx_name_stream(void *stream, const char *name) { (void)stream, (void)name; }
static inline void cgr__nvtx_name_event(void *event, const char *name) { (void)event, (void)name; }
#endif

#ifdef __cplusplus
}
#endif
#endif
