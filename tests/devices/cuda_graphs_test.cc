// What the CUDA device reads from graphs, and from captures under way. The driver is a fake that only records calls, so this runs
// on every machine with a toolkit, GPU or not.
#include "devices/device.h"

#if CGR_TEST_CUDA
#include "tests/devices/fake_driver.h"

namespace {

class CudaGraphsTest : public CudaCallsTest {};

using Lines = std::vector<std::string>;

// A kernel is named by its function or as a kernel of a library; its parameters are given one by one or in a buffer.
TEST_F(CudaGraphsTest, AWalkReadsKernelsHoweverTheyWereLaunched) {
  uint64_t words[] = { 11, 0, 22, 0 };
  void *params[] = { &words[0], &words[2] };
  void *extra[] = { CU_LAUNCH_PARAM_BUFFER_SIZE, params, CU_LAUNCH_PARAM_BUFFER_POINTER, words, CU_LAUNCH_PARAM_END };
  Open();
  driver.nodes = { CU_GRAPH_NODE_TYPE_KERNEL };
  driver.num_params = 2;
  for (bool is_function : { false, true }) {
    const std::string name = is_function ? "0 function" : "0 kernel",
                      launch = name + " -1 is " + std::to_string((3ull << 32) + 2);
    driver.kernel = {};
    driver.kernel.gridDimX = 2;
    driver.kernel.gridDimY = 3;
    driver.kernel.func = is_function ? Handle<CUfunction>(0xb000) : nullptr;
    driver.kernel.kernelParams = params;
    EXPECT_EQ(Walk(), (Lines{ launch, name + " 0 is 11", name + " 1 is 22" }));
    driver.kernel.kernelParams = nullptr;
    driver.kernel.extra = extra;
    EXPECT_EQ(Walk(), (Lines{ launch, name + " 0 is 11", name + " 1 is 22" }));
    driver.kernel.extra = nullptr;
    EXPECT_EQ(Walk(), Lines{ name + " -1 hidden" });
    driver.num_params = 0;
    EXPECT_EQ(Walk(), Lines{ launch });
    driver.num_params = 2;
    driver.failures[is_function ? "FuncGetName" : "KernelGetName"] = CUDA_ERROR_NOT_FOUND;
    EXPECT_EQ(Walk(), Lines{ "0 kernel -1 hidden" });
    driver.failures.clear();
  }
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

TEST_F(CudaGraphsTest, AWalkHidesWhatTheDriverDoesNotTell) {
  const std::pair<int, Lines> kinds[] = {
    { CU_GRAPH_NODE_TYPE_KERNEL, { "0 node 0 hidden" } },    { CU_GRAPH_NODE_TYPE_MEMCPY, { "0 copy 0 hidden" } },
    { CU_GRAPH_NODE_TYPE_MEMSET, { "0 fill 0 hidden" } },    { CU_GRAPH_NODE_TYPE_HOST, { "0 host function 0 hidden" } },
    { CU_GRAPH_NODE_TYPE_MEM_ALLOC, { "0 node 0 hidden" } }, { CU_GRAPH_NODE_TYPE_EMPTY, { "0 event 0 none" } },
  };
  Open();
  for (const auto &[kind, lines] : kinds) {
    driver.nodes = { kind };
    for (const char *name : { "Kernel", "Memcpy", "Memset", "Host" })
      driver.failures[std::string("Graph") + name + "NodeGetParams"] = CUDA_ERROR_NOT_SUPPORTED;
    EXPECT_EQ(Walk(), lines);
  }
  driver.failures.clear();
  driver.nodes = { CU_GRAPH_NODE_TYPE_HOST }; // not the library's
  EXPECT_EQ(Walk(), Lines{ "0 host function 0 hidden" });
  driver.nodes = { CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY };
  for (const char *name : { "GraphGetNodes", "GraphNodeGetType" }) {
    int error = 0;
    driver.failures[name] = CUDA_ERROR_UNKNOWN;
    EXPECT_TRUE(Walk(&error).empty());
    EXPECT_EQ(error, CGR__DEVICE_FAILED);
    driver.failures.clear();
  }
  EXPECT_EQ(Walk().size(), 6u);
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

TEST_F(CudaGraphsTest, NodesOfACapture) {
  cudaStream_t stream = Handle<cudaStream_t>(0x3000);
  Open();
  const void *nodes[4] = {};
  size_t count = 7;
  for (CUstreamCaptureStatus status : { CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_CAPTURE_STATUS_INVALIDATED }) {
    driver.capture = status;
    EXPECT_EQ(ops_->capture_nodes(dev_, stream, nodes, 4, &count), CGR__DEVICE_CAPTURE_INVALID);
    EXPECT_EQ(count, 0u);
  }
  driver.capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_EQ(ops_->capture_nodes(dev_, stream, nullptr, 0, &count), CGR__DEVICE_OK);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(ops_->capture_nodes(dev_, stream, nodes, 2, &count), CGR__DEVICE_OK);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(nodes[2], nullptr) << "past the capacity";
  EXPECT_EQ(ops_->capture_nodes(dev_, stream, nodes, 4, &count), CGR__DEVICE_OK);
  std::vector<const void *> walked;
  auto add = [](void *context, const cgr__node_param *p) -> int {
    auto &handles = *static_cast<std::vector<const void *> *>(context);
    if (p->node == int64_t(handles.size()))
      handles.push_back(p->handle);
    return CGR__DEVICE_OK;
  };
  EXPECT_EQ(ops_->graph_walk(dev_, Handle<cgr__graph *>(0x5000), add, &walked), CGR__DEVICE_OK);
  EXPECT_EQ(walked, std::vector<const void *>(nodes, nodes + 3));
  for (const char *name : { "StreamGetCaptureInfo", "GraphGetNodes" }) {
    driver.failures = { { name, CUDA_ERROR_UNKNOWN } };
    EXPECT_EQ(ops_->capture_nodes(dev_, stream, nodes, 4, &count), CGR__DEVICE_FAILED) << name;
  }
  driver.failures.clear();
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

// From CUDA 13.1 on. The captured graph's half of an id does not count, because the executable graph has its own.
TEST_F(CudaGraphsTest, IdsForTools) {
  Open();
  const auto ids = [&] {
    std::vector<uint32_t> all;
    auto add = [](void *context, const cgr__node_param *p) -> int {
      static_cast<std::vector<uint32_t> *>(context)->push_back(p->tools_id);
      return CGR__DEVICE_OK;
    };
    cgr__exec *exec = nullptr;
    cgr__graph_info info = { 1, 1, 1, 1, 1 };
    EXPECT_EQ(ops_->instantiate(dev_, Handle<cgr__graph *>(0x5000), &exec, &info), CGR__DEVICE_OK);
    EXPECT_EQ(ops_->graph_walk(dev_, Handle<cgr__graph *>(0x5000), add, &all), CGR__DEVICE_OK);
    all.push_back(info.tools_id);
    return all;
  };
  driver.nodes = { CU_GRAPH_NODE_TYPE_EMPTY, CU_GRAPH_NODE_TYPE_EMPTY };
  EXPECT_EQ(ids(), (std::vector<uint32_t>{ 0x100 + CU_GRAPH_NODE_TYPE_EMPTY, 0x200 + CU_GRAPH_NODE_TYPE_EMPTY, 9 }));
  driver.failures = { { "GraphNodeGetToolsId", CUDA_ERROR_UNKNOWN }, { "GraphExecGetId", CUDA_ERROR_UNKNOWN } };
  EXPECT_EQ(ids(), (std::vector<uint32_t>{ 0, 0, 0 }));
  driver.failures.clear();
  const cgr__cuda_functions all = cgr__cu;
  cgr__cu.GraphNodeGetToolsId = nullptr;
  cgr__cu.GraphExecGetId = nullptr;
  EXPECT_EQ(ids(), (std::vector<uint32_t>{ 0, 0, 0 })) << "an older driver";
  cgr__cu = all;
  EXPECT_EQ(ops_->close(dev_), CGR__DEVICE_OK);
}

} // namespace

#else

TEST(CudaGraphsTest, NeedsABuildWithCuda) { GTEST_SKIP() << "built without CUDA"; }

#endif
