// One launch of attention of any kind: makes the inputs, places keys and values in pages or next to the queries, runs the kernel
// on a device and compares with the oracle. Whatever no query sees is poison, and page numbers that are not needed are invalid.
#ifndef CGR_TESTS_SUPPORT_ATTENTION_CASE_H
#define CGR_TESTS_SUPPORT_ATTENTION_CASE_H

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cgr/names.h"
#include "kernels/append.h"
#include "kernels/attention.h"
#include "kernels/registry.h"
#include "planners/attention/plan_host.h"
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
  Bytes Take(const Bytes &memory) const {
    Bytes dense, rest = memory;
    size_t bytes = size_t(width * ElementSize(dtype));
    EachHead([&](size_t at) {
      dense.insert(dense.end(), memory.begin() + int64_t(at), memory.begin() + int64_t(at + bytes));
      std::fill_n(rest.begin() + int64_t(at), bytes, kPoisonByte);
    });
    EXPECT_TRUE(rest == Bytes(rest.size(), kPoisonByte)) << "something was written between the elements of a tensor";
    return dense;
  }
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
  ViewPadding k_padding, v_padding; // of Keys::kStep

  int32_t head_dim_v() const { return kind.head_dim_v != 0 ? kind.head_dim_v : head_dim; }
  std::string Text() const {
    return std::string(cgr_dtype_name(dtype)) + " heads " + std::to_string(num_q_heads) + "/" + std::to_string(num_kv_heads) +
           "x" + std::to_string(head_dim) + " page " + std::to_string(page_size) + " parts " + std::to_string(num_parts) +
           " decodes of " + std::to_string(decode_query_len) + (batch_invariant ? " invariant" : "") + TextOf(kind);
  }
};

struct AttentionBatch {
  // seq_len 0 with a query: a request that a guard has refused. With Keys::kOther seq_lens are those of the other sequences;
  // with Keys::kStep there are no keys beyond the query.
  std::vector<int32_t> query_lens, seq_lens;
  int32_t padded_tokens = 0, padded_requests = 0; // in addition
};

// The layer of a shape, as the registry is asked about it.
inline cgr_layer LayerOf(const AttentionShape &shape) {
  cgr_layer layer = CGR_LAYER_INIT;
  layer.num_q_heads = shape.num_q_heads;
  layer.num_kv_heads = shape.num_kv_heads;
  layer.head_dim = shape.head_dim;
  layer.scale = shape.scale;
  layer.dtype = layer.out_dtype = layer.k.dtype = layer.v.dtype = shape.dtype;
  SetKind(&layer, shape.kind);
  return layer;
}
inline const cgr__kernel_kind *KernelKindFor(const cgr_device_info &info, const cgr_layer &layer, FieldNames *refused = nullptr) {
  std::vector<cgr_finding> list(32);
  cgr__findings findings;
  cgr__findings_init(&findings, list.data(), int32_t(list.size()));
  const cgr__kernel_kind *kernel_kind = cgr__kernel_kind_choose(&info, &layer, 1, &findings);
  for (int32_t i = 0; i < findings.count && refused != nullptr; i++)
    refused->insert(list[size_t(i)].field);
  return kernel_kind;
}
// The kernel kind that runs a shape. The kernels support every kind of keys, even kinds that no runtime asks for yet.
inline const cgr__kernel_kind *KernelFor(const cgr_device_info &info, const AttentionShape &shape) {
  cgr_layer layer = LayerOf(shape);
  if (Contradictions(layer).empty()) {
    layer.flags &= ~uint32_t(CGR_LAYER_NO_CACHE);
    layer.length_set = 0;
  }
  return KernelKindFor(info, layer);
}
// Whether the device has a kernel kind for plain layers of this dtype and head dim.
inline bool Supports(const cgr_device_info &info, cgr_dtype dtype, int32_t head_dim) {
  AttentionShape shape;
  shape.dtype = dtype;
  shape.head_dim = head_dim;
  return KernelKindFor(info, LayerOf(shape)) != nullptr;
}

// The logical inputs and where they are, without any device.
class AttentionCase {
public:
  AttentionCase(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed)
      : random(seed), shape_(shape), batch_(batch) {
    num_tokens_ = std::accumulate(batch.query_lens.begin(), batch.query_lens.end(), 0);
    if (shape_.scale == 0.0f)
      shape_.scale = 1.0f / std::sqrt(float(shape_.head_dim));
    PlacePages();
    MakeTable();
    MakeValues();
  }

  const AttentionShape &shape() const { return shape_; }
  const AttentionBatch &batch() const { return batch_; }
  int32_t num_requests() const { return int32_t(batch_.query_lens.size()); }
  int32_t num_tokens() const { return num_tokens_; }
  int64_t num_pages() const { return num_pages_; }
  int32_t max_rows() const { return num_requests() + 3; }
  int64_t table_stride() const { return table_stride_; }
  int32_t row(int32_t i) const { return rows_[i]; }
  int32_t &table(int32_t i, int32_t index) { return table_[row(i) * table_stride_ + index]; }

  CacheShape Cache_() const {
    return { shape_.dtype, shape_.num_kv_heads, shape_.head_dim, shape_.page_size,
             num_pages_,   shape_.page_bytes,   shape_.layouts,  shape_.head_dim_v() };
  }
  // Keys of request i.
  int32_t NumKeys(int32_t i) const {
    bool in_step = shape_.kind.keys == Keys::kStep;
    return in_step ? std::min(batch_.query_lens[i], batch_.seq_lens[i]) : batch_.seq_lens[i];
  }
  int32_t NumPages(int32_t i) const {
    return shape_.kind.keys == Keys::kStep ? 0 : (NumKeys(i) + shape_.page_size - 1) / shape_.page_size;
  }
  // Whether any query of request i sees a key.
  bool IsSeen(int32_t i, int32_t key) const {
    const int32_t context = NumKeys(i) - batch_.query_lens[i];
    for (int32_t j = 0; j < batch_.query_lens[i]; j++)
      if (Sees(shape_.kind, context + j, key))
        return true;
    return false;
  }
  // Whether any of them sees a key of page `index`.
  bool IsNeeded(int32_t i, int32_t index) const {
    const int32_t end = std::min(NumKeys(i), (index + 1) * shape_.page_size);
    for (int32_t key = index * shape_.page_size; key < end; key++)
      if (IsSeen(i, key))
        return true;
    return false;
  }
  // The pages that attention reads for request i: the read-trash page in place of one that may not be read.
  std::vector<int32_t> Pages(int32_t i) const {
    const int32_t *begin = &table_[row(i) * table_stride_];
    std::vector<int32_t> pages(begin, begin + NumPages(i));
    for (int32_t &page : pages)
      if (page < 0 || page >= num_pages_ || page == shape_.write_trash)
        page = shape_.read_trash;
    return pages;
  }
  // What request i must give over the pages of `cache`.
  AttentionAnswer Solve(const PagedCache &cache, int32_t i) const {
    AttentionProblem problem;
    problem.dtype = shape_.dtype;
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

  // Poison in every element that no query sees; the read-trash page is finite. With `sparse` pages without an owner are left
  // alone. What is around keys of the step is poisoned in the same way from here on.
  void Fill(PagedCache *cache, Poison poison, bool sparse = false) {
    poison_ = poison;
    for (Cache which : kCaches) {
      for (int64_t p = 0; p < num_pages_ && !sparse; p++)
        cache->Put(which, p,
                   p == shape_.read_trash ? cache->UniformPage(which, 0.5) : cache->PoisonedPage(which, poison, random));
      for (int32_t i = 0; i < num_requests(); i++)
        FillRequest(which, i, poison, cache);
    }
  }

  std::mt19937_64 random;
  std::vector<int32_t> owned_pages; // of all requests
  std::vector<Values> q;            // by request: [query_len][num_q_heads][head_dim]
  std::vector<Values> kv[2];        // of K and V: [keys][num_kv_heads][head_dim or that of v]
  Poison poison() const { return poison_; }
  const std::vector<int32_t> &table() const { return table_; }

private:
  void PlacePages() {
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
  // Row M belongs to padding. Entries after a request's pages, entries of pages that are not needed, and all of row M must not be
  // read: no such page exists.
  void MakeTable() {
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
  Values RandomValues(int64_t count) {
    std::normal_distribution<double> normal(0.0, 1.0);
    Values values;
    for (int64_t e = 0; e < count; e++)
      values.push_back(cgr__reference_round(shape_.dtype, normal(random)));
    return values;
  }
  void MakeValues() {
    for (int32_t i = 0; i < num_requests(); i++) {
      q.push_back(RandomValues(int64_t{ 1 } * batch_.query_lens[i] * shape_.num_q_heads * shape_.head_dim));
      for (Cache which : kCaches)
        kv[which].push_back(RandomValues(int64_t{ 1 } * NumKeys(i) * shape_.num_kv_heads * Cache_().Width(which)));
    }
  }
  void FillRequest(Cache which, int32_t i, Poison poison, PagedCache *cache) {
    const int32_t width = Cache_().Width(which);
    const double *from = kv[which][i].data();
    for (int32_t p = 0; p < NumPages(i); p++) {
      if (table(i, p) == kNoPage)
        continue;
      Bytes image = cache->PoisonedPage(which, poison, random);
      int32_t tokens = std::min(shape_.page_size, NumKeys(i) - p * shape_.page_size);
      for (int32_t t = 0; t < tokens; t++) {
        const int32_t key = p * shape_.page_size + t;
        for (int32_t h = 0; h < shape_.num_kv_heads && (batch_.query_lens[i] == 0 || IsSeen(i, key)); h++)
          StoreElements(shape_.dtype, from + (int64_t{ key } * shape_.num_kv_heads + h) * width, width,
                        cache->InPage(which, &image, t, h));
      }
      cache->Put(which, table(i, p), image);
    }
  }

  static constexpr int32_t kNoPage = INT32_MIN + 77;
  AttentionShape shape_;
  AttentionBatch batch_;
  Poison poison_ = Poison::kNan;
  int32_t num_tokens_ = 0;
  int64_t num_pages_ = 0, table_stride_ = 0;
  std::vector<int32_t> rows_, table_;
};

// -------------------------------------------------------------------------------------------------------------------- runs

struct AttentionOutput {
  Bytes out, lse; // [tokens][heads][head dim of v] elements, and [tokens][heads] of fp32
  cgr__step_error error;
};

// Everything but the cache that a launch of attention reads and writes.
class AttentionRun {
public:
  AttentionRun(Bench &bench, AttentionCase &made, PagedCache &cache)
      : bench_(bench), made_(made), cache_(cache), tokens_(made.num_tokens() + made.batch().padded_tokens), plans_(Plans()),
        query_len_(LongestQuery()), starts_(Starts()), lens_(Padded(made.batch().seq_lens, 0)), q_(bench, Queries()),
        out_(bench, Out().SizeInBytes()), lse_(bench, Lse().SizeInBytes()), k_(bench, StepKeys(kCacheK)),
        v_(bench, StepKeys(kCacheV)), slopes_(bench, made.shape().kind.alibi_slopes), sinks_(bench, made.shape().kind.sinks),
        table_(bench, made.table()), query_start_(bench, starts_), seq_lens_(bench, lens_), rows_(bench, Rows()),
        counts_(bench, Counts()), plan_(bench, Plan()), counters_(bench, std::vector<int32_t>(size_t(plans_.num_counters), 0)),
        partial_out_(bench, size_t(plans_.partial_vectors * plans_.partial_dim)),
        partial_state_(bench, size_t(plans_.partial_vectors * 2)),
        error_(bench, std::vector<cgr__step_error>{ { 0, -1, 0, 0, 0 } }) {}

  // From now on the kernel gets this as the most new tokens of a request: that many or more, or 0. At first it is exact.
  void TellQueryLen(int32_t query_len) { query_len_ = query_len; }

  // From now on out is q. A run begins with the queries in it.
  void PutOutOverQueries() { in_place_ = true; }

  // From now on an append by `kernel` brings the queries to their place on the stream, before anything else of a run; until then
  // the place holds poison.
  void BringQueriesBy(const cgr__kernel &kernel) {
    bring_by_ = &kernel;
    queries_ = std::make_unique<Array<unsigned char>>(bench_, Queries());
    std::vector<int64_t> places(size_t(std::max(1, tokens_)));
    std::iota(places.begin(), places.end(), 0);
    places_ = std::make_unique<Array<int64_t>>(bench_, places);
  }

  void PutError(const cgr__step_error &error) { error_.Put({ error }); }

  // From now on request i is alone: the others look as if a guard had emptied them.
  void Keep(int32_t i) {
    for (int32_t other = 0; other < made_.num_requests(); other++)
      lens_[size_t(other)] = other == i ? made_.batch().seq_lens[size_t(i)] : 0;
    seq_lens_.Put(lens_);
    plan_.Put(Plan());
  }

  // Runs once, with everything that the kernel must write poisoned before; right behind `append`, which `kernel` executes, if
  // there is one.
  AttentionOutput Run(bool with_lse = true, const cgr__append_args *append = nullptr,
                      const cgr__kernel &kernel = cgr__kernel_append) {
    out_.Put(Bytes(out_.size(), kPoisonByte));
    lse_.Put(Bytes(lse_.size(), kPoisonByte));
    partial_out_.Put(std::vector<float>(partial_out_.size(), NAN));
    partial_state_.Put(std::vector<float>(partial_state_.size(), NAN));
    if (in_place_)
      q_.Put(Queries());
    cgr__attention_args args = Args();
    if (!with_lse)
      args.lse.data = nullptr;
    const cgr__append_args bring = bring_by_ != nullptr ? BringQueries() : cgr__append_args{};
    if (bring_by_ != nullptr) {
      q_.Put(PoisonedElements(made_.shape().dtype, Q().Elements(), Poison::kNan, made_.random));
      bench_.Enqueue(*bring_by_, &bring);
    }
    if (append != nullptr) {
      args.after_append = 1;
      bench_.Enqueue(kernel, append);
    }
    bench_.Run(*kernel_kind_->attention, &args);
    std::vector<int32_t> counters = counters_.Get();
    const int32_t taken = counters.back(), items = header().num_items * args.plan_class.stripes;
    EXPECT_GE(taken, items) << "items of the prefill queue were left";
    counters.back() = 0;
    counters_.Put(counters); // as the planner does before the next step
    for (int32_t counter : counters)
      EXPECT_EQ(counter, 0) << "an arrival counter was left behind";
    return { in_place_ ? Q().Take(q_.Get()) : Out().Take(out_.Get()), with_lse ? Lse().Take(lse_.Get()) : Bytes(),
             error_.Get()[0] };
  }

  // Whether the part that ends the first tile that is cut goes on with a part of another.
  bool LastPartGoesOn() const {
    for (int32_t p = 0; p < Class().num_parts; p++)
      if (parts()[p].begin_count > 0 && !cgr__plan_same_tile(&parts()[p].begin, &parts()[p].end))
        return parts()[p].end.kv > 0;
    return false;
  }

  // The most partials that are merged into one tile of the plan.
  int32_t MostPartials() const {
    const char *plan = reinterpret_cast<const char *>(host_plan_.data());
    auto *entries = reinterpret_cast<const cgr__plan_entry *>(plan + cgr__plan_entries_offset(&Class()));
    int32_t most = 0;
    for (int32_t p = 0; p < Class().num_parts; p++)
      most = std::max({ most, parts()[p].begin_count, parts()[p].end_count });
    for (int32_t e = 0; e < header().num_entries; e++)
      most = std::max(most, entries[e].count);
    return most;
  }

private:
  TensorShape Tensor(const ViewPadding &padding, int32_t heads, int32_t width) const {
    int64_t stride_head = width + padding.head;
    return { made_.shape().dtype, tokens_, heads, width, stride_head * heads + padding.token, stride_head };
  }
  TensorShape Q() const { return Tensor(made_.shape().q_padding, made_.shape().num_q_heads, made_.shape().head_dim); }
  TensorShape Out() const { return Tensor(made_.shape().out_padding, made_.shape().num_q_heads, made_.shape().head_dim_v()); }
  TensorShape StepTensor(Cache which) const {
    const AttentionShape &s = made_.shape();
    return Tensor(which == kCacheK ? s.k_padding : s.v_padding, s.num_kv_heads, which == kCacheK ? s.head_dim : s.head_dim_v());
  }
  TensorShape Lse() const {
    int64_t heads = made_.shape().num_q_heads;
    switch (made_.shape().lse) {
    case LseLayout::kHeads:
      return { CGR_DTYPE_FP32, tokens_, heads, 1, 1, tokens_ + 5 };
    case LseLayout::kSparse:
      return { CGR_DTYPE_FP32, tokens_, heads, 1, 3 * heads + 2, 3 };
    default:
      return { CGR_DTYPE_FP32, tokens_, heads, 1, heads + 3, 1 };
    }
  }
  const cgr__plan_class &Class() const { return plans_.classes[0]; }
  const cgr__plan_header &header() const { return *reinterpret_cast<const cgr__plan_header *>(host_plan_.data()); }
  const cgr__plan_part *parts() const { return reinterpret_cast<const cgr__plan_part *>(&header() + 1); }
  // The plan class of a layer of this shape, with the traits of the device's kernel kind.
  cgr__plans Plans() {
    const AttentionShape &s = made_.shape();
    const cgr_device_info info = bench_.Info();
    layer_ = LayerOf(s);
    kernel_kind_ = KernelFor(info, s);
    EXPECT_NE(kernel_kind_, nullptr) << s.Text();
    cgr__plan_options options = { s.num_parts, std::max(1, made_.num_requests()), std::max(1, made_.num_tokens()),
                                  s.batch_invariant };
    cgr__plans plans;
    cgr__findings findings;
    cgr__findings_init(&findings, nullptr, 0);
    cgr__kernel_kinds_plan(&info, &layer_, &kernel_kind_, 1, &options, &plans, &findings);
    EXPECT_EQ(findings.count, 0);
    if (s.decode_query_len != 0)
      plans.classes[0].decode_query_len = s.decode_query_len;
    return plans;
  }

  cgr__attention_args Args() {
    const AttentionShape &s = made_.shape();
    cgr__attention_args args = {};
    args.q = Q().View(q_.data());
    args.out = in_place_ ? args.q : Out().View(out_.data());
    args.lse = Lse().View(lse_.data());
    if (s.kind.keys == Keys::kStep) {
      args.k = StepTensor(kCacheK).View(k_.data());
      args.v = StepTensor(kCacheV).View(v_.data());
    }
    args.k_cache = cache_.view[kCacheK];
    args.v_cache = cache_.view[kCacheV];
    args.group = { s.page_size, s.read_trash, s.write_trash, 0, made_.num_pages(), made_.table_stride(), 0, 0 };
    args.page_table = table_.data();
    args.query_start_loc = query_start_.data();
    args.seq_lens = seq_lens_.data();
    args.request_rows = rows_.data();
    args.counts = counts_.data();
    args.plan = reinterpret_cast<int32_t *>(plan_.data());
    args.plan_counters = counters_.data();
    args.prefill_queue = counters_.data() + plans_.num_partials;
    args.plan_class = Class();
    cgr__attention_set_heads(&args, s.num_q_heads, s.num_kv_heads, cgr__plan_block_heads(&kernel_kind_->plan, &layer_));
    args.decode_lines = plans_.decode_lines[0];
    args.prefill_lines = plans_.prefill_lines[0];
    args.partial_out = partial_out_.data();
    args.partial_state = partial_state_.data();
    args.error = error_.data();
    args.num_tokens = tokens_;
    args.max_query_len = query_len_;
    args.shared_bytes = plans_.shared_bytes[0];
    args.head_dim = s.head_dim;
    args.head_dim_v = s.head_dim_v();
    args.scale = s.scale;
    args.softcap = s.kind.softcap;
    args.alibi_sqrt = s.kind.alibi_sqrt;
    args.alibi_slopes = s.kind.alibi_slopes.empty() ? nullptr : slopes_.data();
    args.sinks = s.kind.sinks.empty() ? nullptr : sinks_.data();
    return args;
  }
  // The elements of every request's tokens; padded tokens and what is between heads are poison.
  Bytes Activations(const TensorShape &tensor, const std::vector<Values> &values, Poison poison) {
    Bytes bytes = PoisonedElements(tensor.dtype, tensor.Elements(), poison, made_.random);
    int64_t token = 0;
    for (int32_t i = 0; i < made_.num_requests(); token += made_.batch().query_lens[size_t(i++)])
      for (size_t e = 0; e < values[size_t(i)].size(); e += size_t(tensor.width)) {
        const int64_t head = int64_t(e) / tensor.width, t = token + head / tensor.heads;
        const int64_t at = t * tensor.stride_token + head % tensor.heads * tensor.stride_head;
        StoreElements(tensor.dtype, &values[size_t(i)][e], tensor.width, &bytes[size_t(at * ElementSize(tensor.dtype))]);
      }
    return bytes;
  }
  // Copies queries_ to their place, as an append to a cache of one page.
  cgr__append_args BringQueries() {
    const TensorShape q = Q();
    cgr__append_args bring = {};
    bring.k = q.View(queries_->data());
    bring.k_cache.base = q_.data();
    bring.k_cache.dtype = q.dtype;
    bring.k_cache.stride_token = q.stride_token;
    bring.k_cache.stride_head = q.stride_head;
    bring.slot_mapping = places_->data();
    bring.num_pages = 1;
    bring.page_size = std::max(1, tokens_);
    bring.num_tokens = tokens_;
    bring.num_kv_heads = int32_t(q.heads);
    bring.head_dim = int32_t(q.width);
    return bring;
  }
  Bytes Queries() { return Activations(Q(), made_.q, Poison::kNan); }
  Bytes StepKeys(Cache which) {
    const bool in_step = made_.shape().kind.keys == Keys::kStep;
    return in_step ? Activations(StepTensor(which), made_.kv[which], made_.poison()) : Bytes();
  }
  int32_t LongestQuery() const {
    const std::vector<int32_t> &lens = made_.batch().query_lens;
    return lens.empty() ? 0 : *std::max_element(lens.begin(), lens.end());
  }
  std::vector<int32_t> Starts() const {
    std::vector<int32_t> starts(1, 0);
    for (int32_t length : made_.batch().query_lens)
      starts.push_back(starts.back() + length);
    return Padded(starts, starts.back());
  }
  std::vector<int32_t> Padded(std::vector<int32_t> values, int32_t value) const {
    values.insert(values.end(), size_t(made_.batch().padded_requests), value);
    return values;
  }
  // The row of a refused request may be any number.
  std::vector<int32_t> Rows() const {
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < made_.num_requests(); i++)
      rows.push_back(made_.batch().seq_lens[i] > 0 ? made_.row(i) : INT32_MIN + i);
    return Padded(rows, made_.max_rows());
  }
  std::vector<int32_t> Counts() const {
    std::vector<int32_t> counts(16, 0);
    counts[CGR_COUNT_REQUESTS] = made_.num_requests();
    counts[CGR_COUNT_TOKENS] = made_.num_tokens();
    counts[CGR_COUNT_PADDED_REQUESTS] = made_.num_requests() + made_.batch().padded_requests;
    counts[CGR_COUNT_PADDED_TOKENS] = tokens_;
    return counts;
  }
  std::vector<int64_t> Plan() {
    host_plan_.assign(size_t(cgr__plan_bytes(&Class()) / 8), 0x5a5a5a5a5a5a5a5a);
    std::vector<int64_t> scratch(cgr__plan_scratch_bytes(&Class()) / 8 + 1);
    cgr__plan_fill(&Class(), starts_.data(), lens_.data(), made_.num_requests(), scratch.data(), host_plan_.data());
    return host_plan_;
  }

  Bench &bench_;
  AttentionCase &made_;
  PagedCache &cache_;
  int32_t tokens_;
  cgr_layer layer_;
  const cgr__kernel_kind *kernel_kind_ = nullptr;
  std::vector<int64_t> host_plan_;
  cgr__plans plans_;
  int32_t query_len_; // told to the kernel
  std::vector<int32_t> starts_, lens_;
  Array<unsigned char> q_, out_, lse_, k_, v_;
  Array<float> slopes_, sinks_;
  Array<int32_t> table_, query_start_, seq_lens_, rows_, counts_;
  Array<int64_t> plan_;
  Array<int32_t> counters_;
  Array<float> partial_out_, partial_state_;
  bool in_place_ = false;
  const cgr__kernel *bring_by_ = nullptr;
  std::unique_ptr<Array<unsigned char>> queries_;
  std::unique_ptr<Array<int64_t>> places_;
  Array<cgr__step_error> error_;
};

// Real tokens must be within the allowed error; padded tokens and those of refused requests exactly 0 and -inf. lse_slack: for
// scores so large that their own rounding shows in lse.
inline void ExpectAttention(AttentionCase &made, const PagedCache &cache, const AttentionOutput &output, double lse_slack = 0.0) {
  const AttentionShape &s = made.shape();
  int64_t tokens = made.num_tokens() + made.batch().padded_tokens, heads = s.num_q_heads, first = 0;
  const int64_t width = s.head_dim_v();
  Values out = LoadElements(s.dtype, output.out.data(), tokens * heads * width);
  Values lse = LoadElements(CGR_DTYPE_FP32, output.lse.data(), int64_t(output.lse.size() / sizeof(float)));
  auto part = [&](const Values &values, int64_t begin, int64_t count, int64_t each) {
    return values.empty() ? Values() : Values(values.begin() + begin * each, values.begin() + (begin + count) * each);
  };
  for (int32_t i = 0; i < made.num_requests(); i++) {
    SCOPED_TRACE("request " + std::to_string(i));
    int64_t count = made.batch().query_lens[i];
    Values request_out = part(out, first, count, heads * width), request_lse = part(lse, first, count, heads);
    if (made.batch().seq_lens[i] == 0) {
      ASSERT_NO_FATAL_FAILURE(ExpectNothing(request_out, request_lse));
    } else {
      AttentionAnswer answer = made.Solve(cache, i);
      answer.lse_bound += lse_slack;
      ASSERT_NO_FATAL_FAILURE(ExpectAnswer(request_out, request_lse, answer));
    }
    first += count;
  }
  SCOPED_TRACE("padding");
  ExpectNothing(part(out, first, tokens - first, heads * width), part(lse, first, tokens - first, heads));
}

// Tokens [first, first + count) are equal in both.
inline bool SameTokens(const AttentionOutput &a, const AttentionOutput &b, int32_t first, int32_t count,
                       const AttentionShape &shape) {
  size_t before = size_t(first) * size_t(shape.num_q_heads), heads = size_t(count) * size_t(shape.num_q_heads);
  size_t head = size_t(shape.head_dim_v() * ElementSize(shape.dtype));
  return std::memcmp(&a.out[before * head], &b.out[before * head], heads * head) == 0 &&
         std::memcmp(&a.lse[before * sizeof(float)], &b.lse[before * sizeof(float)], heads * sizeof(float)) == 0;
}

// The first `tokens` tokens are equal in both.
inline bool SameBits(const AttentionOutput &a, const AttentionOutput &b, int32_t tokens, const AttentionShape &shape) {
  return tokens == 0 || SameTokens(a, b, 0, tokens, shape);
}

// Runs shapes and batches on a device and compares them with the oracle.
class AttentionTest : public KernelTest {
protected:
  void SetUp() override {
    Open({ &cgr__kernel_attention });
    if (bench_)
      info_ = bench_->Info();
  }
  // The dtype and head dim that every device has, for tests of structure.
  cgr_dtype Dtype() const { return bench_->has_cuda_kernels() ? CGR_DTYPE_BF16 : CGR_DTYPE_FP32; }
  AttentionShape Shape() const {
    AttentionShape shape;
    shape.dtype = Dtype();
    return shape;
  }

  void Check(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed, Poison poison = Poison::kNan) {
    AttentionCase made(shape, batch, seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + " " + made.shape().Text());
    PagedCache cache(*bench_, made.Cache_());
    made.Fill(&cache, poison);
    AttentionRun run(*bench_, made, cache);
    AttentionOutput output = run.Run();
    ASSERT_EQ(output.error.error, CGR_GUARD_NONE);
    ExpectAttention(made, cache, output);
    cases_++;
  }

  cgr_device_info info_ = CGR_DEVICE_INFO_INIT;
  int cases_ = 0;
};

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_ATTENTION_CASE_H
