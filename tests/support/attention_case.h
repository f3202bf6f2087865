// The inputs of one launch of attention of any kind: keys and values in pages or next to the queries, without any device.
// Whatever no query sees is poison, and page numbers that are not needed are invalid.
#pragma once

#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/registry.h"
#include "tests/support/attention_kinds.h"
#include "tests/support/paged_cache.h"

namespace cgr_test {

// ---------------------------------------------------------------------------------------------------------------- tensors

// [tokens][heads][width] elements in memory, with other elements between them.
struct TensorShape {
  int32_t dtype;
  int64_t tokens, heads, width, stride_token, stride_head;

  cgr_view View(void *data) const { return { data, dtype, 0, stride_token, stride_head }; }
  int64_t Elements() const { return tokens == 0 ? 0 : (tokens - 1) * stride_token + (heads - 1) * stride_head + width; }
  size_t SizeInBytes() const { return size_t(Elements() * ElementSize(dtype)); }
  template <class Visit> void EachHead(Visit visit) const { // visit(byte of its first element)
    for (int64_t t = 0; t < tokens; t++)
      for (int64_t h = 0; h < heads; h++)
        visit(size_t((t * stride_token + h * stride_head) * ElementSize(dtype)));
  }
  // The elements, packed; what is between them must still be poison.
  Bytes Take(const Bytes &memory) const;
};

// Elements after each head and after each token.
struct ViewPadding {
  int32_t head = 0, token = 0;
};
enum class LseLayout { kTokens, kHeads, kSparse }; // [tokens][heads], [heads][tokens], or gaps after every element

// ------------------------------------------------------------------------------------------------------------------- cases

struct AttentionShape {
  cgr_dtype dtype = CGR_DTYPE_FP32;
  int32_t num_q_heads = 4, num_kv_heads = 2, head_dim = 64, page_size = 16;
  CacheLayouts layouts;
  int32_t num_parts = 7;
  int32_t decode_query_len = 0; // 0: the kernel kind's
  bool batch_invariant = false;
  float scale = 0.0f;                      // 0: 1 / sqrt(head_dim)
  int64_t num_pages = 0;                   // 0: some more than needed
  int64_t page_bytes = 0;                  // distance of pages in memory; 0: what they take
  bool pages_at_end = false;               // pages from the end of the pool
  int32_t read_trash = 0, write_trash = 1; // -1: the last page
  ViewPadding q_padding, out_padding;
  LseLayout lse = LseLayout::kTokens;
  AttentionKind kind;
  ViewPadding k_padding, v_padding;         // of Keys::kStep
  cgr_dtype cache_dtype = CGR_DTYPE_NONE;   // NONE: dtype
  cgr_dtype v_cache_dtype = CGR_DTYPE_NONE; // NONE: as K's
  std::vector<float> k_scales, v_scales;    // of a cache with codes (CacheShape)
  int32_t token_factors = 0;
  float out_scale = 0.0f; // out has codes of fp8_e4m3, divided by this; 0: it has the dtype

  cgr_dtype cache() const { return cache_dtype != CGR_DTYPE_NONE ? cache_dtype : dtype; }
  cgr_dtype out() const { return out_scale != 0.0f ? CGR_DTYPE_FP8_E4M3 : dtype; }
  cgr_dtype v_cache() const { return v_cache_dtype != CGR_DTYPE_NONE ? v_cache_dtype : cache(); }
  int32_t head_dim_v() const { return kind.head_dim_v != 0 ? kind.head_dim_v : head_dim; }
  std::string Text() const;
};

struct AttentionBatch {
  // seq_len 0 with a query: a request that a guard has refused. With Keys::kOther seq_lens are those of the other sequences;
  // with Keys::kStep there are no keys beyond the query.
  std::vector<int32_t> query_lens, seq_lens;
  int32_t padded_tokens = 0, padded_requests = 0; // in addition
};

// The layer of a shape, as the registry is asked about it.
cgr_layer LayerOf(const AttentionShape &shape);
const cgr__kernel_kind *KernelKindFor(const cgr_device_info &info, const cgr_layer &layer, FieldNames *refused = nullptr);
// The kernel kind that runs a shape. The kernels support every kind of keys, even kinds that no runtime asks for yet.
const cgr__kernel_kind *KernelFor(const cgr_device_info &info, const AttentionShape &shape);
// Whether the device has a kernel kind for plain layers of this dtype and head dim.
bool Supports(const cgr_device_info &info, cgr_dtype dtype, int32_t head_dim);

// The logical inputs and where they are, without any device.
class AttentionCase {
public:
  AttentionCase(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed);

  const AttentionShape &shape() const { return shape_; }
  const AttentionBatch &batch() const { return batch_; }
  int32_t num_requests() const { return int32_t(batch_.query_lens.size()); }
  int32_t num_tokens() const { return num_tokens_; }
  int64_t num_pages() const { return num_pages_; }
  int32_t max_rows() const { return num_requests() + 3; }
  int64_t table_stride() const { return table_stride_; }
  int32_t row(int32_t i) const { return rows_[i]; }
  int32_t &table(int32_t i, int32_t index) { return table_[row(i) * table_stride_ + index]; }
  int32_t table(int32_t i, int32_t index) const { return table_[size_t(row(i) * table_stride_ + index)]; }

  CacheShape Cache_() const;
  // Keys of request i.
  int32_t NumKeys(int32_t i) const;
  int32_t NumPages(int32_t i) const;
  // Whether any query of request i sees a key.
  bool IsSeen(int32_t i, int32_t key) const;
  // Whether any of them sees a key of page `index`.
  bool IsNeeded(int32_t i, int32_t index) const;
  // The pages that attention reads for request i: the read-trash page in place of one that may not be read.
  std::vector<int32_t> Pages(int32_t i) const;
  // What request i must give over the pages of `cache`.
  AttentionAnswer Solve(const PagedCache &cache, int32_t i) const;

  // Poison in every element that no query sees; the read-trash page is finite. With `sparse` pages without an owner are left
  // alone. What is around keys of the step is poisoned in the same way from here on.
  void Fill(PagedCache *cache, Poison poison, bool sparse = false);

  std::mt19937_64 random;
  std::vector<int32_t> owned_pages; // of all requests
  std::vector<Values> q;            // by request: [query_len][num_q_heads][head_dim]
  std::vector<Values> kv[2];        // of K and V: [keys][num_kv_heads][head_dim or that of v]
  Poison poison() const { return poison_; }
  const std::vector<int32_t> &table() const { return table_; }

private:
  void PlacePages();
  // Row M belongs to padding. Entries after a request's pages, entries of pages that are not needed, and all of row M must not be
  // read: no such page exists.
  void MakeTable();
  Values RandomValues(int64_t count);
  // To what the append would make of request i's in the cache: codes times factors.
  void Quantise(Cache which, int32_t i, Values *values) const;
  void MakeValues();
  void FillRequest(Cache which, int32_t i, Poison poison, PagedCache *cache);

  static constexpr int32_t kNoPage = INT32_MIN + 77;
  AttentionShape shape_;
  AttentionBatch batch_;
  Poison poison_ = Poison::kNan;
  int32_t num_tokens_ = 0;
  int64_t num_pages_ = 0, table_stride_ = 0;
  std::vector<int32_t> rows_, table_;
};

// A cache with what the case keeps in it; all else is poison.
struct FilledCache : PagedCache {
  FilledCache(Bench &bench, AttentionCase &made, Poison poison) : PagedCache(bench, made.Cache_()) { made.Fill(this, poison); }
};

} // namespace cgr_test
