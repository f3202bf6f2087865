// A runtime that was asked for ranges that no tool sees: no tool, or a build without NVTX. It runs like any other, and says
// so.
#include <string>

#include "tests/support/engine.h"
#include "tests/support/found.h"
#include "tracing/nvtx.h"

namespace cgr_test {
namespace {

TEST(NoTool, TheLogSaysThatThereAreNoRanges) {
  std::vector<std::string> told;
  EngineOptions options;
  options.adjust = [&](cgr_config *config) {
    config->nvtx = 1;
    config->log_context = &told;
    config->log = [](void *context, cgr_log_level level, const char *message) {
      EXPECT_EQ(level, CGR_LOG_INFO);
      static_cast<std::vector<std::string> *>(context)->push_back(message);
    };
  };
  Captured<Engine> engine(options);
  int32_t a = engine.Start(5, 1);
  engine.Step(engine.Decode({ a }));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("nvtx"), std::string::npos) << told[0];
  EXPECT_NE(told[0].find(CGR__NVTX_BUILT ? "no tool listens" : "no NVTX"), std::string::npos) << told[0];
  EXPECT_FALSE(cgr__nvtx_open());
}

TEST(NoTool, TheBuildSaysWhetherItHasNvtx) {
  EXPECT_EQ(std::string(cgr_build_info()).find("NVTX") != std::string::npos, bool(CGR__NVTX_BUILT)) << cgr_build_info();
}

TEST(NoTool, OtherValuesAreRefused) {
  for (int32_t value : { -1, 2 }) {
    EngineOptions options;
    Engine engine(options);
    cgr_config config = engine.Config();
    config.nvtx = value;
    cgr_finding finding = {};
    int32_t count = 0;
    EXPECT_EQ(cgr_validate(&config, nullptr, &finding, 1, &count), CGR_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(count, 1);
    EXPECT_STREQ(finding.field, "nvtx");
    EXPECT_NE(std::string(finding.text).find("is " + std::to_string(value) + ", expected 0 .. 1"), std::string::npos)
        << finding.text;
  }
}

} // namespace
} // namespace cgr_test
