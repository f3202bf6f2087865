// Collectives in steps, through the adapter for NCCL, over a fake NCCL that exchanges data: in FULL and PIECEWISE graphs and
// eager steps, on branches and between pieces, with the same bits. Communicators outlive graphs, and end in the right order.
#include <thread>

#include "cgr/inspect.h"
#include "tests/ranks/nccl_engine.h"
#include "tests/support/gate.h"

namespace cgr_test {
namespace {

cgr_nccl_info InfoOfComm(cgr_nccl *nccl) {
  cgr_nccl_info info = CGR_NCCL_INFO_INIT;
  CGR_EXPECT_OK(cgr_nccl_get_info(nccl, &info));
  return info;
}

// Of a communicator that the engine has made.
cgr_nccl_config ConfigOf(const cgr_nccl_functions *functions, ncclComm_t comm) {
  cgr_nccl_config config = CGR_NCCL_CONFIG_INIT;
  config.functions = functions;
  config.comm = comm;
  return config;
}

enum { kCount = 24 };

float Share(int rank, int64_t i, int32_t token) { return 0.1f * float(i + 1) + 0.37f * float(token) + 1.3f * float(rank); }

// What the collectives of one rank read and write.
struct Memory {
  float *x, *sum, *all, *part, *first, *ring, *swapped, *fork;
  int32_t *bad, *runs;
  uint64_t *bits;
};

struct Args {
  Memory m;
  const int32_t *token;
  int rank, num_ranks;
};

void FillShare(const void *args) {
  const Args &a = *static_cast<const Args *>(args);
  for (int64_t i = 0; i < kCount * a.num_ranks; i++)
    a.m.x[i] = Share(a.rank, i, *a.token);
}

// Against what each must be, computed here.
void Check(const void *args) {
  const Args &a = *static_cast<const Args *>(args);
  const int n = a.num_ranks, before = (a.rank + n - 1) % n;
  const auto bad = [&](float got, float expected) {
    *a.m.bad += std::memcmp(&got, &expected, sizeof got) != 0;
    uint32_t word;
    std::memcpy(&word, &got, sizeof word);
    *a.m.bits = (*a.m.bits ^ word) * 0x100000001b3u;
  };
  const auto sum = [&](int64_t i) {
    float s = Share(0, i, *a.token);
    for (int r = 1; r < n; r++)
      s += Share(r, i, *a.token);
    return s;
  };
  for (int64_t i = 0; i < kCount; i++) {
    bad(a.m.sum[i], sum(i));
    bad(a.m.fork[i], sum(i));
    bad(a.m.part[i], sum(a.rank * kCount + i));
    bad(a.m.first[i], Share(n - 1, i, *a.token));
    bad(a.m.ring[i], Share(before, i, *a.token));
    for (int r = 0; r < n; r++) {
      bad(a.m.all[r * kCount + i], Share(r, i, *a.token));
      bad(a.m.swapped[r * kCount + i], Share(r, a.rank * kCount + i, *a.token));
    }
  }
  ++*a.m.runs;
}

Memory NewMemory(NcclEngine *e) {
  const size_t n = size_t(e->num_ranks);
  Memory m = {};
  for (float **p : { &m.x, &m.all, &m.swapped })
    *p = e->New<float>(kCount * n);
  for (float **p : { &m.sum, &m.part, &m.first, &m.ring, &m.fork })
    *p = e->New<float>(kCount);
  m.bad = e->New<int32_t>(1), m.runs = e->New<int32_t>(1), m.bits = e->New<uint64_t>(1);
  return m;
}

// Every kind, one on a branch, and, if asked, one between two pieces.
cgr_status AllKinds(cgr_recorder *recorder, NcclEngine *e, const Memory &m, cudaStream_t branch, cgr_event *fork,
                    cgr_event *join) {
  cgr_status status = CGR_OK;
  const auto ok = [&](cgr_status s) { return status = status == CGR_OK ? s : status; };
  const cudaStream_t stream = InfoOf(recorder).stream;
  const int32_t *token = static_cast<const int32_t *>(RecordBuffer(recorder, CGR_BUFFER_INPUT_IDS, &status));
  const Args args = { m, token, e->rank, e->num_ranks };
  ok(e->Launch(recorder, FillShare, args));
  ok(cgr_event_record(e->engine->device, fork, stream));
  ok(cgr_event_wait(e->engine->device, fork, branch));
  cgr_nccl_call on_branch = NcclEngine::Call(CGR_NCCL_ALL_REDUCE, m.x, m.fork, kCount, "branch");
  on_branch.stream = branch;
  ok(cgr_nccl_record(recorder, e->nccl, &on_branch, 1));
  ok(cgr_event_record(e->engine->device, join, branch));
  ok(cgr_event_wait(e->engine->device, join, stream));
  const cgr_nccl_call sum = NcclEngine::Call(CGR_NCCL_ALL_REDUCE, m.x, m.sum, kCount, "sum");
  ok(cgr_nccl_record_between(recorder, e->nccl, &sum, 1));
  cgr_nccl_call first = NcclEngine::Call(CGR_NCCL_BROADCAST, m.x, m.first, kCount);
  first.peer = e->num_ranks - 1;
  for (const cgr_nccl_call &call : { NcclEngine::Call(CGR_NCCL_ALL_GATHER, m.x, m.all, kCount, "all"),
                                     NcclEngine::Call(CGR_NCCL_REDUCE_SCATTER, m.x, m.part, kCount, "part"), first,
                                     NcclEngine::Call(CGR_NCCL_ALL_TO_ALL, m.x, m.swapped, kCount, "experts") })
    ok(cgr_nccl_record(recorder, e->nccl, &call, 1));
  cgr_nccl_call ring[] = { NcclEngine::Call(CGR_NCCL_SEND, m.x, nullptr, kCount, "ring"),
                           NcclEngine::Call(CGR_NCCL_RECV, nullptr, m.ring, kCount, "ring") };
  ring[0].peer = (e->rank + 1) % e->num_ranks, ring[1].peer = (e->rank + e->num_ranks - 1) % e->num_ranks;
  ok(cgr_nccl_record(recorder, e->nccl, ring, 2));
  return ok(e->Launch(recorder, Check, args));
}

class Branch {
public:
  explicit Branch(cgr_device *device) : device_(device) {
    CGR_EXPECT_OK(cgr_stream_create(device, &stream));
    CGR_EXPECT_OK(cgr_event_create(device, &fork));
    CGR_EXPECT_OK(cgr_event_create(device, &join));
  }
  ~Branch() {
    CGR_EXPECT_OK(cgr_stream_destroy(device_, stream));
    CGR_EXPECT_OK(cgr_event_destroy(device_, fork));
    CGR_EXPECT_OK(cgr_event_destroy(device_, join));
  }
  Branch(const Branch &) = delete;
  Branch &operator=(const Branch &) = delete;
  cudaStream_t stream = nullptr;
  cgr_event *fork = nullptr, *join = nullptr;

private:
  cgr_device *device_;
};

class Collectives : public ::testing::TestWithParam<int> {};

TEST_P(Collectives, GiveTheSameBitsInGraphsPiecesAndEagerSteps) {
  const int n = GetParam(), steps = 60;
  std::vector<std::vector<uint64_t>> bits(3, std::vector<uint64_t>(size_t(n)));
  const cgr_graph_mode modes[] = { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE };
  for (size_t m = 0; m < 3; m++) {
    FakeNccl fake(n);
    const std::string name = NewBoardName();
    OnRanks(n, [&](int rank) {
      Memory memory = {};
      std::unique_ptr<Branch> branch;
      NcclEngine e(
          &fake, name, rank, n,
          [&](cgr_recorder *recorder, NcclEngine *self) {
            return AllKinds(recorder, self, memory, branch->stream, branch->fork, branch->join);
          },
          modes[m]);
      ASSERT_NE(e.nccl, nullptr);
      memory = NewMemory(&e);
      branch.reset(new Branch(e.engine->device));
      CGR_ASSERT_OK(e.engine->Capture());
      *memory.bad = *memory.runs = 0, *memory.bits = 0;
      FakeNccl::Comm *comm = FakeNccl::Of(InfoOfComm(e.nccl).comm);
      const int before = comm->calls;
      for (int s = 0; s < steps; s++)
        CGR_ASSERT_OK(e.Step());
      // A replay enqueues what is between pieces, an eager step all: seven calls or groups.
      EXPECT_EQ(comm->calls - before, m == 0 ? 0 : m == 1 ? steps : 7 * steps);
      EXPECT_EQ(*memory.bad, 0);
      EXPECT_EQ(*memory.runs, steps) << "each replay runs them once";
      EXPECT_EQ(e.engine->agreed.key.kind, m == 0 ? CGR_KIND_FULL : m == 1 ? CGR_KIND_PIECEWISE : CGR_KIND_NONE);
      bits[m][size_t(rank)] = *memory.bits;
      CGR_EXPECT_OK(cgr_stream_synchronize(e.engine->device, branch->stream));
      branch.reset();
    });
  }
  EXPECT_EQ(bits[0], bits[1]);
  EXPECT_EQ(bits[0], bits[2]);
}
INSTANTIATE_TEST_SUITE_P(Of, Collectives, ::testing::Values(1, 2, 3));

/* --------------------------------------------------------------------------------------------------------------- lifetime */

TEST(Communicator, IsHeldByGraphsAndEndsAfterThem) {
  FakeNccl fake(1);
  NcclEngine e(&fake, NewBoardName(), 0, 1, OneReduce);
  CGR_ASSERT_OK(e.engine->Capture());
  const cgr_nccl_info info = InfoOfComm(e.nccl);
  EXPECT_EQ(info.version, 22999);
  EXPECT_EQ(info.num_ranks, 1);
  EXPECT_GT(info.num_graphs, 1);
  ExpectMessage(
      cgr_nccl_destroy(e.nccl), CGR_ERROR_STATE,
      { "cgr_nccl_destroy: the communicator tp is held by " + std::to_string(info.num_graphs) + " graphs, expected none" });
  CGR_ASSERT_OK(e.Step());
  CGR_ASSERT_OK(cgr_runtime_release_graphs(e.rt(), 0, nullptr));
  EXPECT_EQ(InfoOfComm(e.nccl).num_graphs, 0);
  CGR_ASSERT_OK(e.engine->Capture());
  EXPECT_EQ(InfoOfComm(e.nccl).num_graphs, info.num_graphs);
  CGR_ASSERT_OK(cgr_runtime_release_graphs(e.rt(), 0, nullptr));
  cgr_nccl *nccl = e.nccl;
  e.nccl = nullptr;
  CGR_EXPECT_OK(cgr_nccl_destroy(nccl)); // before the runtime, whose graphs are gone
}

TEST(Communicator, StaysTheEnginesIfItIsKept) {
  FakeNccl fake(1);
  NcclEngine e(&fake, NewBoardName(), 0, 1, OneReduce);
  const ncclComm_t comm = fake.NewComm(0, e.engine->device);
  const cgr_nccl_functions functions = FakeNccl::Functions();
  cgr_nccl_config config = ConfigOf(&functions, comm);
  config.flags = CGR_NCCL_KEEP;
  cgr_nccl *kept = nullptr;
  CGR_ASSERT_OK(cgr_nccl_create(e.rt(), &config, &kept));
  EXPECT_EQ(InfoOfComm(kept).comm, comm);
  CGR_EXPECT_OK(cgr_nccl_destroy(kept));
  EXPECT_EQ(FakeNccl::Of(comm)->ends, 0) << "it is still there";
}

// Graphs hold NCCL's communicator, so ncclCommAbort ends only after them.
TEST(Communicator, IsAbortedOnAThreadOfItsOwnUntilTheGraphsAreGone) {
  FakeNccl fake(2);
  std::atomic<bool> aborted{ false };
  OnStepped(&fake, 2, [&](int rank, NcclEngine &e) {
    if (rank == 1) { // it does not come to the next collective
      while (!aborted)
        usleep(100);
      return;
    }
    FakeNccl::Comm *comm = FakeNccl::Of(InfoOfComm(e.nccl).comm);
    comm->held = 1;
    cgr_key key = CGR_KEY_INIT;
    key.kind = CGR_KIND_FULL, key.num_requests = key.num_tokens = 1, key.query_len = 1;
    cgr_batch batch = CGR_BATCH_INIT;
    batch.forced_key = &key;
    cgr_step step = CGR_STEP_INIT;
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_ASSERT_OK(cgr_step_prepare(e.rt(), &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(e.rt(), &step, e.engine->engine.stream));
    EXPECT_EQ(cgr_step_wait(e.rt(), step.mark, 50, &result), CGR_NOT_READY);
    char where[96];
    CGR_EXPECT_OK(cgr_nccl_where(e.nccl, where, sizeof where));
    EXPECT_STREQ(where, "in tp all-reduce next");
    ExpectMessage(cgr_nccl_destroy(e.nccl), CGR_ERROR_STATE, { "the communicator tp is held by " });
    CGR_EXPECT_OK(cgr_nccl_abort(e.nccl, "rank 1 is missing"));
    CGR_EXPECT_OK(cgr_nccl_abort(e.nccl, "once more"));
    ExpectMessage(cgr_step_wait(e.rt(), step.mark, 1000, &result), CGR_ERROR_DEAD,
                  { "abandoned: cgr_nccl_abort of tp: rank 1 is missing" });
    ExpectMessage(cgr_step_prepare(e.rt(), &batch, &step), CGR_ERROR_DEAD, { "rank 1 is missing" });
    ExpectMessage(cgr_nccl_destroy(e.nccl), CGR_ERROR_STATE, { "cgr_nccl_destroy: the runtime of tp is dead" });
    EXPECT_EQ(cgr_nccl_check(e.nccl), CGR_ERROR_STATE);
    aborted = true;
    e.engine.reset();
    comm->held = 0; // as when the graphs are gone
    cgr_nccl *nccl = e.nccl;
    e.nccl = nullptr;
    CGR_EXPECT_OK(cgr_nccl_destroy(nccl));
  });
}

// An abort on another thread, while this one records: NCCL frees the communicator after it has returned.
TEST(Communicator, IsNotAbortedWhileAThreadIsInNccl) {
  static cgr_nccl *nccl;
  static std::atomic<int> inside, calls, freed_early;
  nccl = nullptr;
  inside = calls = freed_early = 0;
  FakeNccl fake(1);
  NcclEngine e(&fake, NewBoardName(), 0, 1, [](cgr_recorder *recorder, NcclEngine *self) {
    float *x = static_cast<float *>(self->engine->engine.memory.back());
    const cgr_nccl_call call = NcclEngine::Call(CGR_NCCL_ALL_REDUCE, x, x, 4);
    return cgr_nccl_record(recorder, nccl, &call, 1);
  });
  e.New<float>(4);
  cgr_nccl_functions functions = FakeNccl::Functions();
  functions.all_reduce = [](const void *send, void *recv, size_t count, int dtype, int op, ncclComm_t comm, cudaStream_t s) {
    inside = 1, calls++;
    std::thread([] { CGR_EXPECT_OK(cgr_nccl_abort(nccl, "of the test")); }).join();
    usleep(100000);
    inside = 0;
    return FakeNccl::Functions().all_reduce(send, recv, count, dtype, op, comm, s);
  };
  functions.comm_abort = [](ncclComm_t comm) {
    freed_early += inside;
    return FakeNccl::Functions().comm_abort(comm);
  };
  cgr_nccl_config config = CGR_NCCL_CONFIG_INIT;
  config.functions = &functions;
  config.comm = fake.NewComm(0, e.engine->device);
  CGR_ASSERT_OK(cgr_nccl_create(e.rt(), &config, &nccl));
  EXPECT_NE(e.engine->Capture(), CGR_OK);
  EXPECT_EQ(calls, 1);
  e.engine.reset();
  CGR_EXPECT_OK(cgr_nccl_destroy(nccl));
  EXPECT_EQ(freed_early, 0);
}

TEST(Communicator, TellsAnAbortThatDoesNotEnd) {
  FakeNccl fake(1);
  NcclEngine e(&fake, NewBoardName(), 0, 1, OneReduce);
  const ncclComm_t comm = fake.NewComm(0, e.engine->device);
  const cgr_nccl_functions functions = FakeNccl::Functions();
  cgr_nccl_config config = ConfigOf(&functions, comm);
  config.timeout_ms = 20;
  cgr_nccl *nccl = nullptr;
  CGR_ASSERT_OK(cgr_nccl_create(e.rt(), &config, &nccl));
  FakeNccl::Of(comm)->held = 1;
  CGR_EXPECT_OK(cgr_nccl_abort(nccl, "of the test"));
  e.engine.reset();
  ExpectMessage(cgr_nccl_destroy(nccl), CGR_NOT_READY,
                { "cgr_nccl_destroy: ncclCommAbort has not returned within 20 ms for nccl" });
  FakeNccl::Of(comm)->held = 0;
  cgr_status status = CGR_NOT_READY;
  while (status == CGR_NOT_READY)
    status = cgr_nccl_destroy(nccl);
  CGR_EXPECT_OK(status);
}

TEST(Communicator, TellsNcclsFailures) {
  FakeNccl fake(1);
  NcclEngine e(&fake, NewBoardName(), 0, 1, OneReduce);
  FakeNccl::Comm *comm = FakeNccl::Of(InfoOfComm(e.nccl).comm);
  CGR_EXPECT_OK(cgr_nccl_check(e.nccl));
  comm->error = 6;
  ExpectMessage(cgr_nccl_check(e.nccl), CGR_ERROR_RANK,
                { "cgr_nccl_check: a collective of tp has returned 6", "remote process exited: told by the fake" });
  EXPECT_EQ(cgr_last_device_code(), 6);
  comm->error = 0;
  comm->fail_next = 5;
  ExpectMessage(e.engine->Capture(), CGR_ERROR_CALLBACK,
                { "cgr_nccl_record: tp all-reduce next has returned 5, expected ncclSuccess" });
  CGR_EXPECT_OK(e.engine->Capture()); // once more
  CGR_EXPECT_OK(e.Step());
}

TEST(Communicator, NamesItsCollectivesAmongTheLabelsOfGraphs) {
  FakeNccl fake(1);
  NcclEngine e(&fake, NewBoardName(), 0, 1, OneReduce, CGR_MODE_FULL, 0, 20000, [](cgr_config *config) { config->labels = 1; });
  CGR_ASSERT_OK(e.engine->Capture());
  size_t length = 0;
  CGR_ASSERT_OK(cgr_runtime_graph_labels(e.rt(), nullptr, 0, &length));
  std::string text(length + 1, ' ');
  CGR_ASSERT_OK(cgr_runtime_graph_labels(e.rt(), &text[0], text.size(), &length));
  EXPECT_NE(text.find("{\"phase\": \"tp all-reduce next\", \"layer\": null"), std::string::npos) << text.substr(0, 2000);
}

/* --------------------------------------------------------------------------------------------------------------- refusals */

struct BadCall {
  const char *name;
  std::function<void(cgr_nccl_call *)> spoil;
  cgr_status status;
  std::string says;
};

const BadCall kBadCalls[] = {
  { "Kind", [](cgr_nccl_call *c) { c->kind = 8; }, CGR_ERROR_INVALID_ENUM, "calls[0].kind is 8, expected 1 .. 7" },
  { "NoKind", [](cgr_nccl_call *c) { c->kind = 0; }, CGR_ERROR_INVALID_ENUM, "calls[0].kind is 0" },
  { "Dtype", [](cgr_nccl_call *c) { c->dtype = CGR_DTYPE_I4; }, CGR_ERROR_UNSUPPORTED, "calls[0].dtype is 11" },
  { "Op", [](cgr_nccl_call *c) { c->op = 5; }, CGR_ERROR_INVALID_ENUM, "calls[0].op is 5, expected 0 .. 4" },
  { "OpOfGather", [](cgr_nccl_call *c) { c->kind = CGR_NCCL_ALL_GATHER, c->op = 1; }, CGR_ERROR_INVALID_ENUM,
    "expected 0 of a kind" },
  { "Peer", [](cgr_nccl_call *c) { c->kind = CGR_NCCL_BROADCAST, c->peer = 1; }, CGR_ERROR_INVALID_ARGUMENT,
    "calls[0].peer is 1, expected 0 .. 0" },
  { "Count", [](cgr_nccl_call *c) { c->count = uint64_t(1) << 41; }, CGR_ERROR_INVALID_ARGUMENT,
    "calls[0].count is 2199023255552" },
  { "Label", [](cgr_nccl_call *c) { c->label = "a label that is longer than 31 characters"; }, CGR_ERROR_INVALID_ARGUMENT,
    "calls[0].label is " },
  { "LabelOfTwoLines", [](cgr_nccl_call *c) { c->label = "two\nlines"; }, CGR_ERROR_INVALID_ARGUMENT,
    "calls[0].label is \"two\nlines\", expected no control character in it" },
  { "Send", [](cgr_nccl_call *c) { c->send = nullptr; }, CGR_ERROR_NULL_POINTER, "calls[0].send is NULL" },
  { "Recv", [](cgr_nccl_call *c) { c->recv = nullptr; }, CGR_ERROR_NULL_POINTER, "calls[0].recv is NULL" },
  { "InPlace", [](cgr_nccl_call *c) { c->kind = CGR_NCCL_ALL_TO_ALL, c->recv = const_cast<void *>(c->send); },
    CGR_ERROR_INVALID_ARGUMENT, "calls[0].recv is send" },
  { "Reserved", [](cgr_nccl_call *c) { c->reserved = 1; }, CGR_ERROR_NEWER_STRUCT, "calls.reserved is 1, expected 0" },
  { "Size", [](cgr_nccl_call *c) { c->size = 0; }, CGR_ERROR_INVALID_STRUCT, "calls[0]: size is 0, expected" },
};

class Refused : public ::testing::TestWithParam<BadCall> {};

// By both functions, and the step is given up even if `record` ignores it.
TEST_P(Refused, CallGivesUpTheCapture) {
  for (const bool between : { false, true }) {
    FakeNccl fake(1);
    cgr_status status = CGR_OK;
    float *x = nullptr, *y = nullptr;
    NcclEngine e(&fake, NewBoardName(), 0, 1, [&](cgr_recorder *recorder, NcclEngine *self) {
      cgr_nccl_call call = NcclEngine::Call(CGR_NCCL_ALL_REDUCE, x, y, 4);
      GetParam().spoil(&call);
      status = (between ? cgr_nccl_record_between : cgr_nccl_record)(recorder, self->nccl, &call, 1);
      return CGR_OK;
    });
    x = e.New<float>(4), y = e.New<float>(4);
    ExpectMessage(e.engine->Capture(), CGR_ERROR_CALLBACK,
                  { between ? "cgr_nccl_record_between" : "cgr_nccl_record", GetParam().says });
    EXPECT_EQ(status, GetParam().status);
  }
}
INSTANTIATE_TEST_SUITE_P(Of, Refused, ::testing::ValuesIn(kBadCalls),
                         [](const auto &bad) { return std::string(bad.param.name); });

struct BadConfig {
  const char *name;
  std::function<void(cgr_nccl_config *, cgr_nccl_functions *)> spoil;
  cgr_status status;
  std::string says;
};

const BadConfig kBadConfigs[] = {
  { "Flags", [](cgr_nccl_config *c, cgr_nccl_functions *) { c->flags = 8; }, CGR_ERROR_INVALID_ENUM, "config.flags is 0x8" },
  { "Timeout", [](cgr_nccl_config *c, cgr_nccl_functions *) { c->timeout_ms = -1; }, CGR_ERROR_INVALID_ARGUMENT,
    "config.timeout_ms is -1" },
  { "NoComm", [](cgr_nccl_config *c, cgr_nccl_functions *) { c->comm = nullptr; }, CGR_ERROR_NULL_POINTER,
    "config.comm and config.exchange are both NULL" },
  { "Name", [](cgr_nccl_config *c, cgr_nccl_functions *) { c->name = "a name of more than 23 characters"; },
    CGR_ERROR_INVALID_ARGUMENT, "config.name is \"a name of more than 23 " },
  { "NameOfTwoLines", [](cgr_nccl_config *c, cgr_nccl_functions *) { c->name = "t\np"; }, CGR_ERROR_INVALID_ARGUMENT,
    "expected 1 .. 23 characters without control characters" },
  { "NoName", [](cgr_nccl_config *c, cgr_nccl_functions *) { c->name = ""; }, CGR_ERROR_INVALID_ARGUMENT, "config.name is \"\"" },
  { "Function", [](cgr_nccl_config *, cgr_nccl_functions *f) { f->comm_abort = nullptr; }, CGR_ERROR_NULL_POINTER,
    "config.functions.comm_abort is NULL" },
  { "Reserved", [](cgr_nccl_config *c, cgr_nccl_functions *) { c->reserved = 1; }, CGR_ERROR_NEWER_STRUCT, "config.reserved" },
};

class RefusedConfig : public ::testing::TestWithParam<BadConfig> {};

TEST_P(RefusedConfig, MakesNothing) {
  FakeNccl fake(1);
  HostDevice device;
  TinyEngine engine(device, CGR_MODE_FULL);
  cgr_nccl_functions functions = FakeNccl::Functions();
  const ncclComm_t comm = fake.NewComm(0, device);
  cgr_nccl_config config = ConfigOf(&functions, comm);
  GetParam().spoil(&config, &functions);
  cgr_nccl *nccl = nullptr;
  ExpectMessage(cgr_nccl_create(engine.rt, &config, &nccl), GetParam().status, { "cgr_nccl_create: ", GetParam().says });
  EXPECT_EQ(nccl, nullptr);
  EXPECT_EQ(FakeNccl::Of(comm)->ends, 0) << "it is still there";
}
INSTANTIATE_TEST_SUITE_P(Of, RefusedConfig, ::testing::ValuesIn(kBadConfigs),
                         [](const auto &bad) { return std::string(bad.param.name); });

TEST(Functions, AreFoundByTheirNames) {
  static int asked = 0;
  cgr_nccl_functions functions = CGR_NCCL_FUNCTIONS_INIT;
  const auto all = [](void *library, const char *name) -> void * {
    asked += std::strncmp(name, "nccl", 4) == 0;
    return library;
  };
  CGR_ASSERT_OK(cgr_nccl_find(all, &functions, &functions));
  EXPECT_EQ(asked, 24);
  EXPECT_EQ(reinterpret_cast<void *>(functions.recv), &functions);
  const auto none = [](void *, const char *name) -> void * { return std::strcmp(name, "ncclCommAbort") == 0 ? nullptr : &asked; };
  ExpectMessage(cgr_nccl_find(none, nullptr, &functions), CGR_ERROR_UNSUPPORTED, { "has no ncclCommAbort, expected NCCL 2.10" });
  const auto some = [](void *, const char *name) -> void * {
    return std::strstr(name, "Window") || std::strstr(name, "Mem") ? nullptr : &asked;
  };
  CGR_ASSERT_OK(cgr_nccl_find(some, nullptr, &functions));
  EXPECT_EQ(functions.comm_window_register, nullptr);
  EXPECT_EQ(cgr_nccl_find(nullptr, nullptr, &functions), CGR_ERROR_NULL_POINTER);
}

TEST(Buffers, AreRegisteredWhereNcclCan) {
  FakeNccl fake(1);
  NcclEngine e(&fake, NewBoardName(), 0, 1, OneReduce);
  float *x = e.New<float>(4);
  int32_t buffer = -1;
  CGR_ASSERT_OK(cgr_nccl_register_buffer(e.nccl, x, 16, 0, &buffer));
  ExpectMessage(cgr_nccl_register_buffer(e.nccl, x, 16, 1, &buffer), CGR_ERROR_UNSUPPORTED, { "has no ncclCommWindowRegister" });
  ExpectMessage(cgr_nccl_unregister_buffer(e.nccl, buffer + 1), CGR_ERROR_INVALID_ARGUMENT, { "buffer is 1, expected one of" });
  CGR_ASSERT_OK(e.engine->Capture());
  ExpectMessage(cgr_nccl_unregister_buffer(e.nccl, buffer), CGR_ERROR_STATE, { "tp is held by ", "which may hold the buffer" });
  CGR_ASSERT_OK(cgr_runtime_release_graphs(e.rt(), 0, nullptr));
  CGR_ASSERT_OK(cgr_nccl_unregister_buffer(e.nccl, buffer));
  for (int i = 0; i < 64; i++)
    CGR_ASSERT_OK(cgr_nccl_register_buffer(e.nccl, x, 16, 0, &buffer));
  EXPECT_EQ(cgr_nccl_register_buffer(e.nccl, x, 16, 0, &buffer), CGR_ERROR_OUT_OF_MEMORY);
}

// Once NCCL may have freed the communicator, it is given to no function of NCCL's.
TEST(Buffers, OfAnAbortedCommunicatorAreLeftAlone) {
  FakeNccl fake(1);
  static std::atomic<int> calls;
  calls = 0;
  NcclEngine e(&fake, NewBoardName(), 0, 1, OneReduce);
  cgr_nccl_functions functions = FakeNccl::Functions();
  functions.comm_deregister = [](const ncclComm_t, void *) { return ++calls, 0; };
  cgr_nccl_config config = ConfigOf(&functions, fake.NewComm(0, e.engine->device));
  cgr_nccl *nccl = nullptr;
  int32_t x = 0, buffer = -1;
  CGR_ASSERT_OK(cgr_nccl_create(e.rt(), &config, &nccl));
  CGR_ASSERT_OK(cgr_nccl_register_buffer(nccl, &x, 4, 0, &buffer));
  CGR_EXPECT_OK(cgr_nccl_abort(nccl, "of the test"));
  ExpectMessage(cgr_nccl_unregister_buffer(nccl, buffer), CGR_ERROR_STATE, { "nccl has been aborted" });
  e.engine.reset();
  ExpectMessage(cgr_nccl_unregister_buffer(nccl, buffer), CGR_ERROR_STATE, { "nccl has been aborted" });
  CGR_EXPECT_OK(cgr_nccl_destroy(nccl));
  EXPECT_EQ(calls, 0);
}

TEST(Buffers, StayWhileStepsMayUseThem) {
  FakeNccl fake(1);
  NcclEngine e(&fake, NewBoardName(), 0, 1, OneReduce, CGR_MODE_NONE);
  int32_t buffer = -1;
  float *x = e.New<float>(4);
  CGR_ASSERT_OK(cgr_nccl_register_buffer(e.nccl, x, 16, 0, &buffer));
  CGR_ASSERT_OK(e.engine->Capture());
  Gate gate(e.engine->device, e.engine->engine.stream);
  const cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(e.rt(), &batch, &step));
  CGR_ASSERT_OK(cgr_step_launch(e.rt(), &step, e.engine->engine.stream));
  ExpectMessage(cgr_nccl_unregister_buffer(e.nccl, buffer), CGR_ERROR_STATE, { "steps in flight may use the buffer of tp" });
  gate.Open();
  CGR_ASSERT_OK(cgr_step_wait(e.rt(), step.mark, -1, nullptr));
  CGR_EXPECT_OK(cgr_nccl_unregister_buffer(e.nccl, buffer));
}

// CGR_NOT_READY would mean that the communicator is still there, for another call.
TEST(Communicator, HasEndedWhenNcclStillGoesOnByItself) {
  FakeNccl fake(1);
  NcclEngine e(&fake, NewBoardName(), 0, 1, OneReduce);
  cgr_nccl_functions functions = FakeNccl::Functions();
  functions.comm_destroy = [](ncclComm_t) { return 7; };
  cgr_nccl_config config = ConfigOf(&functions, fake.NewComm(0, e.engine->device));
  cgr_nccl *nccl = nullptr;
  CGR_ASSERT_OK(cgr_nccl_create(e.rt(), &config, &nccl));
  CGR_EXPECT_OK(cgr_nccl_destroy(nccl));
  FakeNccl::Of(InfoOfComm(e.nccl).comm)->fail_next = 7;
  ExpectMessage(e.engine->Capture(), CGR_ERROR_CALLBACK, { "cgr_nccl_record: tp all-reduce next has returned 7" });
  CGR_EXPECT_OK(e.engine->Capture());
}

} // namespace
} // namespace cgr_test
