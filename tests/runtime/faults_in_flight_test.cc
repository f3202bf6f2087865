// A device call fails while a step is launched, with other steps in flight on two streams, changes pending and rows coming and
// going. The step is still prepared, or over; the steps around it, the tables, the caches and every later step are right.
#include "devices/shims/fault.h"
#include "tests/support/modes.h"
#include "tests/support/seed.h"
#include "tests/support/tables.h"

namespace cgr_test {
namespace {

class FaultsInFlight : public ::testing::TestWithParam<DeviceAndMode> {
protected:
  void SetUp() override {
    EngineOptions options = OptionsFor(GetParam().device);
    cgr_device *inner = nullptr;
    cgr_device_config config = GetParam().device.config;
    options.mode = GetParam().mode;
    config.layer = cgr_validation_layer();
    config.on_violation = [](void *, const char *message) { ADD_FAILURE() << "violation: " << message; };
    CGR_ASSERT_OK(cgr_device_open("host", &config, &inner));
    ASSERT_EQ(cgr__fault_open(inner, &options.handle), CGR__DEVICE_OK);
    options.adjust = [](cgr_config *c) {
      c->max_changes = 6; // so that steps run ahead of others
      c->ring_depth = 32; // steps given up and those ahead take numbers too
    };
    engine_ = std::make_unique<Engine>(options);
    CGR_ASSERT_OK(cgr_stream_create(engine_->dev, &engine_->side));
    CGR_ASSERT_OK(engine_->Capture());
  }
  // Rows come and go, and some of them make a batch: one token each, or now and then a few.
  std::vector<Item> Compose() {
    std::vector<Item> items;
    for (int32_t row : engine_->Rows())
      if (engine_->requests[row]->num_tokens > 140 || random_.OneIn(15))
        engine_->Close(row);
    while (engine_->requests.size() < 5)
      engine_->Open();
    bool uniform = random_.OneIn(2);
    for (int32_t row : engine_->Rows()) {
      const Request &r = *engine_->requests[row];
      int32_t length = uniform ? 1 : random_.Pick32(0, 4);
      if (random_.OneIn(4))
        continue;
      engine_->Reserve(row, r.num_tokens + length);
      items.push_back(Engine::Chunk(row, length, random_.Pick32(0, 50)));
      if (length > 0 && r.has_token && !random_.OneIn(5))
        items.back().tokens[0] = CGR_TOKEN_LAST;
    }
    return items;
  }
  void Prepare(const std::vector<Item> &items) {
    cgr_status status = engine_->Prepare(items);
    for (int n = 0; n < 20 && status != CGR_OK; n++) {
      engine_->CheckAll();
      engine_->WaitForAll();
      if (status == CGR_ERROR_CHANGES_PENDING)
        engine_->Flush();
      status = engine_->Prepare(items);
    }
    CGR_ASSERT_OK(status);
  }
  cudaStream_t AStream() { return random_.OneIn(3) ? engine_->side : engine_->stream; }
  // Launches what is prepared; the nth device call fails, if there are that many.
  cgr_status LaunchWithAFault(cgr__fault_plan *plan) {
    bool any = random_.OneIn(2);
    *plan = {};
    plan->op = any ? int(CGR__FAULT_ANY_OP) : int(CGR__OP_EXEC_LAUNCH);
    plan->nth = any ? uint64_t(random_.Pick(1, 16)) : 1;
    plan->take_effect = random_.Pick32(0, 1);
    // A graph that the device refuses to launch has enqueued nothing: then there is no wait.
    plan->error = any || random_.OneIn(2) ? CGR__DEVICE_FAILED : CGR__DEVICE_INVALID;
    cgr__fault_set(engine_->dev, plan);
    cgr_status status = engine_->LaunchOn(AStream());
    EXPECT_EQ(status != CGR_OK, cgr__fault_fired(engine_->dev) == 1) << cgr_status_name(status);
    EXPECT_TRUE(status == CGR_OK || status == CGR_ERROR_CALLBACK ||
                status == (plan->error == CGR__DEVICE_FAILED ? CGR_ERROR_DEVICE : CGR_ERROR_INVALID_ARGUMENT))
        << cgr_last_message();
    cgr__fault_set(engine_->dev, nullptr);
    return status;
  }
  // What the failure leaves to the engine.
  void GoOn(const std::vector<Item> &items, const cgr__fault_plan &plan) {
    if (engine_->step.state == CGR_STEP_PREPARED) {
      prepared_++;
      if (random_.OneIn(2))
        CGR_EXPECT_OK(engine_->LaunchOn(AStream()));
      else
        CGR_EXPECT_OK(engine_->Cancel());
      return;
    }
    abandoned_++;
    for (const Item &item : items) {
      Request &r = *engine_->requests[item.row];
      bool has = engine_->Info(item.row).has_token != 0;
      EXPECT_TRUE(has == r.has_token || (!has && plan.take_effect != 0)) << "row " << item.row;
      ran_ += has != r.has_token;
      r.has_token = has;
    }
  }
  std::unique_ptr<Engine> engine_;
  uint64_t seed_ = Seed();
  Random random_{ seed_ };
  int prepared_ = 0, abandoned_ = 0, ran_ = 0;
};

TEST_P(FaultsInFlight, LeaveTheStepsAroundThemRight) {
  std::printf("%s\n", Repeat(seed_).c_str());
  uint64_t checked = 0;
  engine_->check_outputs = false;
  for (int n = 0; n < 2000 && !HasFailure(); n++) {
    SCOPED_TRACE(Repeat(seed_) + ", iteration " + std::to_string(n));
    cgr__fault_plan plan;
    std::vector<Item> items = Compose();
    ASSERT_NO_FATAL_FAILURE(Prepare(items));
    if (LaunchWithAFault(&plan) != CGR_OK)
      GoOn(items, plan);
    if (engine_->NumInFlight() > 2)
      engine_->CheckOne();
    if (engine_->launched > checked + 12) { // before results expire
      engine_->CheckAll();
      checked = engine_->launched;
    }
    if (n % 20 != 19)
      continue;
    engine_->CheckAll();
    engine_->check_outputs = true;               // steps that are given up overwrite those of the others
    ASSERT_NO_FATAL_FAILURE(Prepare(Compose())); // carries what is pending
    CGR_ASSERT_OK(engine_->Launch());
    engine_->CheckAll();
    engine_->check_outputs = false;
    engine_->CheckRows();
    engine_->CheckCaches();
    ExpectTables(*engine_);
  }
  EXPECT_GT(prepared_, 5);
  EXPECT_GT(abandoned_, 200);
  EXPECT_GT(ran_, 15);
}

INSTANTIATE_TEST_SUITE_P(Devices, FaultsInFlight,
                         ::testing::ValuesIn(EveryPair(HostDevices(), { CGR_MODE_FULL_DECODE_ONLY, CGR_MODE_PIECEWISE })),
                         ModeLabel);

} // namespace
} // namespace cgr_test
