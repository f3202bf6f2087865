// Two processes with a GPU each and the real NCCL, if CGR_TEST_NCCL names its library: collectives in FULL and PIECEWISE graphs
// and eager steps give the same bits in random steps; a rank that is killed is named, and the other is destroyed; what an
// all-reduce and the comparison of steps cost in a graph. Without the library the same runs on host devices over the fake NCCL.
#include <dlfcn.h>
#include <sys/wait.h>

#include <chrono>

#include "tests/ranks/rig.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/record_buffers.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

enum { kRanks = 2, kMost = 8, kWidth = 1024, kTokens = 64, kLine = 2048 }; // kLine: 8 KB of fp32

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// What the processes share: the fake, or NCCL.
struct World {
  FakeNccl *fake = nullptr; // NULL: NCCL
  cgr_nccl_functions functions = CGR_NCCL_FUNCTIONS_INIT;
  std::string device = "host", board;
  int rank = 0;
};

struct Options {
  cgr_graph_mode mode = CGR_MODE_FULL;
  int reduces = 0; // all-reduces of 8 KB that a step has, too
  bool compares = true;
  uint32_t flags = 0;
};

// A model without kernels: the next token is the last one, and collectives run on memory that the host fills.
class GpuRank {
public:
  GpuRank(const World &world, const Options &options)
      : place(world.board + std::to_string(int(options.mode)) + "." + std::to_string(options.reduces) + "." +
                  std::to_string(int(options.compares)) + std::to_string(options.flags),
              world.rank, kRanks),
        options_(options), rank_(world.rank) {
    CGR_EXPECT_OK(cgr_device_open(world.device.c_str(), nullptr, &device));
    CGR_EXPECT_OK(cgr_stream_create(device, &stream));
    MakeRuntime();
    cgr_ranks_config config = CGR_RANKS_CONFIG_INIT;
    config.rule = CGR_RANKS_SAME, config.exchange = &place.exchange, config.timeout_ms = 20000;
    CGR_EXPECT_OK(cgr_ranks_create(rt, &config, &ranks));
    cgr_nccl_config comm = CGR_NCCL_CONFIG_INIT;
    comm.functions = &world.functions, comm.exchange = &place.exchange, comm.name = "tp", comm.flags = options.flags;
    if (world.fake)
      world.fake->MakeCurrent(device);
    CGR_EXPECT_OK(cgr_nccl_create(rt, &comm, &nccl));
    const size_t most = size_t(kMost) * kWidth * sizeof(float);
    for (void **m : { &x_, &sum_, &part_, &swapped_ })
      *m = Alloc(most);
    all_ = Alloc(most * kRanks);
    fingerprints_ = Alloc((kRanks + 1) * CGR_FINGERPRINT_BYTES);
    CGR_EXPECT_OK(cgr_memory_alloc_pinned(device, most * kRanks, &pinned_));
  }
  ~GpuRank() {
    CGR_EXPECT_OK(cgr_ranks_destroy(ranks));
    CGR_EXPECT_OK(cgr_runtime_destroy(rt));
    CGR_EXPECT_OK(cgr_nccl_destroy(nccl));
    for (void *m : memory_)
      CGR_EXPECT_OK(cgr_memory_free(device, m));
    CGR_EXPECT_OK(cgr_memory_free_pinned(device, pinned_));
    CGR_EXPECT_OK(cgr_stream_destroy(device, stream));
    CGR_EXPECT_OK(cgr_device_close(device));
  }
  GpuRank(const GpuRank &) = delete;
  GpuRank &operator=(const GpuRank &) = delete;

  // NCCL connects in the first eager step, and so in no capture.
  cgr_status Capture() {
    const cgr_capture capture = CaptureOf(&GpuRank::Record, this);
    CGR_EXPECT_OK(cgr_ranks_barrier(ranks, "warm-up"));
    const cgr_status status = cgr_runtime_warmup(rt, &capture);
    return status == CGR_OK ? cgr_ranks_capture(ranks, &capture) : status;
  }
  // `requests` rows that are open, each with its last token.
  cgr_status Launch(int32_t requests, cgr_step *step) {
    std::vector<int32_t> lens(size_t(requests), 1), tokens(size_t(requests), 7);
    while (int32_t(rows_.size()) < requests)
      Open();
    for (int32_t i = 0; i < requests; i++)
      if (++lengths_[size_t(i)] > 250)
        Reopen(i);
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = requests;
    batch.rows = rows_.data(), batch.query_lens = lens.data(), batch.tokens = tokens.data();
    cgr_status status = cgr_ranks_agree(ranks, &batch, &agreed);
    batch.forced_key = &agreed.key;
    if (status == CGR_OK)
      status = cgr_step_prepare(rt, &batch, step);
    return status == CGR_OK ? cgr_step_launch(rt, step, stream) : status;
  }
  // One random step: what the collectives give, as a hash. All ranks have the same hash of what they have together.
  uint64_t Step(std::mt19937_64 *random) {
    const int32_t requests = 1 << (*random)() % 4; // a bucket: collectives of the same size in all modes
    const size_t count = size_t(requests) * kWidth;
    std::mt19937 own(unsigned((*random)()) + 97u * unsigned(rank_));
    float *values = static_cast<float *>(pinned_);
    for (size_t i = 0; i < count; i++)
      values[i] = std::ldexp(float(int32_t(own())), int(own() % 40) - 50);
    CGR_EXPECT_OK(cgr_copy(device, x_, pinned_, count * sizeof(float), stream));
    cgr_step step = CGR_STEP_INIT;
    CGR_EXPECT_OK(Launch(requests, &step));
    CGR_EXPECT_OK(cgr_step_wait(rt, step.mark, 20000, nullptr));
    kinds[agreed.key.kind]++;
    uint64_t together = 0xcbf29ce484222325u;
    for (const auto &[from, bytes] : { std::make_pair(sum_, count * 4), std::make_pair(all_, count * 4) }) // of rank 0's part too
      together = Hash(together, from, bytes);
    together_ = together_ * 31 + together;
    return Hash(Hash(together, part_, count / kRanks * 4), swapped_, count / kRanks * 4 * kRanks);
  }
  // Whether what ranks have together is the same on all.
  void CompareWithOthers() {
    uint64_t all[kRanks] = {}, missing = 0;
    CGR_ASSERT_OK(place.exchange.gather(place.exchange.context, &together_, sizeof together_, all, 20000, &missing));
    for (const uint64_t other : all)
      EXPECT_EQ(other, together_) << "ranks have the same bits of what they have together";
  }
  // us of a step, `times` launched ahead of each other.
  double TimeOfStep(int times) {
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
      CGR_EXPECT_OK(cgr_ranks_barrier(ranks, "round"));
      cgr_step step = CGR_STEP_INIT;
      CGR_EXPECT_OK(cgr_stream_synchronize(device, stream));
      const double begin = Now();
      for (int i = 0; i < times; i++) {
        CGR_EXPECT_OK(Launch(1, &step));
        if (i % 2 == 1)
          CGR_EXPECT_OK(cgr_step_wait(rt, step.mark, 20000, nullptr));
      }
      CGR_EXPECT_OK(cgr_stream_synchronize(device, stream));
      best = std::min(best, (Now() - begin) / times * 1e6);
    }
    return best;
  }

  PlaceOnBoard place;
  cgr_device *device = nullptr;
  cudaStream_t stream = nullptr;
  cgr_runtime *rt = nullptr;
  cgr_ranks *ranks = nullptr;
  cgr_nccl *nccl = nullptr;
  cgr_agreement agreed = CGR_AGREEMENT_INIT;
  int kinds[3] = { 0, 0, 0 };

private:
  void MakeRuntime() {
    static const int32_t buckets[] = { 1, 2, 4, kMost };
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = 2 + kMost * 16;
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = device;
    config.groups = &group, config.num_groups = 1;
    config.max_requests = kMost, config.max_tokens = kTokens, config.max_seq_len = 256;
    config.decode_buckets = buckets, config.num_decode_buckets = 4;
    config.graph_mode = options_.mode;
    CGR_EXPECT_OK(cgr_runtime_create(&config, &rt));
  }
  void *Alloc(size_t bytes) {
    memory_.push_back(nullptr);
    CGR_EXPECT_OK(cgr_memory_alloc(device, bytes, &memory_.back()));
    CGR_EXPECT_OK(cgr_fill(device, memory_.back(), 0, bytes, stream));
    CGR_EXPECT_OK(cgr_stream_synchronize(device, stream));
    return memory_.back();
  }
  void Open() {
    int32_t row = -1, pages[16];
    for (int32_t p = 0; p < 16; p++)
      pages[p] = 2 + int32_t(rows_.size()) * 16 + p;
    CGR_EXPECT_OK(cgr_request_open(rt, 1, &row));
    CGR_EXPECT_OK(cgr_request_set_pages(rt, row, 0, 0, pages, 16));
    rows_.push_back(row), lengths_.push_back(0);
  }
  void Reopen(int32_t i) {
    CGR_EXPECT_OK(cgr_request_set_length(rt, rows_[size_t(i)], 0));
    lengths_[size_t(i)] = 1;
  }
  uint64_t Hash(uint64_t hash, const void *from, size_t bytes) {
    CGR_EXPECT_OK(cgr_copy(device, pinned_, from, bytes, stream));
    CGR_EXPECT_OK(cgr_stream_synchronize(device, stream));
    for (size_t i = 0; i < bytes / 4; i++)
      hash = (hash ^ static_cast<const uint32_t *>(pinned_)[i]) * 0x100000001b3u;
    return hash;
  }
  static cgr_nccl_call Call(cgr_nccl_kind kind, const void *send, void *recv, uint64_t count, const char *label) {
    cgr_nccl_call call = CGR_NCCL_CALL_INIT;
    call.kind = kind, call.send = send, call.recv = recv, call.count = count, call.dtype = CGR_DTYPE_FP32, call.label = label;
    return call;
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    GpuRank &self = *static_cast<GpuRank *>(engine);
    const cgr_record_info info = InfoOf(recorder);
    cgr_status status = CGR_OK;
    const auto ok = [&](cgr_status s) { status = status == CGR_OK ? s : status; };
    if (self.options_.compares)
      ok(cgr_nccl_record_comparison(recorder, self.nccl, self.fingerprints_, 1, nullptr));
    void *ids = RecordBuffer(recorder, CGR_BUFFER_INPUT_IDS, &status);
    void *next = RecordBuffer(recorder, CGR_BUFFER_NEXT_TOKENS, &status);
    ok(cgr_copy(self.device, next, ids, size_t(info.num_requests) * 4, info.stream));
    const uint64_t count = uint64_t(info.num_requests) * kWidth;
    for (int i = 0; i < self.options_.reduces; i++) {
      const cgr_nccl_call call = Call(CGR_NCCL_ALL_REDUCE, self.x_, self.sum_, kLine, "line");
      ok(cgr_nccl_record(recorder, self.nccl, &call, 1));
    }
    if (self.options_.reduces != 0) // -1: none at all
      return status;
    const cgr_nccl_call sum = Call(CGR_NCCL_ALL_REDUCE, self.x_, self.sum_, count, "sum");
    ok(cgr_nccl_record_between(recorder, self.nccl, &sum, 1));
    const cgr_nccl_call others[] = { Call(CGR_NCCL_ALL_GATHER, self.x_, self.all_, count, "all"),
                                     Call(CGR_NCCL_REDUCE_SCATTER, self.x_, self.part_, count / kRanks, "part"),
                                     Call(CGR_NCCL_ALL_TO_ALL, self.x_, self.swapped_, count / kRanks, "experts") };
    for (const cgr_nccl_call &call : others)
      ok(cgr_nccl_record(recorder, self.nccl, &call, 1));
    return status;
  }

  Options options_;
  int rank_;
  std::vector<void *> memory_;
  std::vector<int32_t> rows_, lengths_;
  void *x_ = nullptr, *sum_ = nullptr, *part_ = nullptr, *swapped_ = nullptr, *all_ = nullptr, *fingerprints_ = nullptr;
  void *pinned_ = nullptr;
  uint64_t together_ = 0;
};

/* ------------------------------------------------------------------------------------------------------- what a rank does */

void BitsInAllModes(const World &world) {
  const int steps = world.fake ? 40 : 300;
  uint64_t hashes[3] = {};
  const cgr_graph_mode modes[] = { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE };
  for (int m = 0; m < 3; m++) {
    Options options;
    options.mode = modes[m];
    GpuRank r(world, options);
    CGR_ASSERT_OK(r.Capture());
    std::mt19937_64 random(12345);
    for (int s = 0; s < steps; s++)
      hashes[m] = hashes[m] * 31 + r.Step(&random);
    EXPECT_EQ(r.kinds[m == 0 ? CGR_KIND_FULL : m == 1 ? CGR_KIND_PIECEWISE : CGR_KIND_NONE], steps);
    r.CompareWithOthers();
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0], hashes[2]);
  if (world.rank == 0)
    std::printf("bits: %d random steps each, full, piecewise and eager %s\n", steps,
                hashes[0] == hashes[1] && hashes[0] == hashes[2] ? "equal" : "DIFFER");
}

// Steps are launched ahead of each other; with 64 all-reduces the device is what takes the time.
void Costs(const World &world) {
  const struct {
    const char *name;
    int reduces;
    bool compares;
    uint32_t flags;
  } runs[] = { { "without collectives", -1, false, 0 },
               { "with 64 all-reduces of 8 KB", 64, false, 0 },
               { "with these and the comparison", 64, true, 0 },
               { "with these and marks", 64, false, CGR_NCCL_MARKS } };
  double us[4] = {};
  for (int i = 0; i < 4; i++) {
    Options options;
    options.reduces = runs[i].reduces, options.compares = runs[i].compares, options.flags = runs[i].flags;
    GpuRank r(world, options);
    CGR_ASSERT_OK(r.Capture());
    us[i] = r.TimeOfStep(world.fake ? 10 : 200);
    if (world.rank == 0)
      std::printf("cost: a step %s takes %.2f us\n", runs[i].name, us[i]);
  }
  if (world.rank == 0)
    std::printf("cost: an all-reduce of 8 KB %.2f us, the comparison of steps %.2f us, marks %.2f us a collective\n", us[1] / 64,
                us[2] - us[1], (us[3] - us[1]) / 64);
}

// Rank 1 is killed when all have agreed on a step; rank 0's watchdog names it and aborts, and all is destroyed.
void Death(const World &world) {
  static std::string told;
  static std::atomic<bool> aborted{ false };
  static cgr_nccl *nccl;
  Options options;
  options.flags = CGR_NCCL_MARKS;
  const double begin = Now();
  double named = 0;
  {
    GpuRank r(world, options);
    CGR_ASSERT_OK(r.Capture());
    std::mt19937_64 random(1);
    for (int s = 0; s < 5; s++)
      (void)r.Step(&random);
    nccl = r.nccl;
    cgr_rank_watch watch = CGR_RANK_WATCH_INIT;
    watch.timeout_ms = 1000, watch.where = cgr_nccl_where, watch.where_context = r.nccl;
    watch.hangs = [](void *, const char *report) {
      told = std::string(report).substr(0, std::string(report).find('\n'));
      CGR_EXPECT_OK(cgr_nccl_abort(nccl, told.c_str()));
      aborted = true;
    };
    cgr_watchdog *dog = nullptr;
    CGR_ASSERT_OK(cgr_ranks_watch(r.ranks, &watch, &dog));
    if (world.rank == 1) {
      cgr_agreement agreed = CGR_AGREEMENT_INIT;
      CGR_EXPECT_OK(cgr_ranks_agree(r.ranks, nullptr, &agreed)); // of no step, before the others launch one
      raise(SIGKILL);
    }
    cgr_agreement agreed = CGR_AGREEMENT_INIT;
    CGR_EXPECT_OK(cgr_ranks_agree(r.ranks, nullptr, &agreed));
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_key key = r.agreed.key;
    batch.forced_key = &key;
    cgr_step step = CGR_STEP_INIT;
    CGR_ASSERT_OK(cgr_step_prepare(r.rt, &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(r.rt, &step, r.stream));
    const double launched = Now();
    const cgr_status status = cgr_step_wait(r.rt, step.mark, 20000, nullptr);
    named = Now() - launched;
    EXPECT_EQ(status, CGR_ERROR_DEAD);
    CGR_EXPECT_OK(cgr_watchdog_stop(dog));
    EXPECT_TRUE(aborted);
    EXPECT_NE(told.find("rank 1 has left or ended"), std::string::npos) << told;
  }
  std::printf("death: named and aborted after %.2f s (%s); all is destroyed after %.2f s\n", named, told.c_str(), Now() - begin);
}

const struct {
  const char *name;
  void (*does)(const World &);
  int kills; // the signal that rank 1 ends by
} kWorks[] = { { "Bits", BitsInAllModes, 0 }, { "Costs", Costs, 0 }, { "Death", Death, SIGKILL } };

bool FindNccl(const char *path, World *world) {
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    std::fprintf(stderr, "%s\n", dlerror());
  return library && cgr_nccl_find(dlsym, library, &world->functions) == CGR_OK;
}

class NcclOfTwo : public ::testing::TestWithParam<size_t> {};

// The parent has neither CUDA nor NCCL.
TEST_P(NcclOfTwo, Works) {
  const char *path = std::getenv("CGR_TEST_NCCL");
  FakeNccl fake(kRanks);
  const std::string board = NewBoardName();
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; rank++) {
    children.push_back(fork());
    if (children.back() != 0)
      continue;
    World world;
    world.rank = rank;
    world.board = board;
    world.functions = FakeNccl::Functions();
    if (path) {
      setenv("CUDA_VISIBLE_DEVICES", std::to_string(rank).c_str(), 1);
      world.device = "cuda:0";
      if (!FindNccl(path, &world))
        _exit(22);
    } else {
      world.fake = &fake;
    }
    kWorks[GetParam()].does(world);
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 21 : 0);
  }
  for (int rank = 0; rank < kRanks; rank++) {
    int how = 0;
    waitpid(children[size_t(rank)], &how, 0);
    const int kills = rank == 1 ? kWorks[GetParam()].kills : 0;
    EXPECT_TRUE(kills ? WIFSIGNALED(how) && WTERMSIG(how) == kills : WIFEXITED(how) && WEXITSTATUS(how) == 0)
        << "rank " << rank << " has ended with " << how;
  }
}
INSTANTIATE_TEST_SUITE_P(Of, NcclOfTwo, ::testing::Range(size_t(0), std::size(kWorks)),
                         [](const auto &of) { return std::string(kWorks[of.param].name); });

} // namespace
} // namespace cgr_test
