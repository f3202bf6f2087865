// The backend of docs/bring_your_own_kernels.md: it works, and the page shows this very code.
#include <fstream>
#include <sstream>

#include "tests/interop/own_backend.h"
#include "tests/support/engine.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

class OwnBackend : public ::testing::TestWithParam<cgr_graph_mode> {
protected:
  EngineOptions Options() {
    EngineOptions options;
    options.layout = KvLayout::kHnd;
    options.layers = { { 4, 2 }, { 4, 2 } };
    options.layers[1].scale = 0.7f;
    options.mode = GetParam();
    options.mixed = { { 8, 4 }, { 64, 8 } };
    options.adjust = [this](cgr_config *config) {
      layers_.assign(config->layers, config->layers + config->num_layers);
      for (cgr_layer &layer : layers_)
        layer.backend = 1;
      own_ = { layers_.data(), config->groups[0], config->max_requests, config->max_rows, config->max_seq_len, 0 };
      CGR_EXPECT_OK(own_backend(&own_, &backend_));
      config->layers = layers_.data();
      config->backends = &backend_;
      config->num_backends = 1;
      if (adjust_)
        adjust_(config);
    };
    return options;
  }
  own_engine own_;
  cgr_backend backend_;
  std::vector<cgr_layer> layers_;
  std::function<void(cgr_config *)> adjust_;
};

TEST_P(OwnBackend, ServesARuntime) {
  SeededRandom random;
  {
    Engine engine(Options());
    CGR_ASSERT_OK(engine.Warmup());
    CGR_ASSERT_OK(engine.Capture());
    EXPECT_EQ(own_.num_states, cgr_test::NumKeys(engine.rt) + 1);
    EXPECT_EQ(cgr_test::ModeOf(engine.rt), GetParam());
    std::vector<int32_t> rows = { engine.Open(), engine.Open(), engine.Open() };
    for (int n = 0; n < 40 && !HasFatalFailure(); n++) {
      std::vector<std::pair<int32_t, int32_t>> chunks;
      for (int32_t row : rows)
        chunks.push_back({ row, n % 2 == 0 ? 1 : random.Pick32(0, 5) });
      engine.PoisonUnowned(std::numeric_limits<double>::quiet_NaN());
      engine.Step(engine.Chunks(chunks));
      EXPECT_EQ(engine.step.key.kind, GetParam() == CGR_MODE_FULL ? CGR_KIND_FULL : CGR_KIND_PIECEWISE);
    }
  }
  EXPECT_EQ(own_.num_states, 0);
}

TEST_P(OwnBackend, RefusesWhatItCannotRun) {
  Engine engine(Options());
  adjust_ = [this](cgr_config *) { layers_[1].softcap = 30.0f; };
  const cgr_config config = engine.Config();
  cgr_finding finding;
  int32_t count = 0;
  CGR_EXPECT(CGR_ERROR_UNSUPPORTED, cgr_validate(&config, engine.dev, &finding, 1, &count));
  EXPECT_EQ(count, 1);
  EXPECT_NE(std::string(finding.text).find("is for plain attention in fp32"), std::string::npos) << finding.text;
}

INSTANTIATE_TEST_SUITE_P(Modes, OwnBackend, ::testing::Values(CGR_MODE_FULL, CGR_MODE_PIECEWISE));

std::string ReadFile(const char *path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(BringYourOwnKernels, ThePageQuotesTheCodeThatIsTested) {
  const std::string page = ReadFile("docs/bring_your_own_kernels.md"), code = ReadFile("tests/interop/own_backend.c");
  ASSERT_FALSE(code.empty());
  EXPECT_LT(std::count(code.begin(), code.end(), '\n'), 100);
  EXPECT_NE(page.find("in under 100 lines:\n\n```c\n" + code + "```\n"), std::string::npos)
      << "docs/bring_your_own_kernels.md differs from tests/interop/own_backend.c";
  const std::string header = ReadFile("tests/interop/own_backend.h"), last = "} own_args;\n";
  const size_t begin = header.find("/* What the engine knows"), end = header.find(last);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos);
  EXPECT_NE(page.find("```c\n" + header.substr(begin, end + last.size() - begin) + "```\n"), std::string::npos)
      << "docs/bring_your_own_kernels.md differs from tests/interop/own_backend.h";
}

} // namespace
} // namespace cgr_test
