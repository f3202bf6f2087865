#include "profiles/support/attention_check.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/quantise.h"
#include "kernels/reference/reference.h"

/* A token, and the query heads of one KV head. */
typedef struct sample {
  int32_t request, token; /* token: of the request's new ones */
  int32_t kv_head, q_per_kv;
  int32_t length; /* tokens that it sees */
} sample;

static double *load(cgr_dtype dtype, const void *from, int32_t count, double *to) {
  for (int32_t d = 0; d < count; d++)
    to[d] = cgr__reference_load((int32_t)dtype, (const char *)from + (size_t)d * cgr_dtype_size(dtype));
  return to;
}

static void check_all(const bench_attention *b, const bench_attention_output *o) {
  const int64_t lines = (int64_t)o->query_start[b->num_requests] * b->num_q_heads;
  const int exponent = b->dtype == CGR_DTYPE_FP16 ? 0x7c00 : 0x7f80;
  for (int64_t i = 0; i < lines; i++) {
    const uint16_t *head = o->out + i * b->head_dim;
    bool finite = isfinite(o->lse[i]), any = false;
    for (int32_t d = 0; d < b->head_dim; d++) {
      finite = finite && (head[d] & exponent) != exponent;
      any = any || (head[d] & 0x7fff) != 0;
    }
    if (!finite || !any)
      bench_fail("the output of token %lld, head %lld is %s, lse %g", (long long)(i / b->num_q_heads),
                 (long long)(i % b->num_q_heads), finite ? "0" : "not finite", (double)o->lse[i]);
  }
}

/* Multiplies codes of i8 by their factors: K's one of the token, V's those of the channels. */
static void scale_token(int32_t dim, double *k, float factor, double *v, const float *channels) {
  for (int32_t d = 0; d < dim; d++) {
    k[d] *= (double)factor;
    v[d] *= (double)channels[d];
  }
}

/* The factors of the sample's KV head, from the device: of the tokens that it sees, and of V's channels behind them. */
static float *gather_factors(const bench_attention *b, const bench_attention_output *o, const sample *s) {
  const size_t length = (size_t)s->length, size = (size_t)b->page_size;
  float *factors = malloc((length + size + (size_t)b->head_dim) * sizeof *factors), *channels = factors + length;
  for (size_t t = 0; t < length; t += size)
    bench_check(cgr_copy(b->dev, factors + t,
                         cgr__scale_at(&o->cache[0], o->table[s->request * o->stride + (int64_t)(t / size)], 0, s->kv_head, 0),
                         size * sizeof *factors, b->stream),
                "copy");
  bench_check(cgr_copy(b->dev, channels, cgr__scale_at(&o->cache[1], 0, 0, s->kv_head, 0), (size_t)b->head_dim * sizeof *channels,
                       b->stream),
              "copy");
  bench_check(cgr_stream_synchronize(b->dev, b->stream), "copy");
  return factors;
}

#define CHUNK 64 /* pages that are copied together */

/* K and V of the sample's KV head, [length][head_dim] each, from the pages that the request has. They come in chunks: memory that
 * is touched for the first time costs more than the copies. */
static void gather(const bench_attention *b, const bench_attention_output *o, const sample *s, double *k, double *v) {
  size_t size = cgr_dtype_size(b->cache_dtype), row = (size_t)b->head_dim * size;
  size_t half = (size_t)b->page_size * (size_t)b->num_kv_heads * row; /* K or V of a page */
  char *pages = malloc(CHUNK * half * 2);
  float *factors = b->cache_dtype == CGR_DTYPE_I8 ? gather_factors(b, o, s) : NULL;
  for (int32_t t = 0; t < s->length; t++) {
    int32_t in_chunk = t % (CHUNK * b->page_size), left = (s->length - t + b->page_size - 1) / b->page_size;
    for (int32_t p = 0; in_chunk == 0 && p < left && p < CHUNK; p++) {
      size_t page = (size_t)o->table[s->request * o->stride + t / b->page_size + p];
      bench_check(cgr_copy(b->dev, pages + (size_t)p * half * 2, (char *)b->cache + page * half * 2, half * 2, b->stream),
                  "copy");
    }
    if (in_chunk == 0)
      bench_check(cgr_stream_synchronize(b->dev, b->stream), "copy");
    int32_t line = t % b->page_size * b->num_kv_heads + s->kv_head;
    const char *from = pages + (size_t)(in_chunk / b->page_size) * half * 2 + (size_t)line * row;
    load(b->cache_dtype, from, b->head_dim, k + (size_t)t * (size_t)b->head_dim);
    load(b->cache_dtype, from + half, b->head_dim, v + (size_t)t * (size_t)b->head_dim);
    if (factors)
      scale_token(b->head_dim, k + (size_t)t * (size_t)b->head_dim, factors[t], v + (size_t)t * (size_t)b->head_dim,
                  factors + s->length);
  }
  free(factors);
  free(pages);
}

/* Within 1% of the reference over a head: bf16 alone makes about 0.2% of it, a missing KV tile of 512 makes 4%. */
static void compare_sample(const bench_attention *b, const sample *s, const uint16_t *out, const float *lse, const double *want,
                           const double *want_lse, bench_attention_error *most) {
  for (int32_t h = 0; h < s->q_per_kv; h++) {
    double error = 0.0, norm = 0.0;
    for (int32_t d = 0; d < b->head_dim; d++) {
      double x = want[h * b->head_dim + d];
      double difference = cgr__reference_load((int32_t)b->dtype, out + h * b->head_dim + d) - x;
      error += difference * difference;
      norm += x * x;
    }
    double lse_error = fabs((double)lse[h] - want_lse[h]);
    if (!(error <= 1e-4 * norm) || !(lse_error <= 1e-3))
      bench_fail(
          "request %d, new token %d, KV head %d, query head %d of it: the output is %.3f%% off, lse is %.6f, expected %.6f",
          s->request, s->token, s->kv_head, h, 100.0 * sqrt(error / norm), (double)lse[h], want_lse[h]);
    most->out = fmax(most->out, sqrt(error / norm));
    most->lse = fmax(most->lse, lse_error);
  }
}

static void check_sample(const bench_attention *b, const bench_attention_output *o, const sample *s,
                         bench_attention_error *most) {
  size_t dim = (size_t)b->head_dim, q_per_kv = (size_t)s->q_per_kv, length = (size_t)s->length;
  int64_t line = (int64_t)(o->query_start[s->request] + s->token) * b->num_q_heads + s->kv_head * s->q_per_kv;
  uint16_t *raw = malloc(q_per_kv * dim * 2);
  double *k = malloc(length * dim * sizeof *k), *v = malloc(length * dim * sizeof *v);
  double *q = malloc(q_per_kv * dim * sizeof *q), *out = malloc(q_per_kv * dim * sizeof *out),
         *lse = malloc(q_per_kv * sizeof *lse);
  bench_check(cgr_copy(b->dev, raw, (uint16_t *)b->q + line * b->head_dim, q_per_kv * dim * 2, b->stream), "copy");
  bench_check(cgr_stream_synchronize(b->dev, b->stream), "copy");
  gather(b, o, s, k, v);
  const cgr__reference_shape shape = { .query_len = 1, /* the last token */
                                       .seq_len = s->length,
                                       .num_q_heads = s->q_per_kv,
                                       .num_kv_heads = 1,
                                       .head_dim = b->head_dim,
                                       .head_dim_v = b->head_dim,
                                       .causal = 1,
                                       .scale = 1.0 / sqrt((double)b->head_dim) };
  cgr__reference_attention(&shape, load(b->dtype, raw, s->q_per_kv * b->head_dim, q), k, v, out, lse);
  compare_sample(b, s, o->out + line * b->head_dim, o->lse + line, out, lse, most);
  double *doubles[] = { k, v, q, out, lse };
  for (int i = 0; i < 5; i++)
    free(doubles[i]);
  free(raw);
}

bench_attention_error bench_attention_check(const bench_attention *b, const bench_attention_output *output) {
  bench_attention_error most = { 0.0, 0.0 };
  int32_t samples = b->samples > 3 ? b->samples : 3;
  check_all(b, output);
  for (int32_t i = 0; i < samples; i++) { /* from the first token of the batch to the last */
    int32_t at = (output->query_start[b->num_requests] - 1) * i / (samples - 1);
    sample s = { .q_per_kv = b->num_q_heads / b->num_kv_heads };
    while (output->query_start[s.request + 1] <= at)
      s.request++;
    s.token = at - output->query_start[s.request];
    s.kv_head = (b->num_kv_heads - 1) * i / (samples - 1);
    s.length = b->seq_lens[s.request] - b->query_lens[s.request] + s.token + 1;
    check_sample(b, output, &s, &most);
  }
  return most;
}
