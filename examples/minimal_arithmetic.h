/* What the operations of minimal_model.h compute for one token, or for one request: plain C that nvcc also compiles. */
#ifndef MINIMAL_ARITHMETIC_H
#define MINIMAL_ARITHMETIC_H

#include <string.h>

#include "minimal_model.h"

#ifdef __CUDACC__
#define MINIMAL_INLINE static __host__ __device__ inline
#else
#define MINIMAL_INLINE static inline
#endif

typedef enum minimal_operation { MINIMAL_EMBED, MINIMAL_PROJECT, MINIMAL_ADD, MINIMAL_SAMPLE } minimal_operation;

/* What a kernel is launched with. */
typedef struct minimal_launch {
  minimal_model model;
  int32_t operation, layer, count, reserved;
} minimal_launch;

MINIMAL_INLINE float minimal_from_bf16(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

MINIMAL_INLINE uint16_t minimal_to_bf16(float value) { /* round to nearest, ties to even */
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

MINIMAL_INLINE void minimal_embed_one(const minimal_model *m, int32_t token) {
  float *x = m->x + (int64_t)token * MINIMAL_X;
  for (int32_t i = 0; i < MINIMAL_X; i++)
    x[i] = i == m->input_ids[token] ? 1.0f : 0.0f;
}

/* Layer 0 looks for the position before its own. Layer 1 looks for tokens that its own letter precedes; nothing precedes the
 * first token. Both return the letters that they find. */
MINIMAL_INLINE void minimal_project_one(const minimal_model *m, int32_t layer, int32_t token) {
  const float *x = m->x + (int64_t)token * MINIMAL_X, *before = x + MINIMAL_VOCAB;
  const int32_t position = m->positions[token], asked = (position + MINIMAL_HEAD_DIM - 1) % MINIMAL_HEAD_DIM;
  for (int32_t d = 0; d < MINIMAL_HEAD_DIM; d++) {
    const int64_t at = (int64_t)token * MINIMAL_HEAD_DIM + d;
    const int32_t is_letter = d < MINIMAL_VOCAB;
    const float q = layer == 0 ? (float)(d == asked) : is_letter ? x[d] : 0.0f;
    const float k = layer == 0 ? (float)(d == position % MINIMAL_HEAD_DIM) : is_letter && position > 0 ? before[d] : 0.0f;
    m->q[at] = minimal_to_bf16(q);
    m->k[at] = minimal_to_bf16(k);
    m->v[at] = minimal_to_bf16(is_letter ? x[d] : 0.0f);
  }
}

MINIMAL_INLINE void minimal_add_one(const minimal_model *m, int32_t layer, int32_t token) {
  float *part = m->x + (int64_t)token * MINIMAL_X + (int64_t)(layer + 1) * MINIMAL_VOCAB;
  for (int32_t i = 0; i < MINIMAL_VOCAB; i++)
    part[i] += minimal_from_bf16(m->out[(int64_t)token * MINIMAL_HEAD_DIM + i]);
}

MINIMAL_INLINE void minimal_sample_one(const minimal_model *m, int32_t request) {
  const float *logits = m->x + (int64_t)m->logits_indices[request] * MINIMAL_X + 2 * MINIMAL_VOCAB;
  int32_t best = 0;
  for (int32_t i = 1; i < MINIMAL_VOCAB; i++)
    best = logits[i] > logits[best] ? i : best;
  m->next_tokens[request] = best;
}

MINIMAL_INLINE void minimal_one(const minimal_launch *launch, int32_t i) {
  switch (launch->operation) {
  case MINIMAL_EMBED:
    minimal_embed_one(&launch->model, i);
    break;
  case MINIMAL_PROJECT:
    minimal_project_one(&launch->model, launch->layer, i);
    break;
  case MINIMAL_ADD:
    minimal_add_one(&launch->model, launch->layer, i);
    break;
  default:
    minimal_sample_one(&launch->model, i);
  }
}

#ifdef __cplusplus
extern "C" {
#endif
/* On the GPU, in builds with CUDA. Returns 0, or a cudaError_t. */
int minimal_launch_cuda(const minimal_launch *launch, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
