// What a walk over a captured graph shows, and which allocation holds an address.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/devices/device_case.h"
#include "tests/devices/kernels.h"

#if CGR_TEST_CUDA
#include <cuda_runtime_api.h>
#endif

namespace {

struct Param {
  int64_t node;
  std::string name;
  int32_t index;
  bool hidden;
  std::vector<unsigned char> data;

  uint64_t Word(size_t at = 0) const {
    uint64_t word = 0;
    EXPECT_LE(at + 8, data.size());
    std::memcpy(&word, data.data() + at, at + 8 <= data.size() ? 8 : 0);
    return word;
  }
};

uint64_t WordOf(const void *address) { return reinterpret_cast<uintptr_t>(address); }

struct Args {
  void *address;
  int32_t number, reserved;
};
void Nothing(const void *) {}

class WalkTest : public cgr_test::DeviceCase {
protected:
  void SetUpOnDevice() override {
    stream_ = NewStream();
    pinned_ = NewMemory(64, CGR__MEMORY_PINNED);
    memory_ = NewMemory(4096);
  }
  unsigned char *At(size_t offset) { return static_cast<unsigned char *>(memory_) + offset; }

  // Captures what `enqueue` does and walks over it; `stop_at`: the visitor returns an error for that parameter.
  template <class Enqueue> std::vector<Param> Walk(Enqueue enqueue, int stop_at = -1) {
    struct Visit {
      std::vector<Param> params;
      int stop_at;
    } visit = { {}, stop_at };
    auto add = [](void *context, const cgr__node_param *p) -> int {
      Visit &v = *static_cast<Visit *>(context);
      Param param = { p->node, p->name, p->index, p->hidden, std::vector<unsigned char>(p->bytes) };
      if (p->bytes > 0)
        std::memcpy(param.data.data(), p->data, p->bytes);
      v.params.push_back(param);
      return int(v.params.size()) == v.stop_at ? CGR__DEVICE_NO_MEMORY : CGR__DEVICE_OK;
    };
    cgr__graph *graph = nullptr;
    EXPECT_EQ(ops_->capture_begin(dev_, stream_), CGR__DEVICE_OK);
    enqueue();
    EXPECT_EQ(ops_->capture_end(dev_, stream_, &graph), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->graph_walk(dev_, graph, add, &visit), stop_at < 0 ? CGR__DEVICE_OK : CGR__DEVICE_NO_MEMORY);
    EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
    return visit.params;
  }

  cudaStream_t stream_ = nullptr;
  void *pinned_ = nullptr, *memory_ = nullptr;
};

TEST_P(WalkTest, ShowsCopiesFillsAndHostFunctions) {
  const Args args = { At(40), 17, 0 };
  const std::vector<Param> params = Walk([&] {
    EXPECT_EQ(ops_->copy(dev_, At(8), pinned_, 24, stream_), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->fill(dev_, At(64), 0x55, 1, 100, stream_), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->host_call(dev_, Nothing, &args, sizeof args, stream_), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->host_call(dev_, Nothing, nullptr, 0, stream_), CGR__DEVICE_OK);
  });
  ASSERT_EQ(params.size(), 8u);
  const uint64_t words[] = { WordOf(At(8)), WordOf(pinned_), 24, WordOf(At(64)), 0x55, 100 };
  for (int i = 0; i < 6; i++) {
    EXPECT_EQ(params[size_t(i)].node, i / 3);
    EXPECT_EQ(params[size_t(i)].name, i < 3 ? "copy" : "fill");
    EXPECT_EQ(params[size_t(i)].index, i % 3);
    EXPECT_EQ(params[size_t(i)].Word(), words[i]) << i;
  }
  ASSERT_EQ(params[6].data.size(), sizeof args);
  EXPECT_EQ(params[6].Word(), WordOf(At(40)));
  EXPECT_EQ(params[6].Word(8), 17u);
  EXPECT_TRUE(params[7].data.empty());
  for (size_t i = 6; i < 8; i++) {
    char name[48];
    std::snprintf(name, sizeof name, "host function %#llx",
                  static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(Nothing)));
    EXPECT_EQ(params[i].name, name);
    EXPECT_EQ(params[i].node, int64_t(i) - 4);
    EXPECT_EQ(params[i].index, 0);
  }
  for (const Param &param : params)
    EXPECT_FALSE(param.hidden);
}

TEST_P(WalkTest, EndsWithTheVisitorsError) {
  for (int n = 1; n < 7; n++)
    EXPECT_EQ(int(Walk(
                      [&] {
                        EXPECT_EQ(ops_->copy(dev_, At(8), pinned_, 24, stream_), CGR__DEVICE_OK);
                        EXPECT_EQ(ops_->fill(dev_, At(64), 0, 4, 10, stream_), CGR__DEVICE_OK);
                        EXPECT_EQ(ops_->host_call(dev_, Nothing, &n, sizeof n, stream_), CGR__DEVICE_OK);
                      },
                      n)
                      .size()),
              n);
}

TEST_P(WalkTest, ShowsAKernelsParameters) {
  const auto on_host = [](const void *) {};
#if CGR_TEST_CUDA
  const cgr__kernel kernel = { "scale", sizeof(test_scale_args), on_host, test_scale, test_scale_preload, 0 };
#else
  const cgr__kernel kernel = { "scale", sizeof(test_scale_args), on_host, nullptr, nullptr, 0 };
#endif
  const test_scale_args args = { static_cast<int *>(memory_), 300, 2 };
  ASSERT_EQ(ops_->preload(dev_, &kernel), CGR__DEVICE_OK);
  const std::vector<Param> params = Walk([&] { EXPECT_EQ(ops_->launch(dev_, &kernel, &args, stream_), CGR__DEVICE_OK); });
  ASSERT_EQ(params.size(), GetParam().IsCuda() ? 2u : 1u);
  EXPECT_NE(params[0].name.find("scale"), std::string::npos) << params[0].name;
  ASSERT_EQ(params.back().data.size(), sizeof args);
  EXPECT_EQ(std::memcmp(params.back().data.data(), &args, sizeof args), 0);
  if (!GetParam().IsCuda())
    return;
  const uint32_t shape[] = { 3, 1, 1, 128, 1, 1, 0, 0 };
  EXPECT_EQ(params[0].index, -1);
  ASSERT_EQ(params[0].data.size(), sizeof shape);
  EXPECT_EQ(std::memcmp(params[0].data.data(), shape, sizeof shape), 0);
}

// The nodes that a capture has so far, while it goes on, are what the walk shows in the end.
TEST_P(WalkTest, ShowsTheNodesThatTheCaptureHad) {
  const void *nodes[4] = {};
  size_t count = 9;
  EXPECT_EQ(ops_->capture_nodes(dev_, stream_, nodes, 4, &count), CGR__DEVICE_CAPTURE_INVALID) << "it does not capture";
  EXPECT_EQ(count, 0u);
  ASSERT_EQ(ops_->capture_begin(dev_, stream_), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->capture_nodes(dev_, stream_, nodes, 4, &count), CGR__DEVICE_OK);
  EXPECT_EQ(count, 0u);
  for (size_t i = 0; i < 3; i++) {
    EXPECT_EQ(ops_->fill(dev_, At(64 * i), 0, 1, 64, stream_), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->capture_nodes(dev_, stream_, nullptr, 0, &count), CGR__DEVICE_OK);
    EXPECT_EQ(count, i + 1);
  }
  EXPECT_EQ(ops_->capture_nodes(dev_, stream_, nodes, 1, &count), CGR__DEVICE_OK);
  EXPECT_EQ(count, 3u);
  EXPECT_NE(nodes[0], nullptr);
  EXPECT_EQ(nodes[1], nullptr) << "past the capacity";
  EXPECT_EQ(ops_->capture_nodes(dev_, stream_, nodes, 4, &count), CGR__DEVICE_OK);
  cgr__graph *graph = nullptr;
  ASSERT_EQ(ops_->capture_end(dev_, stream_, &graph), CGR__DEVICE_OK);
  std::vector<const void *> walked;
  auto add = [](void *context, const cgr__node_param *p) -> int {
    auto &handles = *static_cast<std::vector<const void *> *>(context);
    if (p->node == int64_t(handles.size()))
      handles.push_back(p->handle);
    return CGR__DEVICE_OK;
  };
  EXPECT_EQ(ops_->graph_walk(dev_, graph, add, &walked), CGR__DEVICE_OK);
  EXPECT_EQ(walked, std::vector<const void *>(nodes, nodes + 3));
  EXPECT_EQ(ops_->graph_destroy(dev_, graph), CGR__DEVICE_OK);
}

TEST_P(WalkTest, AnInvalidCaptureHasNoNodes) {
  const void *nodes[4] = {};
  size_t count = 9;
  cgr__graph *graph = nullptr;
  ASSERT_EQ(ops_->capture_begin(dev_, stream_), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->fill(dev_, memory_, 0, 1, 64, stream_), CGR__DEVICE_OK);
  EXPECT_EQ(ops_->stream_sync(dev_, stream_), CGR__DEVICE_CAPTURE_ILLEGAL);
  EXPECT_EQ(ops_->capture_nodes(dev_, stream_, nodes, 4, &count), CGR__DEVICE_CAPTURE_INVALID);
  EXPECT_EQ(ops_->capture_end(dev_, stream_, &graph), CGR__DEVICE_CAPTURE_INVALID);
}

TEST_P(WalkTest, AnEmptyGraphHasNothingToShow) {
  EXPECT_TRUE(Walk([] {}).empty());
  auto none = [](void *, const cgr__node_param *) -> int { return CGR__DEVICE_OK; };
  EXPECT_EQ(ops_->graph_walk(dev_, nullptr, none, nullptr), CGR__DEVICE_INVALID);
}

TEST_P(WalkTest, FindsTheAllocationOfAnAddress) {
  const void *base = this;
  size_t bytes = 1;
  auto find = [&](const void *address) { return ops_->mem_find(dev_, address, &base, &bytes); };
  for (size_t offset : { 0, 1, 2000, 4095 }) {
    EXPECT_EQ(find(At(offset)), CGR__DEVICE_OK);
    EXPECT_EQ(base, memory_);
    EXPECT_GE(bytes, 4096u);
  }
  EXPECT_EQ(find(static_cast<char *>(pinned_) + 63), CGR__DEVICE_OK);
  EXPECT_EQ(base, pinned_);
  for (uintptr_t nowhere : { uintptr_t(0), uintptr_t(1), uintptr_t(4096), UINTPTR_MAX, UINTPTR_MAX / 2, uintptr_t(this) }) {
    EXPECT_EQ(find(reinterpret_cast<const void *>(nowhere)), CGR__DEVICE_OK);
    EXPECT_EQ(base, nullptr) << nowhere;
  }
  void *freed = nullptr;
  ASSERT_EQ(ops_->mem_alloc(dev_, 4096, CGR__MEMORY_DEVICE, &freed), CGR__DEVICE_OK);
  EXPECT_EQ(find(freed), CGR__DEVICE_OK);
  EXPECT_EQ(base, freed);
  ASSERT_EQ(ops_->mem_free(dev_, freed, CGR__MEMORY_DEVICE), CGR__DEVICE_OK);
  EXPECT_EQ(find(freed), CGR__DEVICE_OK);
  EXPECT_EQ(base, nullptr);
}

CGR_INSTANTIATE_OVER_DEVICES(WalkTest);

#if CGR_TEST_CUDA

using CudaWalkTest = WalkTest;

void Native(void *) {}

// Nodes that others added: a host function whose arguments only its engine knows, a child graph, events.
TEST_P(CudaWalkTest, ShowsWhatOthersHaveEnqueued) {
  cudaGraph_t child;
  cudaGraphNode_t node, set;
  cudaMemsetParams fill = {};
  fill.dst = At(128);
  fill.value = 7;
  fill.elementSize = 4;
  fill.width = 5;
  fill.height = 1;
  ASSERT_EQ(cudaGraphCreate(&child, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphAddMemsetNode(&set, child, nullptr, 0, &fill), cudaSuccess);
  const std::vector<Param> params = Walk([&] {
    cudaStreamCaptureStatus status;
    cudaGraph_t graph;
    EXPECT_EQ(cudaLaunchHostFunc(stream_, Native, this), cudaSuccess);
    EXPECT_EQ(cudaStreamGetCaptureInfo(stream_, &status, nullptr, &graph, nullptr, nullptr, nullptr), cudaSuccess);
    EXPECT_EQ(cudaGraphAddChildGraphNode(&node, graph, nullptr, 0, child), cudaSuccess);
    EXPECT_EQ(cudaGraphAddEmptyNode(&set, graph, nullptr, 0), cudaSuccess);
  });
  EXPECT_EQ(cudaGraphDestroy(child), cudaSuccess);
  ASSERT_EQ(params.size(), 6u);
  EXPECT_TRUE(params[0].hidden);
  EXPECT_EQ(params[0].name, "host function");
  EXPECT_EQ(params[1].name, "child graph");
  for (size_t i = 2; i < 5; i++) {
    EXPECT_EQ(params[i].name, "fill");
    EXPECT_EQ(params[i].node, 2);
  }
  EXPECT_EQ(params[2].Word(), WordOf(At(128)));
  EXPECT_EQ(params[5].node, 3);
  EXPECT_TRUE(params[5].data.empty());
  EXPECT_FALSE(params[5].hidden);
}

INSTANTIATE_TEST_SUITE_P(Devices, CudaWalkTest, ::testing::Values(cgr_test::CudaParam()), cgr_test::DeviceLabel);

#endif

} // namespace
