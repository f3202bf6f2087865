// The audit finds nothing if graphs hold only what they may, and names each thing that they must not hold.
#include <cstring>
#include <set>

#include "cgr/inspect.h"
#include "cgr/names.h"
#include "tests/support/found.h"
#include "tests/support/row_engine.h"

namespace cgr_test {
namespace {

using rows::RowEngine;

class Audit : public OverDevices {
protected:
  // Captured, with all of the engine's memory in regions except what `leave_out` names (an index of Memory()).
  void Make(cgr_graph_mode mode, const std::set<size_t> &leave_out = {}) {
    rows::Options options;
    options.mode = mode, options.batch_invariant = false;
    options.mixed = { { 8, 3 }, { 40, 12 } };
    engine_.reset();
    regions_.clear();
    engine_ = std::make_unique<RowEngine>(GetParam(), Seed(), options);
    for (size_t i = 0; i < engine_->Memory().size(); i++)
      regions_.push_back(leave_out.count(i) > 0 ? -1 : Register(i));
    CGR_ASSERT_OK(engine_->Capture());
  }
  int32_t Register(size_t index) {
    const auto [base, bytes] = engine_->Memory()[index];
    return NewRegion(engine_->rt, base, bytes);
  }
  size_t IndexOf(const void *base) const {
    size_t index = 0;
    while (engine_->Memory().at(index).first != base)
      index++;
    return index;
  }
  Found Run(int32_t capacity = 64) {
    return Collect(capacity, [this](cgr_finding *findings, int32_t room, int32_t *count) {
      return cgr_runtime_audit(engine_->rt, &counts_, findings, room, count);
    });
  }
  // `count` findings, each of which contains `word`.
  void ExpectAll(const Found &found, int32_t count, const std::string &word) {
    ExpectFound(found, CGR_ERROR_AUDIT, { word });
    EXPECT_EQ(found.count, count);
  }
  int32_t NumKeys() const { return cgr_test::NumKeys(engine_->rt); }
  std::vector<cgr_graph_stats> AllStats() {
    std::vector<cgr_graph_stats> all(size_t(NumKeys()), cgr_graph_stats CGR_GRAPH_STATS_INIT);
    for (int32_t i = 0; i < NumKeys(); i++)
      CGR_EXPECT_OK(cgr_runtime_graph_stats(engine_->rt, i, &all[size_t(i)]));
    return all;
  }
  // Captures everything again, with the hook, and audits it.
  Found RunWith(std::function<cgr_status(cgr_recorder *, const cgr_record_info &)> hook) {
    engine_->hook = std::move(hook);
    CGR_EXPECT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    CGR_EXPECT_OK(engine_->Capture());
    return Run();
  }
  void ExpectGoodStep() {
    const int32_t row = engine_->Open();
    engine_->Reserve(row, 8);
    EXPECT_EQ(engine_->Run({ { row, { 1, 2, 3 }, false } }).size(), 1u);
    engine_->Close(row);
  }
  std::unique_ptr<RowEngine> engine_;
  cgr_audit counts_ = CGR_AUDIT_INIT; // of the last one
  std::vector<int32_t> regions_;      // of Memory()
};

TEST_P(Audit, FindsNothingWhereAllMemoryIsInRegions) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_FULL_AND_PIECEWISE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    Make(mode);
    ExpectGoodStep();
    const std::vector<cgr_graph_stats> before = AllStats();
    const Found found = Run();
    ExpectNothing(found);
    EXPECT_EQ(counts_.num_graphs, NumKeys());
    EXPECT_EQ(counts_.num_hidden, 0);
    int64_t nodes = 0;
    for (const cgr_graph_stats &stats : before)
      nodes += stats.num_nodes;
    const int64_t breaks = counts_.num_nodes - nodes;
    const int64_t of_each = 2 * int64_t(engine_->model.layers.size()); // the append of each layer and a call of its backend
    if (mode != CGR_MODE_FULL_AND_PIECEWISE) {
      EXPECT_EQ(breaks, mode == CGR_MODE_FULL ? 0 : of_each * NumKeys());
    }
    EXPECT_GT(counts_.num_addresses, 5 * counts_.num_nodes);
    const std::vector<cgr_graph_stats> after = AllStats();
    EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size() * sizeof before[0]), 0) << "no key knows of it";
    ExpectGoodStep();
  }
}

// Each allocation is named once, however many nodes and graphs hold an address in it.
TEST_P(Audit, NamesMemoryThatIsInNoRegion) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    Make(mode);
    const std::set<size_t> two = { IndexOf(engine_->LastKeys().data), IndexOf(engine_->LastOut().data) };
    Make(mode, two);
    const Found found = Run();
    ExpectAll(found, 2, "is in no region");
    const std::string key = mode == CGR_MODE_FULL ? "full" : "piecewise";
    for (const cgr_finding &finding : found.findings) {
      EXPECT_EQ(std::string(finding.field).rfind(key, 0), 0u) << finding.field;
      EXPECT_EQ(std::string(finding.text).rfind("node ", 0), 0u) << finding.text;
    }
    ExpectAll(Run(1), 2, "is in no region"); // all are counted
    for (size_t index : two)
      Register(index);
    ExpectNothing(Run());
  }
}

TEST_P(Audit, NamesARegionThatRecordHasNotNamed) {
  Make(CGR_MODE_FULL_DECODE_ONLY);
  // Naming one region is enough: everything the graphs hold is in memory that views of attention calls begin in, or is the
  // runtime's own.
  ExpectNothing(RunWith([&](cgr_recorder *recorder, const cgr_record_info &) { return cgr_record_use(recorder, regions_[0]); }));
  // A kernel that holds an address elsewhere, without and with its name.
  void *memory = nullptr;
  int32_t region = -1;
  CGR_ASSERT_OK(cgr_memory_alloc(engine_->dev, 256, &memory));
  CGR_ASSERT_OK(cgr_region_register(engine_->rt, memory, 256, &region));
  bool names = false;
  auto hook = [&](cgr_recorder *recorder, const cgr_record_info &info) {
    CGR_EXPECT_OK(cgr_fill(engine_->dev, memory, 0, 256, info.stream));
    return cgr_record_use(recorder, names ? region : regions_[0]);
  };
  const Found found = RunWith(hook);
  ExpectAll(found, NumKeys(), "has not named"); // of every graph
  EXPECT_NE(std::string(found.findings[0].text).find("fill"), std::string::npos) << found.findings[0].text;
  EXPECT_NE(std::string(found.findings[0].text).find("region " + std::to_string(region)), std::string::npos);
  names = true;
  ExpectNothing(RunWith(hook));
  ExpectNothing(RunWith(nullptr)); // a graph that names nothing holds all
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  CGR_ASSERT_OK(cgr_memory_free(engine_->dev, memory));
}

struct Number {
  int64_t same;
  int32_t other, reserved;
};
void Ignore(const void *) {}
cgr_status IgnoreCall(cgr_recorder *, const void *) { return CGR_OK; }

// A number that the host had at the capture: in a node, and in what a break keeps.
TEST_P(Audit, NamesANumberThatChangesFromCaptureToCapture) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE })
    for (bool at_break : { false, true }) {
      Make(mode);
      int32_t captures = 0;
      const Found found = RunWith([&](cgr_recorder *recorder, const cgr_record_info &info) {
        const Number number = { 5, ++captures, 0 };
        return at_break ? cgr_record_call(recorder, IgnoreCall, &number, sizeof number)
                        : cgr_launch_host(engine_->dev, Ignore, &number, sizeof number, info.stream);
      });
      if (mode == CGR_MODE_FULL && at_break) { // nothing is kept of a call made at capture
        ExpectNothing(found);
        continue;
      }
      ExpectAll(found, 1, "in one capture");
      const std::string text = found.findings.empty() ? "" : found.findings[0].text;
      EXPECT_NE(text.find("parameter 0, byte 8"), std::string::npos) << text;
      EXPECT_NE(text.find(at_break ? "(call 0x" : "(host function 0x"), std::string::npos) << text;
    }
}

// An address that moves within its region, as from a pool, is not such a number.
TEST_P(Audit, AnotherAddressInARegionIsNotANumber) {
  Make(CGR_MODE_FULL);
  int32_t captures = 0;
  ExpectNothing(RunWith([&](cgr_recorder *, const cgr_record_info &info) {
    unsigned char *out = static_cast<unsigned char *>(engine_->LastOut().data);
    return cgr_fill(engine_->dev, out + 16 * (++captures % 2), 0, 16, info.stream);
  }));
}

TEST_P(Audit, NamesAKeyWhoseNodesChange) {
  Make(CGR_MODE_FULL);
  int32_t captures = 0;
  const Found found = RunWith([&](cgr_recorder *, const cgr_record_info &info) {
    return ++captures % 2 == 0 ? CGR_OK : cgr_fill(engine_->dev, engine_->LastOut().data, 0, 16, info.stream);
  });
  ExpectAll(found, NumKeys(), "other work the second time");
}

// A copy in place of a fill, with as many words.
TEST_P(Audit, NamesAKeyWhoseNodesChangeInKind) {
  Make(CGR_MODE_FULL);
  int32_t captures = 0;
  unsigned char *out = static_cast<unsigned char *>(engine_->LastOut().data);
  ExpectAll(RunWith([&](cgr_recorder *, const cgr_record_info &info) {
              return ++captures % 2 == 0 ? cgr_copy(engine_->dev, out, out + 32, 16, info.stream)
                                         : cgr_fill(engine_->dev, out, 0, 16, info.stream);
            }),
            NumKeys(), "other work the second time");
}

// The order of fills, the function of a host node or of a call at a break, or where a piece ends differs; the words are the same.
TEST_P(Audit, NamesAKeyWhoseNodesAreOthersWithTheSameWords) {
  static const auto first = [](const void *) {};
  static const auto second = [](const void *raw) { (void)raw; };
  static const auto first_call = [](cgr_recorder *, const void *) { return CGR_OK; };
  static const auto second_call = [](cgr_recorder *, const void *raw) { return raw == nullptr ? CGR_ERROR_BUSY : CGR_OK; };
  const int64_t same = 5;
  for (int32_t what = 0; what < 3; what++) {
    SCOPED_TRACE(what);
    Make(what == 0 ? CGR_MODE_FULL : CGR_MODE_PIECEWISE);
    int32_t captures = 0;
    ExpectAll(RunWith([&](cgr_recorder *recorder, const cgr_record_info &info) {
                const bool odd = ++captures % 2 == 1;
                cgr_device *dev = engine_->dev;
                if (what == 0)
                  return cgr_launch_host(dev, odd ? cgr_host_function(first) : second, &same, sizeof same, info.stream);
                if (what == 1)
                  return cgr_record_call(recorder, odd ? cgr_call_function(first_call) : second_call, &same, sizeof same);
                void *out = engine_->LastOut().data; // before the break, or after it
                cgr_status status = odd ? cgr_fill(dev, out, 0, 16, info.stream) : CGR_OK;
                if (status == CGR_OK)
                  status = cgr_record_call(recorder, first_call, &same, sizeof same);
                return odd || status != CGR_OK ? status : cgr_fill(dev, out, 0, 16, info.stream);
              }),
              NumKeys(), "other work the second time");
  }
}

// Each half of an 8-byte word is reported by itself, and so is each place in each function.
TEST_P(Audit, NamesEveryNumberThatChanges) {
  struct Two {
    int32_t a, b;
  };
  static const auto other = [](const void *raw) { (void)raw; };
  Make(CGR_MODE_FULL);
  int32_t captures = 0;
  const Found found = RunWith([&](cgr_recorder *, const cgr_record_info &info) {
    const Two two = { ++captures, 3 * captures };
    const cgr_status status = cgr_launch_host(engine_->dev, Ignore, &two, sizeof two, info.stream);
    return status == CGR_OK ? cgr_launch_host(engine_->dev, other, &captures, sizeof captures, info.stream) : status;
  });
  ExpectAll(found, 3, "in one capture");
  std::set<std::string> places;
  for (const cgr_finding &finding : found.findings)
    places.insert(std::string(finding.text).substr(0, std::string(finding.text).find(": ")));
  EXPECT_EQ(places.size(), 3u);
}

// An address that moves to another region or becomes a number.
TEST_P(Audit, NamesAnAddressThatGoesElsewhere) {
  for (bool becomes_null : { false, true }) {
    Make(CGR_MODE_FULL);
    int32_t captures = 0;
    const void *places[] = { engine_->LastOut().data, becomes_null ? nullptr : engine_->LastKeys().data };
    const Found found = RunWith([&](cgr_recorder *, const cgr_record_info &info) {
      return cgr_launch_host(engine_->dev, Ignore, &places[++captures % 2], sizeof places[0], info.stream);
    });
    ExpectAll(found, 1, "which is elsewhere");
  }
}

TEST_P(Audit, LooksAtCapturedGraphsAlone) {
  Make(CGR_MODE_FULL);
  const size_t out = IndexOf(engine_->LastOut().data);
  Make(CGR_MODE_FULL, { out });
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  ExpectMessage(Run().status, CGR_ERROR_STATE, { "cgr_runtime_audit: no graph of " });
  CGR_ASSERT_OK(engine_->Capture());
  const auto [base, bytes] = engine_->Memory()[1];
  CGR_ASSERT_OK(cgr_region_move(engine_->rt, regions_[1], base, bytes));
  ExpectMessage(Run().status, CGR_ERROR_STATE, { "no graph of " }); // all are stale
  GraphStatsOf(engine_->rt, 0);
  std::function<cgr_status(cgr_recorder *, const cgr_record_info &)> fail = [](cgr_recorder *, const cgr_record_info &info) {
    return info.num_requests == 8 ? CGR_ERROR_BUSY : CGR_OK;
  };
  engine_->hook = fail;
  CGR_EXPECT(CGR_ERROR_CALLBACK, engine_->Capture());
  engine_->hook = nullptr;
  const Found found = Run();
  ExpectAll(found, 1, "is in no region");
  EXPECT_EQ(counts_.num_graphs, NumKeys() - 1);
}

TEST_P(Audit, AFailureOfRecordIsItsOwn) {
  Make(CGR_MODE_FULL);
  const std::vector<cgr_graph_stats> before = AllStats();
  engine_->hook = [](cgr_recorder *, const cgr_record_info &) { return CGR_ERROR_BUSY; };
  ExpectMessage(Run().status, CGR_ERROR_CALLBACK, { "cgr_runtime_audit: full 1r 1t q1 v0: record", "CGR_ERROR_BUSY" });
  engine_->hook = nullptr;
  const std::vector<cgr_graph_stats> after = AllStats();
  EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size() * sizeof before[0]), 0);
  ExpectNothing(Run());
  ExpectGoodStep();
}

TEST_P(Audit, RefusesWhatItCannotDo) {
  rows::Options options;
  engine_ = std::make_unique<RowEngine>(GetParam(), Seed(), options);
  cgr_finding finding;
  int32_t count = 7;
  CGR_ASSERT_OK(engine_->Capture());
  ExpectMessage(cgr_runtime_audit(nullptr, nullptr, nullptr, 0, &count), CGR_ERROR_NULL_POINTER,
                { "cgr_runtime_audit: runtime" });
  EXPECT_EQ(count, 0);
  ExpectMessage(cgr_runtime_audit(engine_->rt, nullptr, nullptr, 0, nullptr), CGR_ERROR_NULL_POINTER, { "count" });
  ExpectMessage(cgr_runtime_audit(engine_->rt, nullptr, nullptr, 1, &count), CGR_ERROR_NULL_POINTER,
                { "findings is NULL, expected room for 1" });
  ExpectMessage(cgr_runtime_audit(engine_->rt, nullptr, &finding, -1, &count), CGR_ERROR_INVALID_ARGUMENT, { "capacity is -1" });
  const int32_t row = engine_->Open();
  engine_->Reserve(row, 8);
  const int32_t token = 3;
  cgr_batch batch = BatchOf(1, &row, &token);
  cgr_step step = CGR_STEP_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(engine_->rt, &batch, &step));
  ExpectMessage(cgr_runtime_audit(engine_->rt, nullptr, nullptr, 0, &count), CGR_ERROR_STATE, { "a step is prepared" });
  CGR_ASSERT_OK(cgr_step_cancel(engine_->rt, &step));
  engine_->hook = [&](cgr_recorder *, const cgr_record_info &) {
    return cgr_runtime_audit(engine_->rt, nullptr, nullptr, 0, &count);
  };
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  ExpectMessage(engine_->Capture(), CGR_ERROR_CALLBACK, { "cgr_runtime_audit", "inside record" });
  engine_->hook = nullptr;
  engine_->Close(row);
}

// A capture was made, and the mode is why there is no graph.
TEST_P(Audit, NamesTheModeThatHasNoGraphs) {
  int32_t count = 7;
  Make(CGR_MODE_NONE);
  ExpectMessage(cgr_runtime_audit(engine_->rt, nullptr, nullptr, 0, &count), CGR_ERROR_STATE,
                { "no graph of 0 keys", "graph_mode is NONE" });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Audit);

} // namespace
} // namespace cgr_test
