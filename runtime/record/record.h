/* What the calls of `record` become.
 *
 *   enqueue.c        enqueues one step through `record`       attention.c    cgr_record_attention
 *   merge.c          cgr_record_merge                         values.c       cgr_record_check_values
 *   measure.c        cgr_record_measure                       transform.c    cgr_attention.transform
 *   native.c         the library's own backend                buffer.c       cgr_record_buffer, cgr_record_use
 *   bounds.c         a step's longest lengths, its decodes    view_check.c   what views must hold, which may share memory
 *   backend_plans.c  plans, states of all backends            scales.c       the scales that an attention call names
 *   collectives.c    what collectives of other libraries need */
#ifndef CGR_RUNTIME_RECORD_RECORD_H
#define CGR_RUNTIME_RECORD_RECORD_H

#include "runtime/runtime.h"

/* ------------------------------------------------------------------------------------------------------------------ enqueue.c */

/* What an eager step or a capture enqueues. */
typedef struct cgr__enqueue {
  cgr_key key;
  cudaStream_t stream;
  cgr_record_function record; /* NULL: nothing between prologue and epilogue */
  void *engine;
  cgr__open_capture *capture; /* NULL: the step executes */
  bool empty;                 /* what its ring slot holds does not count */
  bool warms_up;
  int32_t real_tokens, real_requests; /* -1 in a capture */
  uint32_t plan_flags;                /* that the engine gave with the batch */
  const cgr__batch_layout *batch;     /* NULL: in a capture, or without requests */
  const cgr__graph_entry *entry;      /* whose states the backends use; NULL: those of eager steps */
} cgr__enqueue;

/* How far it got. */
typedef enum cgr__enqueue_result {
  CGR__ENQUEUE_WHOLE,     /* the step is on its stream */
  CGR__ENQUEUE_ABANDONED, /* `record` or a call failed: the step is on its stream and will commit nothing */
  CGR__ENQUEUE_BROKEN     /* a call of the device failed: what is on the stream is no step */
} cgr__enqueue_result;

/* Enqueues a whole step: prologue; plans and on-demand buffers on a side branch; `record`, epilogue. */
cgr_status cgr__enqueue_step(cgr_runtime *rt, const cgr__enqueue *enqueue, cgr__enqueue_result *result);

/* What follows the first piece of a PIECEWISE step: calls, and the other pieces. */
cgr_status cgr__enqueue_breaks(cgr_runtime *rt, const cgr__enqueue *enqueue, cgr__graph_entry *entry,
                               cgr__enqueue_result *result);

/* The step waits for the branch of plans and on-demand buffers, if it has not yet: before the first kernel that reads them. */
cgr_status cgr__join_branch(cgr__step_recorder *recorder);
/* From here on the next step's ring slot is fetched alongside this one. */
cgr_status cgr__fork_fetch(cgr__step_recorder *recorder);

/* Enqueues one of the library's kernels on the recorder's stream. A failure is reported as `what` and kept (`refused`): a backend
 * that returns it adds nothing to its message. */
cgr_status cgr__record_kernel(cgr__step_recorder *recorder, const cgr__kernel *kernel, const void *args, const char *what);

/* What a step of a program with the tokens of length set `set` asks of a layer. */
typedef enum cgr__layer_need {
  CGR__LAYER_STAYS_OUT, /* nothing: it must not be called */
  CGR__LAYER_WORKS,     /* to attend, or at least to append for the engine's own attention */
  CGR__LAYER_ATTENDS,   /* to attend over the step's own k and v */
  CGR__LAYER_READS,     /* to attend over what steps of its own set have appended */
  CGR__LAYER_FILLS,     /* to append; it may attend, too */
  CGR__LAYER_MAY_READ   /* nothing: it may attend */
} cgr__layer_need;
cgr__layer_need cgr__layer_need_of(const cgr_runtime *rt, int32_t layer, int32_t program, int32_t set);

/* ---------------------------------------------------------------------------------------------------------------- transform.c */

/* What a call does, which says what of q, k and v it can transform. */
typedef struct cgr__transform_scope {
  bool attends, appends; /* appends: by the library's kernel */
  bool by_backend;       /* the layer's backend transforms: it appends by itself */
} cgr__transform_scope;

/* What a call's transform is. */
typedef struct cgr__transform_call {
  cgr_qkv_transform given;
  bool by_backend;                    /* the layer's backend gets it as it is; what follows is false */
  bool changes[CGR__NUM_TRANSFORMED]; /* q, k or v */
  bool to_cache;                      /* k and v */
} cgr__transform_call;

/* Whether the library's kernel has anything to do. Otherwise the append does it all. */
static inline bool cgr__transform_is_needed(const cgr__transform_call *call) {
  return call->changes[CGR__TRANSFORM_Q] || call->changes[CGR__TRANSFORM_K] || call->changes[CGR__TRANSFORM_V];
}

/* Reads and checks a->transform, which is not NULL, into *call, which is zeros. */
cgr_status cgr__transform_read(const cgr__step_recorder *recorder, const cgr_attention *a, const cgr__transform_scope *scope,
                               cgr__transform_call *call);
/* Refuses what is written in place if it is not memory of its own; for views that have been checked. */
cgr_status cgr__transform_check_overlaps(const cgr__step_recorder *recorder, const cgr_attention *a,
                                         const cgr__transform_call *call);
/* A graph holds what its transforms read. */
cgr_status cgr__transform_hold(const cgr__step_recorder *recorder, const cgr_layer *layer, const cgr_qkv_transform *given);
cgr__transform_args cgr__transform_args_of(const cgr__step_recorder *recorder, const cgr_attention *a,
                                           const cgr__transform_call *call);

/* ------------------------------------------------------------------------------------------------------------------- native.c */

/* The functions of the library's own backend that are called in steps. */
void cgr__native_complete(cgr_backend *backend);

/* ------------------------------------------------------------------------------------------------------------ backend_plans.c */

/* Places what backends keep in the host's memory (cgr__setup_backend_plans_layout). */
void cgr__backend_plans_init(cgr_runtime *rt, unsigned char *memory);
/* Makes the backends' states for a graph that has none; NULL: for eager steps, unless they have been made. */
cgr_status cgr__backend_plans_create(cgr_runtime *rt, const cgr__graph_entry *entry);
void cgr__backend_plans_destroy(cgr_runtime *rt, const cgr__graph_entry *entry);
/* Whether any backend has states to destroy. */
bool cgr__backend_plans_has_states(const cgr_runtime *rt);
/* Destroys the states of graphs that no longer exist. */
void cgr__backend_plans_sweep(cgr_runtime *rt);
void cgr__backend_plans_destroy_all(cgr_runtime *rt);
/* Plans a checked step on the host, into its ring slot. `*bytes`: what travels; `*staged`: bits of the header. */
cgr_status cgr__backend_plans_on_host(cgr_runtime *rt, const cgr__prepared *prepared, cgr__ring_slot_header *slot,
                                      uint64_t *staged, uint64_t *bytes);
/* Enqueues, on the recorder's stream, the plans of the backends with PLANS_FIRST, or of the others. */
cgr_status cgr__backend_plans_enqueue(cgr__step_recorder *recorder, bool first);
/* Zeroes the workspaces after a step that was given up. */
int cgr__backend_plans_clear(cgr_runtime *rt, cudaStream_t stream);
/* What cgr_record_get_info adds inside a function of a backend. */
void cgr__backend_plans_find(cgr_recorder *recorder, cgr_record_info *info);
void *const *cgr__backend_plans_states(const cgr_runtime *rt, const cgr__graph_entry *entry);

/* ------------------------------------------------------------------------------------------------------------------- bounds.c */

/* The lengths of a program's batch in the length set of its tokens, which they include; returns the longest, at least 1.
 * `seq_lens`: NULL or [num_requests]. A batch of NULL is empty: it counts as one request of one token, its padding. */
int32_t cgr__fill_seq_lens(cgr_runtime *rt, const cgr__batch_layout *batch, int32_t program, int32_t set, int32_t *seq_lens);
int32_t cgr__longest_query(const cgr__batch_layout *batch);
/* The number of decodes, which come first, and of their tokens; -1 if no backend in use has a reorder_threshold. */
int32_t cgr__count_decodes(const cgr_runtime *rt, const cgr__batch_layout *batch, int32_t *num_tokens);

#endif
