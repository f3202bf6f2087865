// Host memory that runs out inside a call: whichever of its allocations fails, the call says so, loses nothing, and works when it
// is made again. On the host device alone: a driver's allocations are its own.
#include <array>

#include "cgr/inspect.h"
#include "cgr/names.h"
#include "runtime/runtime.h"
#include "tests/support/count_allocations.h"
#include "tests/support/refused.h"
#include "tests/support/row_engine.h"

namespace cgr_test {
namespace {

struct Param {
  cgr_graph_mode mode;
  bool validation;
};
void PrintTo(const Param &param, std::ostream *os) {
  *os << cgr_graph_mode_name(param.mode) << (param.validation ? ", validated" : "");
}

class HostMemory : public ::testing::TestWithParam<Param> {
protected:
  void SetUp() override {
#if !CGR_COUNT_MALLOC
    GTEST_SKIP() << "malloc belongs to a sanitizer";
#endif
  }
  // Makes the call again and again, each time with a later allocation that fails, until it makes fewer; `after` each of them.
  // Some allocations are not needed. The messages of the calls that failed must have all of `words`; not over the validation
  // layer, which keeps its entries, so that later calls make fewer allocations and some of them never fail.
  void EachFails(const std::function<cgr_status()> &call, const std::function<void()> &after, const Words &words) {
    std::string messages;
    bool fired = true;
    for (uint64_t n = 1; n < 5000 && fired && !::testing::Test::HasFailure(); n++) {
      SCOPED_TRACE(n);
      failing_allocation = n;
      const cgr_status status = call();
      fired = failing_allocation == 0;
      failing_allocation = 0;
      const std::string message = status == CGR_OK ? "" : cgr_last_message();
      EXPECT_TRUE(fired || status == CGR_OK) << message;
      const bool told = status == CGR_ERROR_OUT_OF_MEMORY ||
                        (status == CGR_ERROR_CALLBACK && message.find("CGR_ERROR_OUT_OF_MEMORY") != std::string::npos);
      EXPECT_TRUE(status == CGR_OK || told) << cgr_status_name(status) << ": " << message;
      messages += message + "\n";
      after();
    }
    EXPECT_FALSE(fired) << "it always makes one more";
    for (const std::string &word : GetParam().validation ? Words() : words)
      EXPECT_NE(messages.find(word), std::string::npos) << messages << "lack: " << word;
  }
  // Nothing hears of violations: a capture that has failed is named again by what comes after it.
  cgr_device *Open() {
    const DeviceParam host = HostParam(CGR_SCHEDULE_EARLIEST);
    cgr_device_config config = host.config;
    cgr_device *dev = nullptr;
    if (GetParam().validation)
      config.layer = cgr_validation_layer();
    CGR_EXPECT_OK(cgr_device_open("host", &config, &dev));
    return dev;
  }
};

std::string LayersNeed(const cgr_config &config) {
  return "layers need " + std::to_string(size_t(config.num_layers) * sizeof(cgr_layer)) + " bytes of host memory\n";
}

// An engine whose `record` names regions, and makes a call with an address.
class EnginesHostMemory : public HostMemory {
protected:
  void SetUp() override {
    HostMemory::SetUp();
    if (IsSkipped())
      return;
    EngineOptions options = OptionsFor(HostParam(CGR_SCHEDULE_EARLIEST), GetParam().mode, { { 16, 8 } },
                                       [](cgr_config *config) { config->labels = 1; });
    options.handle = Open();
    engine_ = std::make_unique<Engine>(options);
    args_.data = engine_->Alloc(64);
    for (int32_t &region : regions_)
      CGR_ASSERT_OK(cgr_region_register(engine_->rt, engine_->Alloc(256), 256, &region));
    engine_->hook = [this](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      cgr_status status = CGR_OK;
      for (size_t i = 0; at == 0 && status == CGR_OK && i < regions_.size(); i++)
        status = cgr_record_use(recorder, regions_[i]);
      auto nothing = [](cgr_recorder *, const void *) { return CGR_OK; };
      for (int i = 0; at == 0 && status == CGR_OK && i < num_calls_; i++)
        status = cgr_record_call(recorder, nothing, &args_, sizeof args_);
      return status;
    };
    CGR_ASSERT_OK(engine_->Capture());
    row_ = engine_->Start(5);
  }
  void ExpectGoodSteps() {
    if (engine_->requests[row_]->num_tokens > 100) {
      engine_->Close(row_);
      row_ = engine_->Start(5);
    }
    engine_->Reserve(row_, engine_->requests[row_]->num_tokens + 8);
    engine_->Step(engine_->Decode({ row_ }));
    engine_->Step({ Engine::Chunk(row_, 3) });
  }
  struct {
    void *data;
    unsigned char bytes[4000];
  } args_ = {};
  int num_calls_ = 1;
  std::array<int32_t, 2> regions_ = {};
  std::unique_ptr<Engine> engine_;
  int32_t row_ = -1;
};

TEST_P(EnginesHostMemory, OfCreation) {
  const cgr_config config = engine_->Config();
  cgr_runtime *runtime = nullptr;
  EachFails([&] { return cgr_runtime_create(&config, &runtime); }, [&] { CGR_EXPECT_OK(cgr_runtime_destroy(runtime)); },
            { "cgr_runtime_create: no host memory (", LayersNeed(config), "bytes of host memory to be compared",
              "of these the flight recorder of 1024 steps takes", "cgr_runtime_create: making " });
  ExpectGoodSteps();
}

TEST_P(EnginesHostMemory, OfAdvice) {
  cgr_key_advice advice = CGR_KEY_ADVICE_INIT;
  EachFails([&] { return cgr_runtime_advise_keys(engine_->rt, 0.0, nullptr, 0, &advice); }, [&] {},
            { "cgr_runtime_advise_keys: no host memory for " });
}

TEST_P(EnginesHostMemory, OfValidation) {
  const cgr_config config = engine_->Config();
  cgr_finding finding;
  int32_t count = 0;
  EachFails([&] { return cgr_validate(&config, engine_->dev, &finding, 1, &count); }, [&] {},
            { "cgr_validate: config: no host memory (", LayersNeed(config), "bytes of host memory to be compared" });
}

TEST_P(EnginesHostMemory, OfDevices) {
  void *memory = nullptr;
  cudaStream_t stream = nullptr;
  cgr_event *event = nullptr;
  cgr_device *dev = engine_->dev;
  EachFails([&] { return cgr_memory_alloc(dev, 64, &memory); },
            [&] {
              CGR_EXPECT_OK(cgr_memory_free(dev, memory));
              memory = nullptr;
            },
            { "cgr_memory_alloc: bytes is 64: the device answered \"no memory\"" });
  EachFails([&] { return cgr_event_create(dev, &event); },
            [&] {
              if (event != nullptr)
                CGR_EXPECT_OK(cgr_event_destroy(dev, event));
              event = nullptr;
            },
            { "cgr_event_create: " });
  EachFails([&] { return cgr_stream_create(dev, &stream); },
            [&] {
              if (stream != nullptr)
                CGR_EXPECT_OK(cgr_stream_destroy(dev, stream));
              stream = nullptr;
            },
            { "cgr_stream_create: no host memory for the list of streams" });
}

TEST_P(EnginesHostMemory, OfCaptures) {
  const cgr_key key = engine_->GraphStats(0).key;
  cgr_capture capture = engine_->CaptureStruct();
  capture.keys = &key, capture.num_keys = 1;
  const char *last = GetParam().mode == CGR_MODE_PIECEWISE ? "cgr_record_call: no memory for a call of "
                                                           : "record: no memory to keep address 0x";
  const Words words = { "record: no memory to keep region " + std::to_string(regions_[0]),
                        "record: no memory to keep region " + std::to_string(regions_[1]),
                        "cgr_runtime_capture: capturing: ", last };
  EachFails(
      [&] {
        CGR_EXPECT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
        return cgr_runtime_capture(engine_->rt, &capture);
      },
      [&] { ExpectGoodSteps(); }, words);
}

// The list grows where it takes what calls at breaks keep.
TEST_P(EnginesHostMemory, OfAudits) {
  int32_t count = 0;
  const bool has_breaks = GetParam().mode == CGR_MODE_PIECEWISE;
  num_calls_ = 4;
  EachFails(
      [&] {
        const cgr_status status = cgr_runtime_audit(engine_->rt, nullptr, nullptr, 0, &count);
        return status == CGR_ERROR_AUDIT ? CGR_OK : status; // memory in no region
      },
      [&] { ExpectGoodSteps(); },
      { "cgr_runtime_audit: ", has_breaks ? "record: no memory for a list of what it has enqueued" : ": capturing: the device" });
}

TEST_P(EnginesHostMemory, OfAReleaseOfGraphs) {
  engine_->rt->graphs.device_bytes = 2; // as where the device tells memory
  EachFails([&] { return cgr_runtime_release_graphs(engine_->rt, 1, nullptr); }, [&] { ExpectGoodSteps(); },
            { "cgr_runtime_release_graphs: no memory to sort " + std::to_string(cgr_test::NumKeys(engine_->rt)) + " graphs" });
  EXPECT_EQ(engine_->Stats().num_graphs, 0);
  engine_->rt->graphs.device_bytes = 0;
}

// The self-test, with an engine in which it finds nothing.
class SelfTestsHostMemory : public HostMemory {
protected:
  void SetUp() override {
    HostMemory::SetUp();
    if (IsSkipped())
      return;
    rows::Options options;
    options.mode = GetParam().mode, options.batch_invariant = false;
    options.mixed = { { 8, 3 } };
    options.model = { { { 0, 2, 2, 64, CGR_DTYPE_BF16 }, { 1, 4, 1, 64, CGR_DTYPE_FP32 } }, 512, 1344 };
    engine_ = std::make_unique<rows::RowEngine>(HostParam(CGR_SCHEDULE_EARLIEST), 7, options);
    CGR_ASSERT_OK(engine_->Capture());
  }
  std::unique_ptr<rows::RowEngine> engine_;
};

TEST_P(SelfTestsHostMemory, OfSelfTests) {
  const std::vector<int32_t> pages = engine_->FreePages(5);
  cgr_self_test test = CGR_SELF_TEST_INIT;
  test.num_pages = 5; // of each group
  test.pages = pages.data(), test.max_token = 200;
  int32_t count = 0;
  EachFails([&] { return cgr_runtime_self_test(engine_->rt, &test, nullptr, 0, &count); }, [&] {},
            { "cgr_runtime_self_test: no memory (", "digests of ", " bytes of pages",
              "no memory for " + std::to_string(engine_->rt->setup.groups[0].num_pages) + " pages",
              "memory for pages and digests: the device", " v0: cgr_runtime_self_test: no memory for " });
}

std::string Label(const ::testing::TestParamInfo<Param> &info) {
  return std::string(cgr_graph_mode_name(info.param.mode)) + (info.param.validation ? "_validated" : "");
}

INSTANTIATE_TEST_SUITE_P(Modes, EnginesHostMemory,
                         ::testing::Values(Param{ CGR_MODE_FULL, false }, Param{ CGR_MODE_FULL, true },
                                           Param{ CGR_MODE_PIECEWISE, false }, Param{ CGR_MODE_PIECEWISE, true }),
                         Label);
INSTANTIATE_TEST_SUITE_P(Modes, SelfTestsHostMemory,
                         ::testing::Values(Param{ CGR_MODE_FULL, false }, Param{ CGR_MODE_PIECEWISE, false }), Label);

} // namespace
} // namespace cgr_test
