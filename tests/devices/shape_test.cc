// The width of a graph: of some made by hand, and of random ones against a search from every node.
#include "devices/shape.h"

#include <algorithm>
#include <map>
#include <vector>

#include "tests/support/seed.h"

namespace cgr_test {
namespace {

using Edges = std::vector<cgr__graph_edge>;

int64_t Width(uint32_t nodes, Edges edges) { return cgr__graph_width(nodes, edges.data(), edges.size()); }

TEST(GraphShape, OfAFewGraphs) {
  EXPECT_EQ(Width(0, {}), 0);
  EXPECT_EQ(Width(1, {}), 1);
  EXPECT_EQ(Width(5, {}), 5) << "nothing waits for anything";
  EXPECT_EQ(Width(3, { { 0, 1 }, { 1, 2 } }), 1);
  EXPECT_EQ(Width(3, { { 1, 2 }, { 0, 1 }, { 0, 2 } }), 1) << "an edge that another path makes idle";
  EXPECT_EQ(Width(4, { { 0, 1 }, { 0, 2 }, { 1, 3 }, { 2, 3 } }), 2);
  EXPECT_EQ(Width(7, { { 0, 1 }, { 0, 2 }, { 1, 3 }, { 2, 3 }, { 3, 4 }, { 3, 5 }, { 4, 6 }, { 5, 6 } }), 2)
      << "forks that come one after the other";
  EXPECT_EQ(Width(5, { { 4, 3 }, { 3, 2 }, { 2, 1 }, { 1, 0 } }), 1) << "in another order than the nodes'";
}

TEST(GraphShape, ACircleHasNone) {
  EXPECT_EQ(Width(2, { { 0, 1 }, { 1, 0 } }), -1);
  EXPECT_EQ(Width(3, { { 0, 1 }, { 1, 1 } }), -1);
}

uint32_t Depth(uint32_t node, const Edges &edges) {
  uint32_t depth = 0;
  for (const cgr__graph_edge &edge : edges)
    if (edge.to == node)
      depth = std::max(depth, Depth(edge.from, edges) + 1);
  return depth;
}

TEST(GraphShape, OfRandomGraphs) {
  SeededRandom random;
  for (int n = 0; n < 300; n++) {
    const uint32_t nodes = uint32_t(random.Pick(1, 12));
    Edges edges;
    std::vector<uint32_t> names(nodes); // numbers must say nothing about the order
    for (uint32_t i = 0; i < nodes; i++)
      names[i] = i;
    for (size_t i = nodes; i > 1; i--)
      std::swap(names[i - 1], names[size_t(random.Pick(0, int64_t(i) - 1))]);
    for (uint32_t to = 1; to < nodes; to++)
      for (uint32_t from = 0; from < to; from++)
        if (random.OneIn(4))
          edges.push_back({ names[from], names[to] });
    std::map<uint32_t, int64_t> count;
    int64_t widest = 0;
    for (uint32_t i = 0; i < nodes; i++)
      widest = std::max(widest, ++count[Depth(i, edges)]);
    ASSERT_EQ(Width(nodes, edges), widest);
  }
}

} // namespace
} // namespace cgr_test
