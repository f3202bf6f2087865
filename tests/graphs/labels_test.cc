// Labels over a device that lists nodes in any order, has child graphs, and tells ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graphs/labels.h"

namespace {

struct Node {
  std::string name;
  const void *handle;
  uint32_t tools_id;
};

// Nodes are listed in the order of `nodes`; those without a handle from a capture belong to child graphs.
struct Device : cgr_device {
  std::vector<Node> nodes;
  int list_error = 0, walk_error = 0;
};

Device &Of(cgr_device *dev) { return *static_cast<Device *>(dev); }

int CaptureNodes(cgr_device *dev, cudaStream_t, const void **nodes, size_t capacity, size_t *count) {
  *count = 0;
  for (const Node &node : Of(dev).nodes)
    if (node.tools_id != 0 && (*count)++ < capacity)
      nodes[*count - 1] = node.handle;
  return Of(dev).list_error;
}

int GraphWalk(cgr_device *dev, cgr__graph *, cgr__node_visitor visit, void *context) {
  int64_t at = 0;
  for (const Node &node : Of(dev).nodes) {
    cgr__node_param param = {};
    param.node = at++;
    param.name = node.name.c_str();
    param.handle = node.handle;
    param.tools_id = node.tools_id;
    for (param.index = -1; param.index < 2; param.index++) // a node has several parameters
      if (int error = visit(context, &param))
        return error;
  }
  return Of(dev).walk_error;
}

class LabelsOfADevice : public ::testing::Test {
protected:
  LabelsOfADevice() {
    ops_.capture_nodes = CaptureNodes;
    ops_.graph_walk = GraphWalk;
    dev_.ops = &ops_;
    EXPECT_TRUE(cgr__labelling_begin(&labelling_, &dev_, nullptr));
  }
  ~LabelsOfADevice() override { cgr__labels_free(labels_); }
  // The new node comes first, an order that no known device uses.
  void Enqueue(const std::string &name) {
    number_++;
    dev_.nodes.insert(dev_.nodes.begin(), { name, reinterpret_cast<const void *>(uintptr_t(0x1000) - 16 * number_), number_ });
  }
  void Begin(int range, int32_t layer = -1) { cgr__label_begin(&labelling_, { int16_t(range), -1, layer }); }
  void End() { cgr__label_end(&labelling_); }
  // "name range:layer id", of each node in order.
  std::vector<std::string> Keep(uint32_t graph = 0) {
    const cgr__graph_info info = { 0, 0, 0, graph, 0 };
    cgr__label_piece_end(&labelling_);
    cgr__label_piece_keep(&labelling_, nullptr, &info);
    labels_ = cgr__labelling_end(&labelling_);
    std::vector<std::string> text;
    for (int64_t i = 0; i < labels_->num_nodes; i++) {
      const cgr__labelled_node &n = labels_->node[i];
      text.push_back(std::string(labels_->names + n.name) + " " + std::to_string(n.label.range) + ":" +
                     std::to_string(n.label.layer) + (n.tools_id ? " " + std::to_string(n.tools_id) : ""));
    }
    return text;
  }
  using Lines = std::vector<std::string>;

  cgr__device_ops ops_ = {};
  Device dev_ = {};
  struct cgr__labelling labelling_;
  cgr__labels *labels_ = nullptr;
  uint32_t number_ = 0;
};

TEST_F(LabelsOfADevice, DoNotDependOnTheOrderOfItsLists) {
  cgr__label_piece_begin(&labelling_);
  Begin(1);
  Enqueue("a");
  End();
  Begin(2);
  Begin(3, 7);
  Enqueue("b");
  End();
  Enqueue("c");
  End();
  Enqueue("d");
  EXPECT_EQ(Keep(), (Lines{ "a 1:-1", "b 3:7", "c 2:-1", "d -1:-1" }));
  EXPECT_EQ(labels_->error, 0);
}

TEST_F(LabelsOfADevice, HoldManyNodes) {
  cgr__label_piece_begin(&labelling_);
  for (int i = 0; i < 1000; i++) {
    Begin(i % 5, i);
    Enqueue(i % 2 ? "odd" : "even");
    End();
  }
  const Lines lines = Keep();
  ASSERT_EQ(lines.size(), 1000u);
  for (int i = 0; i < 1000; i++)
    EXPECT_EQ(lines[size_t(i)], std::string(i % 2 ? "odd " : "even ") + std::to_string(i % 5) + ":" + std::to_string(i));
  EXPECT_EQ(labels_->names_bytes, 9) << "each name once";
}

// Kernel templates give names that begin alike, and one may be a prefix of another.
TEST_F(LabelsOfADevice, NamesThatBeginAlikeAreNotTheSame) {
  cgr__label_piece_begin(&labelling_);
  for (const char *name : { "cgr_append", "cgr_appen", "cgr_appendix", "cgr", "cgr_append" })
    Enqueue(name);
  Lines lines = Keep();
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (Lines{ "cgr -1:-1", "cgr_appen -1:-1", "cgr_append -1:-1", "cgr_append -1:-1", "cgr_appendix -1:-1" }));
}

TEST_F(LabelsOfADevice, NodesOfAChildGraphComeWithTheirNode) {
  cgr__label_piece_begin(&labelling_);
  Begin(1);
  Enqueue("a");
  End();
  Begin(2);
  Enqueue("child graph");
  End();
  dev_.nodes.insert(dev_.nodes.begin() + 1, { "inner", reinterpret_cast<const void *>(uintptr_t(0x9000)), 0 });
  EXPECT_EQ(Keep(5), (Lines{ "a 1:-1 " + std::to_string(5ull << 32 | 1), "child graph 2:-1 " + std::to_string(5ull << 32 | 2),
                             "inner 2:-1" }));
}

TEST_F(LabelsOfADevice, NoIdsWithoutThatOfTheGraph) {
  cgr__label_piece_begin(&labelling_);
  Enqueue("a");
  EXPECT_EQ(Keep(0), Lines{ "a -1:-1" });
}

// More labels than there is room for: nodes too deep get the last label that had room.
TEST_F(LabelsOfADevice, OpenDeeply) {
  cgr__label_piece_begin(&labelling_);
  for (int i = 0; i < CGR__MAX_OPEN_LABELS + 3; i++)
    Begin(i);
  Enqueue("deep");
  for (int i = 0; i < CGR__MAX_OPEN_LABELS + 2; i++)
    End();
  Enqueue("last");
  End();
  Enqueue("out");
  EXPECT_EQ(Keep(), (Lines{ "deep " + std::to_string(CGR__MAX_OPEN_LABELS - 1) + ":-1", "last 0:-1", "out -1:-1" }));
}

TEST_F(LabelsOfADevice, AreGivenUpAsAWhole) {
  cgr__label_piece_begin(&labelling_);
  Begin(1);
  Enqueue("a");
  dev_.list_error = CGR__DEVICE_FAILED;
  End();
  dev_.list_error = 0;
  EXPECT_TRUE(Keep().empty());
  EXPECT_EQ(labels_->error, CGR__DEVICE_FAILED);
}

TEST_F(LabelsOfADevice, AreGivenUpWhenTheWalkFails) {
  cgr__label_piece_begin(&labelling_);
  Enqueue("a");
  dev_.walk_error = CGR__DEVICE_UNSUPPORTED;
  EXPECT_TRUE(Keep().empty());
  EXPECT_EQ(labels_->error, CGR__DEVICE_UNSUPPORTED);
}

TEST(LabelsOfNothing, DoNothing) {
  cgr__label_begin(nullptr, { 0, 0, 0 });
  cgr__label_end(nullptr);
  cgr__label_piece_begin(nullptr);
  cgr__label_piece_end(nullptr);
  cgr__label_piece_keep(nullptr, nullptr, nullptr);
  cgr__labels_free(nullptr);
}

} // namespace
