// What a budget allows, and which graphs are released first when memory is wanted back.
#include <chrono>
#include <thread>

#include "tests/graphs/rig.h"

namespace {

using namespace cgr_test;

constexpr int64_t kMega = 1 << 20;

struct Rig : Graphs {
  cgr__budget budget;
  Rig() : Graphs(CGR_MODE_FULL_DECODE_ONLY, 16, 16, { 1, 2, 3, 4, 5, 6, 7, 8 }) {}
  // As a capture does whose graph takes what is expected.
  void Capture(size_t i, int64_t bytes, double ms = 1.0) {
    Set(i, CGR_GRAPH_READY);
    Entry(i).exec = nullptr;
    Entry(i).device_bytes = bytes;
    Entry(i).expected_kb = int32_t(bytes >> 10);
    Entry(i).capture_ms = float(ms);
    graphs->device_bytes += bytes;
    graphs->expected_kb += Entry(i).expected_kb;
  }
  bool Allows(size_t i) { return cgr__budget_allows(&budget, graphs.get(), &Entry(i)); }
  void Charge(size_t i) { cgr__budget_charge(&budget, graphs.get(), &Entry(i)); }
  void CaptureAndCharge(size_t i, int64_t bytes, double ms = 1.0) {
    Capture(i, bytes, ms);
    Charge(i);
  }
  // A piece of that many nodes side by side and one after the other, during whose instantiation free memory shrank by `bytes`.
  void Piece(size_t i, int64_t num_nodes, int64_t width, int64_t bytes) {
    const cgr__graph_info info = { num_nodes, width, bytes, 0, num_nodes };
    Entry(i).num_pieces++;
    cgr__budget_count_piece(graphs.get(), &Entry(i), &info);
  }
};

TEST(Budget, WithoutLimitsAllowsEverything) {
  Rig rig;
  cgr__budget_begin(&rig.budget, 0.0, 0);
  for (size_t i = 0; i < 8; i++) {
    ASSERT_TRUE(rig.Allows(i));
    rig.CaptureAndCharge(i, int64_t(1) << 50, 1e9);
  }
  EXPECT_EQ(rig.budget.left, 0);
}

// 10 MB hold three graphs of 3 MB, and a fourth is not begun.
TEST(Budget, OfBytesExpectsTheNextToCostTheAverage) {
  Rig rig;
  cgr__budget_begin(&rig.budget, 0.0, 10 * kMega);
  size_t captured = 0;
  for (size_t i = 0; i < 8; i++) {
    if (!rig.Allows(i))
      continue;
    rig.CaptureAndCharge(i, 3 * kMega);
    captured++;
  }
  EXPECT_EQ(captured, 3u);
  EXPECT_EQ(rig.budget.left, 5);
  for (size_t i = 0; i < 8; i++)
    EXPECT_EQ(rig.Entry(i).state, i < 3 ? CGR_GRAPH_READY : CGR_GRAPH_OVER_BUDGET) << i;
}

TEST(Budget, OfBytesDropsWhatCostMoreThanExpected) {
  Rig rig;
  cgr__budget_begin(&rig.budget, 0.0, 10 * kMega);
  ASSERT_TRUE(rig.Allows(0));
  rig.CaptureAndCharge(0, kMega);
  ASSERT_TRUE(rig.Allows(1));
  rig.CaptureAndCharge(1, 20 * kMega);
  EXPECT_EQ(rig.Entry(0).state, CGR_GRAPH_READY);
  EXPECT_EQ(rig.Entry(1).state, CGR_GRAPH_OVER_BUDGET);
  EXPECT_EQ(rig.graphs->device_bytes, kMega);
  EXPECT_FALSE(rig.Allows(2));
  EXPECT_EQ(rig.budget.left, 2);
}

// Existing graphs count; a stale graph makes room for its replacement, and stays stale if the room is not enough.
TEST(Budget, OfBytesCountsAllGraphs) {
  Rig rig;
  for (size_t i = 0; i < 3; i++)
    rig.Capture(i, 4 * kMega);
  rig.Set(0, CGR_GRAPH_STALE);
  cgr__budget_begin(&rig.budget, 0.0, 12 * kMega);
  EXPECT_TRUE(rig.Allows(0));
  cgr__budget_begin(&rig.budget, 0.0, 7 * kMega);
  EXPECT_FALSE(rig.Allows(0));
  EXPECT_EQ(cgr__graph_state_of(rig.graphs.get(), &rig.Entry(0)), CGR_GRAPH_STALE);
  rig.Set(3, CGR_GRAPH_FAILED);
  EXPECT_FALSE(rig.Allows(3));
  EXPECT_EQ(rig.Entry(3).state, CGR_GRAPH_FAILED);
}

TEST(Budget, OfTimeExpectsTheNextToTakeTheAverage) {
  Rig rig;
  cgr__budget_begin(&rig.budget, 1e6, 0);
  ASSERT_TRUE(rig.Allows(0));
  rig.CaptureAndCharge(0, 0, 0.9e6);
  EXPECT_TRUE(rig.Allows(1));
  rig.CaptureAndCharge(1, 0, 1.3e6); // 1.1e6 on average
  EXPECT_FALSE(rig.Allows(2));
  EXPECT_EQ(rig.Entry(1).state, CGR_GRAPH_READY) << "time that was spent is not given back";
}

// Exactly what was allowed fits; each kind is expected to cost what it has cost so far; and a spent budget stays spent.
TEST(Budget, EndsExactlyAndForGood) {
  Rig rig;
  rig.Entry(2).key.kind = rig.Entry(3).key.kind = CGR_KIND_PIECEWISE;
  cgr__budget_begin(&rig.budget, 0.0, 6 * kMega);
  ASSERT_TRUE(rig.Allows(0));
  rig.CaptureAndCharge(0, 3 * kMega);
  EXPECT_TRUE(rig.Allows(1)) << "6 MB";
  rig.CaptureAndCharge(1, 2 * kMega);
  EXPECT_TRUE(rig.Allows(2)) << "nothing is known of its kind";
  rig.CaptureAndCharge(2, kMega);
  EXPECT_EQ(rig.Entry(2).state, CGR_GRAPH_READY) << "6 MB in all";
  EXPECT_FALSE(rig.Allows(3));
  rig.graphs->device_bytes = 0;
  EXPECT_FALSE(rig.Allows(3));
  EXPECT_EQ(rig.budget.left, 2);
}

TEST(Budget, OfTimeCountsFromTheBegin) {
  Rig rig;
  cgr__budget_begin(&rig.budget, 5.0, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(rig.Allows(0));
}

// ---- neighbours

// What an H100 was measured to take: lines of nodes, and forks. All are kept as they are.
TEST(Neighbours, AFigureThatGraphsTakeIsKept) {
  const struct {
    int64_t nodes, width, kb;
  } measured[] = {
    { 65, 1, 205 }, { 162, 1, 461 },  { 256, 1, 717 }, { 324, 1, 922 }, { 648, 1, 2509 },
    { 65, 2, 359 }, { 324, 2, 1210 }, { 324, 1, 0 },   { 10, 1, 2048 }, { 65, 1, 861 }
  }; // the last: arguments of 3000 bytes
  for (const auto &m : measured) {
    Rig rig;
    rig.Piece(0, m.nodes, m.width, m.kb << 10);
    EXPECT_EQ(rig.Entry(0).device_bytes, m.kb << 10) << m.nodes;
    EXPECT_EQ(rig.Entry(0).estimated, 0) << m.nodes;
    EXPECT_EQ(rig.graphs->device_bytes, m.kb << 10) << m.nodes;
  }
}

TEST(Neighbours, AFigureFarFromThatIsReplacedAndMarked) {
  for (int64_t bytes : { 256 * kMega, -256 * kMega, int64_t(-1), 6 * kMega, int64_t(1) << 40, INT64_MIN / 2 }) {
    Rig rig;
    rig.Piece(0, 65, 1, 205 << 10);
    rig.Piece(0, 65, 1, bytes);
    const int64_t estimate = rig.Entry(0).device_bytes - (205 << 10);
    EXPECT_GE(estimate, 205 << 10) << bytes;
    EXPECT_LE(estimate, 410 << 10) << bytes << ": within a factor of 2 of such a graph";
    EXPECT_EQ(rig.Entry(0).estimated, 1);
    EXPECT_EQ(rig.graphs->device_bytes, rig.Entry(0).device_bytes);
    cgr__graph_drop(rig.graphs.get(), &rig.Entry(0));
    EXPECT_EQ(rig.graphs->device_bytes, 0);
    EXPECT_EQ(rig.graphs->expected_kb, 0);
    EXPECT_EQ(rig.Entry(0).estimated, 0);
  }
}

// A device hands out 2 MB at once, of which many graphs have their share. If every graph took as much, others did.
TEST(Neighbours, StepsOfTheDeviceCountAsLongAsTheyAreRare) {
  Rig rig;
  for (size_t i = 0; i < 8; i++)
    rig.Piece(i, 10, 1, i == 3 ? 2 * kMega : 0);
  EXPECT_EQ(rig.graphs->device_bytes, 2 * kMega);
  Rig other;
  for (size_t i = 0; i < 8; i++)
    other.Piece(i, 10, 1, 2 * kMega);
  EXPECT_LE(other.graphs->device_bytes, 8 * (2 * 104 << 10) + 4 * kMega);
  EXPECT_EQ(other.Entry(7).estimated, 1);
}

// The figure of one graph passes the budget, and nothing shows whether it is the graph's: the estimate decides.
TEST(Neighbours, NoGraphIsDroppedForAMeasurementAlone) {
  for (int64_t bytes : { 3 * kMega / 2, 2 * kMega }) {
    Rig rig;
    cgr__budget_begin(&rig.budget, 0.0, kMega);
    ASSERT_TRUE(rig.Allows(0));
    rig.Set(0, CGR_GRAPH_READY);
    rig.Entry(0).exec = nullptr;
    rig.Piece(0, 65, 1, bytes);
    EXPECT_EQ(rig.Entry(0).estimated, 0);
    rig.Charge(0);
    EXPECT_EQ(rig.Entry(0).state, CGR_GRAPH_READY);
    EXPECT_EQ(rig.Entry(0).estimated, 1);
    EXPECT_LE(rig.graphs->device_bytes, kMega / 2);
    EXPECT_TRUE(rig.Allows(1));
    EXPECT_EQ(rig.budget.left, 0);
    EXPECT_EQ(rig.budget.estimated, 1);
  }
}

// ---- what goes first

int Destroy(cgr_device *, cgr__exec *) { return 0; }

struct Held : Rig {
  cgr__device_ops ops = {};
  cgr_device device = {};
  int some = 0; // an address
  Held() {
    ops.exec_destroy = Destroy;
    device.ops = &ops;
    graphs->dev = &device;
    for (size_t i = 0; i < 8; i++) {
      Capture(i, kMega);
      Entry(i).exec = reinterpret_cast<cgr__exec *>(&some);
      Entry(i).last_seq = 10 + (i * 3) % 8; // of 0, 3, 6, 1, 4, 7, 2, 5
      Entry(i).failures = 2;
    }
  }
  std::vector<size_t> Left() {
    std::vector<size_t> left;
    for (size_t i = 0; i < 8; i++)
      if (Entry(i).exec != nullptr)
        left.push_back(i);
    return left;
  }
};

using Sizes = std::vector<size_t>;

TEST(DropOldest, LeavesTheLastUsed) {
  Held held;
  EXPECT_EQ(cgr__graphs_drop_oldest(held.graphs.get(), 8 * kMega), CGR_OK);
  EXPECT_EQ(held.Left().size(), 8u) << "they fit";
  EXPECT_EQ(cgr__graphs_drop_oldest(held.graphs.get(), 5 * kMega + 1), CGR_OK);
  EXPECT_EQ(held.Left(), (Sizes{ 1, 2, 4, 5, 7 }));
  EXPECT_EQ(held.graphs->device_bytes, 5 * kMega);
  EXPECT_EQ(held.Entry(0).state, CGR_GRAPH_EMPTY);
  EXPECT_EQ(held.Entry(0).failures, 0);
  EXPECT_EQ(held.Entry(1).failures, 2);
  EXPECT_EQ(cgr__graphs_drop_oldest(held.graphs.get(), 1), CGR_OK);
  EXPECT_EQ(held.Left(), Sizes{});
  EXPECT_EQ(held.graphs->device_bytes, 0);
}

TEST(DropOldest, TakesStaleOnesFirst) {
  Held held;
  held.Set(5, CGR_GRAPH_STALE); // the last used
  EXPECT_EQ(cgr__graphs_drop_oldest(held.graphs.get(), 7 * kMega), CGR_OK);
  EXPECT_EQ(held.Left(), (Sizes{ 0, 1, 2, 3, 4, 6, 7 }));
}

// As many stale ones as it takes; entries without a graph keep what is known of them.
TEST(DropOldest, TakesNoMoreThanItMust) {
  Held held;
  held.Set(3, CGR_GRAPH_STALE);
  held.Set(5, CGR_GRAPH_STALE);
  held.Entry(3).width = held.Entry(3).misses = 9;
  cgr__graph_drop(held.graphs.get(), &held.Entry(7));
  held.Entry(7).state = CGR_GRAPH_FAILED;
  held.Entry(7).misses = 4;
  EXPECT_EQ(cgr__graphs_drop_oldest(held.graphs.get(), 6 * kMega), CGR_OK);
  EXPECT_EQ(held.Left(), (Sizes{ 0, 1, 2, 4, 5, 6 }));
  EXPECT_EQ(held.Entry(3).width, 0);
  EXPECT_EQ(held.Entry(3).misses, 0u);
  for (uint64_t keep : { uint64_t(1), uint64_t(0) }) {
    EXPECT_EQ(cgr__graphs_drop_oldest(held.graphs.get(), keep), CGR_OK);
    EXPECT_EQ(held.Left(), Sizes{});
    EXPECT_EQ(held.Entry(7).misses, 4u);
    EXPECT_EQ(held.Entry(7).failures, keep == 0 ? 0 : 2) << "all begin anew";
  }
}

TEST(DropOldest, OfNothingTakesAll) {
  Held held;
  EXPECT_EQ(cgr__graphs_drop_oldest(held.graphs.get(), 0), CGR_OK);
  EXPECT_EQ(held.Left(), Sizes{});
}

} // namespace
