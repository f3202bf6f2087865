// What backends request for planning: each number that must be refused, and room for it all.
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

cgr_status PlanHost(void *, void *, const cgr_plan_step *) { return CGR_OK; }
cgr_status Create(void *context, const cgr_plan_key *, void **) {
  ++*static_cast<int *>(context);
  return CGR_OK;
}
void Destroy(void *context, void *) { ++*static_cast<int *>(context); }

class ConfigPlans : public ConfigTest {
protected:
  // Layer 1 is the first backend's; no layer is the second's.
  void SetUp() override {
    ConfigTest::SetUp();
    more_ = [this](Good &c) {
      c.AddBackends();
      c.layers[1].backend = 1;
      for (cgr_backend &b : c.backends) {
        b.context = &asked_, b.create = Create, b.destroy = Destroy;
      }
    };
  }
  static void Ask(cgr_backend *b, uint64_t workspace, uint64_t plan) {
    b->workspace_bytes = workspace, b->plan_bytes = plan;
    b->plan_host = plan > 0 ? PlanHost : nullptr;
  }
  void Declare(Good &c, int32_t count) {
    decls_.assign(size_t(count), c.buffers[0]);
    names_.clear();
    for (int32_t i = 0; i < count; i++)
      names_.push_back("buffer" + std::to_string(i));
    for (int32_t i = 0; i < count; i++)
      decls_[size_t(i)].name = names_[size_t(i)].c_str();
    c.config.buffers = decls_.data(), c.config.num_buffers = count;
  }
  std::vector<cgr_buffer_decl> decls_;
  std::vector<std::string> names_;
  int asked_ = 0;
};

TEST_P(ConfigPlans, AllOfItMayBeLeftOut) {
  Good c(device_, more_);
  for (auto [workspace, plan] : { std::pair<uint64_t, uint64_t>{ 0, 0 }, { 1, 0 }, { 0, 1 }, { 100000, 1 << 24 } }) {
    Ask(&c.backends[0], workspace, plan);
    AcceptedAsItIs(c.config);
  }
  EXPECT_EQ(asked_, 0) << "nothing is made before the first record";
}

// For either backend, whether or not a layer names it.
TEST_P(ConfigPlans, NumbersAreWithinTheirBoundsAndPlansHaveAFunction) {
  Accepted([](Good &c) { c.backends[0].workspace_bytes = uint64_t(1) << 40; });
  for (int i = 0; i < 2; i++) {
    const std::string workspace = "backends[" + std::to_string(i) + "].workspace_bytes ",
                      plan = "backends[" + std::to_string(i) + "].plan_bytes ";
    EachRefused({
        { kArgument, workspace + "is 1099511627777 ... 0 .. 1099511627776",
          [=](Good &c) { c.backends[i].workspace_bytes = (uint64_t(1) << 40) + 1; } },
        { kArgument, workspace + "is 18446744073709551615 ... 0 .. 1099511627776",
          [=](Good &c) { c.backends[i].workspace_bytes = UINT64_MAX; } },
        { kArgument, plan + "is 16777217 ... 0 .. 16777216", [=](Good &c) { Ask(&c.backends[i], 0, (1 << 24) + 1); } },
        { kArgument, plan + "is 18446744073709551615 ... 0 .. 16777216", [=](Good &c) { Ask(&c.backends[i], 0, UINT64_MAX); } },
        { kArgument, plan + "is 0 ... with plan_host", [=](Good &c) { c.backends[i].plan_host = PlanHost; } },
        { kNull, "backends[" + std::to_string(i) + "].plan_host is NULL ... with plan_bytes",
          [=](Good &c) { c.backends[i].plan_bytes = 64; } },
    });
  }
}

// They are buffers like the engine's own, of which there are 64 at most.
TEST_P(ConfigPlans, TakeTheRoomOfDeclaredBuffers) {
  const struct {
    int32_t declared;
    uint64_t workspace, plan;
    bool good;
  } cases[] = { { 62, 64, 64, true }, { 63, 64, 64, false }, { 64, 64, 64, false }, { 63, 64, 0, true },
                { 63, 0, 64, true },  { 64, 64, 0, false },  { 64, 0, 64, false },  { 64, 0, 0, true } };
  for (const auto &each : cases) {
    SCOPED_TRACE(std::to_string(each.declared) + ", " + std::to_string(each.workspace) + ", " + std::to_string(each.plan));
    const auto change = [&](Good &c) {
      Declare(c, each.declared);
      Ask(&c.backends[0], each.workspace, each.plan);
      Ask(&c.backends[1], 64, 64); // no layer names it: it takes none
    };
    if (each.good) {
      Good c(device_, more_);
      change(c);
      AcceptedAsItIs(c.config);
    } else {
      Refused(change, kUnsupported,
              "num_buffers is " + std::to_string(each.declared) + " ... each workspace and each plan ... at most 64");
    }
  }
}

// Other faults are found too, and nothing is written where there is no room.
TEST_P(ConfigPlans, AreReadInSpiteOfBadNumbersOfBuffers) {
  const auto count = [](Good &c, int64_t value) { c.config.num_buffers = int32_t(value), Ask(&c.backends[0], 64, 64); };
  EachField({ Field(kArgument, "num_buffers is #", count, {}, { -1, 65, INT32_MAX }) });
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigPlans);

} // namespace
} // namespace cgr_test
