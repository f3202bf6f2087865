/* The operations of a model's step, as a table with one implementation per device. Each call enqueues: its arguments are a plain
 * struct, copied by value, and a captured call keeps its copy. Counts are those of the key; what depends on the live batch is
 * read from device memory. Activations and weights are in the compute dtype (fp32 or bf16), arithmetic is fp32. */
#ifndef LLAMA_OPS_H
#define LLAMA_OPS_H

#include <cgr/cgr.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct llama_embed_args {
  void *out;          /* [tokens, hidden] */
  const void *table;  /* [vocab, hidden] */
  const int32_t *ids; /* [tokens] */
  int32_t tokens, hidden, vocab, dtype;
} llama_embed_args;

typedef struct llama_rmsnorm_args {
  void *out;          /* [rows, hidden] */
  const void *in;     /* [rows, hidden] */
  const void *weight; /* [hidden] */
  int32_t rows, hidden, dtype;
  float eps;
} llama_rmsnorm_args;

typedef struct llama_rope_args {
  void *qk;                    /* [tokens, heads, head_dim], rotated in place: the heads of q, then those of k */
  const void *q_norm, *k_norm; /* [head_dim] weights of an RMS norm of each head before the rotation; NULL: none */
  const int32_t *positions;    /* [tokens] */
  const float *angles;         /* [max_positions, head_dim]: cos of each frequency, then sin */
  int64_t stride_token;        /* elements */
  int32_t tokens, q_heads, heads, head_dim, dtype, max_positions; /* heads: of q and k */
  float eps;
  int32_t reserved;
} llama_rope_args;

typedef struct llama_silu_args {
  void *out;           /* [rows, inner] = silu(gate) * up */
  const void *gate_up; /* [rows, 2, inner] */
  int32_t rows, inner, dtype, reserved;
} llama_silu_args;

typedef struct llama_gather_args {
  void *out;              /* [rows, hidden] */
  const void *in;         /* [tokens, hidden] */
  const int32_t *indices; /* [rows] */
  int32_t rows, hidden, tokens, dtype;
} llama_gather_args;

/* Part of a matrix of random numbers: rows of `row` elements, whose first ones are `first`, first + stride, .. of the matrix. */
typedef struct llama_fill_args {
  void *out;      /* [count]: std * llama_random_normal(seed, its number in the matrix), or `constant` when std is 0 */
  uint64_t count; /* a multiple of 8, and of `row` */
  uint64_t seed;
  uint64_t first, row, stride; /* row: a multiple of 8 */
  float std, constant;
  int32_t dtype, reserved;
} llama_fill_args;

/* What sample returns for a row with a NaN or an Inf in it; embed treats such an id as 0. */
#define LLAMA_NOT_FINITE (-1)

/* The best token of some: the value that decided, and its number, or LLAMA_NOT_FINITE. */
typedef struct llama_best {
  float value;
  int32_t token;
} llama_best;

/* argmax(logits + temperature * noise), which is argmax(logits / temperature + noise) without a division by 0: temperature 0
 * takes the likeliest token. The noise is that of noise.h, for the position of the token that the logits were computed from. */
typedef struct llama_sample_args {
  int32_t *out;                /* [rows]: the first of equals, or LLAMA_NOT_FINITE */
  const float *logits;         /* [rows, vocab] of the tokens from `first` on */
  const int32_t *request_rows; /* [rows] where a request's data is */
  const int32_t *noise;        /* [num_data, 2] seed and request */
  const float *temperatures;   /* [num_data] */
  const int32_t *positions;    /* [tokens] */
  const int32_t *indices;      /* [rows] the token that the logits were computed from */
  int32_t rows, vocab, num_data, tokens;
  int32_t first, reserved; /* first: a multiple of 4 */
  llama_best *best;        /* [rows] in place of `out`; NULL: none */
} llama_sample_args;

/* With guesses: the tokens whose logits a step needs (verify.h), `width` for each request. */
typedef struct llama_places_args {
  int32_t *indices; /* [requests, width] a request's last 1 + num_drafts tokens in their order, then its last again */
  int32_t *rows;    /* [requests, width] request_rows */
  const int32_t *logits_indices; /* [requests] */
  const int32_t *num_drafts;     /* [requests] */
  const int32_t *request_rows;   /* [requests] */
  int32_t requests, width;       /* width: at least 1 + num_drafts */
} llama_places_args;

/* Accepts guesses: from a request's first on, as long as they are what was sampled, or with `rates` as a coin falls. */
typedef struct llama_verify_args {
  int32_t *next_tokens;   /* [requests, stride] the accepted guesses and the token after them, then 0 */
  int32_t *num_accepted;  /* [requests] */
  int32_t *draft_tokens;  /* [requests, stride - 1] with `rates`: guesses for the row's next step; else not written */
  const int32_t *sampled; /* [requests, width] by sample, of the places */
  const int32_t *indices; /* [requests, width] the places */
  const int32_t *num_drafts, *request_rows; /* [requests] */
  const int32_t *input_ids, *positions;     /* [tokens] */
  const int32_t *noise;                     /* [num_data, 2] */
  const float *rates;                       /* [num_data] 0 .. 1: how many guesses the coin accepts; NULL: guesses are compared */
  int32_t requests, width, stride, num_data, tokens, vocab;
} llama_verify_args;

/* The best of what ranks have sampled from different tokens, in their order; with equal values, the first rank's. */
typedef struct llama_pick_args {
  int32_t *out;           /* [rows]; LLAMA_NOT_FINITE if a rank's is that */
  const llama_best *best; /* [ranks, rows] */
  int32_t rows, ranks;
} llama_pick_args;

/* The model's matrices. Each has one shape, so a library's choice for it can be kept. */
typedef enum llama_matrix { LLAMA_QKV, LLAMA_O, LLAMA_GATE_UP, LLAMA_DOWN, LLAMA_HEAD, LLAMA_NUM_MATRICES } llama_matrix;

typedef struct llama_gemm_args {
  void *out;          /* [rows, n] = x * weight^T + bias, or += with `add` */
  const void *x;      /* [rows, k] */
  const void *weight; /* [n, k] */
  const void *bias;   /* [n], or NULL; only if out_dtype is dtype, and for a given matrix always or never */
  int32_t rows, n, k, dtype;
  int32_t out_dtype; /* dtype, or fp32 */
  int32_t add;
  int32_t matrix; /* llama_matrix */
  int32_t reserved;
} llama_gemm_args;

/* A GEMM may compute up to this many rows: buffers of activations have room for them. */
static inline int32_t llama_gemm_rows(int32_t rows) { return rows <= 256 ? (rows + 15) & ~15 : (rows + 63) & ~63; }

struct llama_ranks;
struct llama_team;
typedef struct llama_ops llama_ops;
struct llama_ops {
  cgr_device *device;
  const struct llama_ranks *ranks; /* that share the model (ranks.h); NULL: there are no others. Set by the caller */
  void *workspace;                 /* device memory of the operations' own, or NULL */
  size_t workspace_bytes;
  cgr_status (*embed)(llama_ops *ops, const llama_embed_args *args, cudaStream_t stream);
  cgr_status (*rmsnorm)(llama_ops *ops, const llama_rmsnorm_args *args, cudaStream_t stream);
  cgr_status (*rope)(llama_ops *ops, const llama_rope_args *args, cudaStream_t stream);
  cgr_status (*silu)(llama_ops *ops, const llama_silu_args *args, cudaStream_t stream);
  cgr_status (*gather)(llama_ops *ops, const llama_gather_args *args, cudaStream_t stream);
  cgr_status (*sample)(llama_ops *ops, const llama_sample_args *args, cudaStream_t stream);
  cgr_status (*places)(llama_ops *ops, const llama_places_args *args, cudaStream_t stream);
  cgr_status (*verify)(llama_ops *ops, const llama_verify_args *args, cudaStream_t stream);
  cgr_status (*pick)(llama_ops *ops, const llama_pick_args *args, cudaStream_t stream);
  cgr_status (*gemm)(llama_ops *ops, const llama_gemm_args *args, cudaStream_t stream);
  /* Launches a graph of `nodes` empty kernels without cgr: what each of the calls took. NULL: the device has no such graphs. */
  cgr_status (*bare_launch)(llama_ops *ops, int32_t nodes, int32_t launches, float *microseconds, cudaStream_t stream);
  /* Launches a graph of `sums` all-reduces of the team's, of data [count] in the compute dtype: what each took. NULL as above. */
  cgr_status (*sums)(llama_ops *ops, const struct llama_team *team, void *data, uint64_t count, int32_t sums, int32_t launches,
                     float *microseconds, cudaStream_t stream);
  cgr_status (*fill)(llama_ops *ops, const llama_fill_args *args, cudaStream_t stream); /* of weights, before the first step */
  void (*close)(llama_ops *ops);
};

/* The operations for a device; `max_rows` bounds the rows of a GEMM. 0, or -1 and a message. close() ends them. */
int llama_ops_host(cgr_device *device, llama_ops **ops);
int llama_ops_cuda(cgr_device *device, int32_t max_rows, llama_ops **ops); /* in builds with cuBLASLt */

#ifdef __cplusplus
}
#endif
#endif
