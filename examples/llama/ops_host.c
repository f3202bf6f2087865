/* The operations as plain loops, enqueued with cgr_launch_host. Every row is computed by itself, in an order that does not
 * depend on the number of rows. */
#include <cgr/cgr.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/llama/error.h"
#include "examples/llama/noise.h"
#include "examples/llama/number.h"
#include "examples/llama/ops.h"
#include "examples/llama/random.h"
#include "examples/llama/verify.h"

#define BLOCK 256 /* elements that a row is taken in */

static size_t element_size(int32_t dtype) { return dtype == CGR_DTYPE_BF16 ? 2 : 4; }

static const void *at(const void *base, int64_t index, int32_t dtype) {
  return (const char *)base + index * (int64_t)element_size(dtype);
}

static void *at_mutable(void *base, int64_t index, int32_t dtype) { return (char *)base + index * (int64_t)element_size(dtype); }

static void load(float *to, const void *base, int64_t index, int n, int32_t dtype) {
  const uint16_t *halves = at(base, index, dtype);
  if (dtype == CGR_DTYPE_FP32)
    memcpy(to, at(base, index, dtype), (size_t)n * sizeof(float));
  else
    for (int i = 0; i < n; i++)
      to[i] = llama_from_bf16(halves[i]);
}

static void store(void *base, int64_t index, const float *from, int n, int32_t dtype) {
  uint16_t *halves = at_mutable(base, index, dtype);
  if (dtype == CGR_DTYPE_FP32)
    memcpy(at_mutable(base, index, dtype), from, (size_t)n * sizeof(float));
  else
    for (int i = 0; i < n; i++)
      halves[i] = llama_to_bf16(from[i]);
}

static int32_t clamp(int32_t value, int32_t limit) { return value < 0 || value >= limit ? 0 : value; }

static int shorter(int32_t rest) { return rest < BLOCK ? rest : BLOCK; }

/* ------------------------------------------------------------------------------------------------------- what executes */

static void embed(const void *pointer) {
  const llama_embed_args *a = pointer;
  size_t row = (size_t)a->hidden * element_size(a->dtype);
  for (int t = 0; t < a->tokens; t++)
    memcpy((char *)a->out + (size_t)t * row, (const char *)a->table + (size_t)clamp(a->ids[t], a->vocab) * row, row);
}

static void rmsnorm(const void *pointer) {
  const llama_rmsnorm_args *a = pointer;
  float x[BLOCK], weight[BLOCK];
  for (int64_t r = 0; r < a->rows; r++) {
    int64_t row = r * a->hidden;
    float sum = 0.0f;
    for (int i = 0; i < a->hidden; i += BLOCK) {
      int n = shorter(a->hidden - i);
      load(x, a->in, row + i, n, a->dtype);
      for (int j = 0; j < n; j++)
        sum += x[j] * x[j];
    }
    float scale = 1.0f / sqrtf(sum / (float)a->hidden + a->eps);
    for (int i = 0; i < a->hidden; i += BLOCK) {
      int n = shorter(a->hidden - i);
      load(x, a->in, row + i, n, a->dtype);
      load(weight, a->weight, i, n, a->dtype);
      for (int j = 0; j < n; j++)
        x[j] = x[j] * scale * weight[j];
      store(a->out, row + i, x, n, a->dtype);
    }
  }
}

/* The two halves of a head, times the weights of its norm. */
static void norm_head(const llama_rope_args *a, const void *norm, float *low, float *high) {
  int half = a->head_dim / 2;
  float weight[BLOCK], sum = 0.0f;
  load(weight, norm, 0, a->head_dim, a->dtype);
  for (int i = 0; i < half; i++)
    sum += low[i] * low[i] + high[i] * high[i];
  float scale = 1.0f / sqrtf(sum / (float)a->head_dim + a->eps);
  for (int i = 0; i < half; i++) {
    low[i] = low[i] * scale * weight[i];
    high[i] = high[i] * scale * weight[half + i];
  }
}

static void rope(const void *pointer) {
  const llama_rope_args *a = pointer;
  int half = a->head_dim / 2;
  float low[BLOCK / 2], high[BLOCK / 2]; /* head_dim is at most 256 */
  for (int64_t t = 0; t < a->tokens; t++) {
    const float *cosines = a->angles + (int64_t)clamp(a->positions[t], a->max_positions) * a->head_dim;
    const float *sines = cosines + half;
    for (int64_t h = 0; h < a->heads; h++) {
      int64_t first = t * a->stride_token + h * a->head_dim;
      load(low, a->qk, first, half, a->dtype);
      load(high, a->qk, first + half, half, a->dtype);
      if (a->q_norm)
        norm_head(a, h < a->q_heads ? a->q_norm : a->k_norm, low, high);
      for (int i = 0; i < half; i++) {
        float x = low[i], y = high[i];
        low[i] = x * cosines[i] - y * sines[i];
        high[i] = y * cosines[i] + x * sines[i];
      }
      store(a->qk, first, low, half, a->dtype);
      store(a->qk, first + half, high, half, a->dtype);
    }
  }
}

static void silu(const void *pointer) {
  const llama_silu_args *a = pointer;
  float gate[BLOCK], up[BLOCK];
  for (int64_t r = 0; r < a->rows; r++)
    for (int i = 0; i < a->inner; i += BLOCK) {
      int n = shorter(a->inner - i);
      load(gate, a->gate_up, 2 * r * a->inner + i, n, a->dtype);
      load(up, a->gate_up, (2 * r + 1) * a->inner + i, n, a->dtype);
      for (int j = 0; j < n; j++)
        gate[j] = gate[j] / (1.0f + expf(-gate[j])) * up[j];
      store(a->out, r * a->inner + i, gate, n, a->dtype);
    }
}

static void gather(const void *pointer) {
  const llama_gather_args *a = pointer;
  size_t row = (size_t)a->hidden * element_size(a->dtype);
  for (int r = 0; r < a->rows; r++)
    memcpy((char *)a->out + (size_t)r * row, (const char *)a->in + (size_t)clamp(a->indices[r], a->tokens) * row, row);
}

static llama_best sample_row(const llama_sample_args *a, int64_t r) {
  const float *logits = a->logits + r * a->vocab;
  int32_t data = clamp(a->request_rows[r], a->num_data), position = a->positions[clamp(a->indices[r], a->tokens)], best = 0;
  float temperature = a->temperatures[data], most = -INFINITY;
  uint32_t words[4] = { 0 };
  for (int32_t i = 0; i < a->vocab; i++) {
    float value = logits[i];
    if (!isfinite(value))
      return (llama_best){ 0.0f, LLAMA_NOT_FINITE };
    if (temperature > 0.0f && i % 4 == 0)
      llama_noise(a->noise[2 * data], a->noise[2 * data + 1], position, (a->first + i) / 4, words);
    if (temperature > 0.0f)
      value += temperature * llama_gumbel(words[i % 4]);
    if (value > most) {
      most = value;
      best = i;
    }
  }
  return (llama_best){ most, a->first + best };
}

static void sample(const void *pointer) {
  const llama_sample_args *a = pointer;
  for (int64_t r = 0; r < a->rows; r++) {
    const llama_best best = sample_row(a, r);
    if (a->best)
      a->best[r] = best;
    else
      a->out[r] = best.token;
  }
}

static void pick(const void *pointer) {
  const llama_pick_args *a = pointer;
  for (int r = 0; r < a->rows; r++) {
    llama_best best = a->best[r];
    for (int k = 1; k < a->ranks && best.token != LLAMA_NOT_FINITE; k++) {
      const llama_best *other = &a->best[k * a->rows + r];
      if (other->token == LLAMA_NOT_FINITE || other->value > best.value)
        best = *other;
    }
    a->out[r] = best.token;
  }
}

static void places(const void *pointer) {
  const llama_places_args *a = pointer;
  for (int64_t i = 0; i < a->requests; i++)
    llama_place_request(a, i);
}

static void verify(const void *pointer) {
  const llama_verify_args *a = pointer;
  for (int64_t i = 0; i < a->requests; i++)
    llama_verify_request(a, i);
}

static void fill(const void *pointer) {
  const llama_fill_args *a = pointer;
  float x[BLOCK];
  for (uint64_t first = 0; first < a->count; first += BLOCK) {
    int n = a->count - first < BLOCK ? (int)(a->count - first) : BLOCK;
    for (int i = 0; i < n; i++) {
      const uint64_t at = first + (uint64_t)i, number = a->first + at / a->row * a->stride + at % a->row;
      x[i] = a->std > 0.0f ? a->std * llama_random_normal(a->seed, number) : a->constant;
    }
    store(a->out, (int64_t)first, x, n, a->dtype);
  }
}

/* ---------------------------------------------------------------------------------------------------------------- gemm */

/* A tile of 2 rows and 2 columns, 8 lanes along k each: 4 vector sums, which every x86 and Arm has the registers for. */
#define LANES 8
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef uint16_t half_lanes __attribute__((vector_size(LANES * sizeof(uint16_t))));
typedef uint32_t word_lanes __attribute__((vector_size(LANES * sizeof(uint32_t))));

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__OPTIMIZE__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FOR_EACH_CPU __attribute__((target_clones("default", "avx2")))
#else
#define FOR_EACH_CPU
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE void load_lanes(lanes *to, const void *base, int64_t index, int32_t dtype) {
  if (dtype == CGR_DTYPE_FP32) {
    memcpy(to, (const float *)base + index, sizeof(*to));
  } else {
    half_lanes halves;
    memcpy(&halves, (const uint16_t *)base + index, sizeof(halves));
    word_lanes words = __builtin_convertvector(halves, word_lanes) << 16;
    memcpy(to, &words, sizeof(*to));
  }
}

INLINE void put(const llama_gemm_args *a, int64_t row, int64_t column, const lanes *sums) {
  const float *s = (const float *)sums;
  float value = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])), bias = 0.0f, old = 0.0f;
  if (a->bias)
    load(&bias, a->bias, column, 1, a->dtype);
  if (a->add)
    load(&old, a->out, row * a->n + column, 1, a->out_dtype);
  value = value + bias + old;
  store(a->out, row * a->n + column, &value, 1, a->out_dtype);
}

/* The tile of columns c and d and of rows r and s; at an edge both are the same. k is a multiple of LANES. */
INLINE void tile(const llama_gemm_args *a, int64_t r, int64_t s, int64_t c, int64_t d, int32_t dtype) {
  lanes rc = { 0 }, rd = { 0 }, sc = { 0 }, sd = { 0 }, xr, xs, wc, wd;
  for (int64_t k = 0; k < a->k; k += LANES) {
    load_lanes(&xr, a->x, r * a->k + k, dtype);
    load_lanes(&xs, a->x, s * a->k + k, dtype);
    load_lanes(&wc, a->weight, c * a->k + k, dtype);
    load_lanes(&wd, a->weight, d * a->k + k, dtype);
    rc += xr * wc;
    rd += xr * wd;
    sc += xs * wc;
    sd += xs * wd;
  }
  put(a, r, c, &rc);
  if (d > c)
    put(a, r, d, &rd);
  if (s > r)
    put(a, s, c, &sc);
  if (s > r && d > c)
    put(a, s, d, &sd);
}

INLINE void multiply(const llama_gemm_args *a, int32_t dtype) {
  for (int64_t c = 0; c < a->n; c += 2)
    for (int64_t r = 0; r < a->rows; r += 2)
      tile(a, r, r + 1 < a->rows ? r + 1 : r, c, c + 1 < a->n ? c + 1 : c, dtype);
}

FOR_EACH_CPU static void multiply_fp32(const llama_gemm_args *a) { multiply(a, CGR_DTYPE_FP32); }
FOR_EACH_CPU static void multiply_bf16(const llama_gemm_args *a) { multiply(a, CGR_DTYPE_BF16); }

static void gemm(const void *pointer) {
  const llama_gemm_args *a = pointer;
  if (a->dtype == CGR_DTYPE_FP32)
    multiply_fp32(a);
  else
    multiply_bf16(a);
}

/* ------------------------------------------------------------------------------------------------------- what enqueues */

#define ENQUEUE(operation)                                                                                           \
  static cgr_status enqueue_##operation(llama_ops *ops, const llama_##operation##_args *args, cudaStream_t stream) { \
    return cgr_launch_host(ops->device, operation, args, sizeof(*args), stream);                                     \
  }
ENQUEUE(embed)
ENQUEUE(rmsnorm)
ENQUEUE(rope)
ENQUEUE(silu)
ENQUEUE(gather)
ENQUEUE(sample)
ENQUEUE(places)
ENQUEUE(verify)
ENQUEUE(pick)
ENQUEUE(gemm)
ENQUEUE(fill)

static void close_host(llama_ops *ops) { free(ops); }

int llama_ops_host(cgr_device *device, llama_ops **out) {
  llama_ops *ops = calloc(1, sizeof(*ops));
  if (!ops)
    return llama_fail("no memory");
  *ops = (llama_ops){ .device = device,
                      .embed = enqueue_embed,
                      .rmsnorm = enqueue_rmsnorm,
                      .rope = enqueue_rope,
                      .silu = enqueue_silu,
                      .gather = enqueue_gather,
                      .sample = enqueue_sample,
                      .places = enqueue_places,
                      .verify = enqueue_verify,
                      .pick = enqueue_pick,
                      .gemm = enqueue_gemm,
                      .fill = enqueue_fill,
                      .close = close_host };
  *out = ops;
  return 0;
}
