// FlashInfer's plans from a kernel: it writes the host planner's bytes, whatever was there before, eagerly and in a graph whose
// lengths change from replay to replay; lengths that no plan takes overrun nothing.
#include "tests/support/enqueue_case.h"
#include "tests/support/flashinfer_case.h"

namespace cgr_test {
namespace {

class FlashInferKernel : public EnqueueTest {
protected:
  // A case with its arrays on the device.
  struct There {
    There(Bench &bench, const FlashInferCase &host)
        : c(host), qo(bench, host.qo), kv(bench, host.kv), live(bench, std::vector<int32_t>(1, host.num_live())),
          status(bench, 1) {
      c.p.force_split_kv = 1;
      c.d.kv_indptr = c.p.kv_indptr = kv.data();
      c.p.qo_indptr = host.qo.empty() ? nullptr : qo.data();
      c.d.live_requests = c.p.live_requests = live.data();
      c.d.status = c.p.status = status.data();
    }
    // Other lengths for the same key.
    void Put(const FlashInferCase &host) {
      qo.Put(host.qo);
      kv.Put(host.kv);
      live.Put({ host.num_live() });
    }
    FlashInferCase c;
    Array<int32_t> qo, kv, live, status;
  };

  // What the host planner writes, and its status; no tiles if it refuses the lengths.
  static cgr_status Expected(FlashInferCase c, std::vector<unsigned char> *bytes) {
    c.p.force_split_kv = 1;
    c.Bind();
    cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT;
    EXPECT_EQ(c.Size(&plan), CGR_OK) << cgr_last_message();
    FlashInferWorkspace workspace(size_t(plan.int_bytes));
    cgr_status status = c.Build(workspace.data(), workspace.size(), nullptr);
    *bytes = status == CGR_OK ? workspace.Get() : std::vector<unsigned char>(workspace.size(), 0);
    return status;
  }
  static void ExpectSame(const FlashInferCase &host, const There &there, const Array<unsigned char> &workspace) {
    std::vector<unsigned char> expected;
    cgr_status status = Expected(host, &expected);
    const std::vector<unsigned char> got = workspace.Get();
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_TRUE(got == expected) << "byte " << std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin()
                                 << " of " << got.size() << ", " << host.num_requests() << " requests";
    EXPECT_EQ(there.status.Get()[0], status);
  }
  void Check(const FlashInferCase &host) {
    std::vector<unsigned char> expected;
    Expected(host, &expected);
    There there(*bench_, host);
    Array<unsigned char> workspace(*bench_, expected.size());
    CGR_ASSERT_OK(there.c.Enqueue(device_, workspace.data(), workspace.size(), stream_));
    Sync();
    ExpectSame(host, there, workspace);
  }
};

FlashInferCase RandomCase(Random &random) { return random.OneIn(2) ? RandomDecode(random, true) : RandomPrefill(random, true); }

TEST_P(FlashInferKernel, EqualsTheHostPlanner) {
  ForSeeds(2000, [&](Random &random) { Check(RandomCase(random)); });
}

// Both sides of every number of requests per thread, and of every number of threads.
TEST_P(FlashInferKernel, TakesAnyNumberOfRequests) {
  SeededRandom random;
  for (int32_t requests : { 1,    2,    31,   32,   33,   255,  256,  257,  511,  513,  767, 769,
                            1023, 1024, 1025, 1151, 1153, 2047, 2049, 3071, 3073, 4095, 4096 }) {
    for (bool decode : { false, true }) {
      FlashInferCase c = decode ? RandomDecode(random, true) : RandomPrefill(random, true);
      c.d.num_requests = c.p.num_requests = requests;
      c.d.num_kv_heads = c.d.num_q_heads = c.p.num_kv_heads = c.p.num_q_heads = 1;
      c.d.num_multiprocessors = 1000; // so that there is something to split
      c.p.num_multiprocessors = 4000;
      c.d.blocks_per_multiprocessor = 9;
      c.p.uniform_q_len = c.p.fixed_split_size = c.p.disable_split_kv = c.p.unmasked = 0;
      c.live.clear();
      FillLengths(random, c, requests, false);
      if (!c.decode)
        c.p.total_num_rows = std::max(c.qo.back(), requests);
      c.Bind();
      Check(c);
    }
  }
}

// Around the length from which the kernel no longer divides in floating point, and far beyond it.
TEST_P(FlashInferKernel, TakesRequestsOfAnyLength) {
  ForSeeds(300, [&](Random &random) {
    FlashInferCase c = RandomCase(random);
    c.d.page_size = c.p.page_size = 1;
    c.d.num_kv_heads = c.d.num_q_heads = c.p.num_kv_heads = c.p.num_q_heads = 1;
    c.p.disable_split_kv = c.p.fixed_split_size = c.p.window = 0;
    const int32_t most = INT32_MAX / c.num_requests(), border = 1 << 21;
    const int32_t longest = random.OneIn(3) ? most : std::min(most, random.OneIn(2) ? border + random.Pick32(-1, 1) : 40000);
    c.kv = { 0 };
    for (int32_t i = 0; i < c.num_requests(); i++)
      c.kv.push_back(c.kv.back() + (random.OneIn(5) ? longest : random.Pick32(0, longest)));
    c.Bind();
    Check(c);
  });
}

// Windows around the ends of sequences and of 32 bits, over long sequences of short pages.
TEST_P(FlashInferKernel, TakesWindowsOfAnyLength) {
  ForSeeds(600, [&](Random &random) {
    FlashInferCase c = RandomPrefill(random, true);
    c.p.page_size = random.OneIn(2) ? 1 : random.OneIn(2) ? 2 : 16;
    c.p.fixed_split_size = c.p.fixed_split_size > 0 ? random.Pick32(1 << 20, INT32_MAX / c.p.page_size) : 0;
    c.p.unmasked = 0;
    if (random.OneIn(2)) { // else as they are
      const int32_t most = INT32_MAX / c.p.page_size / c.num_requests();
      c.kv = { 0 };
      for (int32_t i = 0; i < c.num_requests(); i++)
        c.kv.push_back(c.kv.back() + (random.OneIn(3) ? most : random.Pick32(0, random.OneIn(2) ? most : 5000)));
    }
    const int32_t longest = *std::max_element(c.kv.begin(), c.kv.end()); // or more
    c.p.window = random.OneIn(2)                        ? INT32_MAX - random.Pick32(0, 200)
                 : longest < 1 << 20 && random.OneIn(2) ? std::max(1, longest * c.p.page_size + random.Pick32(-200, 200))
                                                        : random.Pick32(1, INT32_MAX);
    c.Bind();
    Check(c);
  });
}

TEST_P(FlashInferKernel, BadLengthsGiveNoTilesAndOverrunNothing) {
  int refused = 0;
  ForSeeds(500, [&](Random &random) {
    FlashInferCase c = RandomCase(random);
    std::vector<int32_t> &indptr = c.qo.empty() || random.OneIn(2) ? c.kv : c.qo;
    for (int32_t i = random.Pick32(1, 3); i > 0; i--)
      indptr[size_t(random.Pick(0, c.num_requests()))] = random.OneIn(2) ? int32_t(random.Bits()) : random.Pick32(-2, 3);
    c.Bind();
    Check(c);
    std::vector<unsigned char> bytes;
    refused += Expected(c, &bytes) != CGR_OK;
  });
  EXPECT_GT(refused, 50);
}

// The launch is recorded once; lengths and the number of live requests are read when it runs.
TEST_P(FlashInferKernel, OneGraphPlansManyBatches) {
  SeededRandom random;
  for (int round = 0; round < 8; round++) {
    FlashInferCase c = round % 2 ? RandomDecode(random, true) : RandomPrefill(random, true);
    while (round % 2 == 0 && c.qo.empty())
      c = RandomPrefill(random, true);
    c.p.uniform_q_len = 0;
    c.p.total_num_rows = std::max(c.p.total_num_rows, c.num_requests() * 9);
    std::vector<unsigned char> expected;
    Expected(c, &expected);
    There there(*bench_, c);
    Array<unsigned char> workspace(*bench_, expected.size());
    InAGraph([&] { return there.c.Enqueue(device_, workspace.data(), workspace.size(), stream_); },
             [&](auto launch) {
               for (int replay = 0; replay < 20; replay++) {
                 FlashInferCase other = c;
                 other.live.clear();
                 FillLengths(random, other, c.num_requests(), false);
                 other.Bind();
                 there.Put(other);
                 ASSERT_NO_FATAL_FAILURE(launch());
                 ExpectSame(other, there, workspace);
               }
             });
  }
}

TEST_P(FlashInferKernel, RefusesWhatItCannotPlan) {
  Random random(1);
  FlashInferCase d = RandomDecode(random, true), p = RandomPrefill(random, true);
  p.p.fixed_split_size = 8;
  p.p.disable_split_kv = p.p.unmasked = 0;
  p.p.force_split_kv = 1;
  for (FlashInferCase *c : { &d, &p }) {
    const std::string name = c->decode ? "cgr_flashinfer_decode_enqueue: " : "cgr_flashinfer_prefill_enqueue: ";
    c->Bind();
    cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT;
    CGR_ASSERT_OK(c->Size(&plan));
    FlashInferWorkspace workspace(size_t(plan.int_bytes));
    auto refuse = [&](cgr_status status, const std::string &word, void *memory, size_t bytes) {
      ExpectMessage(c->Enqueue(device_, memory, bytes, stream_), status, { name + word });
      EXPECT_EQ(workspace.Get(), std::vector<unsigned char>(workspace.size(), 0xA5));
    };
    unsigned char *memory = workspace.data();
    refuse(CGR_ERROR_NULL_POINTER, "int_workspace is NULL", nullptr, workspace.size());
    refuse(CGR_ERROR_INVALID_ARGUMENT, "int_workspace is ", memory + 4, workspace.size());
    refuse(CGR_ERROR_INVALID_ARGUMENT, "int_bytes is 3, expected at least " + std::to_string(plan.int_bytes), memory, 3);
    ExpectMessage(c->Enqueue(nullptr, memory, workspace.size(), stream_), CGR_ERROR_NULL_POINTER, { name + "device is NULL" });
    ExpectMessage(c->Enqueue(device_, memory, workspace.size(), nullptr), CGR_ERROR_INVALID_ARGUMENT,
                  { name + "stream is NULL" });
    ExpectMessage(c->decode ? cgr_flashinfer_decode_enqueue(device_, nullptr, memory, 9, stream_)
                            : cgr_flashinfer_prefill_enqueue(device_, nullptr, memory, 9, stream_),
                  CGR_ERROR_NULL_POINTER, { name + "input is NULL" });
    c->d.float_workspace_bytes = c->p.float_workspace_bytes = 1;
    if (plan.float_bytes > 1)
      refuse(CGR_ERROR_INVALID_ARGUMENT, "float_workspace_bytes is 1, expected at least " + std::to_string(plan.float_bytes),
             memory, workspace.size());
    c->d.float_workspace_bytes = c->p.float_workspace_bytes = 0;
    c->d.kv_indptr = c->p.kv_indptr = nullptr;
    refuse(CGR_ERROR_NULL_POINTER, "kv_indptr is NULL", memory, workspace.size());
    c->Bind();
    if (!c->decode) {
      c->p.window = 9, c->p.unmasked = 1;
      refuse(CGR_ERROR_UNSUPPORTED, "window is 9 with unmasked", memory, workspace.size());
      c->p.layout = 2;
      refuse(CGR_ERROR_INVALID_ENUM, "layout is 2", memory, workspace.size());
      c->p.layout = c->p.unmasked = 0;
    }
    c->p.force_split_kv = 0;
    if (!c->decode)
      refuse(CGR_ERROR_INVALID_ARGUMENT, "force_split_kv is 0, expected 1", memory, workspace.size());
    c->d.graph = c->p.graph = 0;
    c->p.uniform_q_len = 0;
    refuse(CGR_ERROR_INVALID_ARGUMENT, "graph is 0, expected 1", memory, workspace.size());
  }
  cgr_device closed = {};
  ExpectMessage(d.Enqueue(&closed, nullptr, 0, stream_), CGR_ERROR_INVALID_STRUCT, { "device has magic 0x00000000" });
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(FlashInferKernel);

} // namespace
} // namespace cgr_test
