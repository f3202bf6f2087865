#include "tests/support/attention_run.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

namespace cgr_test {

void AttentionRun::BringQueriesBy(const cgr__kernel &kernel) {
  bring_by_ = &kernel;
  queries_ = std::make_unique<Array<unsigned char>>(bench_, Queries());
  std::vector<int64_t> places(size_t(std::max(1, tokens_)));
  std::iota(places.begin(), places.end(), 0);
  places_ = std::make_unique<Array<int64_t>>(bench_, places);
}

void AttentionRun::Keep(int32_t i) {
  for (int32_t other = 0; other < made_.num_requests(); other++)
    lens_[size_t(other)] = other == i ? made_.batch().seq_lens[size_t(i)] : 0;
  seq_lens_.Put(lens_);
  plan_.Put(Plan());
}

AttentionOutput AttentionRun::Run(bool with_lse, const cgr__append_args *append, const cgr__kernel &kernel) {
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

bool AttentionRun::LastPartGoesOn() const {
  for (int32_t p = 0; p < Class().num_parts; p++)
    if (parts()[p].begin_count > 0 && !cgr__plan_same_tile(&parts()[p].begin, &parts()[p].end))
      return parts()[p].end.kv > 0;
  return false;
}

int32_t AttentionRun::MostPartials() const {
  const char *plan = reinterpret_cast<const char *>(host_plan_.data());
  auto *entries = reinterpret_cast<const cgr__plan_entry *>(plan + cgr__plan_entries_offset(&Class()));
  int32_t most = 0;
  for (int32_t p = 0; p < Class().num_parts; p++)
    most = std::max({ most, parts()[p].begin_count, parts()[p].end_count });
  for (int32_t e = 0; e < header().num_entries; e++)
    most = std::max(most, entries[e].count);
  return most;
}

TensorShape AttentionRun::Tensor(const ViewPadding &padding, int32_t heads, int32_t width) const {
  int64_t stride_head = width + padding.head;
  return { made_.shape().dtype, tokens_, heads, width, stride_head * heads + padding.token, stride_head };
}

TensorShape AttentionRun::StepTensor(Cache which) const {
  const AttentionShape &s = made_.shape();
  return Tensor(which == kCacheK ? s.k_padding : s.v_padding, s.num_kv_heads, which == kCacheK ? s.head_dim : s.head_dim_v());
}

TensorShape AttentionRun::Lse() const {
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

cgr__plans AttentionRun::Plans() {
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
  if (s.decode_query_len != 0) { // shorter decodes leave more for the prefill queue
    cgr__plan_class &c = plans.classes[0];
    c.decode_query_len = s.decode_query_len;
    c.max_entries = int32_t(cgr__plan_max_entries(&c, options.max_requests, options.max_tokens));
  }
  return plans;
}

cgr__attention_args AttentionRun::Args() {
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
  args.out_scale = s.out_scale != 0.0f ? out_scale_.data() : nullptr;
  return args;
}

Bytes AttentionRun::Activations(const TensorShape &tensor, const std::vector<Values> &values, Poison poison) {
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

cgr__append_args AttentionRun::BringQueries() {
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

Bytes AttentionRun::StepKeys(Cache which) {
  const bool in_step = made_.shape().kind.keys == Keys::kStep;
  return in_step ? Activations(StepTensor(which), made_.kv[which], made_.poison()) : Bytes();
}

int32_t AttentionRun::LongestQuery() const {
  const std::vector<int32_t> &lens = made_.batch().query_lens;
  return lens.empty() ? 0 : *std::max_element(lens.begin(), lens.end());
}

std::vector<int32_t> AttentionRun::Starts() const {
  std::vector<int32_t> starts(1, 0);
  for (int32_t length : made_.batch().query_lens)
    starts.push_back(starts.back() + length);
  return Padded(starts, starts.back());
}

std::vector<int32_t> AttentionRun::Padded(std::vector<int32_t> values, int32_t value) const {
  values.insert(values.end(), size_t(made_.batch().padded_requests), value);
  return values;
}

std::vector<int32_t> AttentionRun::Rows() const {
  std::vector<int32_t> rows;
  for (int32_t i = 0; i < made_.num_requests(); i++)
    rows.push_back(made_.batch().seq_lens[i] > 0 ? made_.row(i) : INT32_MIN + i);
  return Padded(rows, made_.max_rows());
}

std::vector<int32_t> AttentionRun::Counts() const {
  std::vector<int32_t> counts(16, 0);
  counts[CGR_COUNT_REQUESTS] = made_.num_requests();
  counts[CGR_COUNT_TOKENS] = made_.num_tokens();
  counts[CGR_COUNT_PADDED_REQUESTS] = made_.num_requests() + made_.batch().padded_requests;
  counts[CGR_COUNT_PADDED_TOKENS] = tokens_;
  return counts;
}

std::vector<int64_t> AttentionRun::Plan() {
  host_plan_.assign(size_t(cgr__plan_bytes(&Class()) / 8), 0x5a5a5a5a5a5a5a5a);
  std::vector<int64_t> scratch(cgr__plan_scratch_bytes(&Class()) / 8 + 1);
  cgr__plan_fill(&Class(), starts_.data(), lens_.data(), made_.num_requests(), scratch.data(), host_plan_.data());
  return host_plan_;
}

// The result, which may be off by the bound, divided and rounded.
static void ExpectCodes(const Values &codes, const AttentionAnswer &answer, double scale) {
  ASSERT_EQ(codes.size(), answer.out.size());
  for (size_t e = 0; e < codes.size(); e++) {
    const double least = cgr__reference_round(CGR_DTYPE_FP8_E4M3, (answer.out[e] - answer.out_bound) / scale);
    const double most = cgr__reference_round(CGR_DTYPE_FP8_E4M3, (answer.out[e] + answer.out_bound) / scale);
    ASSERT_TRUE(codes[e] >= least && codes[e] <= most) << e << ": " << codes[e] << " of " << answer.out[e] << " / " << scale;
  }
}

void ExpectAttention(AttentionCase &made, const PagedCache &cache, const AttentionOutput &output, double lse_slack) {
  const AttentionShape &s = made.shape();
  int64_t tokens = made.num_tokens() + made.batch().padded_tokens, heads = s.num_q_heads, first = 0;
  const int64_t width = s.head_dim_v();
  Values out = LoadElements(s.out(), output.out.data(), tokens * heads * width);
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
      if (s.out_scale != 0.0f) {
        ASSERT_NO_FATAL_FAILURE(ExpectCodes(request_out, answer, double(s.out_scale)));
        request_out = answer.out;
      }
      ASSERT_NO_FATAL_FAILURE(ExpectAnswer(request_out, request_lse, answer));
    }
    first += count;
  }
  SCOPED_TRACE("padding");
  ExpectNothing(part(out, first, tokens - first, heads * width), part(lse, first, tokens - first, heads));
}

bool SameTokens(const AttentionOutput &a, const AttentionOutput &b, int32_t first, int32_t count, const AttentionShape &shape) {
  size_t before = size_t(first) * size_t(shape.num_q_heads), heads = size_t(count) * size_t(shape.num_q_heads);
  size_t head = size_t(shape.head_dim_v() * ElementSize(shape.out()));
  return std::memcmp(&a.out[before * head], &b.out[before * head], heads * head) == 0 &&
         std::memcmp(&a.lse[before * sizeof(float)], &b.lse[before * sizeof(float)], heads * sizeof(float)) == 0;
}

bool SameBits(const AttentionOutput &a, const AttentionOutput &b, int32_t tokens, const AttentionShape &shape) {
  return tokens == 0 || SameTokens(a, b, 0, tokens, shape);
}

void AttentionTest::SetUp() {
  Open({ &cgr__kernel_attention });
  if (bench_)
    info_ = bench_->Info();
}

AttentionShape AttentionTest::Shape() const {
  AttentionShape shape;
  shape.dtype = Dtype();
  return shape;
}

void AttentionTest::Check(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed, Poison poison) {
  AttentionCase made(shape, batch, seed);
  SCOPED_TRACE("seed " + std::to_string(seed) + " " + made.shape().Text());
  FilledCache cache(*bench_, made, poison);
  AttentionRun run(*bench_, made, cache);
  AttentionOutput output = run.Run();
  ASSERT_EQ(output.error.error, CGR_GUARD_NONE);
  ExpectAttention(made, cache, output);
  cases_++;
}

void AttentionTest::CheckPoison(const AttentionShape &shape, const AttentionBatch &batch, uint64_t seed) {
  AttentionCase made(shape, batch, seed);
  PagedCache cache(*bench_, made.Cache_());
  std::vector<AttentionOutput> outputs;
  for (Poison poison : { Poison::kZero, Poison::kNan, Poison::kInf, Poison::kNoise }) {
    made.Fill(&cache, poison);
    outputs.push_back(AttentionRun(*bench_, made, cache).Run());
    ASSERT_EQ(outputs.back().error.error, CGR_GUARD_NONE);
    ASSERT_TRUE(SameBits(outputs[0], outputs.back(), made.num_tokens() + batch.padded_tokens, made.shape())) << int(poison);
  }
  ExpectAttention(made, cache, outputs[0]);
}

void AttentionTest::CheckPadding(const AttentionShape &shape, AttentionBatch batch, const std::vector<int32_t> &paddings,
                                 uint64_t seed) {
  std::vector<AttentionOutput> outputs;
  for (int32_t padding : paddings) {
    batch.padded_tokens = batch.padded_requests = padding;
    AttentionCase made(shape, batch, seed); // the same values and pages
    FilledCache cache(*bench_, made, Poison::kNan);
    outputs.push_back(AttentionRun(*bench_, made, cache).Run());
    ASSERT_TRUE(SameBits(outputs[0], outputs.back(), made.num_tokens(), made.shape())) << padding;
    ASSERT_NO_FATAL_FAILURE(ExpectAttention(made, cache, outputs.back())) << padding;
  }
}

void AttentionTest::CheckAlone(AttentionShape shape, const AttentionBatch &batch, int32_t parts_alone, uint64_t seed) {
  shape.batch_invariant = true;
  AttentionCase made(shape, batch, seed);
  shape.num_parts = parts_alone;
  AttentionCase alone(shape, batch, seed); // the same values and pages
  FilledCache cache(*bench_, made, Poison::kNan);
  AttentionOutput all = AttentionRun(*bench_, made, cache).Run();
  for (int32_t i = 0, token = 0; i < made.num_requests(); token += batch.query_lens[size_t(i++)]) {
    AttentionRun run(*bench_, alone, cache);
    run.Keep(i);
    ASSERT_TRUE(SameTokens(all, run.Run(), token, batch.query_lens[size_t(i)], made.shape()))
        << made.shape().Text() << ", request " << i << " of length " << batch.seq_lens[size_t(i)];
  }
}

} // namespace cgr_test
