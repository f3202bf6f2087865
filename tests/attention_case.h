// One launch of append or attention over a paged cache, for tests: makes the inputs, places them in pages, runs the kernel on a
// device and computes what it should have given.
#ifndef CGR_TESTS_ATTENTION_CASE_H
#define CGR_TESTS_ATTENTION_CASE_H

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/reference/gather.h"
#include "kernels/reference/reference.h"
#include "planners/plan_host.h"
#include "tests/device_memory.h"

namespace cgr_test {

using Bytes = std::vector<unsigned char>;

inline int64_t ElementSize(cgr_dtype dtype) { return dtype == CGR_DTYPE_FP32 ? 4 : 2; }

// What CUDA has: bf16 with head dims 64 and 128. The host has all.
inline bool Supports(const Bench &bench, cgr_dtype dtype, int32_t head_dim) {
  return !bench.is_cuda() || (dtype == CGR_DTYPE_BF16 && (head_dim == 64 || head_dim == 128));
}

enum class Layout { kTokens, kHeads, kInterleaved };  // NHD, HND, and K beside V in one tensor
enum class Poison { kZero, kNan, kInf, kNoise };

struct AttentionShape {
  cgr_dtype dtype = CGR_DTYPE_FP32;
  int32_t num_q_heads = 4, num_kv_heads = 2, head_dim = 64, page_size = 16;
  Layout layout = Layout::kTokens;
  int32_t num_parts = 7;
  int32_t tile_q = 0;           // 0: the largest for the group
  int64_t num_pages = 0;        // 0: some more than needed
  int64_t page_bytes = 0;       // distance of pages in memory; 0: dense
  bool pages_at_end = false;    // pages from the end of the pool
  int32_t view_padding = 0;     // elements between tokens of q and out
};

struct AttentionBatch {
  std::vector<int32_t> query_lens, seq_lens;  // seq_len 0 with a query: a request that a guard has refused
  int32_t padded_tokens = 0, padded_requests = 0;  // in addition
};

inline int32_t Sum(const std::vector<int32_t> &values) { return std::accumulate(values.begin(), values.end(), 0); }

// The logical inputs and where they lie; nothing of a device.
class AttentionCase {
 public:
  AttentionCase(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed)
      : shape_(shape), batch_(batch), random_(seed) {
    num_tokens_ = Sum(batch.query_lens);
    if (shape_.tile_q == 0) shape_.tile_q = cgr__attention_tile_q(group());
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
  const std::vector<double> &k(int32_t i) const { return k_[static_cast<size_t>(i)]; }
  const std::vector<double> &v(int32_t i) const { return v_[static_cast<size_t>(i)]; }
  std::vector<double> &v(int32_t i) { return v_[static_cast<size_t>(i)]; }
  std::mt19937_64 &random() { return random_; }

  // Elements of one page of K (or V), and the strides of the views.
  int64_t PageElements() const { return int64_t{1} * shape_.page_size * shape_.num_kv_heads * shape_.head_dim; }
  cgr_kv_view View(void *base) const {
    cgr_kv_view view = {base, shape_.dtype, 0, PageElements(), 0, 0};
    bool heads_first = shape_.layout == Layout::kHeads;
    view.stride_token = heads_first ? shape_.head_dim : int64_t{1} * shape_.num_kv_heads * shape_.head_dim;
    view.stride_head = heads_first ? int64_t{1} * shape_.page_size * shape_.head_dim : shape_.head_dim;
    if (shape_.layout == Layout::kInterleaved) view.stride_page *= 2;
    if (shape_.page_bytes != 0) view.stride_page = shape_.page_bytes / ElementSize(shape_.dtype);
    return view;
  }

  // The images of the pages that requests own: what they hold, and `poison` in every lane that nobody owns.
  void FillPages(Poison poison, std::vector<std::pair<int32_t, Bytes>> *k, std::vector<std::pair<int32_t, Bytes>> *v) {
    for (int32_t i = 0; i < num_requests(); i++) {
      FillRequest(i, poison, k_[static_cast<size_t>(i)], k);
      FillRequest(i, poison, v_[static_cast<size_t>(i)], v);
    }
  }
  Bytes PoisonedPage(Poison poison) {
    Bytes page(static_cast<size_t>(PageElements() * ElementSize(shape_.dtype)));
    for (int64_t e = 0; e < PageElements(); e++) StorePoison(poison, &page[static_cast<size_t>(e * ElementSize(shape_.dtype))]);
    return page;
  }
  void StorePoison(Poison poison, void *element) {
    double noise = (static_cast<double>(random_() % 2000) - 1000.0) * 10.0;
    double sign = random_() % 2 ? 1.0 : -1.0;
    const double values[] = {0.0, NAN, sign * INFINITY, noise};  // in the order of Poison
    cgr__reference_store(shape_.dtype, element, values[static_cast<int>(poison)]);
  }

  // Out and lse of request i in fp64, and the largest error of the same-precision reference.
  void Expect(int32_t i, std::vector<double> *out, std::vector<double> *lse, double *out_error, double *lse_error) const {
    size_t n = static_cast<size_t>(i);
    cgr__reference_shape s = {batch_.query_lens[n], batch_.seq_lens[n], shape_.num_q_heads, shape_.num_kv_heads,
                              shape_.head_dim, 1, Scale()};
    std::vector<double> near(q_[n].size()), near_lse(q_[n].size() / static_cast<size_t>(shape_.head_dim));
    out->assign(near.size(), 0.0);
    lse->assign(near_lse.size(), 0.0);
    cgr__reference_attention(&s, q_[n].data(), k_[n].data(), v_[n].data(), out->data(), lse->data());
    cgr__reference_attention_in(shape_.dtype, &s, q_[n].data(), k_[n].data(), v_[n].data(), near.data(), near_lse.data());
    *out_error = *lse_error = 0.0;
    for (size_t e = 0; e < near.size(); e++) *out_error = std::max(*out_error, std::fabs(near[e] - (*out)[e]));
    for (size_t e = 0; e < near_lse.size(); e++) *lse_error = std::max(*lse_error, std::fabs(near_lse[e] - (*lse)[e]));
  }
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)); }

  std::vector<int32_t> owned_pages;  // the pages of all requests

 private:
  void MakePages() {
    int64_t needed = 0, longest = 1;
    for (int32_t length : batch_.seq_lens) {
      int64_t pages = (length + shape_.page_size - 1) / shape_.page_size;
      needed += pages;
      longest = std::max(longest, pages);
    }
    num_pages_ = shape_.num_pages != 0 ? shape_.num_pages : needed + 5;
    std::vector<int32_t> free;
    for (int64_t p = shape_.pages_at_end ? num_pages_ - needed : 2; static_cast<int64_t>(free.size()) < needed; p++)
      free.push_back(static_cast<int32_t>(p));
    std::shuffle(free.begin(), free.end(), random_);
    owned_pages = free;
    table_stride_ = longest + 2;
    for (int32_t r = 0; r < num_rows(); r++) rows_.push_back(r);
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
    for (double &value : values) value = cgr__reference_round(shape_.dtype, normal(random_));
    return values;
  }
  void MakeValues() {
    for (size_t i = 0; i < batch_.query_lens.size(); i++) {
      q_.push_back(Values(int64_t{1} * batch_.query_lens[i] * shape_.num_q_heads * shape_.head_dim));
      k_.push_back(Values(int64_t{1} * batch_.seq_lens[i] * shape_.num_kv_heads * shape_.head_dim));
      v_.push_back(Values(int64_t{1} * batch_.seq_lens[i] * shape_.num_kv_heads * shape_.head_dim));
    }
  }
  void FillRequest(int32_t i, Poison poison, const std::vector<double> &values, std::vector<std::pair<int32_t, Bytes>> *pages) {
    int32_t length = batch_.seq_lens[static_cast<size_t>(i)];
    for (int32_t begin = 0; begin < length; begin += shape_.page_size) {
      Bytes image = PoisonedPage(poison);
      cgr_kv_view view = View(image.data());
      for (int32_t t = begin; t < std::min(begin + shape_.page_size, length); t++)
        for (int32_t h = 0; h < shape_.num_kv_heads; h++)
          for (int32_t d = 0; d < shape_.head_dim; d++) {
            unsigned char *to = static_cast<unsigned char *>(cgr__reference_kv_element(&view, 0, t - begin, h));
            size_t from = static_cast<size_t>((int64_t{1} * t * shape_.num_kv_heads + h) * shape_.head_dim + d);
            cgr__reference_store(shape_.dtype, to + d * ElementSize(shape_.dtype), values[from]);
          }
      pages->push_back({table_[static_cast<size_t>(row(i) * table_stride_ + begin / shape_.page_size)], image});
    }
  }

  AttentionShape shape_;
  AttentionBatch batch_;
  std::mt19937_64 random_;
  int32_t num_tokens_ = 0;
  int64_t num_pages_ = 0, table_stride_ = 0;
  std::vector<int32_t> rows_, table_;
  std::vector<std::vector<double>> q_, k_, v_;
};

// The memory of the caches. Pages that are not put hold what they held; `memory` may be the caller's.
class Pool {
 public:
  Pool(Bench &bench, AttentionCase &made, void *memory = nullptr) : bench_(bench) {
    cgr_kv_view view = made.View(nullptr);
    int64_t size = ElementSize(made.shape().dtype), pool = view.stride_page * made.num_pages() * size;
    bool shared = made.shape().layout == Layout::kInterleaved;
    owns_ = memory == nullptr;
    base_ = owns_ ? bench.Alloc(static_cast<size_t>(shared ? pool : 2 * pool), CGR__MEMORY_DEVICE) : memory;
    k = made.View(base_);
    v = made.View(static_cast<unsigned char *>(base_) + (shared ? made.PageElements() * size : pool));
  }
  ~Pool() {
    if (owns_) bench_.Free(base_, CGR__MEMORY_DEVICE);
  }
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  void Put(const cgr_kv_view &view, int64_t page, const Bytes &image) {
    bench_.Copy(cgr__reference_kv_element(&view, page, 0, 0), image.data(), image.size());
  }
  Bytes Get(const cgr_kv_view &view, int64_t page, size_t bytes) {
    Bytes image(bytes);
    bench_.Copy(image.data(), cgr__reference_kv_element(&view, page, 0, 0), bytes);
    return image;
  }
  // Every page poisoned but the read-trash one, which is finite; then those that requests own. With `sparse` the unowned
  // ones are left alone.
  void Fill(AttentionCase &made, Poison poison, bool sparse = false) {
    for (int64_t p = 0; p < made.num_pages() && !sparse; p++) {
      Put(k, p, made.PoisonedPage(p == 0 ? Poison::kZero : poison));
      Put(v, p, made.PoisonedPage(p == 0 ? Poison::kZero : poison));
    }
    std::vector<std::pair<int32_t, Bytes>> k_pages, v_pages;
    made.FillPages(poison, &k_pages, &v_pages);
    for (const auto &page : k_pages) Put(k, page.first, page.second);
    for (const auto &page : v_pages) Put(v, page.first, page.second);
  }

  cgr_kv_view k, v;

 private:
  Bench &bench_;
  void *base_;
  bool owns_;
};

struct AttentionOutput {
  Bytes out;               // [tokens][heads][head_dim] elements, without what is between tokens
  std::vector<float> lse;  // [tokens][heads]
  cgr__step_error error;
};

// Everything that a launch of attention reads and writes but the caches.
class AttentionRun {
 public:
  AttentionRun(Bench &bench, AttentionCase &made, Pool &pool)
      : bench_(bench), made_(made), pool_(pool), tokens_(made.num_tokens() + made.batch().padded_tokens),
        head_blocks_(cgr__attention_head_blocks(made.shape().num_q_heads, made.shape().num_kv_heads)),
        stride_(int64_t{1} * made.shape().num_q_heads * made.shape().head_dim + made.shape().view_padding),
        starts_(Starts(made)), lens_(Padded(made.batch().seq_lens, 0)), rows_host_(Rows(made)),
        q_(bench, Queries()), out_(bench, static_cast<size_t>(tokens_ * stride_ * ElementSize(made.shape().dtype))),
        lse_(bench, static_cast<size_t>(tokens_) * static_cast<size_t>(made.shape().num_q_heads + 3)),
        table_(bench, made.table()), query_start_(bench, starts_), seq_lens_(bench, lens_), rows_(bench, rows_host_),
        counts_(bench, std::vector<int32_t>{made.num_requests(), made.num_tokens(), 0, 0}), plan_(bench, Plan()),
        counters_(bench, std::vector<int32_t>(static_cast<size_t>(made.shape().num_parts * head_blocks_), 0)),
        partial_out_(bench, PartialRows() * static_cast<size_t>(made.shape().head_dim)),
        partial_max_sum_(bench, PartialRows() * 2),
        error_(bench, std::vector<cgr__step_error>{{0, -1, 0, 0, 0}}) {}

  cgr__attention_args Args() {
    const AttentionShape &s = made_.shape();
    cgr__attention_args args;
    std::memset(&args, 0, sizeof args);
    args.q = {q_.data(), s.dtype, 0, stride_, s.head_dim};
    args.out = {out_.data(), s.dtype, 0, stride_, s.head_dim};
    args.k_cache = pool_.k;
    args.v_cache = pool_.v;
    args.lse = lse_.data();
    args.lse_stride = s.num_q_heads + 3;
    args.page_table = table_.data();
    args.page_table_stride = made_.table_stride();
    args.num_pages = made_.num_pages();
    args.page_size = s.page_size;
    args.read_trash_page = 0;
    args.num_tokens = tokens_;
    args.padded_requests = made_.num_requests() + made_.batch().padded_requests;
    args.num_q_heads = s.num_q_heads;
    args.num_kv_heads = s.num_kv_heads;
    args.head_dim = s.head_dim;
    args.scale = made_.Scale();
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
    if (!with_lse) args.lse = nullptr;
    bench_.Run(cgr__kernel_attention, &args);
    for (int32_t counter : counters_.Get()) EXPECT_EQ(counter, 0) << "an arrival counter was left behind";
    AttentionOutput output;
    TakeOut(&output);
    TakeLse(&output);
    output.error = error_.Get()[0];
    return output;
  }

 private:
  int64_t TokenBytes() const {
    return int64_t{1} * made_.shape().num_q_heads * made_.shape().head_dim * ElementSize(made_.shape().dtype);
  }
  void TakeOut(AttentionOutput *output) {
    Bytes all = out_.Get();
    int64_t stride = stride_ * ElementSize(made_.shape().dtype);
    for (int64_t t = 0; t < tokens_; t++) {
      auto at = all.begin() + t * stride;
      output->out.insert(output->out.end(), at, at + TokenBytes());
      for (int64_t b = TokenBytes(); b < stride; b++) ASSERT_EQ(at[b], 0xA5) << "wrote between tokens";
    }
  }
  void TakeLse(AttentionOutput *output) {
    std::vector<float> all = lse_.Get();
    int64_t heads = made_.shape().num_q_heads;
    for (int64_t t = 0; t < tokens_; t++)
      output->lse.insert(output->lse.end(), all.begin() + t * (heads + 3), all.begin() + t * (heads + 3) + heads);
  }
  size_t PartialRows() const {
    return static_cast<size_t>(2 * made_.shape().num_parts * head_blocks_ * CGR__TILE_ROWS);
  }
  // Padded tokens hold NaN.
  Bytes Queries() {
    int64_t size = ElementSize(made_.shape().dtype);
    Bytes bytes(static_cast<size_t>(tokens_ * stride_ * size));
    for (int64_t e = 0; e < tokens_ * stride_; e++)
      made_.StorePoison(Poison::kNan, &bytes[static_cast<size_t>(e * size)]);
    int64_t token = 0;
    for (int32_t i = 0; i < made_.num_requests(); i++) {
      const std::vector<double> &q = made_.q(i);
      int64_t width = int64_t{1} * made_.shape().num_q_heads * made_.shape().head_dim;
      for (int64_t e = 0; e < static_cast<int64_t>(q.size()); e++) {
        int64_t at = (token + e / width) * stride_ + e % width;
        cgr__reference_store(made_.shape().dtype, &bytes[static_cast<size_t>(at * size)], q[static_cast<size_t>(e)]);
      }
      token += made_.batch().query_lens[static_cast<size_t>(i)];
    }
    return bytes;
  }
  std::vector<int32_t> Starts(const AttentionCase &made) const {
    std::vector<int32_t> starts(1, 0);
    for (int32_t length : made.batch().query_lens) starts.push_back(starts.back() + length);
    return Padded(starts, starts.back());
  }
  std::vector<int32_t> Padded(std::vector<int32_t> values, int32_t value) const {
    values.insert(values.end(), static_cast<size_t>(made_.batch().padded_requests), value);
    return values;
  }
  std::vector<int32_t> Rows(const AttentionCase &made) const {
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < made.num_requests(); i++) rows.push_back(made.row(i));
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
  int64_t stride_;
  std::vector<int32_t> starts_, lens_, rows_host_;
  Array<unsigned char> q_, out_;
  Array<float> lse_;
  Array<int32_t> table_, query_start_, seq_lens_, rows_, counts_;
  Array<int64_t> plan_;
  Array<int32_t> counters_;
  Array<float> partial_out_, partial_max_sum_;
  Array<cgr__step_error> error_;
};

// Real tokens within the error that is allowed; padded tokens and those of refused requests exactly 0 and -inf.
inline void ExpectAttention(AttentionCase &made, const AttentionOutput &output) {
  const AttentionShape &s = made.shape();
  size_t size = static_cast<size_t>(ElementSize(s.dtype)), heads = static_cast<size_t>(s.num_q_heads);
  size_t width = heads * static_cast<size_t>(s.head_dim), token = 0, tokens = output.lse.size() / heads;
  auto element = [&](size_t e) { return cgr__reference_load(s.dtype, &output.out[e * size]); };
  auto expect_empty = [&](size_t begin, size_t end) {
    for (size_t b = begin * width * size; b < end * width * size; b++)
      ASSERT_EQ(output.out[b], 0) << "token " << b / width / size;
    for (size_t e = begin * heads; e < end * heads; e++) ASSERT_EQ(output.lse[e], -INFINITY) << "token " << e / heads;
  };
  for (int32_t i = 0; i < made.num_requests(); i++) {
    SCOPED_TRACE("request " + std::to_string(i));
    size_t query_len = static_cast<size_t>(made.batch().query_lens[static_cast<size_t>(i)]);
    if (made.batch().seq_lens[static_cast<size_t>(i)] == 0) {
      expect_empty(token, token + query_len);
    } else {
      std::vector<double> out, lse;
      double out_error, lse_error, worst = 0.0, worst_lse = 0.0;
      made.Expect(i, &out, &lse, &out_error, &lse_error);
      for (size_t e = 0; e < out.size(); e++) {
        double error = std::fabs(element(token * width + e) - out[e]);
        worst = error <= worst ? worst : error;  // NaN becomes the worst
      }
      for (size_t e = 0; e < lse.size(); e++) {
        double error = std::fabs(output.lse[token * heads + e] - lse[e]);
        worst_lse = error <= worst_lse ? worst_lse : error;
      }
      ASSERT_LE(worst, 2 * out_error + 1e-5);
      ASSERT_LE(worst_lse, 2 * lse_error + 1e-5);
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

}  // namespace cgr_test

#endif  // CGR_TESTS_ATTENTION_CASE_H
