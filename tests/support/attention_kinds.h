// The kinds of attention that tests ask for: what a layer wants beyond plain attention, which keys a query then sees as the
// documentation of cgr_layer says, what the registry must refuse, and random kinds.
#pragma once

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "kernels/registry.h"
#include "tests/support/oracle.h"
#include "tests/support/seed.h"

namespace cgr_test {

inline std::string TextOf(const AttentionKind &kind) {
  std::string text;
  auto add = [&](const char *name, double value) {
    if (value != 0.0)
      text += std::string(" ") + name + " " + std::to_string(value).substr(0, 8);
  };
  add("v", kind.head_dim_v);
  add("left", kind.window_left);
  add("right", kind.window_right);
  add("chunk", kind.chunk);
  add("cap", double(kind.softcap));
  for (const auto &[name, is_there] : { std::pair<const char *, bool>{ " both ways", kind.bidirectional },
                                        { " alibi", !kind.alibi_slopes.empty() },
                                        { " sqrt", kind.alibi_sqrt },
                                        { " sinks", !kind.sinks.empty() },
                                        { " step", kind.keys == Keys::kStep },
                                        { " other", kind.keys == Keys::kOther } })
    text += is_there ? name : "";
  return text;
}

// Whether the query at a position of its sequence sees the key at another. With Keys::kOther every query sees every key.
inline bool Sees(const AttentionKind &kind, int64_t query, int64_t key) {
  if (kind.keys == Keys::kOther)
    return true;
  if (!kind.bidirectional && key > query)
    return false;
  if (kind.chunk > 0 && key / kind.chunk < query / kind.chunk)
    return false;
  if (kind.window_left > 0 && key <= query - kind.window_left)
    return false;
  return kind.window_right == 0 || key <= query + kind.window_right;
}

// ------------------------------------------------------------------------------------------------------------------- rules

using FieldNames = std::multiset<std::string>;

// Combinations that have no meaning, each by the field that the refusal names.
inline FieldNames Contradictions(const cgr_layer &l) {
  const bool both_ways = l.flags & CGR_LAYER_BIDIRECTIONAL, cached = !(l.flags & CGR_LAYER_NO_CACHE);
  const bool cross = cached && l.length_set != 0, windows = l.window_left != 0 || l.window_right != 0;
  const std::pair<const char *, bool> rules[] = {
    // Keys of another sequence: no position of the query's is one of theirs.
    { "flags", cross && !both_ways },
    { "window_left", cross && l.window_left != 0 },
    { "window_right", cross && l.window_right != 0 },
    { "chunk", cross && l.chunk != 0 },
    { "alibi_slopes", cross && l.alibi_slopes != nullptr },
    // A window to the right for queries that see nothing there.
    { "window_right", !cross && l.window_right != 0 && !both_ways },
    // Two rules about where a query's keys begin, or one for causal layers alone.
    { "chunk", l.chunk != 0 && windows },
    { "chunk", l.chunk != 0 && both_ways },
    { "alibi_slopes", (l.flags & CGR_LAYER_ALIBI_SQRT) && l.alibi_slopes == nullptr },
  };
  FieldNames names;
  for (const auto &[field, broken] : rules)
    if (broken)
      names.insert(field);
  return names;
}

// The shared memory of a layer's tiles; 0: none, or more than any instance supports.
inline int32_t SharedBytes(const cgr_layer &l, const cgr__kernel_kind &v) {
  for (const auto &width : v.plan.width)
    if (width.head_dim >= std::max(l.head_dim, l.head_dim_v))
      return width.shared;
  return 0;
}

// Whether the factors of a cache's view may stay: those of codes, one for all elements, for each head, for each token of K in i8,
// or for each channel of V. Codes of i8 need some.
inline bool ServesScale(const cgr_layer &l, const cgr_kv_view &view, const cgr__kernel_kind &v) {
  const bool has_codes = v.cache_dtypes & 1u << view.dtype && v.cache_dtypes & 1u << l.k.dtype;
  if (view.scale == nullptr || !has_codes)
    return view.scale == nullptr && !(has_codes && view.dtype == CGR_DTYPE_I8);
  const bool is_of_tokens = view.dtype == CGR_DTYPE_I8 && view.scale_stride_token == 1 && view.scale_stride_page > 0 &&
                            view.scale_stride_page % 4 == 0 && view.scale_stride_head % 4 == 0 &&
                            (view.scale_stride_head != 0 || l.num_kv_heads == 1) &&
                            reinterpret_cast<uintptr_t>(view.scale) % 16 == 0;
  const bool is_constant = view.scale_stride_page == 0 && view.scale_stride_token == 0;
  return &view == &l.v ? is_constant : (is_constant || is_of_tokens) && view.scale_stride_d == 0;
}

// Every field for which a kernel kind must refuse a layer on a device with this much shared memory; 0: unknown.
inline FieldNames RefusedFields(const cgr_layer &l, const cgr__kernel_kind &v, int32_t shared_memory) {
  const bool codes = v.cache_dtypes & 1u << l.k.dtype, cached = !(l.flags & CGR_LAYER_NO_CACHE);
  const int32_t step = codes ? 16 : v.head_dim_step;
  auto dim = [&](int32_t d) { return d >= v.min_head_dim && d <= v.max_head_dim && d % step == 0; };
  auto lacks = [&](uint32_t feature) { return !(v.features & feature); };
  const bool known = codes || v.dtypes & 1u << l.k.dtype;          // else nothing is compared with K's dtype
  const bool v_alone = !codes && v.cache_dtypes & 1u << l.v.dtype; // V of 8 bits with K of more: its factors are not the fault
  const bool slopes = l.alibi_slopes != nullptr || l.flags & CGR_LAYER_ALIBI_SQRT, v_apart = l.head_dim_v != l.head_dim;
  const std::pair<const char *, bool> rules[] = {
    { "k.dtype", !(v.dtypes & 1u << l.k.dtype) && !(codes && cached) },
    { "v.dtype", known && l.v.dtype != l.k.dtype && !(codes && (v.cache_dtypes & 1u << l.v.dtype || l.v.dtype == l.dtype)) },
    { "dtype", codes ? cached && !(v.dtypes & 1u << l.dtype) : known && l.dtype != l.k.dtype && lacks(CGR__FEATURE_CACHE_DTYPE) },
    { "q_dtype", l.q_dtype != 0 && l.q_dtype != l.dtype && lacks(CGR__FEATURE_Q_DTYPE) },
    { "out_dtype", l.out_dtype != l.dtype && lacks(CGR__FEATURE_OUT_DTYPE) && !(v.out_dtypes & 1u << l.out_dtype) },
    { "k.scale", known && !ServesScale(l, l.k, v) && lacks(CGR__FEATURE_CACHE_SCALES) },
    { "v.scale", known && !v_alone && !ServesScale(l, l.v, v) && lacks(CGR__FEATURE_CACHE_SCALES) },
    { "head_dim", !dim(l.head_dim) },
    { "head_dim_v", v_apart && (lacks(CGR__FEATURE_HEAD_DIM_V) || !dim(l.head_dim_v)) },
    { l.head_dim_v > l.head_dim ? "head_dim_v" : "head_dim", shared_memory > 0 && SharedBytes(l, v) > shared_memory },
    { "window_left", l.window_left != 0 && lacks(CGR__FEATURE_WINDOW) },
    { "window_right", l.window_right != 0 && lacks(CGR__FEATURE_WINDOW) },
    { "chunk", l.chunk != 0 && lacks(CGR__FEATURE_CHUNK) },
    { "softcap", l.softcap != 0.0f && lacks(CGR__FEATURE_SOFTCAP) },
    { "alibi_slopes", slopes && lacks(CGR__FEATURE_ALIBI) },
    { "sinks", l.sinks != nullptr && lacks(CGR__FEATURE_SINKS) },
    { "flags", l.flags & CGR_LAYER_BIDIRECTIONAL && lacks(CGR__FEATURE_BIDIRECTIONAL) },
    { "flags", l.flags & CGR_LAYER_NO_CACHE && lacks(CGR__FEATURE_NO_CACHE) },
    { "length_set", l.length_set != 0 && !(l.flags & CGR_LAYER_NO_CACHE) && lacks(CGR__FEATURE_CROSS) },
  };
  FieldNames names = Contradictions(l);
  for (const auto &[field, broken] : rules)
    if (broken)
      names.insert(field);
  return names;
}

// ------------------------------------------------------------------------------------------------------------------ chance

inline std::vector<float> RandomSlopes(Random &random, int32_t heads) {
  std::vector<float> slopes;
  for (int32_t h = 0; h < heads; h++)
    slopes.push_back(random.OneIn(6) ? 0.0f : std::ldexp(1.0f, -random.Pick32(0, 8)) * (random.OneIn(8) ? -0.01f : 1.0f));
  return slopes;
}

inline std::vector<float> RandomSinks(Random &random, int32_t heads) {
  std::vector<float> sinks;
  for (int32_t h = 0; h < heads; h++)
    sinks.push_back(random.OneIn(6) ? -INFINITY : random.OneIn(6) ? 30.0f : 0.25f * float(random.Pick32(-40, 40)));
  return sinks;
}

// Tokens of a window or a chunk: 1, those around a page or a tile, or any.
inline int32_t RandomWindow(Random &random, int32_t page_size) {
  const int32_t edges[] = { 1, page_size, 64 };
  return random.OneIn(3) ? random.Pick32(1, 300) : std::max(1, edges[random.Pick(0, 2)] + random.Pick32(-1, 1));
}

// Any kind: most are meaningful, some are not. `keys`: the kinds of keys that may be asked for.
inline AttentionKind RandomKind(Random &random, int32_t num_q_heads, int32_t page_size, const std::vector<Keys> &keys) {
  AttentionKind kind;
  kind.keys = keys[size_t(random.Pick(0, int64_t(keys.size()) - 1))];
  const bool plain_range = kind.keys == Keys::kOther && !random.OneIn(8);
  kind.bidirectional = plain_range || random.OneIn(3);
  if (!plain_range) {
    kind.window_left = random.OneIn(2) ? RandomWindow(random, page_size) : 0;
    kind.window_right = random.OneIn(kind.bidirectional ? 2 : 16) ? RandomWindow(random, page_size) : 0;
    kind.chunk = random.OneIn(kind.window_left + kind.window_right == 0 ? 3 : 16) ? RandomWindow(random, page_size) : 0;
    if (random.OneIn(3))
      kind.alibi_slopes = RandomSlopes(random, num_q_heads);
  }
  kind.alibi_sqrt = random.OneIn(kind.alibi_slopes.empty() ? 16 : 2);
  kind.softcap = random.OneIn(3) ? float(random.Pick32(1, 60)) * (random.OneIn(4) ? 1e6f : 0.5f) : 0.0f;
  if (random.OneIn(3))
    kind.sinks = RandomSinks(random, num_q_heads);
  return kind;
}

} // namespace cgr_test
