/* The model on a device, and one runtime that steps it: weights (shared by engines), activations, KV cache. */
#ifndef LLAMA_ENGINE_H
#define LLAMA_ENGINE_H

#include <cgr/cgr.h>

#include "examples/llama/draft.h"
#include "examples/llama/error.h"
#include "examples/llama/model.h"
#include "examples/llama/ops.h"
#include "examples/llama/team.h"

/* A call of cgr: 0, or -1 and a message with the call's name and cgr's own message. */
int llama_cgr(cgr_status status, const char *call);
#define TRY_CGR(call) TRY(llama_cgr((call), #call))

/* This engine has one lane and one program. */

/* Device memory that is laid out twice: with base NULL to learn the size, then for real. */
typedef struct llama_arena {
  char *base;
  size_t used;
} llama_arena;

void *llama_arena_take(llama_arena *arena, size_t count, size_t element);

typedef struct llama_layer_weights {
  void *attention_norm;  /* [hidden] */
  void *qkv;             /* [(q heads + 2 * kv heads) * head_dim, hidden] */
  void *qkv_bias;        /* [(q heads + 2 * kv heads) * head_dim]; NULL: none */
  void *q_norm, *k_norm; /* [head_dim]; NULL: none */
  void *o;               /* [hidden, q heads * head_dim] */
  void *o_bias;          /* [hidden]; NULL: none */
  void *mlp_norm;        /* [hidden] */
  void *gate_up;         /* [2 * intermediate, hidden] */
  void *down;            /* [hidden, intermediate] */
} llama_layer_weights;

typedef struct llama_weights {
  llama_config config; /* of the rank's part */
  llama_split split;
  llama_span vocab; /* tokens of the head */
  bool tied;        /* the head is in the embedding */
  int32_t dtype;
  llama_arena arena;
  void *embedding, *norm, *head;
  llama_layer_weights *layers;
} llama_weights;

/* Memory for a rank's part of the weights of a model of this shape, without values. `tied`: the output projection is the
 * embedding. */
int llama_weights_allocate(const llama_config *config, llama_split split, bool tied, cgr_device *device, int32_t dtype,
                           llama_weights **weights);
/* Converts a model's tensors to the compute dtype and brings them to the device. */
int llama_weights_load(const llama_model *model, llama_split split, cgr_device *device, int32_t dtype, llama_weights **weights);
void llama_weights_free(cgr_device *device, llama_weights *weights);

typedef struct llama_limits {
  int32_t max_requests; /* in one step */
  int32_t max_tokens;   /* in one step */
  int32_t max_seq_len;
  int32_t page_size;
  int32_t num_pages;       /* including the two that cgr reserves */
  cgr_kv_layout layout;    /* of a page; a layer's cache is [2][pages] of it: K, then V */
  int32_t kv_dtype;        /* cgr_dtype of the cache; NONE: that of the weights */
  int32_t max_changes;     /* as in cgr_config; 0: its default */
  int32_t graph_mode;      /* cgr_graph_mode */
  int32_t timing;          /* as in cgr_config */
  int32_t batch_invariant; /* the same */
  llama_draft draft;       /* guesses: count of a request in a step, and whether a coin accepts them */
} llama_limits;

/* Of a layer whose cache is of i8 (factors.h), in device memory. */
typedef struct llama_factors {
  float *k;      /* [num_pages, kv heads, page_size] */
  float *v;      /* [kv heads, head_dim] */
  float *maxima; /* [kv heads, head_dim] of V's magnitudes, where they are measured */
} llama_factors;

/* What the sampler reads of a request: data of its row (cgr_request_set_data). */
enum { LLAMA_DATA_NOISE, LLAMA_DATA_TEMPERATURE, LLAMA_NUM_DATA, LLAMA_DATA_RATE = LLAMA_NUM_DATA }; /* RATE: only with a coin */

/* What a step with guesses needs besides; all NULL without. W = 1 + k tokens of each request. */
typedef struct llama_guessing {
  int32_t *places, *place_rows;         /* [requests, W] tokens whose logits are computed, and their requests' rows */
  int32_t *sampled;                     /* [requests, W] */
  const int32_t *num_drafts;            /* of the runtime */
  int32_t *num_accepted, *draft_tokens; /* of the runtime */
  const float *rates;                   /* [rows + 1] of a coin, or NULL */
} llama_guessing;

typedef struct llama_engine {
  llama_limits limits;
  cgr_device *device;
  llama_ops *ops;
  const llama_weights *weights;
  cgr_runtime *runtime;
  llama_team *team; /* NULL: alone */
  cudaStream_t stream;

  llama_arena activations, cache;
  void *x;          /* [tokens, hidden] the residual stream */
  void *normed;     /* [tokens, hidden] */
  void *qkv;        /* [tokens, q heads + 2 * kv heads, head_dim] */
  void *attended;   /* [tokens, q heads, head_dim] */
  void *gate_up;    /* [tokens, 2, intermediate] */
  void *inner;      /* [tokens, intermediate] */
  void *last;       /* [requests, hidden]; with guesses W rows for each request, as its logits */
  float *logits;    /* [requests, tokens of the head] */
  llama_best *best; /* as its logits: of this rank, and [ranks] of all; NULL: it is alone */
  llama_best *all_best;
  float *angles;            /* [max_seq_len, head_dim] cos and sin of the rotary embedding */
  void **caches;            /* [layers] */
  llama_factors *factors;   /* [layers]; NULL: the cache has none */
  bool measures_v;          /* `record` measures V while this is set */
  cgr_attention *attention; /* [layers] */

  const int32_t *input_ids, *positions, *logits_indices, *request_rows; /* of the runtime */
  const int32_t *noise;                                                 /* [rows + 1, 2] seed and request */
  const float *temperatures;                                            /* [rows + 1] */
  int32_t *next_tokens;
  llama_guessing guessing;
  int64_t records; /* calls of llama_record: eager steps and captures */
} llama_engine;

/* Of the KV cache. */
cgr_dtype llama_cache_dtype(const llama_limits *limits, const llama_weights *weights);
/* Device memory that an engine of these limits takes for activations. */
size_t llama_engine_activations(const llama_limits *limits, const llama_weights *weights);

/* Creates the runtime; steps go to `stream`. llama_engine_capture then captures its graphs. */
int llama_engine_create(const llama_limits *limits, const llama_weights *weights, llama_ops *ops, cudaStream_t stream,
                        llama_engine **engine);
int llama_engine_capture(llama_engine *engine);
void llama_engine_destroy(llama_engine *engine);

/* Tokens of a request whose logits a step of this key computes: 1, or with guesses as many as the key's graphs serve. */
int32_t llama_engine_width(const llama_engine *engine, const cgr_key *key);

/* One step of the model (forward.c): what cgr records and captures. */
cgr_status llama_record(cgr_recorder *recorder, void *engine);

#endif
