// What backends request for planning: each number that must be refused, and room for it all.
#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

cgr_graph_support Support(void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; }
cgr_status Record(void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; }
cgr_status PlanHost(void *, void *, const cgr_plan_step *) { return CGR_OK; }
cgr_status Create(void *context, const cgr_plan_key *, void **) {
  ++*static_cast<int *>(context);
  return CGR_OK;
}
void Destroy(void *context, void *) { ++*static_cast<int *>(context); }

class ConfigPlans : public ConfigTest {
protected:
  // Layer 1 is the first backend's; no layer is the second's.
  template <class Set> Change With(Set set) {
    return [this, set](GoodConfig &c) {
      for (int i = 0; i < 2; i++) {
        backends_[i] = CGR_BACKEND_INIT;
        backends_[i].name = i == 0 ? "first" : "second";
        backends_[i].context = &asked_;
        backends_[i].support = Support;
        backends_[i].record = Record;
        backends_[i].create = Create;
        backends_[i].destroy = Destroy;
      }
      c.config.backends = backends_;
      c.config.num_backends = 2;
      c.layers[1].backend = 1;
      set(c, backends_);
    };
  }
  // For either backend, whether or not a layer names it.
  template <class Set> void RefusedOfEach(Set set, cgr_status status, const std::string &member, const Words &words) {
    for (int i = 0; i < 2; i++)
      Refused(With([&](GoodConfig &, cgr_backend *b) { set(b[i]); }),
              { Find(status, "backends[" + std::to_string(i) + "]." + member, words) });
  }
  static void Ask(cgr_backend *b, uint64_t workspace, uint64_t plan) {
    b->workspace_bytes = workspace;
    b->plan_bytes = plan;
    b->plan_host = plan > 0 ? PlanHost : nullptr;
  }
  void Declare(GoodConfig &c, int32_t count) {
    decls_.assign(size_t(count), c.buffers[0]);
    names_.clear();
    for (int32_t i = 0; i < count; i++)
      names_.push_back("buffer" + std::to_string(i));
    for (int32_t i = 0; i < count; i++)
      decls_[size_t(i)].name = names_[size_t(i)].c_str();
    c.config.buffers = decls_.data();
    c.config.num_buffers = count;
  }
  cgr_backend backends_[2];
  std::vector<cgr_buffer_decl> decls_;
  std::vector<std::string> names_;
  int asked_ = 0;
};

TEST_P(ConfigPlans, AllOfItMayBeLeftOut) {
  GoodConfig c(device_);
  With([](GoodConfig &, cgr_backend *) {})(c);
  AcceptedAsItIs(c.config);
  Ask(&backends_[0], 1, 0);
  AcceptedAsItIs(c.config);
  Ask(&backends_[0], 0, 1);
  AcceptedAsItIs(c.config);
  Ask(&backends_[0], 100000, 1 << 24);
  AcceptedAsItIs(c.config);
  EXPECT_EQ(asked_, 0) << "nothing is made before the first record";
}

TEST_P(ConfigPlans, WorkspacesHaveAMostLength) {
  Accepted(With([](GoodConfig &, cgr_backend *b) { b[0].workspace_bytes = uint64_t(1) << 40; }));
  for (uint64_t bytes : { (uint64_t(1) << 40) + 1, UINT64_MAX })
    RefusedOfEach([=](cgr_backend &b) { b.workspace_bytes = bytes; }, CGR_ERROR_INVALID_ARGUMENT, "workspace_bytes",
                  { "is " + std::to_string(bytes), "0 .. 1099511627776" });
}

TEST_P(ConfigPlans, PlansHaveAMostLength) {
  for (uint64_t bytes : { (uint64_t(1) << 24) + 1, UINT64_MAX })
    RefusedOfEach(
        [=](cgr_backend &b) {
          b.plan_bytes = bytes;
          b.plan_host = PlanHost;
        },
        CGR_ERROR_INVALID_ARGUMENT, "plan_bytes", { "is " + std::to_string(bytes), "0 .. 16777216" });
}

TEST_P(ConfigPlans, PlansAndTheirFunctionNeedEachOther) {
  RefusedOfEach([](cgr_backend &b) { b.plan_bytes = 64; }, CGR_ERROR_NULL_POINTER, "plan_host", { "is NULL", "with plan_bytes" });
  RefusedOfEach([](cgr_backend &b) { b.plan_host = PlanHost; }, CGR_ERROR_INVALID_ARGUMENT, "plan_bytes",
                { "is 0", "with plan_host" });
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
    Change change = With([&](GoodConfig &c, cgr_backend *b) {
      Declare(c, each.declared);
      Ask(&b[0], each.workspace, each.plan);
      Ask(&b[1], 64, 64); // no layer names it: it takes none
    });
    if (each.good) {
      GoodConfig c(device_);
      change(c);
      AcceptedAsItIs(c.config);
    } else {
      Refused(change, { Find(CGR_ERROR_UNSUPPORTED, "num_buffers",
                             { "is " + std::to_string(each.declared), "each workspace and each plan", "at most 64" }) });
    }
  }
}

// Other faults are found too, and nothing is written where there is no room.
TEST_P(ConfigPlans, AreReadBesideBadNumbersOfBuffers) {
  for (int32_t count : { -1, 65, INT32_MAX })
    Refused(With([&](GoodConfig &c, cgr_backend *b) {
              c.config.num_buffers = count;
              Ask(&b[0], 64, 64);
            }),
            { Find(CGR_ERROR_INVALID_ARGUMENT, "num_buffers", { "is " + std::to_string(count) }) });
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigPlans);

} // namespace
} // namespace cgr_test
