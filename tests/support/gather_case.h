// Batches for the gather, and what the output, the table and the overflow must be, computed element by element.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "cgr/gather.h"
#include "kernels/reference/reference.h"
#include "tests/support/device_memory.h"
#include "tests/support/seed.h"

namespace cgr_test {

constexpr cgr_dtype kGatherCodes[] = { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8 };
constexpr cgr_dtype kGatherHalves[] = { CGR_DTYPE_FP16, CGR_DTYPE_BF16 };

// How K and V are in memory. Paddings are in units of 16 bytes.
struct GatherLayout {
  bool heads_first = false, interleaved = false;
  int32_t token_padding = 0, head_padding = 0, page_padding = 0;
};
inline std::vector<GatherLayout> EveryGatherLayout() {
  return {
    {}, { true }, { false, true }, { true, true }, { false, false, 1, 2, 3 }, { true, false, 2, 1, 0 }, { true, true, 1, 0, 2 }
  };
}

enum class Factors { kNone, kOne, kHeads, kTokens, kChannels, kAll };
constexpr Factors kEveryFactors[] = { Factors::kNone,   Factors::kOne,      Factors::kHeads,
                                      Factors::kTokens, Factors::kChannels, Factors::kAll };

inline bool IsHalf(int32_t dtype) { return dtype == CGR_DTYPE_FP16 || dtype == CGR_DTYPE_BF16; }

struct GatherCase {
  cgr_gather gather = CGR_GATHER_INIT; // its views have strides and dtypes; Bind gives them memory of the host
  Bytes source, out;                   // K and V, out_k and out_v
  size_t source_v = 0, out_v = 0;      // where V begins
  std::vector<float> scales[2];
  std::vector<int32_t> kv_indptr, kv_indices, block_table;
  int32_t first = 0, live = 0, overflow = -7;
  bool has_first = true, has_live = true;

  GatherCase() {
    gather.num_requests = 3;
    gather.num_kv_heads = 3;
    gather.head_dim = 32;
    gather.head_dim_v = 16;
    gather.page_size = 4;
    gather.num_pages = 10;
    gather.capacity = 12;
    gather.table_stride = 5;
    kv_indptr = { 0, 2, 2, 5 };
    kv_indices = { 7, 3, 1, 1, 9 };
    live = 3;
  }
  int32_t Dim(int which) const { return which == 1 && gather.head_dim_v != 0 ? gather.head_dim_v : gather.head_dim; }

  // Places a pool of these dtypes, with random bytes everywhere; i8 needs factors.
  void Lay(Random &random, const GatherLayout &layout, int32_t k_dtype, int32_t v_dtype, Factors k, Factors v) {
    gather.k = View(layout, 0, k_dtype), gather.v = View(layout, 1, v_dtype);
    source.resize(Place(layout, gather.num_pages, &gather.k, &gather.v, &source_v));
    for (unsigned char &byte : source)
      byte = static_cast<unsigned char>(random.Bits());
    LayFactors(random, 0, k, &gather.k);
    LayFactors(random, 1, v, &gather.v);
  }
  void LayOut(const GatherLayout &layout, int32_t k_dtype, int32_t v_dtype) {
    gather.out_k = View(layout, 0, k_dtype), gather.out_v = View(layout, 1, v_dtype);
    out.assign(Place(layout, gather.capacity, &gather.out_k, &gather.out_v, &out_v), kPoisonByte);
    block_table.assign(size_t(gather.num_requests * gather.table_stride), -7);
  }
  void Bind() {
    Aim(&gather, source.data(), out.data(), scales[0].data(), scales[1].data());
    gather.kv_indptr = kv_indptr.data(), gather.kv_indices = kv_indices.data();
    gather.first_request = has_first ? &first : nullptr, gather.live_requests = has_live ? &live : nullptr;
    gather.block_table = block_table.data(), gather.overflow = &overflow;
  }
  // The views of `g` at other memory.
  void Aim(cgr_gather *g, unsigned char *from, unsigned char *to, float *k_scale, float *v_scale) const {
    g->k.base = from, g->v.base = from + source_v;
    g->out_k.base = to, g->out_v.base = to + out_v;
    g->k.scale = scales[0].empty() ? nullptr : k_scale, g->v.scale = scales[1].empty() ? nullptr : v_scale;
  }

private:
  cgr_kv_view View(const GatherLayout &layout, int which, int32_t dtype) const {
    const int64_t unit = IsHalf(dtype) ? 8 : 16, inner = Dim(which);
    cgr_kv_view view = {};
    view.dtype = dtype;
    if (layout.heads_first) {
      view.stride_token = inner + layout.token_padding * unit;
      view.stride_head = gather.page_size * view.stride_token + layout.head_padding * unit;
      view.stride_page = gather.num_kv_heads * view.stride_head + layout.page_padding * unit;
    } else {
      view.stride_head = inner + layout.head_padding * unit;
      view.stride_token = gather.num_kv_heads * view.stride_head + layout.token_padding * unit;
      view.stride_page = gather.page_size * view.stride_token + layout.page_padding * unit;
    }
    return view;
  }
  // Returns the bytes of both.
  static size_t Place(const GatherLayout &layout, int64_t pages, cgr_kv_view *k, cgr_kv_view *v, size_t *v_at) {
    const int64_t k_size = IsHalf(k->dtype) ? 2 : 1, v_size = IsHalf(v->dtype) ? 2 : 1;
    const int64_t k_page = k->stride_page * k_size, v_page = v->stride_page * v_size;
    *v_at = size_t(layout.interleaved ? k_page : k_page * pages);
    if (layout.interleaved)
      k->stride_page = (k_page + v_page) / k_size, v->stride_page = (k_page + v_page) / v_size;
    return size_t((k_page + v_page) * pages);
  }
  void LayFactors(Random &random, int which, Factors factors, cgr_kv_view *view) {
    const int64_t heads = gather.num_kv_heads, dim = Dim(which), tokens = gather.page_size;
    const int64_t strides[][4] = { { 0, 0, 0, 0 },       { 0, 0, 0, 0 },
                                   { 0, 0, 3, 0 },       { heads * (tokens + 1), 1, tokens + 1, 0 },
                                   { 0, 0, dim * 2, 2 }, { tokens * heads * dim, heads * dim, dim, 1 } };
    const int64_t *stride = strides[int(factors)];
    view->scale_stride_page = stride[0], view->scale_stride_token = stride[1];
    view->scale_stride_head = stride[2], view->scale_stride_d = stride[3];
    const int64_t count =
        (gather.num_pages - 1) * stride[0] + (tokens - 1) * stride[1] + (heads - 1) * stride[2] + (dim - 1) * stride[3] + 1;
    scales[which].clear();
    for (int64_t i = 0; i < count && factors != Factors::kNone; i++)
      scales[which].push_back(std::ldexp(float(random.Pick32(1 << 20, 1 << 21)),
                                         random.OneIn(20) ? random.Pick32(-60, 20) : random.Pick32(-26, -18)));
  }
};

// What must be there after the gather. Where `nan` is a dtype, a NaN of any bits.
struct GatherResult {
  Bytes out;
  std::vector<int32_t> nan; // for each 16 bits of `out`
  std::vector<int32_t> block_table;
  int32_t overflow = 0;
};

inline void ExpectGatherHead(const GatherCase &c, int which, int64_t source, int64_t page, int32_t token, int32_t head,
                             GatherResult *r) {
  const cgr_kv_view &in = which == 0 ? c.gather.k : c.gather.v, &out = which == 0 ? c.gather.out_k : c.gather.out_v;
  const size_t size = IsHalf(in.dtype) ? 2 : 1;
  for (int32_t d = 0; d < c.Dim(which); d++) {
    const int64_t from = source * in.stride_page + token * in.stride_token + head * in.stride_head + d;
    const int64_t to = page * out.stride_page + token * out.stride_token + head * out.stride_head + d;
    const unsigned char *element = &c.source[(which == 0 ? 0 : c.source_v) + size_t(from) * size];
    const size_t word = (which == 0 ? 0 : c.out_v) / 2 + size_t(to);
    if (page == 0) {
      std::memset(&r->out[2 * word], 0, 2);
    } else if (in.dtype == out.dtype) {
      std::memcpy(&r->out[2 * word], element, 2);
    } else {
      const int64_t factor =
          source * in.scale_stride_page + token * in.scale_stride_token + head * in.scale_stride_head + d * in.scale_stride_d;
      const float value =
          float(cgr__reference_load(in.dtype, element)) * (c.scales[which].empty() ? 1.0f : c.scales[which][size_t(factor)]);
      cgr__reference_store(out.dtype, &r->out[2 * word], value);
      r->nan[word] = std::isnan(value) ? out.dtype : 0;
    }
  }
}

inline GatherResult ExpectedGather(const GatherCase &c) {
  const cgr_gather &g = c.gather;
  GatherResult r = { c.out, std::vector<int32_t>(c.out.size() / 2), std::vector<int32_t>(c.block_table.size(), 0), 0 };
  const int32_t live = c.has_live ? std::min(std::max(c.live, 0), g.num_requests) : g.num_requests;
  const int32_t first = c.has_first ? std::min(std::max(c.first, 0), live) : 0;
  int64_t next = 0; // page of the output
  auto write = [&](int64_t source) {
    for (int which = 0; which < 2 && next < g.capacity; which++)
      for (int32_t token = 0; token < g.page_size; token++)
        for (int32_t head = 0; head < g.num_kv_heads; head++)
          ExpectGatherHead(c, which, source, next, token, head, &r);
    next++;
  };
  write(-1);
  for (int32_t b = first; b < live; b++)
    for (int32_t at = c.kv_indptr[size_t(b)], i = 0; at + i < c.kv_indptr[size_t(b) + 1]; i++) {
      const int32_t page = c.kv_indices[size_t(at + i)];
      if (next < g.capacity && i < g.table_stride)
        r.block_table[size_t((b - first) * g.table_stride + i)] = int32_t(next);
      else
        r.overflow++;
      write(page >= 0 && page < g.num_pages ? page : g.read_trash_page);
    }
  return r;
}

inline bool IsNanOf(int32_t dtype, const unsigned char *bits) { return std::isnan(cgr__reference_load(dtype, bits)); }

inline void ExpectGathered(const GatherResult &want, const Bytes &out, const std::vector<int32_t> &table, int32_t overflow) {
  ASSERT_EQ(out.size(), want.out.size());
  ASSERT_EQ(table, want.block_table);
  ASSERT_EQ(overflow, want.overflow);
  for (size_t word = 0; word < out.size() / 2; word++) {
    if (want.nan[word] != 0 ? IsNanOf(want.nan[word], &out[2 * word]) : std::memcmp(&out[2 * word], &want.out[2 * word], 2) == 0)
      continue;
    FAIL() << "out has " << int(out[2 * word]) << ", " << int(out[2 * word + 1]) << " at byte " << 2 * word << ", expected "
           << int(want.out[2 * word]) << ", " << int(want.out[2 * word + 1]);
  }
}

// The memory of a case on a device, which gets the case's content again with every Put.
class GatherMemory {
public:
  GatherMemory(Bench &bench, const GatherCase &c)
      : source_(bench, c.source), out_(bench, c.out), k_scale_(bench, Some(c.scales[0])), v_scale_(bench, Some(c.scales[1])),
        kv_indptr_(bench, c.kv_indptr), kv_indices_(bench, Some(c.kv_indices)), block_table_(bench, c.block_table),
        words_(bench, 3) {
    at = c.gather;
    c.Aim(&at, source_.data(), out_.data(), k_scale_.data(), v_scale_.data());
    at.kv_indptr = kv_indptr_.data(), at.kv_indices = kv_indices_.data(), at.block_table = block_table_.data();
    at.first_request = c.has_first ? words_.data() : nullptr;
    at.live_requests = c.has_live ? words_.data() + 1 : nullptr;
    at.overflow = words_.data() + 2;
    Put(c);
  }
  void Put(const GatherCase &c) {
    out_.Put(c.out);
    kv_indptr_.Put(c.kv_indptr);
    kv_indices_.Put(Some(c.kv_indices));
    block_table_.Put(c.block_table);
    words_.Put({ c.first, c.live, -7 });
  }
  void Expect(const GatherCase &c) const {
    ExpectGathered(ExpectedGather(c), out_.Get(), block_table_.Get(), words_.Get()[2]);
    EXPECT_TRUE(source_.Get() == c.source && kv_indptr_.Get() == c.kv_indptr) << "its input was written";
  }
  cgr_gather at; // in this memory

private:
  template <class T> static std::vector<T> Some(const std::vector<T> &content) {
    return content.empty() ? std::vector<T>(1) : content;
  }

  Array<unsigned char> source_, out_;
  Array<float> k_scale_, v_scale_;
  Array<int32_t> kv_indptr_, kv_indices_, block_table_, words_;
};

// Another batch over the same pool: of at most `most` pages in all.
inline void RandomGatherBatch(Random &random, int32_t most, GatherCase *c) {
  const cgr_gather &g = c->gather;
  c->kv_indptr.assign(1, random.OneIn(4) ? 3 : 0);
  c->live = random.Pick32(0, g.num_requests);
  c->first = random.Pick32(0, c->live);
  for (int32_t b = 0; b < g.num_requests; b++) {
    const int32_t left = most - c->kv_indptr.back();
    const int32_t pages = random.OneIn(3) || left <= 0 ? 0 : std::min(left, random.Pick32(0, int32_t(g.table_stride)));
    c->kv_indptr.push_back(c->kv_indptr.back() + (c->has_live && b >= c->live ? 0 : pages));
  }
  c->kv_indices.clear();
  for (int32_t i = 0; i < most; i++)
    c->kv_indices.push_back(random.Pick32(0, int32_t(g.num_pages) - 1));
}

inline void RandomGather(Random &random, GatherCase *c) {
  const auto layouts = EveryGatherLayout();
  auto layout = [&] { return layouts[size_t(random.Pick(0, int64_t(layouts.size()) - 1))]; };
  auto half = [&] { return kGatherHalves[random.Pick(0, 1)]; };
  cgr_gather &g = c->gather;
  g.num_requests = random.Pick32(1, random.OneIn(10) ? 300 : 12);
  g.num_kv_heads = random.Pick32(1, 5);
  g.head_dim = 16 * random.Pick32(1, 9);
  g.head_dim_v = random.OneIn(3) ? 0 : 16 * random.Pick32(1, 9);
  g.page_size = random.OneIn(3) ? random.Pick32(1, 20) : 16;
  g.num_pages = random.Pick32(1, 20);
  g.read_trash_page = random.Pick32(0, int32_t(g.num_pages) - 1);
  g.capacity = random.Pick32(1, 30);
  g.table_stride = random.Pick32(1, 9);
  c->has_first = !random.OneIn(3), c->has_live = !random.OneIn(3);
  int32_t dtype[2];
  Factors factors[2];
  for (int which = 0; which < 2; which++) {
    dtype[which] = random.OneIn(5) ? half() : kGatherCodes[random.Pick(0, 2)];
    factors[which] = IsHalf(dtype[which]) ? Factors::kNone : kEveryFactors[random.Pick(dtype[which] == CGR_DTYPE_I8 ? 1 : 0, 5)];
  }
  c->Lay(random, layout(), dtype[0], dtype[1], factors[0], factors[1]);
  c->LayOut(layout(), half(), half());
  RandomGatherBatch(random, 40, c);
}

} // namespace cgr_test
