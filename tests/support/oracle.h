// What attention must give, for every test that checks its results: K and V of a request gathered from a paged cache, attention
// in fp64, and how far a kernel may be from it. It uses kernels/reference, which shares no line of code with the kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cgr/attention.h"
#include "kernels/reference/gather.h"
#include "kernels/reference/reference.h"

namespace cgr_test {

using Values = std::vector<double>;

// ---------------------------------------------------------------------------------------------------------------- elements

// `count` neighbouring elements of fp32, fp16, bf16, fp8_e4m3, fp8_e5m2 or i8.
inline Values LoadElements(int32_t dtype, const void *from, int64_t count) {
  Values values(static_cast<size_t>(count));
  int64_t size = int64_t(cgr_dtype_size(cgr_dtype(dtype)));
  for (double &value : values) {
    value = cgr__reference_load(dtype, from);
    from = static_cast<const unsigned char *>(from) + size;
  }
  return values;
}
inline void StoreElements(int32_t dtype, const double *values, int64_t count, void *to) {
  int64_t size = int64_t(cgr_dtype_size(cgr_dtype(dtype)));
  for (int64_t e = 0; e < count; e++)
    cgr__reference_store(dtype, static_cast<unsigned char *>(to) + e * size, values[e]);
}

// The first element of head `head` of a token, in memory of the host.
inline void *ViewElement(const cgr_view &view, int64_t token, int64_t head) {
  int64_t at = token * view.stride_token + head * view.stride_head;
  return static_cast<unsigned char *>(view.data) + at * int64_t(cgr_dtype_size(cgr_dtype(view.dtype)));
}

// [num_tokens][num_heads][width] elements of a view in memory of the host, from `first_token` on. An lse has width 1.
inline Values ReadView(const cgr_view &view, int64_t first_token, int64_t num_tokens, int32_t num_heads, int32_t width) {
  Values values;
  for (int64_t t = first_token; t < first_token + num_tokens; t++)
    for (int32_t h = 0; h < num_heads; h++) {
      Values head = LoadElements(view.dtype, ViewElement(view, t, h), width);
      values.insert(values.end(), head.begin(), head.end());
    }
  return values;
}

// K or V of a request, [seq_len][num_kv_heads][head_dim], from a cache in memory of the host. `pages`: the request's row of the
// page table.
inline Values GatherKv(const cgr_kv_view &view, const int32_t *pages, int32_t page_size, int32_t seq_len, int32_t num_kv_heads,
                       int32_t head_dim) {
  Values values(size_t(int64_t{ seq_len } * num_kv_heads * head_dim));
  cgr__reference_gather(&view, pages, page_size, seq_len, num_kv_heads, head_dim, values.data());
  return values;
}

// --------------------------------------------------------------------------------------------------------------- attention

// Which keys the queries see: their own sequence's in pages, the step's own without pages, or another sequence's in pages.
enum class Keys { kCache, kStep, kOther };

// What a layer asks for beyond plain causal attention; the numbers are those of cgr_layer.
struct AttentionKind {
  int32_t head_dim_v = 0; // 0: head_dim
  int32_t window_left = 0, window_right = 0, chunk = 0;
  bool bidirectional = false;
  float softcap = 0.0f;
  std::vector<float> alibi_slopes, sinks; // by query head; empty: none
  bool alibi_sqrt = false;
  Keys keys = Keys::kCache;
};

// What a layer must be given for a kind; slopes and sinks are those of the kind, in memory of the host.
inline void SetKind(cgr_layer *layer, const AttentionKind &kind) {
  layer->head_dim_v = kind.head_dim_v != 0 ? kind.head_dim_v : layer->head_dim;
  layer->window_left = kind.window_left;
  layer->window_right = kind.window_right;
  layer->chunk = kind.chunk;
  layer->softcap = kind.softcap;
  layer->alibi_slopes = kind.alibi_slopes.empty() ? nullptr : kind.alibi_slopes.data();
  layer->sinks = kind.sinks.empty() ? nullptr : kind.sinks.data();
  layer->flags = kind.bidirectional ? uint32_t(CGR_LAYER_BIDIRECTIONAL) : 0u;
  layer->flags |= kind.alibi_sqrt ? uint32_t(CGR_LAYER_ALIBI_SQRT) : 0u;
  layer->flags |= kind.keys == Keys::kStep ? uint32_t(CGR_LAYER_NO_CACHE) : 0u;
  layer->length_set = kind.keys == Keys::kOther ? 1 : 0;
}

inline bool IsFp8(int32_t dtype) { return dtype == CGR_DTYPE_FP8_E4M3 || dtype == CGR_DTYPE_FP8_E5M2; }
inline bool IsCode(int32_t dtype) { return IsFp8(dtype) || dtype == CGR_DTYPE_I8; }

// One request in one layer. q, k and v are values of `dtype`; k and v of a cache with codes are codes times factors. With
// Keys::kStep the sequence is only the new tokens; with Keys::kOther the new tokens are in another sequence.
struct AttentionProblem {
  cgr_dtype dtype = CGR_DTYPE_FP32;
  cgr_dtype v_dtype = CGR_DTYPE_NONE; // of V in the cache; NONE: dtype
  int32_t query_len = 0, seq_len = 0, num_q_heads = 1, num_kv_heads = 1, head_dim = 8;
  double scale = 0.0; // 0: 1 / sqrt(head_dim)
  AttentionKind kind;
  Values q; // [query_len][num_q_heads][head_dim]
  Values k; // [seq_len][num_kv_heads][head_dim]
  Values v; // [seq_len][num_kv_heads][head dim of v]
  int32_t head_dim_v() const { return kind.head_dim_v != 0 ? kind.head_dim_v : head_dim; }
};

struct AttentionAnswer {
  Values out; // in fp64, [query_len][num_q_heads][head dim of v]
  Values lse; // [query_len][num_q_heads]
  // How far a kernel may be from them: twice the largest error of a reference at the kernels' precision, and 1e-5.
  double out_bound = 0.0, lse_bound = 0.0;
};

inline double LargestError(const Values &got, const Values &expected) {
  double largest = 0.0;
  for (size_t e = 0; e < expected.size(); e++) {
    double error = std::fabs(got[e] - expected[e]);
    if (!std::isfinite(error))
      return INFINITY;
    largest = std::max(largest, error);
  }
  return largest;
}

inline cgr__reference_shape ReferenceShape(const AttentionProblem &p) {
  cgr__reference_shape shape = {};
  shape.query_len = p.query_len;
  shape.seq_len = p.seq_len;
  shape.num_q_heads = p.num_q_heads;
  shape.num_kv_heads = p.num_kv_heads;
  shape.head_dim = p.head_dim;
  shape.head_dim_v = p.head_dim_v();
  shape.causal = !p.kind.bidirectional;
  shape.apart = p.kind.keys == Keys::kOther;
  shape.window_left = p.kind.window_left;
  shape.window_right = p.kind.window_right;
  shape.chunk = p.kind.chunk;
  shape.scale = p.scale != 0.0 ? p.scale : 1.0 / std::sqrt(double(p.head_dim));
  shape.softcap = double(p.kind.softcap);
  shape.alibi_slopes = p.kind.alibi_slopes.empty() ? nullptr : p.kind.alibi_slopes.data();
  shape.sinks = p.kind.sinks.empty() ? nullptr : p.kind.sinks.data();
  shape.alibi_sqrt = p.kind.alibi_sqrt;
  shape.weights_dtype = IsCode(p.v_dtype) ? CGR_DTYPE_FP16 : p.dtype;
  return shape;
}

inline AttentionAnswer SolveAttention(const AttentionProblem &p) {
  const cgr__reference_shape shape = ReferenceShape(p);
  const size_t lines = size_t(p.query_len) * size_t(p.num_q_heads);
  Values near(lines * size_t(p.head_dim_v())), near_lse(lines);
  AttentionAnswer answer;
  answer.out.resize(near.size());
  answer.lse.resize(near_lse.size());
  cgr__reference_attention(&shape, p.q.data(), p.k.data(), p.v.data(), answer.out.data(), answer.lse.data());
  cgr__reference_attention_in(p.dtype, &shape, p.q.data(), p.k.data(), p.v.data(), near.data(), near_lse.data());
  // Among few values the largest error may be small by luck, so a unit in the last place of the largest is added: half of it for
  // the rounding of the weights and half for that of the output.
  const auto half_unit = [](int32_t dtype) {
    return dtype == CGR_DTYPE_BF16 ? 1.0 / 512 : dtype == CGR_DTYPE_FP16 ? 1.0 / 4096 : 0.0;
  };
  double largest = 0.0;
  const double unit = half_unit(shape.weights_dtype) + half_unit(p.dtype);
  for (double value : answer.out)
    largest = std::max(largest, std::fabs(value));
  answer.out_bound = 2.0 * LargestError(near, answer.out) + unit * largest + 1e-5;
  answer.lse_bound = 2.0 * LargestError(near_lse, answer.lse) + 1e-5;
  return answer;
}

// Every value is within the bound of its expected value.
inline void ExpectWithin(const Values &got, const Values &expected, double bound, const char *what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  ASSERT_TRUE(std::isfinite(bound)) << what << " has no bound: the reference itself is not finite";
  for (size_t e = 0; e < expected.size(); e++)
    ASSERT_TRUE(std::fabs(got[e] - expected[e]) <= bound)
        << what << " " << e << " is " << got[e] << ", expected " << expected[e] << " within " << bound;
}

// `lse` may be empty: it was not asked for.
inline void ExpectAnswer(const Values &out, const Values &lse, const AttentionAnswer &answer) {
  ExpectWithin(out, answer.out, answer.out_bound, "out");
  if (!lse.empty())
    ExpectWithin(lse, answer.lse, answer.lse_bound, "lse");
}

// For tokens that no request owns: 0, not even -0, and -inf.
inline void ExpectNothing(const Values &out, const Values &lse) {
  for (size_t e = 0; e < out.size(); e++)
    ASSERT_TRUE(out[e] == 0.0 && !std::signbit(out[e])) << "out " << e << " is " << out[e] << ", expected 0";
  for (size_t e = 0; e < lse.size(); e++)
    ASSERT_EQ(lse[e], -INFINITY) << "lse " << e;
}

} // namespace cgr_test
