// A rank whose steps have collectives, over a fake NCCL.
#pragma once

#include "tests/ranks/rank_engine.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/record_buffers.h"

namespace cgr_test {

class NcclEngine {
public:
  using Body = std::function<cgr_status(cgr_recorder *, NcclEngine *)>;
  // `body` is called last in `record`.
  NcclEngine(FakeNccl *fake, const std::string &name, int of, int ranks, Body body, cgr_graph_mode mode = CGR_MODE_FULL,
             uint32_t flags = CGR_NCCL_MARKS, int timeout_ms = 20000, std::function<void(cgr_config *)> adjust = nullptr)
      : rank(of), num_ranks(ranks), body_(std::move(body)),
        engine(new RankEngine(name, of, ranks, CGR_RANKS_SAME, timeout_ms, std::move(adjust), mode,
                              [this](cgr_recorder *recorder) { return body_(recorder, this); })) {
    if (engine->status == CGR_OK)
      MakeComm(fake, flags);
  }
  ~NcclEngine() {
    engine.reset(); // the runtime, and then the communicator
    CGR_EXPECT_OK(cgr_nccl_destroy(nccl));
  }
  NcclEngine(const NcclEngine &) = delete;
  NcclEngine &operator=(const NcclEngine &) = delete;

  // Memory of the device, zeros, that goes with the engine.
  template <typename T> T *New(size_t count) {
    void *memory = nullptr;
    CGR_EXPECT_OK(cgr_memory_alloc(engine->device, count * sizeof(T), &memory));
    std::memset(memory, 0, count * sizeof(T));
    engine->engine.memory.push_back(memory);
    return static_cast<T *>(memory);
  }
  static cgr_nccl_call Call(cgr_nccl_kind kind, const void *send, void *recv, uint64_t count, const char *label = nullptr,
                            cgr_dtype dtype = CGR_DTYPE_FP32) {
    cgr_nccl_call call = CGR_NCCL_CALL_INIT;
    call.kind = kind, call.send = send, call.recv = recv, call.count = count, call.label = label, call.dtype = dtype;
    return call;
  }
  // A host function of the step.
  template <typename Args>
  cgr_status Launch(cgr_recorder *recorder, cgr_host_function function, const Args &args, cudaStream_t stream = nullptr) {
    return cgr_launch_host(engine->device, function, &args, sizeof args, stream ? stream : InfoOf(recorder).stream);
  }
  // One request goes on by a token; all ranks do the same.
  cgr_status Step() {
    RankEngine &e = *engine;
    if (e.requests.empty())
      e.Open();
    if (e.requests[0].length >= 31)
      e.Close(0), e.Open();
    const RankEngine::Work work = { { e.requests[0].row }, { 1 }, { e.requests[0].next }, { 0 } };
    const cgr_status status = e.Agree(work);
    if (status == CGR_OK)
      e.Run(work, e.agreed.key);
    return status;
  }
  cgr_runtime *rt() const { return engine->engine.rt; }

  const int rank, num_ranks;
  cgr_nccl *nccl = nullptr;

private:
  void MakeComm(FakeNccl *fake, uint32_t flags) {
    const cgr_nccl_functions functions = FakeNccl::Functions();
    cgr_nccl_config config = CGR_NCCL_CONFIG_INIT;
    config.functions = &functions;
    config.exchange = &engine->place.exchange;
    config.name = "tp";
    config.flags = flags;
    config.timeout_ms = 5000;
    fake->MakeCurrent(engine->device);
    CGR_EXPECT_OK(cgr_nccl_create(rt(), &config, &nccl));
  }
  Body body_;

public:
  std::unique_ptr<RankEngine> engine;
};

// One all-reduce of the next tokens, whose largest is what all have.
inline cgr_status OneReduce(cgr_recorder *recorder, NcclEngine *e) {
  cgr_status status = CGR_OK;
  void *next = RecordBuffer(recorder, CGR_BUFFER_NEXT_TOKENS, &status);
  cgr_nccl_call call =
      NcclEngine::Call(CGR_NCCL_ALL_REDUCE, next, next, uint64_t(InfoOf(recorder).num_requests), "next", CGR_DTYPE_I32);
  call.op = CGR_NCCL_MAX;
  return status == CGR_OK ? cgr_nccl_record(recorder, e->nccl, &call, 1) : status;
}

// Calls work(rank, engine) on a thread for each rank, whose steps have that one collective: all have done one together.
inline void OnStepped(FakeNccl *fake, int num_ranks, const std::function<void(int, NcclEngine &)> &work) {
  const std::string name = NewBoardName();
  OnRanks(num_ranks, [&](int rank) {
    NcclEngine e(fake, name, rank, num_ranks, OneReduce);
    CGR_ASSERT_OK(e.engine->Capture());
    CGR_ASSERT_OK(e.Step());
    work(rank, e);
  });
}

} // namespace cgr_test
