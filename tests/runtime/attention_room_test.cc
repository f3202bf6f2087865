// A multiprocessor with more shared memory than attention can fill may hold CTAs that the plan does not count on: the log says
// so.
#include "cgr/names.h"
#include "tests/emulation/device.h"
#include "tests/support/engine.h"

namespace cgr_test {
namespace {

class AttentionRoom : public ::testing::Test {
protected:
  void SetUp() override {
    if (EmulationLayer() == nullptr)
      GTEST_SKIP() << "no emulation";
  }
  void TearDown() override { cgr_emulation::SetSharedMemory(cgr_emulation::kSharedMemory); }
  static std::vector<std::string> Logged(int32_t shared_memory, int32_t head_dim) {
    static std::vector<std::string> logged;
    logged.clear();
    cgr_emulation::SetSharedMemory(shared_memory);
    EngineOptions options = OptionsFor(EmulatedParam());
    options.layers = { { 2, 1, head_dim } };
    options.adjust = [](cgr_config *config) {
      config->log = [](void *, cgr_log_level level, const char *text) {
        logged.push_back(std::string(cgr_log_level_name(level)) + ": " + text);
      };
    };
    Engine engine(options);
    return logged;
  }
};

TEST_F(AttentionRoom, IsToldWhenThereIsTooMuch) {
  for (int32_t head_dim : { 64, 128 }) { // two CTAs to a multiprocessor, so a third has to be kept away
    EXPECT_EQ(Logged(cgr_emulation::kSharedMemory, head_dim), std::vector<std::string>());
    EXPECT_EQ(Logged(3 * (80 << 10), head_dim), std::vector<std::string>());
    const std::vector<std::string> logged = Logged(3 * (80 << 10) + 3, head_dim);
    ASSERT_EQ(logged.size(), 1u);
    for (const char *word : { "warning", "attention", "81921 bytes of shared memory", "expected at most 81920" })
      EXPECT_NE(logged[0].find(word), std::string::npos) << logged[0];
  }
}

} // namespace
} // namespace cgr_test
