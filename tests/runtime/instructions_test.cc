// How many instructions the host executes to prepare and launch a step, each bounded: what a feature adds to every step shows
// here. The device does nothing, so they are the library's own, without the kernels and the driver. They are the same in every
// run of one build.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

extern "C" {
#include "runtime/runtime.h"
}

#include "tests/support/expect.h"
#include "tests/support/record_buffers.h"
#include "tests/support/single_step.h"

// Of the coverage counters and of the undefined behaviour sanitizer, which have no macro: NULL without them.
extern "C" {
__attribute__((weak)) void __gcov_init(void *);
__attribute__((weak)) void __ubsan_handle_type_mismatch_v1(void *, void *);
}

namespace cgr_test {
namespace {

enum { kMaxRows = 1024, kPagesPerRow = 6, kPages = 2 + kMaxRows * kPagesPerRow, kDim = 16, kWarmup = 16, kCounted = 8 };

// Most instructions of one of the counted steps: 8% above what gcc 12 makes with Bazel's options, for other versions and options.
// Those of the C library, which compares the rows, depend on the processor as well, hence twice of what was counted.
struct Bounds {
  const char *name;
  bool standing, appends;
  int32_t requests;
  int64_t prepare, launch, c_library;
};
const Bounds kBounds[] = {
  { "whole_8", false, false, 8, 514, 452, 32 },
  { "whole_1024", false, false, 1024, 514, 452, 1200 },
  { "whole_8_page_appended", false, true, 8, 618, 452, 32 },
  { "whole_1024_page_appended", false, true, 1024, 618, 452, 1200 },
  { "standing_8", true, false, 8, 614, 482, 16 },
  { "standing_1024", true, false, 1024, 614, 482, 16 },
  { "standing_8_page_appended", true, true, 8, 718, 482, 16 },
  { "standing_1024_page_appended", true, true, 1024, 718, 482, 16 },
};

void PrintTo(const Bounds &bounds, std::ostream *os) { *os << bounds.name; }

cgr_status Record(cgr_recorder *recorder, void *memory) {
  cgr_attention a = CGR_ATTENTION_INIT;
  cgr_view *const views[] = { &a.q, &a.k, &a.v, &a.out };
  for (cgr_view *view : views) {
    cgr_status status = cgr_view_make(memory, CGR_DTYPE_FP32, 1, kDim, view);
    if (status != CGR_OK)
      return status;
  }
  return cgr_record_attention(recorder, &a);
}

// In place of the device's two calls of a replay: every step is complete at once.
uint64_t *completed;
int NotCapturing(cgr_device *, cudaStream_t, int *capturing) { return *capturing = 0; }
int LaunchNothing(cgr_device *, cgr__exec *, cudaStream_t) {
  __atomic_store_n(completed, *completed + 1, __ATOMIC_RELEASE);
  return 0;
}

class InstructionsOfAStep : public ::testing::TestWithParam<Bounds> {
protected:
  void SetUp() override {
    if (!CanInterrupt())
      GTEST_SKIP() << "instructions are counted on x86-64, without sanitizers";
    if (__gcov_init != nullptr || __ubsan_handle_type_mismatch_v1 != nullptr)
      GTEST_SKIP() << "coverage counters or a sanitizer have instructions of their own";
#ifndef NDEBUG
    GTEST_SKIP() << "the bounds are of an optimised build";
#endif
#ifdef __clang__
    GTEST_SKIP() << "the bounds are of gcc";
#endif
    CGR_ASSERT_OK(cgr_device_open("host", nullptr, &dev_));
    CGR_ASSERT_OK(cgr_stream_create(dev_, &stream_));
    for (void *&m : memory_)
      CGR_ASSERT_OK(cgr_memory_alloc(dev_, size_t(kPages) * 16 * kDim * 4, &m));
    ASSERT_NO_FATAL_FAILURE(MakeRuntime());
    for (int32_t i = 0; i < GetParam().requests; i++) {
      rows_.push_back(-1);
      CGR_ASSERT_OK(cgr_request_open(rt_, uint64_t(i), &rows_.back()));
      for (int32_t p = 0; p < 3; p++)
        Append(i, p);
      const int32_t token = 7;
      if (GetParam().standing)
        CGR_ASSERT_OK(cgr_standing_add(rt_, nullptr, rows_.back(), 1, &token, 0));
    }
    CGR_ASSERT_OK(cgr_runtime_flush(rt_, nullptr, nullptr, stream_));
    CGR_ASSERT_OK(cgr_stream_synchronize(dev_, stream_));
    completed = &rt_->lane.ring.completion->completed_seq;
    ops_ = dev_->ops, idle_ = *ops_;
    idle_.capture_status = NotCapturing, idle_.exec_launch = LaunchNothing;
    dev_->ops = &idle_;
  }
  void MakeRuntime() {
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = kPages;
    cgr_layer layer = CGR_LAYER_INIT;
    layer.num_q_heads = layer.num_kv_heads = 1, layer.head_dim = kDim;
    CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, memory_[0], CGR_DTYPE_FP32, 16, 1, kDim, &layer.k));
    CGR_ASSERT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, memory_[1], CGR_DTYPE_FP32, 16, 1, kDim, &layer.v));
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev_, config.groups = &group, config.num_groups = 1, config.layers = &layer, config.num_layers = 1;
    config.max_requests = config.max_tokens = kMaxRows, config.max_seq_len = 16 * kPagesPerRow;
    config.graph_mode = CGR_MODE_FULL_DECODE_ONLY;
    config.decode_buckets = &GetParam().requests, config.num_decode_buckets = 1;
    CGR_ASSERT_OK(cgr_runtime_create(&config, &rt_));
    cgr_capture capture = CaptureOf(Record, memory_[2]);
    CGR_ASSERT_OK(cgr_runtime_capture(rt_, &capture));
  }
  void TearDown() override {
    if (!dev_)
      return;
    if (ops_)
      dev_->ops = ops_;
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    CGR_EXPECT_OK(cgr_stream_destroy(dev_, stream_));
    for (void *m : memory_)
      CGR_EXPECT_OK(cgr_memory_free(dev_, m));
    CGR_EXPECT_OK(cgr_device_close(dev_));
  }
  void Append(int32_t request, int32_t at) {
    const int32_t page = 2 + request * kPagesPerRow + at;
    CGR_ASSERT_OK(cgr_request_set_pages(rt_, rows_[size_t(request)], 0, at, &page, 1));
  }

  cgr_device *dev_ = nullptr;
  const cgr__device_ops *ops_ = nullptr;
  cgr__device_ops idle_ = {};
  cudaStream_t stream_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  void *memory_[3] = {}; // K, V, activations
  std::vector<int32_t> rows_;
};

// What the two calls of a step take, as a counted function gets it.
struct Call {
  cgr_runtime *rt;
  const cgr_batch *batch;
  cgr_step step;
  cudaStream_t stream;
  cgr_status status;
};
void Prepare(void *context) {
  Call *c = static_cast<Call *>(context);
  c->status = cgr_step_prepare(c->rt, c->batch, &c->step);
}
void Launch(void *context) {
  Call *c = static_cast<Call *>(context);
  c->status = cgr_step_launch(c->rt, &c->step, c->stream);
}

// Makes the call; `counts`: and counts it.
void MakeCall(Call *call, void (*function)(void *), bool counts, Instructions *most) {
  if (!counts) {
    function(call);
  } else {
    const Instructions counted = CountInstructions(function, call);
    *most = { std::max(most->own, counted.own), std::max(most->of_c_library, counted.of_c_library) };
  }
  CGR_ASSERT_OK(call->status);
}

TEST_P(InstructionsOfAStep, AreBounded) {
  const Bounds &bounds = GetParam();
  const std::vector<int32_t> first(rows_.size(), 7);
  cgr_batch batch = bounds.standing ? BatchOf(CGR_BATCH_STANDING) : BatchOf(bounds.requests, rows_.data(), first.data());
  Instructions prepare = {}, launch = {};
  for (int32_t i = 0; i < kWarmup + kCounted; i++) {
    Call call = { rt_, &batch, CGR_STEP_INIT, stream_, CGR_OK };
    if (bounds.appends)
      Append(i % 8, 3 + i / 8);
    ASSERT_NO_FATAL_FAILURE(MakeCall(&call, Prepare, i >= kWarmup, &prepare));
    ASSERT_NO_FATAL_FAILURE(MakeCall(&call, Launch, i >= kWarmup, &launch));
    ASSERT_EQ(call.step.key.kind, CGR_KIND_FULL);
    ASSERT_EQ(call.step.num_requests, bounds.requests);
    batch.tokens = nullptr;
  }
  printf("instructions: prepare %lld, launch %lld; of the C library %lld, %lld\n", (long long)prepare.own, (long long)launch.own,
         (long long)prepare.of_c_library, (long long)launch.of_c_library);
  EXPECT_LE(prepare.own, bounds.prepare);
  EXPECT_GT(prepare.own, bounds.prepare / 2) << "is the bound too high now?";
  EXPECT_LE(launch.own, bounds.launch);
  EXPECT_GT(launch.own, bounds.launch / 2) << "is the bound too high now?";
  EXPECT_LE(prepare.of_c_library + launch.of_c_library, bounds.c_library);
}

TEST(CountedInstructions, AreExact) {
  if (!CanInterrupt())
    GTEST_SKIP() << "instructions are counted on x86-64, without sanitizers";
  const Instructions few = CountInstructions([](void *) { __asm__ volatile("nop"); }, nullptr);
  const Instructions more = CountInstructions([](void *) { __asm__ volatile(".rept 101\n\tnop\n\t.endr"); }, nullptr);
  EXPECT_EQ(more.own - few.own, 100);
  EXPECT_EQ(more.of_c_library, 0);
  static char a[4096], b[4096];
  static int same = memcmp(a, b, sizeof a); // the first call may be bound late
  const Instructions compared = CountInstructions([](void *) { same = memcmp(a, b, sizeof a); }, nullptr);
  EXPECT_EQ(same, 0);
  EXPECT_GT(compared.of_c_library, 50);
  EXPECT_LT(compared.own, 30);
}

INSTANTIATE_TEST_SUITE_P(Batches, InstructionsOfAStep, ::testing::ValuesIn(kBounds),
                         [](const auto &of) { return std::string(of.param.name); });

} // namespace
} // namespace cgr_test
