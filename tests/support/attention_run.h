// Runs attention of any kind on a device and compares with the oracle.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "kernels/append.h"
#include "planners/attention/plan_host.h"
#include "tests/support/attention_case.h"

namespace cgr_test {

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
        out_scale_(bench, std::vector<float>{ made.shape().out_scale }), table_(bench, made.table()),
        query_start_(bench, starts_), seq_lens_(bench, lens_), rows_(bench, Rows()), counts_(bench, Counts()),
        plan_(bench, Plan()), counters_(bench, std::vector<int32_t>(size_t(plans_.num_counters), 0)),
        partial_out_(bench, size_t(plans_.partial_vectors * plans_.partial_dim)),
        partial_state_(bench, size_t(plans_.partial_vectors * 2)),
        error_(bench, std::vector<cgr__step_error>{ { 0, -1, 0, 0, 0 } }) {}

  // From now on the kernel gets this as the most new tokens of a request: that many or more, or 0. At first it is exact.
  void TellQueryLen(int32_t query_len) { query_len_ = query_len; }

  // From now on out is q. A run begins with the queries in it.
  void PutOutOverQueries() { in_place_ = true; }

  // From now on an append by `kernel` brings the queries to their place on the stream, before anything else of a run; until then
  // the place holds poison.
  void BringQueriesBy(const cgr__kernel &kernel);

  void PutError(const cgr__step_error &error) { error_.Put({ error }); }

  // From now on request i is alone: the others look as if a guard had emptied them.
  void Keep(int32_t i);

  // Runs once, with everything that the kernel must write poisoned before; right behind `append`, which `kernel` executes, if
  // there is one.
  AttentionOutput Run(bool with_lse = true, const cgr__append_args *append = nullptr,
                      const cgr__kernel &kernel = cgr__kernel_append);

  // Whether the part that ends the first tile that is cut goes on with a part of another.
  bool LastPartGoesOn() const;

  // The most partials that are merged into one tile of the plan.
  int32_t MostPartials() const;

private:
  TensorShape Tensor(const ViewPadding &padding, int32_t heads, int32_t width) const;
  TensorShape Q() const { return Tensor(made_.shape().q_padding, made_.shape().num_q_heads, made_.shape().head_dim); }
  TensorShape Out() const {
    TensorShape out = Tensor(made_.shape().out_padding, made_.shape().num_q_heads, made_.shape().head_dim_v());
    out.dtype = made_.shape().out();
    return out;
  }
  TensorShape StepTensor(Cache which) const;
  TensorShape Lse() const;
  const cgr__plan_class &Class() const { return plans_.classes[0]; }
  const cgr__plan_header &header() const { return *reinterpret_cast<const cgr__plan_header *>(host_plan_.data()); }
  const cgr__plan_part *parts() const { return reinterpret_cast<const cgr__plan_part *>(&header() + 1); }
  // The plan class of a layer of this shape, with the traits of the device's kernel kind.
  cgr__plans Plans();

  cgr__attention_args Args();
  // The elements of every request's tokens; padded tokens and what is between heads are poison.
  Bytes Activations(const TensorShape &tensor, const std::vector<Values> &values, Poison poison);
  // Copies queries_ to their place, as an append to a cache of one page.
  cgr__append_args BringQueries();
  Bytes Queries() { return Activations(Q(), made_.q, Poison::kNan); }
  Bytes StepKeys(Cache which);
  int32_t LongestQuery() const;
  std::vector<int32_t> Starts() const;
  std::vector<int32_t> Padded(std::vector<int32_t> values, int32_t value) const;
  // The row of a refused request may be any number.
  std::vector<int32_t> Rows() const;
  std::vector<int32_t> Counts() const;
  std::vector<int64_t> Plan();

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
  Array<float> slopes_, sinks_, out_scale_;
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
void ExpectAttention(AttentionCase &made, const PagedCache &cache, const AttentionOutput &output, double lse_slack = 0.0);

// Tokens [first, first + count) are equal in both.
bool SameTokens(const AttentionOutput &a, const AttentionOutput &b, int32_t first, int32_t count, const AttentionShape &shape);

// The first `tokens` tokens are equal in both.
bool SameBits(const AttentionOutput &a, const AttentionOutput &b, int32_t tokens, const AttentionShape &shape);

// Runs shapes and batches on a device and compares them with the oracle.
class AttentionTest : public KernelTest {
protected:
  void SetUp() override;
  // The dtype and head dim that every device has, for tests of structure.
  cgr_dtype Dtype() const { return bench_->has_cuda_kernels() ? CGR_DTYPE_BF16 : CGR_DTYPE_FP32; }
  AttentionShape Shape() const;

  void Check(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed, Poison poison = Poison::kNan);

  // The bits are the same whatever is where no query looks.
  void CheckPoison(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed);
  // They are the same with so many padded tokens and requests.
  void CheckPadding(const AttentionShape &shape, AttentionBatch batch, const std::vector<int32_t> &paddings, uint64_t seed);
  // Batch-invariant: a request alone, on another number of parts, gives the same bits as among others.
  void CheckAlone(AttentionShape shape, const AttentionBatch &batch, int32_t parts_alone, uint64_t seed);

  cgr_device_info info_ = CGR_DEVICE_INFO_INIT;
  int cases_ = 0;
};

} // namespace cgr_test
