// All layers of a backend must have in common what its plan is made for; another kind of layer takes another backend.
#include <algorithm>
#include <set>

#include "tests/support/config_case.h"

namespace cgr_test {
namespace {

constexpr uint32_t kAll = uint32_t(CGR_PLANNED_SOFTCAP) * 2 - 1;

cgr_status Plan(void *, void *, cgr_recorder *, uint32_t, int32_t) { return CGR_OK; }
cgr_status PlanHost(void *, void *, const cgr_plan_step *) { return CGR_OK; }

// A member of a layer, and two valid values for it.
struct Member {
  uint32_t bit;
  const char *name;
  const char *says; // of layer 1 where it differs
  std::function<void(cgr_layer *)> differ;
};

const std::vector<Member> &Members() {
  static const std::vector<Member> members = {
    { CGR_PLANNED_GROUP, "group", "is 1, expected 0", [](cgr_layer *l) { l->group = 1; } },
    { CGR_PLANNED_HEADS, "num_q_heads", "is 8, expected 4", [](cgr_layer *l) { l->num_q_heads = 8; } },
    { CGR_PLANNED_HEADS, "num_kv_heads", "is 1, expected 2", [](cgr_layer *l) { l->num_kv_heads = 1; } },
    { CGR_PLANNED_HEAD_DIM, "head_dim", "is 32, expected 64",
      [](cgr_layer *l) { l->head_dim = 32, l->head_dim_v = 64, l->scale = 0.125f; } },
    { CGR_PLANNED_HEAD_DIM, "head_dim_v", "is 32, expected 64", [](cgr_layer *l) { l->head_dim_v = 32; } },
    { CGR_PLANNED_DTYPE, "dtype", "is fp16, expected bf16",
      [](cgr_layer *l) { l->dtype = CGR_DTYPE_FP16, l->q_dtype = l->out_dtype = CGR_DTYPE_BF16; } },
    { CGR_PLANNED_DTYPE, "q_dtype", "is fp8_e4m3, expected bf16", [](cgr_layer *l) { l->q_dtype = CGR_DTYPE_FP8_E4M3; } },
    { CGR_PLANNED_DTYPE, "out_dtype", "is fp32, expected bf16", [](cgr_layer *l) { l->out_dtype = CGR_DTYPE_FP32; } },
    { CGR_PLANNED_DTYPE, "k.dtype", "is fp16, expected bf16",
      [](cgr_layer *l) { l->k.dtype = CGR_DTYPE_FP16, l->dtype = CGR_DTYPE_BF16; } },
    { CGR_PLANNED_DTYPE, "v.dtype", "is fp16, expected bf16", [](cgr_layer *l) { l->v.dtype = CGR_DTYPE_FP16; } },
    { CGR_PLANNED_WINDOW, "window_left", "is 100000001, expected 0", [](cgr_layer *l) { l->window_left = 100000001; } },
    { CGR_PLANNED_WINDOW, "window_right", "is 7, expected 0", [](cgr_layer *l) { l->window_right = 7; } },
    { CGR_PLANNED_WINDOW, "chunk", "is 64, expected 0", [](cgr_layer *l) { l->chunk = 64; } },
    { CGR_PLANNED_WINDOW, "flags", "is 0x5, expected 0",
      [](cgr_layer *l) { l->flags = CGR_LAYER_BIDIRECTIONAL | CGR_LAYER_ALIBI_SQRT; } },
    { CGR_PLANNED_SCALE, "scale", "is 0.125000015, expected 0.125 ", [](cgr_layer *l) { l->scale = 0.125000015f; } },
    { CGR_PLANNED_SOFTCAP, "softcap", "is 30, expected 0", [](cgr_layer *l) { l->softcap = 30.0f; } },
  };
  return members;
}

class ConfigPlanned : public ConfigTest {
protected:
  // Two backends alike; layers 0 and 1 are the first's.
  void SetUp() override {
    ConfigTest::SetUp();
    more_ = [](Good &c) {
      c.AddBackends();
      c.backends[0].flags = c.backends[1].flags = CGR_BACKEND_APPENDS; // so that dtypes and dims are its own affair
      c.layers[0].backend = c.layers[1].backend = 1;
      c.groups[1].num_pages = Good::kPages;
      c.config.num_groups = 2;
    };
  }
};

TEST_P(ConfigPlanned, LayersMayDifferInAnythingElseOrHaveAnotherBackend) {
  for (const Member &member : Members()) {
    SCOPED_TRACE(member.name);
    Refused([&](Good &c) { c.backends[0].planned = member.bit, member.differ(&c.layers[1]); }, kArgument,
            std::string("layers[1].") + member.name + " " + member.says +
                " ... layer 0 ... one plan of backend first serves both ... give one of them a backend of its own");
    Accepted([&](Good &c) { c.backends[0].planned = kAll & ~member.bit, member.differ(&c.layers[1]); });
    Accepted([&](Good &c) {
      c.backends[0].planned = c.backends[1].planned = kAll;
      c.layers[1].backend = 2;
      member.differ(&c.layers[1]);
    });
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
      Good c(device_, more_);
      c.backends[0].planned = kAll;
      std::memcpy(reinterpret_cast<char *>(&c.layers[1]) + at, &word, sizeof word);
      cgr_finding list[16];
      int32_t count = 0;
      (void)cgr_validate(&c.config, nullptr, list, 16, &count);
      for (int32_t i = 0; i < std::min(count, 16); i++)
        if (std::strstr(list[i].text, "one plan of backend") != nullptr)
          found.insert(std::strchr(list[i].field, '.') + 1);
    }
  EXPECT_EQ(found, rows);
}

TEST_P(ConfigPlanned, EveryLayerIsHeldAgainstTheFirst) {
  Refused(
      [](Good &c) {
        c.backends[0].planned = CGR_PLANNED_WINDOW | CGR_PLANNED_SOFTCAP;
        c.layers[2].backend = 1;
        c.layers[1].window_left = 5;
        c.layers[2].softcap = 2.0f;
      },
      { { kArgument, "layers[1].window_left is 5 ... layer 0" }, { kArgument, "layers[2].softcap is 2 ... layer 0" } });
}

// What is bad by itself is told once.
TEST_P(ConfigPlanned, BadNumbersAreNotComparedToo) {
  Refused(
      [](Good &c) {
        c.backends[0].planned = CGR_PLANNED_HEADS | CGR_PLANNED_DTYPE;
        c.layers[1].num_q_heads = 3;
        c.layers[1].dtype = 99;
      },
      { { kArgument, "layers[1].num_q_heads is 3" }, { kEnum, "layers[1].dtype is 99" } });
}

TEST_P(ConfigPlanned, UnknownBitsAreRefused) {
  const std::string names = "expected CGR_PLANNED_* (group, heads, head dim, dtype, window, scale, softcap)";
  for (uint32_t bits : { kAll + 1, UINT32_MAX })
    Refused([=](Good &c) { c.backends[1].planned = bits; }, kEnum, "backends[1].planned ... " + names);
  Refused([](Good &c) { c.backends[0].planned = 0x80000000u; }, kEnum, "backends[0].planned is 0x80000000, " + names);
}

// A plan from the host is staged: it arrives after the first plans.
TEST_P(ConfigPlanned, FirstPlansHaveNoneOfTheHosts) {
  const auto first = [](Good &c) {
    c.backends[0].flags = CGR_BACKEND_PLANS_FIRST;
    c.backends[0].plan_host = PlanHost;
    c.backends[0].plan_bytes = 64;
  };
  Accepted(first);
  Refused([&](Good &c) { first(c), c.backends[0].plan = Plan; }, kArgument,
          "backends[0].flags ... PLANS_FIRST ... plan_bytes 64 ... expected 0");
}

CGR_INSTANTIATE_CONFIG_TEST(ConfigPlanned);

} // namespace
} // namespace cgr_test
