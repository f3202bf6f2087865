// Resources that graphs hold, ranges, and the end of a runtime that another thread gives up (cgr/collectives.h).
#include <thread>

#include "cgr/collectives.h"
#include "tests/support/gate.h"
#include "tests/support/seed.h"
#include "tests/support/tiny_engine.h"

namespace cgr_test {
namespace {

cgr_resource Resource(const char *name, void (*gone)(void *) = nullptr, void *context = nullptr) {
  cgr_resource r = CGR_RESOURCE_INIT;
  r.name = name, r.gone = gone, r.context = context;
  return r;
}

uint64_t Register(cgr_runtime *rt, const cgr_resource &r) {
  uint64_t number = 0;
  CGR_EXPECT_OK(cgr_resource_register(rt, &r, &number));
  return number;
}

int32_t GraphsOf(cgr_runtime *rt, uint64_t number) {
  int32_t count = -1;
  CGR_EXPECT_OK(cgr_resource_count_graphs(rt, number, &count));
  return count;
}

class Resources : public ::testing::Test {
protected:
  void Make(cgr_graph_mode mode, std::function<cgr_status(cgr_recorder *)> also,
            std::function<void(cgr_config *)> adjust = nullptr) {
    engine_.reset(new TinyEngine(device_, TinyOptions{ mode, 0, 0, { {} }, {}, 0, false, std::move(adjust), std::move(also) }));
  }
  cgr_runtime *rt() { return engine_->rt; }
  HostDevice device_{ CGR_SCHEDULE_ASYNC };
  std::unique_ptr<TinyEngine> engine_;
};

TEST_F(Resources, AreHeldByTheGraphsThatUseThem) {
  uint64_t used = 0, other = 0;
  for (const cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    Make(mode, [&](cgr_recorder *recorder) { // the mixed graph alone
      return InfoOf(recorder).key.query_len == 0 ? cgr_record_use_resource(recorder, used) : CGR_OK;
    });
    used = Register(rt(), Resource("used"));
    other = Register(rt(), Resource("other"));
    EXPECT_NE(used, other);
    CGR_ASSERT_OK(engine_->Capture());
    EXPECT_EQ(GraphsOf(rt(), used), 1);
    EXPECT_EQ(GraphsOf(rt(), other), 0);
    ExpectMessage(cgr_resource_unregister(rt(), used), CGR_ERROR_STATE,
                  { "cgr_resource_unregister: used is held by 1 graph, expected none" });
    CGR_EXPECT_OK(cgr_resource_unregister(rt(), other));
    ExpectMessage(cgr_resource_unregister(rt(), other), CGR_ERROR_INVALID_ARGUMENT,
                  { "expected that of a resource of this runtime" });
    const cgr_capture again = CaptureOf([](cgr_recorder *, void *) { return CGR_OK; }, nullptr);
    (void)cgr_runtime_capture(rt(), &again); // all graphs are stale, or made anew without it
    CGR_EXPECT_OK(cgr_runtime_release_graphs(rt(), 0, nullptr));
    CGR_EXPECT_OK(cgr_resource_unregister(rt(), used));
  }
}

// A number is of one runtime, and of one registration.
TEST_F(Resources, OfAnotherRuntimeAreRefused) {
  uint64_t number = 0;
  Make(CGR_MODE_NONE, [&](cgr_recorder *recorder) { return cgr_record_use_resource(recorder, number); });
  TinyEngine other(device_, CGR_MODE_NONE);
  number = Register(other.rt, Resource("of the other"));
  EXPECT_NE(Register(rt(), Resource("its own, in the same place")), number);
  ExpectMessage(engine_->Capture(), CGR_OK, {});
  int32_t row = -1;
  const int32_t page = 5, token = 1;
  CGR_ASSERT_OK(cgr_request_open(rt(), 1, &row));
  CGR_ASSERT_OK(cgr_request_set_pages(rt(), row, 0, 0, &page, 1));
  const cgr_batch batch = BatchOf(1, &row, &token);
  cgr_step step = CGR_STEP_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(rt(), &batch, &step));
  ExpectMessage(cgr_step_launch(rt(), &step, engine_->stream), CGR_ERROR_CALLBACK,
                { "cgr_record_use_resource: number is ", "expected that of a resource of this runtime" });
}

TEST_F(Resources, MustNotBeInUseByStepsWhenTheyGo) {
  Make(CGR_MODE_NONE, nullptr);
  CGR_ASSERT_OK(engine_->Capture());
  Gate gate(device_, engine_->stream);
  const uint64_t number = Register(rt(), Resource("used"));
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(rt(), &batch, &step));
  ExpectMessage(cgr_resource_unregister(rt(), number), CGR_ERROR_STATE, { "cgr_resource_unregister: a step is prepared" });
  CGR_ASSERT_OK(cgr_step_launch(rt(), &step, engine_->stream));
  ExpectMessage(cgr_resource_unregister(rt(), number), CGR_ERROR_STATE,
                { "cgr_resource_unregister: used may be in use by steps in flight (" });
  gate.Open();
  CGR_EXPECT_OK(cgr_step_wait(rt(), step.mark, -1, nullptr));
  CGR_EXPECT_OK(cgr_resource_unregister(rt(), number));
}

// The last one first, when the graphs are gone, and each once.
TEST_F(Resources, AreToldOfTheRuntimesEnd) {
  static std::vector<int> order;
  order.clear();
  Make(CGR_MODE_FULL, nullptr);
  static int numbers[4] = { 0, 1, 2, 3 };
  const auto gone = [](void *context) { order.push_back(*static_cast<int *>(context)); };
  Register(rt(), Resource("0", gone, &numbers[0]));
  const uint64_t leaves = Register(rt(), Resource("1", gone, &numbers[1]));
  Register(rt(), Resource("2", gone, &numbers[2]));
  CGR_EXPECT_OK(cgr_resource_unregister(rt(), leaves));
  Register(rt(), Resource("3", gone, &numbers[3]));
  engine_.reset();
  EXPECT_EQ(order, (std::vector<int>{ 3, 2, 0 }));
}

// What a resource allocates on a device of the runtime's own goes with it.
TEST(ResourcesOfAnOwnDevice, TakeTheirAllocationsWithThem) {
  static void *memory;
  static cgr_device *device;
  cgr_config config = CGR_CONFIG_INIT;
  config.device = "host";
  cgr_group group = CGR_GROUP_INIT;
  group.num_pages = 3;
  config.groups = &group, config.num_groups = 1;
  config.max_requests = config.max_tokens = 1, config.max_seq_len = 16;
  config.graph_mode = CGR_MODE_NONE;
  cgr_runtime *rt = nullptr;
  CGR_ASSERT_OK(cgr_runtime_create(&config, &rt));
  CGR_ASSERT_OK(cgr_runtime_device(rt, &device));
  CGR_ASSERT_OK(cgr_memory_alloc(device, 64, &memory));
  EXPECT_EQ(cgr_runtime_destroy(rt), CGR_ERROR_STATE);
  cgr_resource resource = Resource("with memory", [](void *) { CGR_EXPECT_OK(cgr_memory_free(device, memory)); });
  resource.allocations = 1;
  Register(rt, resource);
  CGR_EXPECT_OK(cgr_runtime_destroy(rt));
}

TEST_F(Resources, AreRefusedByName) {
  Make(CGR_MODE_NONE, nullptr);
  uint64_t number = 0;
  const auto refused = [&](cgr_resource r, cgr_status status, const std::string &says) {
    ExpectMessage(cgr_resource_register(rt(), &r, &number), status, { "cgr_resource_register: " + says });
  };
  refused(Resource(nullptr), CGR_ERROR_NULL_POINTER, "resource.name is NULL");
  refused(Resource(""), CGR_ERROR_INVALID_ARGUMENT, "resource.name is \"\", expected 1 .. 47 characters");
  refused(Resource(std::string(48, 'x').c_str()), CGR_ERROR_INVALID_ARGUMENT, "resource.name is \"xxxx");
  cgr_resource r = Resource("x");
  r.allocations = -1;
  refused(r, CGR_ERROR_INVALID_ARGUMENT, "resource.allocations is -1, expected 0 .. 1024");
  r = Resource("x");
  EXPECT_EQ(cgr_resource_register(rt(), &r, nullptr), CGR_ERROR_NULL_POINTER);
  for (int i = 0; i < CGR_MAX_RESOURCES; i++)
    number = Register(rt(), r);
  refused(r, CGR_ERROR_OUT_OF_MEMORY, "the runtime has 64 resources");
  CGR_EXPECT_OK(cgr_resource_unregister(rt(), number));
  const uint64_t again = Register(rt(), r);
  EXPECT_NE(again, number) << "a number is not given twice";
}

/* ----------------------------------------------------------------------------------------------------------------- ranges */

TEST_F(Resources, RangesAreAmongTheLabels) {
  for (const char *name : { "all-reduce of \"logits\"", "x" }) {
    Make(
        CGR_MODE_FULL,
        [&](cgr_recorder *recorder) {
          cgr_status status = cgr_record_range_begin(recorder, name);
          void *next = RecordBuffer(recorder, CGR_BUFFER_NEXT_TOKENS, &status);
          if (status == CGR_OK)
            status = cgr_copy(device_, next, next, 4, InfoOf(recorder).stream);
          return status == CGR_OK ? cgr_record_range_end(recorder) : status;
        },
        [](cgr_config *config) { config->labels = 1; });
    CGR_ASSERT_OK(engine_->Capture());
    size_t length = 0;
    CGR_ASSERT_OK(cgr_runtime_graph_labels(rt(), nullptr, 0, &length));
    std::string text(length + 1, ' ');
    CGR_ASSERT_OK(cgr_runtime_graph_labels(rt(), &text[0], text.size(), &length));
    const std::string quoted = name[1] ? "all-reduce of \\\"logits\\\"" : "x";
    EXPECT_NE(text.find("{\"phase\": \"" + quoted + "\", \"layer\": null, \"backend\": null, \"nodes\": [\"copy\"]"),
              std::string::npos)
        << text.substr(0, 3000);
  }
}

struct BadRange {
  const char *name;
  std::function<void(cgr_recorder *)> does;
  std::string says;
};

class Ranges : public ::testing::TestWithParam<BadRange> {};

TEST_P(Ranges, ThatAreNotRightGiveUpTheCapture) {
  HostDevice device;
  TinyEngine engine(device, TinyOptions{ CGR_MODE_FULL, 0, 0, { {} }, {}, 0, false, nullptr, [](cgr_recorder *recorder) {
                                          GetParam().does(recorder);
                                          return CGR_OK;
                                        } });
  ExpectMessage(engine.Capture(), CGR_ERROR_CALLBACK, { GetParam().says });
}
const BadRange kBadRanges[] = {
  { "NotEnded", [](cgr_recorder *r) { (void)cgr_record_range_begin(r, "x"); },
    "1 range is not ended, expected cgr_record_range_end" },
  { "NotBegun", [](cgr_recorder *r) { (void)cgr_record_range_end(r); }, "cgr_record_range_end: no range has begun" },
  { "NoName", [](cgr_recorder *r) { (void)cgr_record_range_begin(r, ""); }, "name is \"\" and then nothing, expected 1 .. 79" },
  { "Null", [](cgr_recorder *r) { (void)cgr_record_range_begin(r, nullptr); }, "cgr_record_range_begin: name is NULL" },
  { "Control", [](cgr_recorder *r) { (void)cgr_record_range_begin(r, "a\nb"); }, "name is \"a\" and then a control character" },
  { "Long", [](cgr_recorder *r) { (void)cgr_record_range_begin(r, std::string(80, 'y').c_str()); },
    "cgr_record_range_begin: name is \"yyy" },
  { "NoFailure", [](cgr_recorder *r) { (void)cgr_record_fail(r, CGR_OK); },
    "cgr_record_fail: status is CGR_OK, expected a failure" },
};
INSTANTIATE_TEST_SUITE_P(Of, Ranges, ::testing::ValuesIn(kBadRanges),
                         [](const auto &bad) { return std::string(bad.param.name); });

/* -------------------------------------------------------------------------------------------------------------------- end */

// While its own thread waits for a step that does not end.
TEST_F(Resources, ARuntimeIsAbandonedByAnotherThread) {
  Make(CGR_MODE_NONE, nullptr);
  CGR_ASSERT_OK(engine_->Capture());
  Gate gate(device_, engine_->stream);
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  cgr_progress progress = CGR_PROGRESS_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(rt(), &batch, &step));
  CGR_ASSERT_OK(cgr_step_launch(rt(), &step, engine_->stream));
  std::thread other([&] {
    CGR_EXPECT_OK(cgr_runtime_progress(rt(), &progress));
    usleep(20000);
    CGR_EXPECT_OK(cgr_runtime_abandon(rt(), "rank 1 does not come"));
    CGR_EXPECT_OK(cgr_runtime_abandon(rt(), "too late"));
  });
  ExpectMessage(cgr_step_wait(rt(), step.mark, 20000, nullptr), CGR_ERROR_DEAD, { "abandoned: rank 1 does not come" });
  other.join();
  EXPECT_EQ(progress.launched, step.mark.seq);
  EXPECT_EQ(progress.completed, step.mark.seq - 1);
  EXPECT_EQ(progress.dead, 0);
  CGR_EXPECT_OK(cgr_runtime_progress(rt(), &progress));
  EXPECT_EQ(progress.dead, 1);
  ExpectMessage(cgr_step_prepare(rt(), &batch, &step), CGR_ERROR_DEAD, { "rank 1 does not come" });
}

// A step that completes because of what ended the wait is no good one, whatever the thread that waits sees first.
TEST_F(Resources, AStepThatEndsAfterTheRuntimeIsAbandonedHasNoResult) {
  for (int time = 0; time < 40; time++) {
    Make(CGR_MODE_NONE, nullptr);
    CGR_ASSERT_OK(engine_->Capture());
    Gate gate(device_, engine_->stream);
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    CGR_ASSERT_OK(cgr_step_prepare(rt(), &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(rt(), &step, engine_->stream));
    std::thread other([&] {
      usleep(500);
      CGR_EXPECT_OK(cgr_runtime_abandon(rt(), "of the test"));
      gate.Open();
    });
    EXPECT_EQ(cgr_step_wait(rt(), step.mark, 20000, nullptr), CGR_ERROR_DEAD);
    other.join();
  }
}

TEST_F(Resources, AStepOfAnAbandonedRuntimeHasNoResult) {
  Make(CGR_MODE_NONE, nullptr);
  CGR_ASSERT_OK(engine_->Capture());
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(rt(), &batch, &step));
  CGR_ASSERT_OK(cgr_step_launch(rt(), &step, engine_->stream));
  CGR_ASSERT_OK(cgr_stream_synchronize(device_, engine_->stream));
  CGR_EXPECT_OK(cgr_runtime_abandon(rt(), "of the test"));
  EXPECT_EQ(cgr_step_wait(rt(), step.mark, -1, nullptr), CGR_ERROR_DEAD);
  EXPECT_EQ(cgr_runtime_abandon(nullptr, "x"), CGR_ERROR_NULL_POINTER);
  EXPECT_EQ(cgr_runtime_abandon(rt(), nullptr), CGR_ERROR_NULL_POINTER);
  cgr_progress progress = CGR_PROGRESS_INIT;
  EXPECT_EQ(cgr_runtime_progress(nullptr, &progress), CGR_ERROR_NULL_POINTER);
}

} // namespace
} // namespace cgr_test
