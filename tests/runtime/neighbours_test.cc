// Others take and give back memory of the device while graphs are captured: neither the figures nor the budgets follow them.
#include <functional>
#include <memory>
#include <vector>

#include "devices/shims/shim.h"
#include "tests/support/engine.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

constexpr int64_t kMega = 1 << 20;

// A device that measures memory: graphs share what it hands out in steps of 2 MB, and a neighbour moves the figure.
struct Metered {
  const cgr__device_ops *inner;
  cgr__device_ops ops;
  int64_t stock, taken; // left of the last step; by all graphs
  std::function<int64_t()> neighbour;
} metered;

int Instantiate(cgr_device *dev, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info) {
  const int error = metered.inner->instantiate(dev, graph, exec, info);
  if (error != CGR__DEVICE_OK || info == nullptr)
    return error;
  const int64_t needs = 2800 * info->num_nodes + (154 << 10) * (info->width > 1 ? info->width - 1 : 0);
  int64_t shrunk = 0;
  for (; metered.stock < needs; metered.stock += 2 * kMega)
    shrunk += 2 * kMega;
  metered.stock -= needs;
  metered.taken += needs;
  info->device_bytes = shrunk + (metered.neighbour ? metered.neighbour() : 0);
  return CGR__DEVICE_OK;
}

class Neighbours : public ::testing::Test {
protected:
  void SetUp() override {
    SCOPED_TRACE(Repeat(seed_));
    metered = {};
  }
  void Make(int32_t mode) {
    EngineOptions options = OptionsFor(HostParam(CGR_SCHEDULE_EARLIEST));
    engine_.reset();
    metered = {};
    CGR_ASSERT_OK(cgr_device_open("host", &options.device.config, &options.handle));
    metered.inner = options.handle->ops, metered.ops = *metered.inner;
    metered.ops.instantiate = Instantiate;
    options.handle->ops = &metered.ops;
    options.mode = mode, options.max_requests = options.max_rows = 32, options.max_tokens = 64;
    options.buckets.clear();
    for (int32_t n = 1; n <= 32; n++)
      options.buckets.push_back(n);
    options.mixed = { { 16, 4 }, { 32, 8 }, { 64, 32 } };
    options.adjust = [this](cgr_config *config) {
      config->log_context = &log_;
      config->log = [](void *context, cgr_log_level, const char *text) {
        static_cast<std::vector<std::string> *>(context)->push_back(text);
      };
    };
    engine_ = std::make_unique<Engine>(options);
    log_.clear();
  }
  cgr_status Capture(uint64_t max_bytes) {
    cgr_capture capture = engine_->CaptureStruct();
    capture.max_bytes = max_bytes;
    return cgr_runtime_capture(engine_->rt, &capture);
  }
  int32_t Count(std::function<bool(const cgr_graph_stats &)> is) {
    int32_t count = 0;
    for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt); i++)
      count += is(engine_->GraphStats(i));
    return count;
  }
  int32_t Estimated() {
    return Count([](const cgr_graph_stats &s) { return s.bytes_estimated > 0; });
  }
  // All graphs are there, and what they are said to take is what graphs take, within 2 MB steps and a factor of 2.
  void CheckAll() {
    EXPECT_EQ(Count([](const cgr_graph_stats &s) { return s.state == CGR_GRAPH_READY; }), cgr_test::NumKeys(engine_->rt));
    EXPECT_EQ(Count([](const cgr_graph_stats &s) { return s.device_bytes < 0 || s.device_bytes > 8 * kMega; }), 0);
    const int64_t all = int64_t(engine_->Stats().graph_bytes);
    EXPECT_GE(all, metered.taken / 2 - 2 * kMega); // a step may be taken just when a neighbour gives memory back
    EXPECT_LE(all, 4 * metered.taken + 8 * kMega);
  }
  uint64_t seed_ = Seed();
  Random random_{ seed_ };
  std::vector<std::string> log_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(Neighbours, WithoutThemFiguresAreWhatWasMeasured) {
  for (int32_t mode : { CGR_MODE_FULL_DECODE_ONLY, CGR_MODE_FULL_AND_PIECEWISE, CGR_MODE_PIECEWISE }) {
    Make(mode);
    CGR_ASSERT_OK(Capture(0));
    CheckAll();
    EXPECT_EQ(Estimated(), 0) << mode;
    EXPECT_EQ(int64_t(engine_->Stats().graph_bytes), metered.taken + metered.stock);
    EXPECT_TRUE(log_.empty());
  }
}

TEST_F(Neighbours, DropNoGraphAndMoveNoFigure) {
  SCOPED_TRACE(Repeat(seed_));
  int64_t held = 0;
  const std::vector<std::function<int64_t()>> neighbours = {
    [&] { return held = held > 0 ? (held = 0, -256 * kMega) : 256 * kMega; }, // takes and gives back in turn
    [&] { return random_.Pick(0, 2) == 0 ? 256 * kMega : int64_t(0); },
    [&] { return random_.Pick(0, 2) == 0 ? -256 * kMega : int64_t(0); },
    [&] { return random_.Pick(0, 3) * 2 * kMega; },
    [&] { return random_.Pick(-64, 64) * kMega; },
    [&] { return random_.Pick(0, 1) * (int64_t(1) << random_.Pick(0, 40)); },
    [&] { return random_.Pick(-3, 3) * 1000; },
    [&] { return 2 * kMega; },
  };
  for (const auto &neighbour : neighbours)
    for (int32_t mode : { CGR_MODE_FULL_DECODE_ONLY, CGR_MODE_FULL_AND_PIECEWISE, CGR_MODE_PIECEWISE }) {
      SCOPED_TRACE("neighbour " + std::to_string(&neighbour - neighbours.data()) + ", mode " + std::to_string(mode));
      Make(mode);
      metered.neighbour = neighbour;
      CGR_ASSERT_OK(Capture(512 * kMega));
      CheckAll();
      // A budget that the graphs fit with room to spare.
      const uint64_t budget = 4 * uint64_t(metered.taken) + 8 * kMega;
      Make(mode);
      metered.neighbour = neighbour;
      CGR_ASSERT_OK(Capture(budget));
      CheckAll();
    }
}

// What is estimated is marked, in the structs, the table and the log.
TEST_F(Neighbours, AreNamedWhereTheyAreMet) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  int32_t graphs = 0;
  metered.neighbour = [&] { return graphs++ % 4 == 0 ? 256 * kMega : int64_t(0); };
  CGR_ASSERT_OK(Capture(0));
  EXPECT_EQ(Estimated(), 8);
  EXPECT_EQ(Count([&](const cgr_graph_stats &s) { return s.bytes_estimated > s.num_pieces; }), 0);
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_NE(log_[0].find("device memory of 8 graphs is estimated"), std::string::npos) << log_[0];
  for (int32_t i = 0; i < 32; i++) {
    cgr_key_stats key = CGR_KEY_STATS_INIT;
    CGR_ASSERT_OK(cgr_runtime_key_stats(engine_->rt, i, &key));
    EXPECT_EQ(key.bytes_estimated, engine_->GraphStats(i).bytes_estimated) << i;
  }
  const int32_t row = engine_->Start(5, 1);
  while (engine_->step.key.kind != CGR_KIND_FULL)
    engine_->Step(engine_->Decode({ row }));
  const bool marked = engine_->GraphStats(0).bytes_estimated > 0;
  std::string text(1 << 16, 0);
  size_t length = 0;
  CGR_ASSERT_OK(cgr_runtime_stats_text(engine_->rt, &text[0], text.size(), &length));
  const std::string bytes = std::to_string(engine_->GraphStats(0).device_bytes);
  EXPECT_NE(text.find(bytes + (marked ? "~" : " ")), std::string::npos) << text.c_str();
}

TEST_F(Neighbours, MoveNoEstimate) {
  for (bool there : { false, true }) {
    Make(CGR_MODE_FULL_DECODE_ONLY);
    int32_t graphs = 0;
    if (there)
      metered.neighbour = [&] { return graphs++ % 2 == 0 ? 256 * kMega : -256 * kMega; };
    cgr_capture capture = engine_->CaptureStruct();
    cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
    CGR_ASSERT_OK(cgr_runtime_estimate_capture(engine_->rt, &capture, &estimate));
    EXPECT_EQ(estimate.num_measured, 8);
    EXPECT_EQ(estimate.num_estimated, there ? 8 : 0);
    EXPECT_LE(estimate.bytes, uint64_t(64 * kMega));
    EXPECT_GT(estimate.bytes, 0u);
  }
}

} // namespace
} // namespace cgr_test
