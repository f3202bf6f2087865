#include "tests/support/attention_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cgr/names.h"

namespace cgr_test {

Bytes TensorShape::Take(const Bytes &memory) const {
  Bytes dense, rest = memory;
  size_t bytes = size_t(width * ElementSize(dtype));
  EachHead([&](size_t at) {
    dense.insert(dense.end(), memory.begin() + int64_t(at), memory.begin() + int64_t(at + bytes));
    std::fill_n(rest.begin() + int64_t(at), bytes, kPoisonByte);
  });
  EXPECT_TRUE(rest == Bytes(rest.size(), kPoisonByte)) << "something was written between the elements of a tensor";
  return dense;
}

std::string AttentionShape::Text() const {
  return std::string(cgr_dtype_name(dtype)) + " heads " + std::to_string(num_q_heads) + "/" + std::to_string(num_kv_heads) + "x" +
         std::to_string(head_dim) + " page " + std::to_string(page_size) + " parts " + std::to_string(num_parts) +
         " decodes of " + std::to_string(decode_query_len) + (batch_invariant ? " invariant" : "") +
         (cache() != dtype ? std::string(" cache ") + cgr_dtype_name(cache()) + "/" + cgr_dtype_name(v_cache()) : "") +
         " scales " + std::to_string(k_scales.size()) + "/" + std::to_string(v_scales.size()) +
         (token_factors > 0 ? " of tokens" : "") + (out_scale != 0.0f ? " out e4m3" : "") + TextOf(kind);
}

// Factors arranged like those of the shape's cache, but of no tensor.
static void SetScales(const AttentionShape &shape, cgr_layer *layer) {
  alignas(16) static float factors[4];
  layer->k.scale = shape.k_scales.empty() ? nullptr : factors;
  layer->v.scale = shape.v_scales.empty() ? nullptr : factors;
  if (shape.token_factors > 0)
    layer->k.scale_stride_page = 4 * shape.page_size, layer->k.scale_stride_token = 1,
    layer->k.scale_stride_head = shape.page_size;
  if (shape.v_scales.size() > size_t(shape.num_kv_heads))
    layer->v.scale_stride_d = 1;
}

cgr_layer LayerOf(const AttentionShape &shape) {
  cgr_layer layer = CGR_LAYER_INIT;
  layer.num_q_heads = shape.num_q_heads;
  layer.num_kv_heads = shape.num_kv_heads;
  layer.head_dim = shape.head_dim;
  layer.scale = shape.scale;
  layer.dtype = layer.out_dtype = shape.dtype;
  if (shape.out_scale != 0.0f)
    layer.out_dtype = CGR_DTYPE_FP8_E4M3;
  layer.k.dtype = shape.cache();
  layer.v.dtype = shape.v_cache();
  SetScales(shape, &layer);
  SetKind(&layer, shape.kind);
  return layer;
}

const cgr__kernel_kind *KernelKindFor(const cgr_device_info &info, const cgr_layer &layer, FieldNames *refused) {
  std::vector<cgr_finding> list(32);
  cgr__findings findings;
  cgr__findings_init(&findings, list.data(), int32_t(list.size()));
  const cgr__kernel_kind *kernel_kind = cgr__kernel_kind_choose(&info, &layer, 1, &findings);
  for (int32_t i = 0; i < findings.count && refused != nullptr; i++)
    refused->insert(list[size_t(i)].field);
  return kernel_kind;
}

const cgr__kernel_kind *KernelFor(const cgr_device_info &info, const AttentionShape &shape) {
  cgr_layer layer = LayerOf(shape);
  if (Contradictions(layer).empty() && (!IsCode(layer.k.dtype) || shape.kind.keys != Keys::kStep)) { // codes are in caches
    layer.flags &= ~uint32_t(CGR_LAYER_NO_CACHE);
    layer.length_set = 0;
  }
  return KernelKindFor(info, layer);
}

bool Supports(const cgr_device_info &info, cgr_dtype dtype, int32_t head_dim) {
  AttentionShape shape;
  shape.dtype = dtype;
  shape.head_dim = head_dim;
  return KernelKindFor(info, LayerOf(shape)) != nullptr;
}

AttentionCase::AttentionCase(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed)
    : random(seed), shape_(shape), batch_(batch) {
  num_tokens_ = std::accumulate(batch.query_lens.begin(), batch.query_lens.end(), 0);
  if (shape_.scale == 0.0f)
    shape_.scale = 1.0f / std::sqrt(float(shape_.head_dim));
  PlacePages();
  MakeTable();
  MakeValues();
}

CacheShape AttentionCase::Cache_() const {
  return { shape_.cache(), shape_.num_kv_heads, shape_.head_dim, shape_.page_size, num_pages_,           shape_.page_bytes,
           shape_.layouts, shape_.head_dim_v(), shape_.k_scales, shape_.v_scales,  shape_.token_factors, shape_.v_cache() };
}

int32_t AttentionCase::NumKeys(int32_t i) const {
  bool in_step = shape_.kind.keys == Keys::kStep;
  return in_step ? std::min(batch_.query_lens[i], batch_.seq_lens[i]) : batch_.seq_lens[i];
}

int32_t AttentionCase::NumPages(int32_t i) const {
  return shape_.kind.keys == Keys::kStep ? 0 : (NumKeys(i) + shape_.page_size - 1) / shape_.page_size;
}

bool AttentionCase::IsSeen(int32_t i, int32_t key) const {
  const int32_t context = NumKeys(i) - batch_.query_lens[i];
  for (int32_t j = 0; j < batch_.query_lens[i]; j++)
    if (Sees(shape_.kind, context + j, key))
      return true;
  return false;
}

bool AttentionCase::IsNeeded(int32_t i, int32_t index) const {
  const int32_t end = std::min(NumKeys(i), (index + 1) * shape_.page_size);
  for (int32_t key = index * shape_.page_size; key < end; key++)
    if (IsSeen(i, key))
      return true;
  return false;
}

std::vector<int32_t> AttentionCase::Pages(int32_t i) const {
  const int32_t *begin = &table_[row(i) * table_stride_];
  std::vector<int32_t> pages(begin, begin + NumPages(i));
  for (int32_t &page : pages)
    if (page < 0 || page >= num_pages_ || page == shape_.write_trash)
      page = shape_.read_trash;
  return pages;
}

AttentionAnswer AttentionCase::Solve(const PagedCache &cache, int32_t i) const {
  AttentionProblem problem;
  problem.dtype = shape_.dtype;
  problem.v_dtype = shape_.v_cache();
  problem.query_len = batch_.query_lens[i];
  problem.seq_len = NumKeys(i);
  problem.kind = shape_.kind;
  problem.num_q_heads = shape_.num_q_heads;
  problem.num_kv_heads = shape_.num_kv_heads;
  problem.head_dim = shape_.head_dim;
  problem.scale = shape_.scale;
  problem.q = q[i];
  const bool in_step = shape_.kind.keys == Keys::kStep;
  problem.k = in_step ? kv[kCacheK][i] : cache.Gather(kCacheK, Pages(i), problem.seq_len);
  problem.v = in_step ? kv[kCacheV][i] : cache.Gather(kCacheV, Pages(i), problem.seq_len);
  return SolveAttention(problem);
}

void AttentionCase::Fill(PagedCache *cache, Poison poison, bool sparse) {
  const float factors[] = { 0.0f, NAN, INFINITY, 1e30f }; // in the order of Poison
  poison_ = poison;
  cache->PoisonFactors(factors[int(poison)]);
  for (Cache which : kCaches) {
    for (int64_t p = 0; p < num_pages_ && !sparse; p++)
      cache->Put(which, p, p == shape_.read_trash ? cache->UniformPage(which, 0.5) : cache->PoisonedPage(which, poison, random));
    if (which == kCacheK) {
      std::vector<int32_t> all(size_t(shape_.page_size));
      std::iota(all.begin(), all.end(), 0);
      cache->PutFactors(shape_.read_trash, all);
    }
    for (int32_t i = 0; i < num_requests(); i++)
      FillRequest(which, i, poison, cache);
  }
}

void AttentionCase::PlacePages() {
  int64_t needed = 0, longest = 1;
  for (int32_t i = 0; i < num_requests(); i++) {
    needed += NumPages(i);
    longest = std::max<int64_t>(longest, NumPages(i));
  }
  num_pages_ = shape_.num_pages != 0 ? shape_.num_pages : needed + 5;
  table_stride_ = longest + 2;
  for (int32_t *trash : { &shape_.read_trash, &shape_.write_trash })
    if (*trash < 0)
      *trash = int32_t(num_pages_ - 1);
  for (int64_t p = shape_.pages_at_end ? num_pages_ - needed : 0; int64_t(owned_pages.size()) < needed; p++)
    if (p != shape_.read_trash && p != shape_.write_trash)
      owned_pages.push_back(int32_t(p));
  std::shuffle(owned_pages.begin(), owned_pages.end(), random);
}

void AttentionCase::MakeTable() {
  rows_.resize(size_t(max_rows()));
  std::iota(rows_.begin(), rows_.end(), 0);
  std::shuffle(rows_.begin(), rows_.end(), random);
  table_.assign(size_t((max_rows() + 1) * table_stride_), kNoPage);
  size_t next = 0;
  for (int32_t i = 0; i < num_requests(); i++)
    for (int32_t p = 0; p < NumPages(i); p++, next++)
      if (batch_.query_lens[i] == 0 || IsNeeded(i, p))
        table(i, p) = owned_pages[next];
}

Values AttentionCase::RandomValues(int64_t count) {
  // About normal: the sum of four even draws of 16 bits, with variance 1. All bits come from one draw, by SplitMix64 (Steele, Lea
  // and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
  const double scale = std::sqrt(3.0) / 65536.0;
  uint64_t state = random();
  Values values(static_cast<size_t>(count));
  for (double &value : values) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const int64_t sum = int64_t(z & 0xffff) + int64_t(z >> 16 & 0xffff) + int64_t(z >> 32 & 0xffff) + int64_t(z >> 48);
    value = cgr__reference_round(shape_.dtype, double(sum - 2 * 65535) * scale);
  }
  return values;
}

void AttentionCase::Quantise(Cache which, int32_t i, Values *values) const {
  const CacheShape cache = Cache_();
  const cgr_dtype dtype = cache.Dtype(which);
  if (!IsCode(dtype))
    return;
  for (size_t e = 0; e < values->size(); e++) {
    const int64_t head = int64_t(e) / cache.Width(which), key = head / cache.num_kv_heads;
    const int32_t page = NumPages(i) == 0 ? 0 : table(i, int32_t(key) / cache.page_size);
    const float factor = cache.Factor(which, std::max(page, 0), int32_t(key % cache.page_size),
                                      int32_t(head % cache.num_kv_heads), int32_t(int64_t(e) % cache.Width(which)));
    (*values)[e] = cgr__reference_round(dtype, double(float((*values)[e]) / factor)) * double(factor);
  }
}

void AttentionCase::MakeValues() {
  for (int32_t i = 0; i < num_requests(); i++) {
    q.push_back(RandomValues(int64_t{ 1 } * batch_.query_lens[i] * shape_.num_q_heads * shape_.head_dim));
    for (Cache which : kCaches) {
      kv[which].push_back(RandomValues(int64_t{ 1 } * NumKeys(i) * shape_.num_kv_heads * Cache_().Width(which)));
      Quantise(which, i, &kv[which].back());
    }
  }
}

void AttentionCase::FillRequest(Cache which, int32_t i, Poison poison, PagedCache *cache) {
  const CacheShape shape = Cache_();
  const int32_t width = shape.Width(which);
  const double *from = kv[which][i].data();
  for (int32_t p = 0; p < NumPages(i); p++) {
    if (table(i, p) == kNoPage)
      continue;
    Bytes image = cache->PoisonedPage(which, poison, random);
    int32_t tokens = std::min(shape_.page_size, NumKeys(i) - p * shape_.page_size);
    std::vector<int32_t> seen;
    for (int32_t t = 0; t < tokens; t++) {
      const int32_t key = p * shape_.page_size + t;
      if (batch_.query_lens[i] == 0 || IsSeen(i, key))
        seen.push_back(t);
      for (int32_t h = 0; h < shape_.num_kv_heads && (batch_.query_lens[i] == 0 || IsSeen(i, key)); h++) {
        const double *head = from + (int64_t{ key } * shape_.num_kv_heads + h) * width;
        Values elements(head, head + width); // with codes: the values of these
        for (int32_t d = 0; d < width; d++)
          elements[size_t(d)] /= double(shape.Factor(which, table(i, p), t, h, d));
        StoreElements(shape.Dtype(which), elements.data(), width, cache->InPage(which, &image, t, h));
      }
    }
    if (which == kCacheK)
      cache->PutFactors(table(i, p), seen);
    cache->Put(which, table(i, p), image);
  }
}

} // namespace cgr_test
