// A sticky CUDA error, provoked by a kernel with a bad address: every later call returns its code, and everything can still be
// destroyed. It ends a process's use of CUDA, so each case runs in its own process: a threadsafe-style death test starts this
// program again, and nothing here touches CUDA before.
#include <cstdio>
#include <cstdlib>

#include "kernels/append.h"
#include "tests/support/engine_case.h"

namespace cgr_test {
namespace {

constexpr int kIllegalAddress = 700; // CUDA_ERROR_ILLEGAL_ADDRESS
constexpr int kNoGpu = 77;           // exit status

// Ends the child in the usual way, and reports failures on stderr, which the parent shows.
[[noreturn]] void Leave() {
  const ::testing::TestResult *result = ::testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result->total_part_count(); i++) {
    const ::testing::TestPartResult &part = result->GetTestPartResult(i);
    if (part.failed())
      std::fprintf(stderr, "%s:%d: %s\n", part.file_name(), part.line_number(), part.message());
  }
  std::exit(result->Failed() ? 1 : 0);
}

void RunOrLeave(void (*body)()) {
  if (cgr__cuda_device_count() == 0)
    std::_Exit(kNoGpu);
  body();
  Leave();
}

// Whether the child succeeded; keeps its status.
class Ended {
public:
  explicit Ended(int *status) : status_(status) {}
  bool operator()(int status) const {
    *status_ = ::testing::ExitedWithCode(kNoGpu)(status) ? kNoGpu : 0;
    return ::testing::ExitedWithCode(0)(status) || *status_ == kNoGpu;
  }

private:
  int *status_;
};

void RunInChild(void (*body)()) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  int status = 0;
  EXPECT_EXIT(RunOrLeave(body), Ended(&status), "");
  if (status != kNoGpu)
    return;
  if (GpuIsRequired())
    FAIL() << "CGR_REQUIRE_GPU=1 and no GPU can be opened";
  GTEST_SKIP() << "no GPU";
}

// --------------------------------------------------------------------------------------------------------------- the device

// One token of one head for no slot at all, in one block of memory.
struct Small {
  alignas(16) uint16_t cache[2][16 * 64], kv[64];
  int64_t slot_mapping[1];
};

cgr__append_args SmallArgs(Small *at) {
  cgr__append_args args = {};
  args.k_cache = args.v_cache = { at->cache, CGR_DTYPE_BF16, 0, 16 * 64, 64, 64, nullptr, 0, 0, 0, 0 };
  args.k = args.v = { at->kv, CGR_DTYPE_BF16, 0, 64, 64 };
  args.slot_mapping = at->slot_mapping, args.num_pages = 2, args.page_size = 16;
  args.num_tokens = args.num_kv_heads = 1, args.head_dim = args.head_dim_v = 64;
  return args;
}

#define EXPECT_DEAD(call)                               \
  do {                                                  \
    EXPECT_EQ((call), CGR__DEVICE_DEAD) << #call;       \
    EXPECT_EQ(dev->last_raw, kIllegalAddress) << #call; \
  } while (0)

// What was made on a device before it is lost.
struct Made {
  cudaStream_t stream = nullptr, other = nullptr;
  cgr__event *event = nullptr;
  cgr__graph *graph = nullptr;
  cgr__exec *exec = nullptr;
  void *memory = nullptr, *pinned = nullptr;
};

void MakeAll(cgr_device *dev, Made *made) {
  const cgr__device_ops *ops = dev->ops;
  cgr__graph_info info;
  ASSERT_EQ(ops->stream_create(dev, CGR__STREAM_NORMAL, &made->stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops->stream_create(dev, CGR__STREAM_NORMAL, &made->other), CGR__DEVICE_OK);
  ASSERT_EQ(ops->event_create(dev, &made->event), CGR__DEVICE_OK);
  ASSERT_EQ(ops->mem_alloc(dev, sizeof(Small), CGR__MEMORY_DEVICE, &made->memory), CGR__DEVICE_OK);
  ASSERT_EQ(ops->mem_alloc(dev, sizeof(Small), CGR__MEMORY_PINNED, &made->pinned), CGR__DEVICE_OK);
  ASSERT_EQ(ops->preload(dev, &cgr__kernel_append), CGR__DEVICE_OK);
  ASSERT_EQ(ops->fill(dev, made->memory, 0xff, 1, sizeof(Small), made->stream), CGR__DEVICE_OK);
  cgr__append_args args = SmallArgs(static_cast<Small *>(made->memory));
  ASSERT_EQ(ops->launch(dev, &cgr__kernel_append, &args, made->stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops->stream_sync(dev, made->stream), CGR__DEVICE_OK) << "the launch itself is in order";
  ASSERT_EQ(ops->capture_begin(dev, made->stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops->launch(dev, &cgr__kernel_append, &args, made->stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops->capture_end(dev, made->stream, &made->graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops->instantiate(dev, made->graph, &made->exec, &info), CGR__DEVICE_OK);
  args.slot_mapping = reinterpret_cast<int64_t *>(16);
  ASSERT_EQ(ops->launch(dev, &cgr__kernel_append, &args, made->stream), CGR__DEVICE_OK);
}

void ExpectEverythingDead(cgr_device *dev, const Made &made) {
  const cgr__device_ops *ops = dev->ops;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  cgr__append_args args = SmallArgs(static_cast<Small *>(made.memory));
  cudaStream_t late = nullptr;
  cgr__event *late_event = nullptr;
  void *more = nullptr;
  EXPECT_DEAD(ops->stream_sync(dev, made.stream));
  EXPECT_DEAD(ops->stream_sync(dev, made.other));
  EXPECT_DEAD(ops->stream_query(dev, made.other));
  EXPECT_DEAD(ops->launch(dev, &cgr__kernel_append, &args, made.other));
  EXPECT_DEAD(ops->copy(dev, made.memory, made.pinned, 16, made.other));
  EXPECT_DEAD(ops->fill(dev, made.memory, 0, 1, 16, made.other));
  EXPECT_DEAD(ops->event_record(dev, made.event, made.other));
  EXPECT_DEAD(ops->event_wait(dev, made.event, made.other));
  EXPECT_DEAD(ops->event_query(dev, made.event));
  EXPECT_DEAD(ops->event_sync(dev, made.event));
  EXPECT_DEAD(ops->event_create(dev, &late_event));
  EXPECT_DEAD(ops->stream_create(dev, CGR__STREAM_NORMAL, &late));
  EXPECT_DEAD(ops->mem_alloc(dev, 16, CGR__MEMORY_DEVICE, &more));
  EXPECT_DEAD(ops->mem_alloc(dev, 16, CGR__MEMORY_PINNED, &more));
  EXPECT_DEAD(ops->preload(dev, &cgr__kernel_append));
  EXPECT_DEAD(ops->capture_begin(dev, made.other));
  EXPECT_DEAD(ops->exec_launch(dev, made.exec, made.other));
  EXPECT_DEAD(ops->info(dev, &info));
  EXPECT_EQ(late, nullptr);
  EXPECT_EQ(late_event, nullptr);
  EXPECT_EQ(more, nullptr);
}

void LoseTheDevice() {
  const cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  cgr_device *dev = nullptr;
  Made made;
  ASSERT_EQ(cgr__cuda_device_open(0, &config, &dev), CGR__DEVICE_OK);
  ASSERT_NO_FATAL_FAILURE(MakeAll(dev, &made));
  EXPECT_DEAD(dev->ops->stream_sync(dev, made.stream));
  ExpectEverythingDead(dev, made);
  const cgr__device_ops *ops = dev->ops;
  EXPECT_EQ(ops->exec_destroy(dev, made.exec), CGR__DEVICE_OK);
  EXPECT_EQ(ops->graph_destroy(dev, made.graph), CGR__DEVICE_OK);
  EXPECT_EQ(ops->event_destroy(dev, made.event), CGR__DEVICE_OK);
  EXPECT_EQ(ops->stream_destroy(dev, made.stream), CGR__DEVICE_OK);
  EXPECT_EQ(ops->stream_destroy(dev, made.other), CGR__DEVICE_OK);
  EXPECT_EQ(ops->mem_free(dev, made.memory, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
  EXPECT_EQ(ops->mem_free(dev, made.pinned, CGR__MEMORY_PINNED), CGR__DEVICE_OK);
  EXPECT_EQ(ops->close(dev), CGR__DEVICE_OK);
}

// -------------------------------------------------------------------------------------------------------------- the runtime

#define CGR_EXPECT_DEAD(call)                                    \
  do {                                                           \
    CGR_EXPECT(CGR_ERROR_DEAD, call);                            \
    EXPECT_EQ(cgr_last_device_code(), kIllegalAddress) << #call; \
  } while (0)

// Every call of the runtime, after step `lost` has not come back.
void ExpectTheRuntimeDead(Engine &e, int32_t row, uint64_t lost) {
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  cgr_capture capture = e.CaptureStruct();
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  cgr_key key;
  int32_t opened = -1, page = 3;
  CGR_EXPECT_DEAD(cgr_step_wait(e.rt, cgr_mark{ 0, 0, lost }, -1, &result));
  CGR_EXPECT_DEAD(cgr_step_wait(e.rt, cgr_mark{ 0, 0, lost }, 0, nullptr));
  CGR_EXPECT_DEAD(cgr_step_prepare(e.rt, &batch, &step));
  CGR_EXPECT_DEAD(cgr_step_choose(e.rt, &batch, &key));
  CGR_EXPECT_DEAD(cgr_step_launch(e.rt, &e.step, e.stream));
  CGR_EXPECT_DEAD(cgr_step_cancel(e.rt, &e.step));
  CGR_EXPECT_DEAD(cgr_runtime_flush(e.rt, nullptr, nullptr, e.stream));
  CGR_EXPECT_DEAD(cgr_runtime_capture(e.rt, &capture));
  CGR_EXPECT_DEAD(cgr_runtime_warmup(e.rt, &capture));
  CGR_EXPECT_DEAD(cgr_request_open(e.rt, 1, &opened));
  CGR_EXPECT_DEAD(cgr_request_set_pages(e.rt, row, 0, 0, &page, 1));
  CGR_EXPECT_DEAD(cgr_request_drop_pages(e.rt, row, 0, 0, 1));
  CGR_EXPECT_DEAD(cgr_request_set_length(e.rt, row, 0));
  CGR_EXPECT_DEAD(cgr_request_close(e.rt, row));
  CGR_EXPECT_DEAD(cgr_stream_synchronize(e.dev, e.stream));
  CGR_EXPECT_DEAD(cgr_copy(e.dev, e.state.next_tokens, e.state.token_table, 16, e.stream));
  EXPECT_LT(cgr_test::Completed(e.rt), lost);
  EXPECT_GT(e.Stats().steps, 0u); // what it did may tell why it died
}

// With graphs that were captured before.
void LoseTheRuntime() {
  Captured<Engine> e(OptionsFor(CudaParam()));
  std::vector<int32_t> rows = { e.Start(5, 1), e.Start(17, 2) };
  e.Step(e.Decode(rows));
  ASSERT_FALSE(::testing::Test::HasFailure()) << "a good step";
  std::vector<Item> items = e.Chunks({ { rows[0], 2 }, { rows[1], 1 } });
  CGR_ASSERT_OK(e.Prepare(items));
  ASSERT_EQ(e.step.key.kind, CGR_KIND_NONE);
  e.dead = true;
  e.state.call[e.state.num_calls - 1].attention.q.data = reinterpret_cast<void *>(16);
  const uint64_t lost = e.launched + 1;
  cgr_status launched = cgr_step_launch(e.rt, &e.step, e.stream);
  if (launched != CGR_OK) { // the device was quicker than the end of the launch
    ASSERT_EQ(launched, CGR_ERROR_DEAD) << cgr_last_message();
  }
  CGR_EXPECT_DEAD(cgr_step_wait(e.rt, cgr_mark{ 0, 0, lost }, -1, nullptr));
  ExpectTheRuntimeDead(e, rows[0], lost);
  // The destructor expects runtime, memory, stream and device to be released without an error.
}

TEST(DeviceLossDeathTest, DeviceAnswersTheFirstCodeAndGoes) { RunInChild(LoseTheDevice); }

TEST(DeviceLossDeathTest, RuntimeAnswersTheFirstCodeAndGoes) { RunInChild(LoseTheRuntime); }

} // namespace
} // namespace cgr_test
