// A sticky CUDA error, provoked by attention on a bad address: every later call answers with its code, and everything can still
// be destroyed. It ends a process's use of CUDA, so each case runs in a process of its own: a death test of the threadsafe style
// starts this program again, and nothing here touches CUDA before.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/append.h"
#include "kernels/attention.h"
#include "kernels/step.h"
#include "planners/attention/plan_host.h"
#include "tests/support/toy_engine.h"

namespace cgr_test {
namespace {

constexpr int kIllegalAddress = 700; // cudaErrorIllegalAddress
constexpr int kNoGpu = 77;           // exit status

// Ends the child in the usual way, and says on stderr, which the parent shows, what has failed.
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

// Whether the child ended well; keeps its status.
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

// One token, one request, one head, one page; all in one piece of memory.
struct Small {
  uint16_t q[64], out[64], k[2][16 * 64], v[2][16 * 64];
  int32_t page_table[1], query_start_loc[2], seq_lens[1], request_rows[1], counts[4], plan_counters[1];
  int64_t plan[14];
  float partial_out[2 * CGR__TILE_ROWS * 64], partial_max_sum[2 * CGR__TILE_ROWS * 2];
  cgr__step_error error;
};

cgr__attention_args SmallArgs(Small *at) {
  cgr__attention_args args;
  std::memset(&args, 0, sizeof args);
  args.q = { at->q, CGR_DTYPE_BF16, 0, 64, 64 };
  args.out = { at->out, CGR_DTYPE_BF16, 0, 64, 64 };
  args.k_cache = { at->k, CGR_DTYPE_BF16, 0, 16 * 64, 64, 64 };
  args.v_cache = { at->v, CGR_DTYPE_BF16, 0, 16 * 64, 64, 64 };
  args.page_table = at->page_table;
  args.page_table_stride = 1;
  args.num_pages = 2;
  args.page_size = 16;
  args.read_trash_page = 0;
  args.write_trash_page = -1;
  args.num_tokens = args.padded_requests = args.num_q_heads = args.num_kv_heads = 1;
  args.head_dim = 64;
  args.scale = 0.125f;
  args.query_start_loc = at->query_start_loc;
  args.seq_lens = at->seq_lens;
  args.request_rows = at->request_rows;
  args.counts = at->counts;
  args.plan = reinterpret_cast<int32_t *>(at->plan);
  args.num_parts = args.tile_q = 1;
  args.plan_counters = at->plan_counters;
  args.partial_out = at->partial_out;
  args.partial_max_sum = at->partial_max_sum;
  args.error = &at->error;
  return args;
}

void FillSmall(Small *small) {
  std::memset(small, 0, sizeof *small);
  small->page_table[0] = 1;
  small->query_start_loc[1] = small->seq_lens[0] = 1;
  small->counts[CGR__COUNT_REQUESTS] = small->counts[CGR__COUNT_TOKENS] = 1;
  int64_t prefix[2];
  ASSERT_LE(cgr__plan_bytes(1), sizeof small->plan);
  cgr__plan_fill(small->query_start_loc, small->seq_lens, 1, 1, 1, prefix, small->plan);
}

#define EXPECT_DEAD(call)                               \
  do {                                                  \
    EXPECT_EQ((call), CGR__DEVICE_DEAD) << #call;       \
    EXPECT_EQ(dev->last_raw, kIllegalAddress) << #call; \
  } while (0)

void LoseTheDevice() {
  cgr_device *dev = nullptr;
  ASSERT_EQ(cgr__cuda_device_open(0, &dev), CGR__DEVICE_OK);
  const cgr__device_ops *ops = dev->ops;
  cudaStream_t stream = nullptr, other = nullptr, late = nullptr;
  cgr__event *event = nullptr, *late_event = nullptr;
  void *memory = nullptr, *pinned = nullptr, *more = nullptr;
  ASSERT_EQ(ops->stream_create(dev, &stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops->stream_create(dev, &other), CGR__DEVICE_OK);
  ASSERT_EQ(ops->event_create(dev, &event), CGR__DEVICE_OK);
  ASSERT_EQ(ops->mem_alloc(dev, sizeof(Small), CGR__MEMORY_DEVICE, &memory), CGR__DEVICE_OK);
  ASSERT_EQ(ops->mem_alloc(dev, sizeof(Small), CGR__MEMORY_PINNED, &pinned), CGR__DEVICE_OK);
  ASSERT_EQ(ops->preload(dev, &cgr__kernel_attention), CGR__DEVICE_OK);
  FillSmall(static_cast<Small *>(pinned));
  ASSERT_EQ(ops->copy(dev, memory, pinned, sizeof(Small), stream), CGR__DEVICE_OK);
  cgr__attention_args args = SmallArgs(static_cast<Small *>(memory));
  ASSERT_EQ(ops->launch(dev, &cgr__kernel_attention, &args, stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops->stream_sync(dev, stream), CGR__DEVICE_OK) << "the launch itself is in order";
  // A graph that outlives the device.
  cgr__graph *graph = nullptr;
  cgr__exec *exec = nullptr;
  cgr__graph_info graph_info;
  ASSERT_EQ(ops->capture_begin(dev, stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops->launch(dev, &cgr__kernel_attention, &args, stream), CGR__DEVICE_OK);
  ASSERT_EQ(ops->capture_end(dev, stream, &graph), CGR__DEVICE_OK);
  ASSERT_EQ(ops->instantiate(dev, graph, &exec, &graph_info), CGR__DEVICE_OK);

  args.q.data = reinterpret_cast<void *>(16);
  ASSERT_EQ(ops->launch(dev, &cgr__kernel_attention, &args, stream), CGR__DEVICE_OK);
  EXPECT_DEAD(ops->stream_sync(dev, stream));

  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  EXPECT_DEAD(ops->stream_sync(dev, stream));
  EXPECT_DEAD(ops->stream_sync(dev, other));
  EXPECT_DEAD(ops->stream_query(dev, other));
  EXPECT_DEAD(ops->launch(dev, &cgr__kernel_attention, &args, other));
  EXPECT_DEAD(ops->copy(dev, memory, pinned, 16, other));
  EXPECT_DEAD(ops->fill(dev, memory, 0, 16, other));
  EXPECT_DEAD(ops->event_record(dev, event, other));
  EXPECT_DEAD(ops->event_wait(dev, event, other));
  EXPECT_DEAD(ops->event_query(dev, event));
  EXPECT_DEAD(ops->event_sync(dev, event));
  EXPECT_DEAD(ops->event_create(dev, &late_event));
  EXPECT_DEAD(ops->stream_create(dev, &late));
  EXPECT_DEAD(ops->mem_alloc(dev, 16, CGR__MEMORY_DEVICE, &more));
  EXPECT_DEAD(ops->mem_alloc(dev, 16, CGR__MEMORY_PINNED, &more));
  EXPECT_DEAD(ops->preload(dev, &cgr__kernel_attention));
  EXPECT_DEAD(ops->capture_begin(dev, other));
  EXPECT_DEAD(ops->exec_launch(dev, exec, other));
  EXPECT_DEAD(ops->info(dev, &info));
  EXPECT_EQ(late, nullptr);
  EXPECT_EQ(late_event, nullptr);
  EXPECT_EQ(more, nullptr);

  EXPECT_EQ(ops->exec_destroy(dev, exec), CGR__DEVICE_OK);
  EXPECT_EQ(ops->graph_destroy(dev, graph), CGR__DEVICE_OK);
  EXPECT_EQ(ops->event_destroy(dev, event), CGR__DEVICE_OK);
  EXPECT_EQ(ops->stream_destroy(dev, stream), CGR__DEVICE_OK);
  EXPECT_EQ(ops->stream_destroy(dev, other), CGR__DEVICE_OK);
  EXPECT_EQ(ops->mem_free(dev, memory, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
  EXPECT_EQ(ops->mem_free(dev, pinned, CGR__MEMORY_PINNED), CGR__DEVICE_OK);
  EXPECT_EQ(ops->close(dev), CGR__DEVICE_OK);
}

#define CGR_EXPECT_DEAD(call)                                    \
  do {                                                           \
    CGR_EXPECT(CGR_ERROR_DEAD, call);                            \
    EXPECT_EQ(cgr_last_device_code(), kIllegalAddress) << #call; \
  } while (0)

// The same through the public header, with graphs that were captured before.
void LoseTheRuntime() {
  Toy toy(ToyOptionsFor(CudaParam()));
  CGR_ASSERT_OK(toy.Capture());
  std::vector<int32_t> rows = { toy.Start(5, 1), toy.Start(17, 2) };
  toy.Step(toy.Decode(rows));
  ASSERT_FALSE(::testing::Test::HasFailure()) << "a good step";
  for (int32_t row : rows)
    toy.Reserve(row, toy.requests[row]->num_tokens + 4);
  toy.engine.q[toy.o.num_layers - 1] = reinterpret_cast<void *>(16); // of the next eager step: a request has two tokens
  CGR_ASSERT_OK(toy.Prepare({ { rows[0], { CGR_TOKEN_LAST, 4 }, false }, { rows[1], { 5 }, false } }));
  ASSERT_EQ(toy.step.key.kind, CGR_KIND_NONE);
  cgr_status launched = cgr_step_launch(toy.rt, &toy.step, toy.stream);
  if (launched != CGR_OK) { // the device was quicker than the end of the launch
    ASSERT_EQ(launched, CGR_ERROR_DEAD) << cgr_last_message();
  }
  const uint64_t lost = toy.launched + 1;
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_EXPECT_DEAD(cgr_step_wait(toy.rt, lost, &result));

  int32_t row = -1, page = 3;
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  cgr_key key;
  CGR_EXPECT_DEAD(cgr_step_wait(toy.rt, lost, &result));
  CGR_EXPECT_DEAD(cgr_step_poll(toy.rt, lost, nullptr));
  CGR_EXPECT_DEAD(cgr_step_prepare(toy.rt, &batch, &step));
  CGR_EXPECT_DEAD(cgr_step_choose(toy.rt, &batch, &key));
  CGR_EXPECT_DEAD(cgr_step_launch(toy.rt, &toy.step, toy.stream));
  CGR_EXPECT_DEAD(cgr_runtime_flush(toy.rt, toy.stream));
  CGR_EXPECT_DEAD(cgr_runtime_capture(toy.rt, ToyRecord, &toy.engine));
  CGR_EXPECT_DEAD(cgr_runtime_warmup(toy.rt, ToyRecord, &toy.engine));
  CGR_EXPECT_DEAD(cgr_request_open(toy.rt, &row));
  CGR_EXPECT_DEAD(cgr_request_set_pages(toy.rt, rows[0], 0, 0, &page, 1));
  CGR_EXPECT_DEAD(cgr_request_close(toy.rt, rows[0]));
  CGR_EXPECT_DEAD(cgr_stream_synchronize(toy.dev, toy.stream));
  CGR_EXPECT_DEAD(cgr_copy(toy.dev, toy.engine.out[0], toy.engine.k[0], 16, toy.stream));
  EXPECT_LT(cgr_runtime_completed(toy.rt), lost);
  // The destructor expects that runtime, memory, stream and device go without an error.
}

TEST(DeviceLossDeathTest, DeviceAnswersTheFirstCodeAndGoes) { RunInChild(LoseTheDevice); }

TEST(DeviceLossDeathTest, RuntimeAnswersTheFirstCodeAndGoes) { RunInChild(LoseTheRuntime); }

} // namespace
} // namespace cgr_test
