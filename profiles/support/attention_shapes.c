#include "profiles/support/attention_shapes.h"

#include <math.h>

/* clang-format off */

/* The peers' times are the best of each line of profiles/peers.json; a test compares. */
static const bench_shape first[] = {
  { .name = "decode bs1 len1k", .decodes = 1, .decode_len = 1024, .steps = 60, .peer_us = 10.5 },
  { .name = "decode bs1 len8k", .decodes = 1, .decode_len = 8192, .steps = 60, .peer_us = 15.5 },
  { .name = "decode bs1 len32k", .decodes = 1, .decode_len = 32768, .steps = 60, .peer_us = 41.3 },
  { .name = "decode bs1 len8k, with 4095 empty requests", .decodes = 1, .decode_len = 8192, .empty = 4095, .steps = 60 },
  { .name = "decode bs8 len1k", .decodes = 8, .decode_len = 1024, .steps = 60, .peer_us = 13.9 },
  { .name = "decode bs8 len8k", .decodes = 8, .decode_len = 8192, .steps = 60, .peer_us = 70.7 },
  { .name = "decode bs8 len32k", .decodes = 8, .decode_len = 32768, .steps = 30, .peer_us = 250 },
  { .name = "decode bs64 len1k", .decodes = 64, .decode_len = 1024, .steps = 60, .peer_us = 72.1 },
  { .name = "decode bs64 len8k", .decodes = 64, .decode_len = 8192, .steps = 30, .peer_us = 482 },
  { .name = "decode bs64 len32k", .decodes = 64, .decode_len = 32768, .steps = 12, .peer_us = 1893 },
  { .name = "decode bs256 len1k", .decodes = 256, .decode_len = 1024, .steps = 30, .peer_us = 256 },
  { .name = "decode bs256 len8k", .decodes = 256, .decode_len = 8192, .steps = 12, .peer_us = 1888 },
  { .name = "decode bs256 len32k", .decodes = 256, .decode_len = 32768, .steps = 6, .peer_us = 7514 },
  { .name = "decode bs128 skewed (log-normal)", .decodes = 128, .decode_len = -1, .steps = 30, .peer_us = 339, .floors = 1.05 },
  { .name = "spec decode, 4 queries each, bs64 len4k", .prefills = 64, .query_len = 4, .context = 4092, .steps = 30,
    .peer_us = 249 },
  { .name = "mixed: 64 decodes (4k) + a 2048-token prefill", .decodes = 64, .decode_len = 4096, .prefills = 1, .query_len = 2048,
    .steps = 12, .peer_us = 361, .floors = 1.2 },
  { .name = "mixed: 32 decodes (8k) + a 512-token chunk at 8k", .decodes = 32, .decode_len = 8192, .prefills = 1,
    .query_len = 512, .context = 8192, .steps = 12, .peer_us = 414, .floors = 1.2 },
  { .name = "prefill 4096 (causal)", .prefills = 1, .query_len = 4096, .steps = 12, .peer_us = 279 },
};

#define BS8_LEN8K .decodes = 8, .decode_len = 8192
#define BS64_LEN4K .decodes = 64, .decode_len = 4096
#define BS8_LEN8K_4 .prefills = 8, .query_len = 4, .context = 8188
#define BS64_LEN4K_4 .prefills = 64, .query_len = 4, .context = 4092

static const bench_shape others[] = {
  { .name = "hd64 bs8 len8k", BS8_LEN8K, .head_dim = 64 },
  { .name = "hd64 bs64 len4k", BS64_LEN4K, .head_dim = 64 },
  { .name = "hd64, 4 queries each, bs64 len4k", BS64_LEN4K_4, .head_dim = 64 },
  { .name = "hd256 bs8 len8k", BS8_LEN8K, .head_dim = 256 },
  { .name = "hd256 bs64 len4k", BS64_LEN4K, .head_dim = 256 },
  { .name = "hd256, 4 queries each, bs8 len8k", BS8_LEN8K_4, .head_dim = 256 },
  { .name = "GQA 1 bs8 len8k", BS8_LEN8K, .num_kv_heads = 32 },
  { .name = "GQA 8 bs8 len8k", BS8_LEN8K, .num_kv_heads = 4 },
  { .name = "GQA 8 bs64 len4k", BS64_LEN4K, .num_kv_heads = 4 },
  { .name = "GQA 16 bs8 len8k", BS8_LEN8K, .num_kv_heads = 2 },
  { .name = "GQA 16 bs64 len4k", BS64_LEN4K, .num_kv_heads = 2 },
  { .name = "GQA 16, 4 queries each, bs64 len4k", BS64_LEN4K_4, .num_kv_heads = 2 },
  { .name = "fp16 bs8 len8k", BS8_LEN8K, .dtype = CGR_DTYPE_FP16 },
  { .name = "fp16 bs64 len4k", BS64_LEN4K, .dtype = CGR_DTYPE_FP16 },
  { .name = "cache of bf16, bs64 len8k", .decodes = 64, .decode_len = 8192 },
  { .name = "cache of e4m3, bs64 len8k", .decodes = 64, .decode_len = 8192, .cache_dtype = CGR_DTYPE_FP8_E4M3 },
  { .name = "cache of e5m2, bs64 len8k", .decodes = 64, .decode_len = 8192, .cache_dtype = CGR_DTYPE_FP8_E5M2 },
  { .name = "cache of i8, bs64 len8k", .decodes = 64, .decode_len = 8192, .cache_dtype = CGR_DTYPE_I8 },
  { .name = "cache of e4m3, bs8 len8k", BS8_LEN8K, .cache_dtype = CGR_DTYPE_FP8_E4M3 },
  { .name = "cache of e4m3, bs1 len1k", .decodes = 1, .decode_len = 1024, .cache_dtype = CGR_DTYPE_FP8_E4M3 },
  { .name = "cache of bf16, 64 decodes (4k) + 2048", BS64_LEN4K, .prefills = 1, .query_len = 2048 },
  { .name = "cache of e4m3, 64 decodes (4k) + 2048", BS64_LEN4K, .prefills = 1, .query_len = 2048,
    .cache_dtype = CGR_DTYPE_FP8_E4M3 },
  { .name = "cache of i8, 64 decodes (4k) + 2048", BS64_LEN4K, .prefills = 1, .query_len = 2048, .cache_dtype = CGR_DTYPE_I8 },
  { .name = "cache of bf16, 4096 alone", .prefills = 1, .query_len = 4096 },
  { .name = "cache of e4m3, 4096 alone", .prefills = 1, .query_len = 4096, .cache_dtype = CGR_DTYPE_FP8_E4M3 },
  { .name = "cache of i8, 4096 alone", .prefills = 1, .query_len = 4096, .cache_dtype = CGR_DTYPE_I8 },
};

/* clang-format on */

bool bench_shape_get(int list, int32_t index, bench_shape *shape) {
  const size_t count = list == BENCH_SHAPES_FIRST ? sizeof first / sizeof first[0] : sizeof others / sizeof others[0];
  if ((size_t)index >= count)
    return false;
  *shape = list == BENCH_SHAPES_FIRST ? first[index] : others[index];
  shape->num_q_heads = shape->num_q_heads > 0 ? shape->num_q_heads : 32;
  shape->num_kv_heads = shape->num_kv_heads > 0 ? shape->num_kv_heads : 8;
  shape->head_dim = shape->head_dim > 0 ? shape->head_dim : 128;
  shape->dtype = shape->dtype != CGR_DTYPE_NONE ? shape->dtype : CGR_DTYPE_BF16;
  shape->cache_dtype = shape->cache_dtype != CGR_DTYPE_NONE ? shape->cache_dtype : shape->dtype;
  return true;
}

int32_t bench_shape_requests(const bench_shape *s) { return s->decodes + s->prefills + s->empty; }

int32_t bench_shape_tokens(const bench_shape *s) { return s->decodes + s->prefills * s->query_len; }

int32_t bench_shape_query_len(const bench_shape *s, int32_t i) {
  return i < s->decodes ? 1 : i < s->decodes + s->prefills ? s->query_len : 0;
}

/* Quantiles of a log-normal distribution with median 1200 and sigma 1.1, in a fixed shuffled order. */
static int32_t skewed_length(int32_t i) {
  double u = ((double)(i * 37 % 128) + 0.5) / 128.0;
  double z = 0.0, low = -6.0, high = 6.0;
  for (int k = 0; k < 60; k++) {
    z = 0.5 * (low + high);
    *(0.5 * erfc(-z / sqrt(2.0)) < u ? &low : &high) = z;
  }
  double length = 1200.0 * exp(1.1 * z);
  return length < 16.0 ? 16 : length > 32000.0 ? 32000 : (int32_t)length;
}

int32_t bench_shape_seq_len(const bench_shape *s, int32_t i) {
  if (i < s->decodes)
    return s->decode_len >= 0 ? s->decode_len : skewed_length(i);
  return i < s->decodes + s->prefills ? s->context + s->query_len : 0;
}

int64_t bench_shape_pages(const bench_shape *s, int32_t new_tokens) {
  int64_t pages = 0;
  for (int32_t i = 0; i < s->decodes + s->prefills; i++)
    pages += (bench_shape_seq_len(s, i) + (i < s->decodes ? new_tokens : 0)) / BENCH_PAGE_SIZE + 1;
  return pages;
}

/* K and V of a token. */
static double token_bytes(const bench_shape *s) {
  return 2.0 * s->num_kv_heads * s->head_dim * (double)cgr_dtype_size(s->cache_dtype);
}

double bench_shape_page_bytes(const bench_shape *s) { return BENCH_PAGE_SIZE * token_bytes(s); }

double bench_shape_bytes(const bench_shape *s) {
  double tokens = 0.0;
  for (int32_t i = 0; i < s->decodes + s->prefills; i++)
    tokens += bench_shape_seq_len(s, i);
  return tokens * token_bytes(s);
}

/* A query sees the tokens before it and itself. */
double bench_shape_flops(const bench_shape *s) {
  double pairs = 0.0;
  for (int32_t i = 0; i < s->decodes + s->prefills; i++) {
    double q = bench_shape_query_len(s, i);
    pairs += q * (bench_shape_seq_len(s, i) - q) + q * (q + 1.0) / 2.0;
  }
  return 4.0 * s->num_q_heads * s->head_dim * pairs;
}

double bench_shape_floor_us(const bench_shape *s, double bandwidth) {
  return 1e6 * fmax(bench_shape_bytes(s) / bandwidth, bench_shape_flops(s) / BENCH_PEAK_FLOPS);
}

double bench_shape_target_us(const bench_shape *s, double bandwidth) {
  if (s->peer_us == 0.0)
    return 0.0;
  bool reads = bench_shape_bytes(s) / bandwidth >= bench_shape_flops(s) / BENCH_PEAK_FLOPS;
  double floor_us = bench_shape_floor_us(s, bandwidth), peer_us = s->peer_us * (reads ? BENCH_PEERS_BANDWIDTH / bandwidth : 1.0);
  return fmin(peer_us, s->floors > 0.0 ? s->floors * floor_us : 1.02 * floor_us + 6.0);
}
