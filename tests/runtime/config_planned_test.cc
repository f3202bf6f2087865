// All layers of a backend must have in common what its plan is made for; another kind of layer takes another backend.
#include <algorithm>
#include <set>

#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

cgr_graph_support Support(void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; }
cgr_status Record(void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; }
cgr_status Plan(void *, void *, cgr_recorder *, uint32_t, int32_t) { return CGR_OK; }
cgr_status PlanHost(void *, void *, const cgr_plan_step *) { return CGR_OK; }

// A member of a layer, and two valid values for it.
struct Member {
  uint32_t bit;
  const char *name;
  std::function<void(cgr_layer *)> differ;
  const char *is, *expected;
};

const std::vector<Member> &Members() {
  static const std::vector<Member> members = {
    { CGR_PLANNED_GROUP, "group", [](cgr_layer *l) { l->group = 1; }, "is 1", "expected 0" },
    { CGR_PLANNED_HEADS, "num_q_heads", [](cgr_layer *l) { l->num_q_heads = 8; }, "is 8", "expected 4" },
    { CGR_PLANNED_HEADS, "num_kv_heads", [](cgr_layer *l) { l->num_kv_heads = 1; }, "is 1", "expected 2" },
    { CGR_PLANNED_HEAD_DIM, "head_dim",
      [](cgr_layer *l) {
        l->head_dim = 32;
        l->head_dim_v = 64;
        l->scale = 0.125f;
      },
      "is 32", "expected 64" },
    { CGR_PLANNED_HEAD_DIM, "head_dim_v", [](cgr_layer *l) { l->head_dim_v = 32; }, "is 32", "expected 64" },
    { CGR_PLANNED_DTYPE, "dtype",
      [](cgr_layer *l) {
        l->dtype = CGR_DTYPE_FP16;
        l->out_dtype = CGR_DTYPE_BF16;
      },
      "is fp16", "expected bf16" },
    { CGR_PLANNED_DTYPE, "out_dtype", [](cgr_layer *l) { l->out_dtype = CGR_DTYPE_FP32; }, "is fp32", "expected bf16" },
    { CGR_PLANNED_DTYPE, "k.dtype",
      [](cgr_layer *l) {
        l->k.dtype = CGR_DTYPE_FP16;
        l->dtype = CGR_DTYPE_BF16;
      },
      "is fp16", "expected bf16" },
    { CGR_PLANNED_DTYPE, "v.dtype", [](cgr_layer *l) { l->v.dtype = CGR_DTYPE_FP16; }, "is fp16", "expected bf16" },
    { CGR_PLANNED_WINDOW, "window_left", [](cgr_layer *l) { l->window_left = 100000001; }, "is 100000001", "expected 0" },
    { CGR_PLANNED_WINDOW, "window_right", [](cgr_layer *l) { l->window_right = 7; }, "is 7", "expected 0" },
    { CGR_PLANNED_WINDOW, "chunk", [](cgr_layer *l) { l->chunk = 64; }, "is 64", "expected 0" },
    { CGR_PLANNED_WINDOW, "flags", [](cgr_layer *l) { l->flags = CGR_LAYER_BIDIRECTIONAL | CGR_LAYER_ALIBI_SQRT; }, "is 0x5",
      "expected 0" },
    { CGR_PLANNED_SCALE, "scale", [](cgr_layer *l) { l->scale = 0.125000015f; }, "is 0.125000015", "expected 0.125 " },
    { CGR_PLANNED_SOFTCAP, "softcap", [](cgr_layer *l) { l->softcap = 30.0f; }, "is 30", "expected 0" },
  };
  return members;
}

class ConfigPlanned : public ConfigTest {
protected:
  // Two backends alike; layers 0 and 1 are the first's.
  template <class Set> Change With(Set set) {
    return [this, set](GoodConfig &c) {
      for (int i = 0; i < 2; i++) {
        backends_[i] = CGR_BACKEND_INIT;
        backends_[i].name = i == 0 ? "first" : "second";
        backends_[i].support = Support;
        backends_[i].record = Record;
        backends_[i].flags = CGR_BACKEND_APPENDS; // so that dtypes and dims are its own affair
      }
      c.config.backends = backends_;
      c.config.num_backends = 2;
      c.layers[0].backend = c.layers[1].backend = 1;
      c.groups[1].num_pages = GoodConfig::kPages;
      c.config.num_groups = 2;
      set(c, backends_);
    };
  }
  cgr_backend backends_[2];
};

TEST_P(ConfigPlanned, LayersThatDifferInItAreRefused) {
  for (const Member &member : Members()) {
    SCOPED_TRACE(member.name);
    Refused(With([&](GoodConfig &c, cgr_backend *b) {
              b[0].planned = member.bit;
              member.differ(&c.layers[1]);
            }),
            { FindInLayer(1, CGR_ERROR_INVALID_ARGUMENT, member.name,
                          { member.is, member.expected, "layer 0", "one plan of backend first serves both",
                            "give one of them a backend of its own" }) });
  }
}

// Each word of a layer is changed in turn: if validation finds it, the member has a row above.
TEST_P(ConfigPlanned, EveryMemberHasARow) {
  std::set<std::string> rows, found;
  for (const Member &member : Members())
    rows.insert(member.name);
  const float half = 0.5f;
  int32_t half_bits;
  std::memcpy(&half_bits, &half, sizeof half);
  for (size_t at = offsetof(cgr_layer, program); at + 4 <= sizeof(cgr_layer); at += 4)
    for (int32_t word : { 1, 2, 3, 8, half_bits }) {
      GoodConfig c(device_);
      With([&](GoodConfig &g, cgr_backend *b) {
        b[0].planned = uint32_t(CGR_PLANNED_SOFTCAP) * 2 - 1;
        std::memcpy(reinterpret_cast<char *>(&g.layers[1]) + at, &word, sizeof word);
      })(c);
      cgr_finding list[16];
      int32_t count = 0;
      (void)cgr_validate(&c.config, nullptr, list, 16, &count);
      for (int32_t i = 0; i < std::min(count, 16); i++)
        if (std::strstr(list[i].text, "one plan of backend") != nullptr)
          found.insert(std::strchr(list[i].field, '.') + 1);
    }
  EXPECT_EQ(found, rows);
}

TEST_P(ConfigPlanned, LayersMayDifferInAnythingElse) {
  for (const Member &member : Members()) {
    SCOPED_TRACE(member.name);
    Accepted(With([&](GoodConfig &c, cgr_backend *b) {
      b[0].planned = (uint32_t(CGR_PLANNED_SOFTCAP) * 2 - 1) & ~member.bit;
      member.differ(&c.layers[1]);
    }));
  }
}

TEST_P(ConfigPlanned, AnotherBackendServesTheOtherKind) {
  for (const Member &member : Members()) {
    SCOPED_TRACE(member.name);
    Accepted(With([&](GoodConfig &c, cgr_backend *b) {
      b[0].planned = b[1].planned = uint32_t(CGR_PLANNED_SOFTCAP) * 2 - 1;
      c.layers[1].backend = 2;
      member.differ(&c.layers[1]);
    }));
  }
}

TEST_P(ConfigPlanned, EveryLayerIsHeldAgainstTheFirst) {
  Refused(With([](GoodConfig &c, cgr_backend *b) {
            b[0].planned = CGR_PLANNED_WINDOW | CGR_PLANNED_SOFTCAP;
            c.layers[2].backend = 1;
            c.layers[1].window_left = 5;
            c.layers[2].softcap = 2.0f;
          }),
          { FindInLayer(1, CGR_ERROR_INVALID_ARGUMENT, "window_left", { "is 5", "layer 0" }),
            FindInLayer(2, CGR_ERROR_INVALID_ARGUMENT, "softcap", { "is 2", "layer 0" }) });
}

// What is bad by itself is told once.
TEST_P(ConfigPlanned, BadNumbersAreNotComparedToo) {
  Refused(With([](GoodConfig &c, cgr_backend *b) {
            b[0].planned = CGR_PLANNED_HEADS | CGR_PLANNED_DTYPE;
            c.layers[1].num_q_heads = 3;
            c.layers[1].dtype = 99;
          }),
          { FindInLayer(1, CGR_ERROR_INVALID_ARGUMENT, "num_q_heads", { "is 3" }),
            FindInLayer(1, CGR_ERROR_INVALID_ENUM, "dtype", { "is 99" }) });
}

TEST_P(ConfigPlanned, UnknownBitsAreRefused) {
  for (uint32_t bits : { uint32_t(CGR_PLANNED_SOFTCAP) * 2, UINT32_MAX })
    Refused(With([&](GoodConfig &, cgr_backend *b) { b[1].planned = bits; }),
            { Find(CGR_ERROR_INVALID_ENUM, "backends[1].planned", { "expected CGR_PLANNED_*" }) });
  Refused(With([&](GoodConfig &, cgr_backend *b) { b[0].flags = CGR_BACKEND_PLANS_FIRST * 2; }),
          { Find(CGR_ERROR_INVALID_ENUM, "backends[0].flags", { "is 0x4", "expected CGR_BACKEND_*" }) });
}

// A plan from the host is staged: it arrives after the first plans.
TEST_P(ConfigPlanned, FirstPlansHaveNoneOfTheHosts) {
  const auto first = [](cgr_backend *b, bool plans) {
    b[0].flags = CGR_BACKEND_PLANS_FIRST;
    b[0].plan_host = PlanHost;
    b[0].plan_bytes = 64;
    b[0].plan = plans ? Plan : nullptr;
  };
  Accepted(With([&](GoodConfig &, cgr_backend *b) { first(b, false); }));
  Refused(With([&](GoodConfig &, cgr_backend *b) { first(b, true); }),
          { Find(CGR_ERROR_INVALID_ARGUMENT, "backends[0].flags", { "PLANS_FIRST", "plan_bytes 64", "expected 0" }) });
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigPlanned);

} // namespace
} // namespace cgr_test
