// One launch of append or attention over a paged cache, for tests: makes the inputs, places them in pages, runs the kernel on a
// device and computes what it should have given.
#ifndef CGR_TESTS_SUPPORT_ATTENTION_CASE_H
#define CGR_TESTS_SUPPORT_ATTENTION_CASE_H

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/append.h"
#include "kernels/attention.h"
#include "kernels/step.h"
#include "kernels/reference/gather.h"
#include "kernels/reference/reference.h"
#include "planners/attention/plan_host.h"
#include "tests/support/device_memory.h"

namespace cgr_test {

using Bytes = std::vector<unsigned char>;

inline int64_t ElementSize(cgr_dtype dtype) { return dtype == CGR_DTYPE_FP32 ? 4 : 2; }

// What attention on CUDA has: bf16 and fp16 with head dims 64 and 128. The host has all.
inline bool Supports(const Bench &bench, cgr_dtype dtype, int32_t head_dim) {
  return !bench.is_cuda() || (dtype != CGR_DTYPE_FP32 && (head_dim == 64 || head_dim == 128));
}

enum class Layout { kTokens, kHeads }; // NHD, HND
enum class Poison { kZero, kNan, kInf, kNoise };
enum Cache { kCacheK, kCacheV };

// How K or V lies in memory. Paddings count elements, multiples of 8.
struct CacheLayout {
  Layout layout = Layout::kTokens;
  int32_t token_padding = 0, page_padding = 0;
};
struct CacheLayouts {
  CacheLayout cache[2];     // of K and V
  bool interleaved = false; // each page of K has the same one of V behind it
};
inline std::vector<CacheLayouts> EveryCacheLayout() {
  const CacheLayout tokens, heads = { Layout::kHeads, 0, 0 };
  return { { { tokens, tokens }, false },
           { { heads, heads }, false },
           { { tokens, tokens }, true },
           { { tokens, { Layout::kHeads, 8, 64 } }, false },
           { { { Layout::kHeads, 0, 128 }, { Layout::kTokens, 24, 0 } }, false },
           { { { Layout::kTokens, 16, 8 }, { Layout::kHeads, 8, 0 } }, true } };
}

// Elements of q or out behind each head and behind each token.
struct ViewPadding {
  int32_t head = 0, token = 0;
};

struct AttentionShape {
  cgr_dtype dtype = CGR_DTYPE_FP32;
  int32_t num_q_heads = 4, num_kv_heads = 2, head_dim = 64, page_size = 16;
  CacheLayouts layouts;
  int32_t num_parts = 7;
  int32_t tile_q = 0;                      // 0: the largest for the group
  float scale = 0.0f;                      // 0: 1 / sqrt(head_dim)
  int64_t num_pages = 0;                   // 0: some more than needed
  int64_t page_bytes = 0;                  // distance of pages in memory; 0: what they take
  bool pages_at_end = false;               // pages from the end of the pool
  int32_t read_trash = 0, write_trash = 1; // -1: the last page
  ViewPadding q_padding, out_padding;
};

struct AttentionBatch {
  std::vector<int32_t> query_lens, seq_lens;      // seq_len 0 with a query: a request that a guard has refused
  int32_t padded_tokens = 0, padded_requests = 0; // in addition
};

inline int32_t Sum(const std::vector<int32_t> &values) { return std::accumulate(values.begin(), values.end(), 0); }

// The logical inputs and where they lie; nothing of a device.
class AttentionCase {
public:
  AttentionCase(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed)
      : shape_(shape), batch_(batch), random_(seed) {
    num_tokens_ = Sum(batch.query_lens);
    if (shape_.tile_q == 0)
      shape_.tile_q = cgr__attention_tile_q(group());
    if (shape_.scale == 0.0f)
      shape_.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    MakePages();
    MakeValues();
  }

  const AttentionShape &shape() const { return shape_; }
  const AttentionBatch &batch() const { return batch_; }
  int32_t group() const { return shape_.num_q_heads / shape_.num_kv_heads; }
  int32_t num_requests() const { return static_cast<int32_t>(batch_.query_lens.size()); }
  int32_t num_tokens() const { return num_tokens_; }
  int64_t num_pages() const { return num_pages_; }
  int64_t table_stride() const { return table_stride_; }
  int32_t row(int32_t i) const { return rows_[static_cast<size_t>(i)]; }
  int32_t num_rows() const { return num_requests() + 3; }
  std::vector<int32_t> &table() { return table_; }
  const std::vector<double> &q(int32_t i) const { return q_[static_cast<size_t>(i)]; }
  std::vector<double> &q(int32_t i) { return q_[static_cast<size_t>(i)]; }
  std::vector<double> &kv(Cache which, int32_t i) { return kv_[which][static_cast<size_t>(i)]; }
  std::mt19937_64 &random() { return random_; }

  // The strides of K or V.
  cgr_kv_view View(Cache which, void *base) const {
    cgr_kv_view view = { base, shape_.dtype, 0, 0, 0, 0 };
    const CacheLayout &layout = shape_.layouts.cache[which];
    bool heads_first = layout.layout == Layout::kHeads;
    view.stride_token = (heads_first ? int64_t{ 1 } : int64_t{ shape_.num_kv_heads }) * shape_.head_dim + layout.token_padding;
    view.stride_head = heads_first ? shape_.page_size * view.stride_token : shape_.head_dim;
    view.stride_page = PageExtent(which) + (shape_.layouts.interleaved ? PageExtent(which == kCacheK ? kCacheV : kCacheK) : 0);
    if (shape_.page_bytes != 0)
      view.stride_page = shape_.page_bytes / ElementSize(shape_.dtype);
    return view;
  }
  // Elements of one page, from its first to behind its last one, and with what is left free behind it.
  int64_t PageElements(Cache which) const { return PageExtent(which) - shape_.layouts.cache[which].page_padding; }
  int64_t PageExtent(Cache which) const {
    const CacheLayout &layout = shape_.layouts.cache[which];
    int64_t heads = shape_.num_kv_heads, paddings = layout.layout == Layout::kHeads ? heads : 1;
    return shape_.page_size * (heads * shape_.head_dim + paddings * layout.token_padding) + layout.page_padding;
  }

  // The images of the pages that requests own: what they hold, and `poison` in every lane that nobody owns.
  using PageImages = std::vector<std::pair<int32_t, Bytes>>;
  PageImages OwnedPages(Cache which, Poison poison) {
    PageImages pages;
    for (int32_t i = 0; i < num_requests(); i++)
      FillRequest(which, i, poison, &pages);
    return pages;
  }
  Bytes PoisonedPage(Cache which, Poison poison) {
    Bytes page(static_cast<size_t>(PageElements(which) * ElementSize(shape_.dtype)));
    for (size_t at = 0; at < page.size(); at += static_cast<size_t>(ElementSize(shape_.dtype)))
      StorePoison(poison, &page[at]);
    return page;
  }
  // What the read-trash page holds: kTrash everywhere.
  Bytes TrashPage(Cache which) const {
    Bytes page(static_cast<size_t>(PageElements(which) * ElementSize(shape_.dtype)));
    for (size_t at = 0; at < page.size(); at += static_cast<size_t>(ElementSize(shape_.dtype)))
      cgr__reference_store(shape_.dtype, &page[at], kTrash);
    return page;
  }
  static constexpr double kTrash = 0.5;
  void StorePoison(Poison poison, void *element) {
    double noise = (static_cast<double>(random_() % 2000) - 1000.0) * 10.0;
    double sign = random_() % 2 ? 1.0 : -1.0;
    const double values[] = { 0.0, NAN, sign * INFINITY, noise }; // in the order of Poison
    cgr__reference_store(shape_.dtype, element, values[static_cast<int>(poison)]);
  }

  // Out and lse of request i in fp64, and the largest error of the same-precision reference.
  void Expect(int32_t i, std::vector<double> *out, std::vector<double> *lse, double *out_error, double *lse_error) const {
    size_t n = static_cast<size_t>(i);
    cgr__reference_shape s = { batch_.query_lens[n], batch_.seq_lens[n], shape_.num_q_heads,
                               shape_.num_kv_heads,  shape_.head_dim,    1,
                               shape_.scale };
    std::vector<double> near(q_[n].size()), near_lse(q_[n].size() / static_cast<size_t>(shape_.head_dim));
    out->assign(near.size(), 0.0);
    lse->assign(near_lse.size(), 0.0);
    const double *q = q_[n].data(), *k = kv_[kCacheK][n].data(), *v = kv_[kCacheV][n].data();
    cgr__reference_attention(&s, q, k, v, out->data(), lse->data());
    cgr__reference_attention_in(shape_.dtype, &s, q, k, v, near.data(), near_lse.data());
    WorstError(near, *out, out_error);
    WorstError(near_lse, *lse, lse_error);
  }
  // The largest difference; one that is no finite number fails the test.
  static void WorstError(const std::vector<double> &got, const std::vector<double> &expected, double *worst) {
    *worst = 0.0;
    for (size_t e = 0; e < expected.size(); e++) {
      double error = std::fabs(got[e] - expected[e]);
      ASSERT_TRUE(std::isfinite(error)) << "element " << e << " is " << got[e] << ", expected " << expected[e];
      *worst = std::max(*worst, error);
    }
  }

  std::vector<int32_t> owned_pages; // the pages of all requests

private:
  void MakePages() {
    int64_t needed = 0, longest = 1;
    for (int32_t length : batch_.seq_lens) {
      int64_t pages = (length + shape_.page_size - 1) / shape_.page_size;
      needed += pages;
      longest = std::max(longest, pages);
    }
    num_pages_ = shape_.num_pages != 0 ? shape_.num_pages : needed + 5;
    for (int32_t *trash : { &shape_.read_trash, &shape_.write_trash })
      if (*trash < 0)
        *trash = static_cast<int32_t>(num_pages_ - 1);
    std::vector<int32_t> free;
    for (int64_t p = shape_.pages_at_end ? num_pages_ - needed : 0; static_cast<int64_t>(free.size()) < needed; p++)
      if (p != shape_.read_trash && p != shape_.write_trash)
        free.push_back(static_cast<int32_t>(p));
    std::shuffle(free.begin(), free.end(), random_);
    owned_pages = free;
    table_stride_ = longest + 2;
    for (int32_t r = 0; r < num_rows(); r++)
      rows_.push_back(r);
    std::shuffle(rows_.begin(), rows_.end(), random_);
    // What is behind a request's pages must not be looked at: no such page exists.
    table_.assign(static_cast<size_t>(num_rows() * table_stride_), INT32_MIN + 77);
    for (int32_t i = 0; i < num_requests(); i++) {
      int32_t pages = (batch_.seq_lens[static_cast<size_t>(i)] + shape_.page_size - 1) / shape_.page_size;
      for (int32_t p = 0; p < pages; p++, free.pop_back())
        table_[static_cast<size_t>(row(i) * table_stride_ + p)] = free.back();
    }
  }
  std::vector<double> Values(int64_t count) {
    std::normal_distribution<double> normal(0.0, 1.0);
    std::vector<double> values(static_cast<size_t>(count));
    for (double &value : values)
      value = cgr__reference_round(shape_.dtype, normal(random_));
    return values;
  }
  void MakeValues() {
    for (size_t i = 0; i < batch_.query_lens.size(); i++) {
      q_.push_back(Values(int64_t{ 1 } * batch_.query_lens[i] * shape_.num_q_heads * shape_.head_dim));
      for (std::vector<std::vector<double>> &cache : kv_)
        cache.push_back(Values(int64_t{ 1 } * batch_.seq_lens[i] * shape_.num_kv_heads * shape_.head_dim));
    }
  }
  void FillRequest(Cache which, int32_t i, Poison poison, PageImages *pages) {
    const std::vector<double> &values = kv(which, i);
    int32_t length = batch_.seq_lens[static_cast<size_t>(i)];
    for (int32_t begin = 0; begin < length; begin += shape_.page_size) {
      Bytes image = PoisonedPage(which, poison);
      cgr_kv_view view = View(which, image.data());
      for (int32_t t = begin; t < std::min(begin + shape_.page_size, length); t++)
        for (int32_t h = 0; h < shape_.num_kv_heads; h++)
          for (int32_t d = 0; d < shape_.head_dim; d++) {
            unsigned char *to = static_cast<unsigned char *>(cgr__reference_kv_element(&view, 0, t - begin, h));
            size_t from = static_cast<size_t>((int64_t{ 1 } * t * shape_.num_kv_heads + h) * shape_.head_dim + d);
            cgr__reference_store(shape_.dtype, to + d * ElementSize(shape_.dtype), values[from]);
          }
      pages->push_back({ table_[static_cast<size_t>(row(i) * table_stride_ + begin / shape_.page_size)], image });
    }
  }

  AttentionShape shape_;
  AttentionBatch batch_;
  std::mt19937_64 random_;
  int32_t num_tokens_ = 0;
  int64_t num_pages_ = 0, table_stride_ = 0;
  std::vector<int32_t> rows_, table_;
  std::vector<std::vector<double>> q_, kv_[2];
};

// The memory of the caches. Pages that are not put hold what they held; `memory` may be the caller's.
class Pool {
public:
  Pool(Bench &bench, AttentionCase &made, void *memory = nullptr) : bench_(bench) {
    const CacheLayouts &layouts = made.shape().layouts;
    int64_t size = ElementSize(made.shape().dtype), pages = made.num_pages();
    int64_t k_pool = made.View(kCacheK, nullptr).stride_page * pages, v_pool = made.View(kCacheV, nullptr).stride_page * pages;
    owns_ = memory == nullptr;
    size_t bytes = static_cast<size_t>((layouts.interleaved ? k_pool : k_pool + v_pool) * size);
    base_ = owns_ ? bench.Alloc(bytes, CGR__MEMORY_DEVICE) : memory;
    int64_t v_begin = layouts.interleaved ? made.PageExtent(kCacheK) : k_pool;
    view[kCacheK] = made.View(kCacheK, base_);
    view[kCacheV] = made.View(kCacheV, static_cast<unsigned char *>(base_) + v_begin * size);
  }
  ~Pool() {
    if (owns_)
      bench_.Free(base_, CGR__MEMORY_DEVICE);
  }
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  void Put(Cache which, int64_t page, const Bytes &image) {
    bench_.Copy(cgr__reference_kv_element(&view[which], page, 0, 0), image.data(), image.size());
  }
  Bytes Get(Cache which, int64_t page, size_t bytes) {
    Bytes image(bytes);
    bench_.Copy(image.data(), cgr__reference_kv_element(&view[which], page, 0, 0), bytes);
    return image;
  }
  // Every page poisoned but the read-trash one, which is finite; then those that requests own. With `sparse` the unowned
  // ones are left alone.
  void Fill(AttentionCase &made, Poison poison, bool sparse = false) {
    for (Cache which : { kCacheK, kCacheV }) {
      for (int64_t p = 0; p < made.num_pages() && !sparse; p++)
        Put(which, p, p == made.shape().read_trash ? made.TrashPage(which) : made.PoisonedPage(which, poison));
      for (const auto &page : made.OwnedPages(which, poison))
        Put(which, page.first, page.second);
    }
  }

  cgr_kv_view view[2]; // of K and V

private:
  Bench &bench_;
  void *base_;
  bool owns_;
};

struct AttentionOutput {
  Bytes out;              // [tokens][heads][head_dim] elements, without what is between tokens
  std::vector<float> lse; // [tokens][heads]
  cgr__step_error error;
};

// Everything that a launch of attention reads and writes but the caches.
class AttentionRun {
public:
  AttentionRun(Bench &bench, AttentionCase &made, Pool &pool)
      : bench_(bench), made_(made), pool_(pool), tokens_(made.num_tokens() + made.batch().padded_tokens),
        head_blocks_(cgr__attention_head_blocks(made.shape().num_q_heads, made.shape().num_kv_heads)), starts_(Starts(made)),
        lens_(Padded(made.batch().seq_lens, 0)), rows_host_(Rows(made)), q_(bench, Queries()),
        out_(bench, ViewBytes(made.shape().out_padding)),
        lse_(bench, static_cast<size_t>(tokens_) * static_cast<size_t>(made.shape().num_q_heads + 3)),
        table_(bench, made.table()), query_start_(bench, starts_), seq_lens_(bench, lens_), rows_(bench, rows_host_),
        counts_(bench, std::vector<int32_t>{ made.num_requests(), made.num_tokens(), 0, 0 }), plan_(bench, Plan()),
        counters_(bench, std::vector<int32_t>(static_cast<size_t>(made.shape().num_parts * head_blocks_), 0)),
        partial_out_(bench, PartialRows() * static_cast<size_t>(made.shape().head_dim)),
        partial_max_sum_(bench, PartialRows() * 2), error_(bench, std::vector<cgr__step_error>{ { 0, -1, 0, 0, 0 } }) {}

  cgr__attention_args Args() {
    const AttentionShape &s = made_.shape();
    cgr__attention_args args;
    std::memset(&args, 0, sizeof args);
    args.q = View(s.q_padding, q_.data());
    args.out = View(s.out_padding, out_.data());
    args.k_cache = pool_.view[kCacheK];
    args.v_cache = pool_.view[kCacheV];
    args.lse = lse_.data();
    args.lse_stride = s.num_q_heads + 3;
    args.page_table = table_.data();
    args.page_table_stride = made_.table_stride();
    args.num_pages = made_.num_pages();
    args.page_size = s.page_size;
    args.read_trash_page = s.read_trash;
    args.write_trash_page = s.write_trash;
    args.num_tokens = tokens_;
    args.padded_requests = made_.num_requests() + made_.batch().padded_requests;
    args.num_q_heads = s.num_q_heads;
    args.num_kv_heads = s.num_kv_heads;
    args.head_dim = s.head_dim;
    args.scale = s.scale;
    args.query_start_loc = query_start_.data();
    args.seq_lens = seq_lens_.data();
    args.request_rows = rows_.data();
    args.counts = counts_.data();
    args.plan = reinterpret_cast<int32_t *>(plan_.data());
    args.num_parts = s.num_parts;
    args.tile_q = s.tile_q;
    args.plan_counters = counters_.data();
    args.partial_out = partial_out_.data();
    args.partial_max_sum = partial_max_sum_.data();
    args.error = error_.data();
    return args;
  }

  // Runs once, with everything that the kernel must write poisoned before.
  AttentionOutput Run(bool with_lse = true) {
    out_.Put(Array<unsigned char>::Poison(out_.size()));
    lse_.Put(Array<float>::Poison(lse_.size()));
    partial_out_.Put(std::vector<float>(partial_out_.size(), NAN));
    partial_max_sum_.Put(std::vector<float>(partial_max_sum_.size(), NAN));
    cgr__attention_args args = Args();
    if (!with_lse)
      args.lse = nullptr;
    bench_.Run(cgr__kernel_attention, &args);
    for (int32_t counter : counters_.Get())
      EXPECT_EQ(counter, 0) << "an arrival counter was left behind";
    AttentionOutput output;
    TakeOut(&output);
    TakeLse(&output);
    output.error = error_.Get()[0];
    return output;
  }

private:
  cgr_view View(const ViewPadding &padding, void *data) const {
    const AttentionShape &s = made_.shape();
    cgr_view view = { data, s.dtype, 0, 0, s.head_dim + padding.head };
    view.stride_token = view.stride_head * s.num_q_heads + padding.token;
    return view;
  }
  size_t ViewBytes(const ViewPadding &padding) const {
    return static_cast<size_t>(tokens_ * View(padding, nullptr).stride_token * ElementSize(made_.shape().dtype));
  }
  // Takes the rows out of a tensor; what is between them must be as it was.
  void TakeOut(AttentionOutput *output) {
    const AttentionShape &s = made_.shape();
    int64_t size = ElementSize(s.dtype);
    cgr_view view = View(s.out_padding, nullptr);
    Bytes all = out_.Get(), gaps = all;
    for (int64_t t = 0; t < tokens_; t++)
      for (int64_t h = 0; h < s.num_q_heads; h++) {
        int64_t at = (t * view.stride_token + h * view.stride_head) * size;
        output->out.insert(output->out.end(), all.begin() + at, all.begin() + at + s.head_dim * size);
        std::fill_n(gaps.begin() + at, s.head_dim * size, static_cast<unsigned char>(0xA5));
      }
    EXPECT_TRUE(gaps == Array<unsigned char>::Poison(gaps.size())) << "wrote between the rows of out";
  }
  void TakeLse(AttentionOutput *output) {
    std::vector<float> all = lse_.Get(), gaps = all, untouched = Array<float>::Poison(all.size());
    int64_t heads = made_.shape().num_q_heads;
    for (int64_t t = 0; t < tokens_; t++) {
      auto at = all.begin() + t * (heads + 3);
      output->lse.insert(output->lse.end(), at, at + heads);
      std::copy_n(untouched.begin(), heads, gaps.begin() + t * (heads + 3));
    }
    EXPECT_TRUE(gaps.empty() || std::memcmp(gaps.data(), untouched.data(), gaps.size() * sizeof(float)) == 0)
        << "wrote between the rows of lse";
  }
  size_t PartialRows() const { return static_cast<size_t>(2 * made_.shape().num_parts * head_blocks_ * CGR__TILE_ROWS); }
  // Padded tokens, and what is between rows, hold NaN.
  Bytes Queries() {
    const AttentionShape &s = made_.shape();
    int64_t size = ElementSize(s.dtype), token = 0;
    cgr_view view = View(s.q_padding, nullptr);
    Bytes bytes(ViewBytes(s.q_padding));
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(size))
      made_.StorePoison(Poison::kNan, &bytes[at]);
    for (int32_t i = 0; i < made_.num_requests(); i++) {
      const std::vector<double> &q = made_.q(i);
      for (size_t e = 0; e < q.size(); e++) {
        int64_t row = static_cast<int64_t>(e) / s.head_dim, d = static_cast<int64_t>(e) % s.head_dim;
        int64_t at = (token + row / s.num_q_heads) * view.stride_token + row % s.num_q_heads * view.stride_head + d;
        cgr__reference_store(s.dtype, &bytes[static_cast<size_t>(at * size)], q[e]);
      }
      token += made_.batch().query_lens[static_cast<size_t>(i)];
    }
    return bytes;
  }
  std::vector<int32_t> Starts(const AttentionCase &made) const {
    std::vector<int32_t> starts(1, 0);
    for (int32_t length : made.batch().query_lens)
      starts.push_back(starts.back() + length);
    return Padded(starts, starts.back());
  }
  std::vector<int32_t> Padded(std::vector<int32_t> values, int32_t value) const {
    values.insert(values.end(), static_cast<size_t>(made_.batch().padded_requests), value);
    return values;
  }
  std::vector<int32_t> Rows(const AttentionCase &made) const {
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < made.num_requests(); i++)
      rows.push_back(made.row(i));
    return Padded(rows, 0);
  }
  std::vector<int64_t> Plan() const {
    std::vector<int64_t> plan((cgr__plan_bytes(made_.shape().num_parts) + 7) / 8);
    std::vector<int64_t> prefix(static_cast<size_t>(made_.num_requests()) + 1);
    cgr__plan_fill(starts_.data(), lens_.data(), made_.num_requests(), made_.shape().num_parts, made_.shape().tile_q,
                   prefix.data(), plan.data());
    return plan;
  }

  Bench &bench_;
  AttentionCase &made_;
  Pool &pool_;
  int32_t tokens_, head_blocks_;
  std::vector<int32_t> starts_, lens_, rows_host_;
  Array<unsigned char> q_, out_;
  Array<float> lse_;
  Array<int32_t> table_, query_start_, seq_lens_, rows_, counts_;
  Array<int64_t> plan_;
  Array<int32_t> counters_;
  Array<float> partial_out_, partial_max_sum_;
  Array<cgr__step_error> error_;
};

// Real tokens within the error that is allowed; padded tokens and those of refused requests exactly 0 and -inf. lse_slack: for
// scores so large that their own rounding shows in lse.
inline void ExpectAttention(AttentionCase &made, const AttentionOutput &output, double lse_slack = 0.0) {
  const AttentionShape &s = made.shape();
  size_t size = static_cast<size_t>(ElementSize(s.dtype)), heads = static_cast<size_t>(s.num_q_heads);
  size_t width = heads * static_cast<size_t>(s.head_dim), token = 0, tokens = output.lse.size() / heads;
  auto element = [&](size_t e) { return cgr__reference_load(s.dtype, &output.out[e * size]); };
  auto expect_empty = [&](size_t begin, size_t end) {
    for (size_t b = begin * width * size; b < end * width * size; b++)
      ASSERT_EQ(output.out[b], 0) << "token " << b / width / size;
    for (size_t e = begin * heads; e < end * heads; e++)
      ASSERT_EQ(output.lse[e], -INFINITY) << "token " << e / heads;
  };
  for (int32_t i = 0; i < made.num_requests(); i++) {
    SCOPED_TRACE("request " + std::to_string(i));
    size_t query_len = static_cast<size_t>(made.batch().query_lens[static_cast<size_t>(i)]);
    if (made.batch().seq_lens[static_cast<size_t>(i)] == 0) {
      expect_empty(token, token + query_len);
    } else {
      std::vector<double> out, lse, got;
      double out_error, lse_error, worst, worst_lse;
      made.Expect(i, &out, &lse, &out_error, &lse_error);
      for (size_t e = 0; e < out.size(); e++)
        got.push_back(element(token * width + e));
      AttentionCase::WorstError(got, out, &worst);
      got.assign(output.lse.begin() + static_cast<int64_t>(token * heads),
                 output.lse.begin() + static_cast<int64_t>(token * heads + lse.size()));
      AttentionCase::WorstError(got, lse, &worst_lse);
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
      ASSERT_LE(worst, 2 * out_error + 1e-5);
      ASSERT_LE(worst_lse, 2 * lse_error + 1e-5 + lse_slack);
    }
    token += query_len;
  }
  expect_empty(token, tokens);
}

inline bool SameBits(const AttentionOutput &a, const AttentionOutput &b, int32_t tokens, const AttentionShape &shape) {
  size_t heads = static_cast<size_t>(tokens) * static_cast<size_t>(shape.num_q_heads);
  size_t bytes = heads * static_cast<size_t>(shape.head_dim * ElementSize(shape.dtype));
  return std::memcmp(a.out.data(), b.out.data(), bytes) == 0 &&
         std::memcmp(a.lse.data(), b.lse.data(), heads * sizeof(float)) == 0;
}

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_ATTENTION_CASE_H
