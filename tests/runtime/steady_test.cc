// The steady loop after warm-up: no allocation on the host (malloc and its relatives and mmap are counted), no synchronisation
// and no allocation at the device (counted at the device table), with arrivals, closes, page appends and eager fallbacks in it.
#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>

#include <atomic>

#include "devices/shims/trace.h"
#include "tests/support/toy_engine.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CGR_COUNTS_ALLOCATIONS 0 // a sanitizer has put functions of its own there
#else
#define CGR_COUNTS_ALLOCATIONS 1
#endif

namespace {

std::atomic<bool> counting{ false };
std::atomic<uint64_t> host_allocations{ 0 };

// The distinct places that called, and how often: resolved only after the loop, because that may allocate. A place that finds
// no room counts as ours.
constexpr size_t kMaxCallers = 4096;
std::atomic<void *> callers[kMaxCallers];
std::atomic<uint64_t> calls[kMaxCallers];
std::atomic<uint64_t> homeless{ 0 };

[[maybe_unused]] void Count(void *caller) {
  if (!counting.load(std::memory_order_relaxed))
    return;
  host_allocations.fetch_add(1, std::memory_order_relaxed);
  size_t first = reinterpret_cast<uintptr_t>(caller) % kMaxCallers;
  for (size_t n = 0; n < kMaxCallers; n++) {
    size_t place = (first + n) % kMaxCallers;
    void *expected = nullptr;
    if (callers[place].compare_exchange_strong(expected, caller) || expected == caller) {
      calls[place].fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  homeless.fetch_add(1, std::memory_order_relaxed);
}

// Whether the code at `caller` is this program or the C and C++ libraries that it calls. Others are the CUDA driver, which
// refills pools of its own every few hundred launches, whoever launches, and the checkers that are loaded beside it.
[[maybe_unused]] bool IsOurs(void *caller) {
  Dl_info info, self;
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr)
    return true;
  if (dladdr(reinterpret_cast<void *>(&IsOurs), &self) != 0 && info.dli_fbase == self.dli_fbase)
    return true;
  const char *slash = strrchr(info.dli_fname, '/');
  const char *name = slash != nullptr ? slash + 1 : info.dli_fname;
  for (const char *library : { "libc.", "libc-", "libstdc++", "libgcc", "libm.", "libpthread", "libdl", "ld-" })
    if (strncmp(name, library, strlen(library)) == 0)
      return true;
  return false;
}

[[maybe_unused]] uint64_t OurAllocations() {
  uint64_t ours = homeless.load();
  for (size_t place = 0; place < kMaxCallers; place++)
    if (callers[place].load() != nullptr && IsOurs(callers[place].load()))
      ours += calls[place].load();
  return ours;
}

} // namespace

#if CGR_COUNTS_ALLOCATIONS
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

void *malloc(size_t bytes) {
  Count(__builtin_return_address(0));
  return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  Count(__builtin_return_address(0));
  return __libc_calloc(count, bytes);
}
void *realloc(void *memory, size_t bytes) {
  Count(__builtin_return_address(0));
  return __libc_realloc(memory, bytes);
}
void *memalign(size_t alignment, size_t bytes) {
  Count(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
  Count(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  Count(__builtin_return_address(0));
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? 12 : 0;
}
void free(void *memory) {
  if (memory != nullptr)
    Count(__builtin_return_address(0));
  __libc_free(memory);
}
void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  using Function = void *(*)(void *, size_t, int, int, int, off_t);
  static Function next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "mmap"));
  Count(__builtin_return_address(0));
  return next(address, bytes, protection, flags, fd, offset);
}
int munmap(void *address, size_t bytes) noexcept {
  using Function = int (*)(void *, size_t);
  static Function next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "munmap"));
  Count(__builtin_return_address(0));
  return next(address, bytes);
}
}
#endif

namespace cgr_test {
namespace {

enum { kRows = 12, kPages = 10, kBatch = 8 };

// The engine's side of the loop, in fixed arrays.
struct Loop {
  int32_t row[kRows], length[kRows], age[kRows];
  int32_t pages[kRows][kPages], num_pages[kRows];
  int32_t free_pages[128], num_free;
  int32_t rows[kBatch], lens[kBatch], tokens[64];
  uint32_t random;
  uint64_t last, arrivals, closes, appends, fallbacks, replays;

  uint32_t Random() { return (random = random * 1664525u + 1013904223u) >> 12; }
};

class Steady : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override {
    CGR_SKIP_WITHOUT_DEVICE(GetParam());
    cgr_device *inner = OpenDevice(GetParam());
    ASSERT_NE(inner, nullptr);
    ASSERT_EQ(cgr__trace_open(inner, &traced_), CGR__DEVICE_OK);
    ToyOptions options = ToyOptionsFor(GetParam());
    options.handle = traced_;
    options.buckets = { 1, 2, 4, 6 };
    toy_ = std::make_unique<Toy>(options);
    toy_->records.reserve(100000);
    CGR_ASSERT_OK(cgr_runtime_warmup(toy_->rt, ToyRecord, &toy_->engine));
    CGR_ASSERT_OK(toy_->Capture());
    // Nothing here is compared by values: any finite inputs do.
    for (int l = 0; l < 2 && toy_->o.fixed; l++) {
      toy_->FillElements(toy_->engine.q[l], 64 * static_cast<size_t>(toy_->o.num_q_heads * toy_->o.head_dim), 0.5);
      toy_->FillElements(toy_->engine.k[l], 64 * static_cast<size_t>(toy_->o.num_kv_heads * toy_->o.head_dim), 0.5);
      toy_->FillElements(toy_->engine.v[l], 64 * static_cast<size_t>(toy_->o.num_kv_heads * toy_->o.head_dim), 0.5);
    }
    std::memset(&loop_, 0, sizeof loop_);
    loop_.random = 12345;
    for (int32_t &row : loop_.row)
      row = -1;
    for (int32_t p = 2; p < 128; p++)
      loop_.free_pages[loop_.num_free++] = p;
  }

  // Any call that fails ends the test without a word in between, which would allocate.
  bool Reserve(int32_t i, int32_t tokens) {
    Loop &L = loop_;
    while (L.num_pages[i] * 16 < tokens) {
      if (L.num_free == 0)
        return false;
      int32_t page = L.free_pages[--L.num_free];
      if (cgr_request_set_pages(toy_->rt, L.row[i], 0, L.num_pages[i], &page, 1) != CGR_OK)
        return false;
      L.pages[i][L.num_pages[i]++] = page;
      L.appends++;
    }
    return true;
  }
  bool Turnover() {
    Loop &L = loop_;
    for (int32_t i = 0; i < kRows; i++) {
      if (L.row[i] >= 0 && (L.length[i] > 140 || L.Random() % 40 == 0)) {
        if (cgr_step_wait(toy_->rt, L.last, nullptr) != CGR_OK || cgr_request_close(toy_->rt, L.row[i]) != CGR_OK)
          return false;
        while (L.num_pages[i] > 0)
          L.free_pages[L.num_free++] = L.pages[i][--L.num_pages[i]];
        L.row[i] = -1;
        L.closes++;
      } else if (L.row[i] < 0 && L.Random() % 3 == 0) {
        if (cgr_request_open(toy_->rt, &L.row[i]) != CGR_OK)
          return false;
        L.length[i] = L.age[i] = 0;
        L.arrivals++;
      }
    }
    return true;
  }
  bool Iterate() {
    Loop &L = loop_;
    if (L.Random() % 4 == 0 && !Turnover())
      return false;
    int32_t count = 0, tokens = 0, most = 1 + static_cast<int32_t>(L.Random() % kBatch);
    for (int32_t i = 0; i < kRows && count < most; i++) {
      if (L.row[i] < 0)
        continue;
      int32_t length = L.age[i]++ == 0 ? 1 + static_cast<int32_t>(L.Random() % 7) : 1;
      if (!Reserve(i, L.length[i] + length))
        return false;
      for (int32_t j = 0; j < length; j++)
        L.tokens[tokens++] = L.age[i] == 1 ? j + 1 : CGR_TOKEN_LAST;
      L.length[i] += length;
      L.rows[count] = L.row[i];
      L.lens[count++] = length;
    }
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = count;
    batch.rows = L.rows;
    batch.query_lens = L.lens;
    batch.tokens = L.tokens;
    cgr_step step = CGR_STEP_INIT;
    cgr_status status = cgr_step_prepare(toy_->rt, &batch, &step);
    while (status == CGR_ERROR_BUSY) { // as an engine does: wait for a step that it needs
      if (cgr_step_wait(toy_->rt, L.last, nullptr) != CGR_OK)
        return false;
      status = cgr_step_prepare(toy_->rt, &batch, &step);
    }
    if (status != CGR_OK)
      return false;
    if (L.Random() % 16 == 0) {
      if (cgr_step_cancel(toy_->rt, &step) != CGR_OK || cgr_step_prepare(toy_->rt, &batch, &step) != CGR_OK)
        return false;
    }
    if (cgr_step_launch(toy_->rt, &step, toy_->stream) != CGR_OK)
      return false;
    L.last = step.seq;
    ++*(step.key.kind == CGR_KIND_NONE ? &L.fallbacks : &L.replays);
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    status = cgr_step_poll(toy_->rt, step.seq, &result);
    if (L.Random() % 2 == 0)
      status = cgr_step_wait(toy_->rt, step.seq, &result);
    return status == CGR_OK || status == CGR_NOT_READY;
  }

  // As many eager steps in flight as there can be, so that whatever the device keeps for a step has grown to that.
  void FillTheRing() {
    static std::atomic<bool> open;
    open = false;
    bool blocks = !GetParam().IsCuda() && GetParam().config.host_schedule == CGR_HOST_ASYNC;
    auto wait = [](const void *) {
      while (!open.load())
        sched_yield();
    };
    if (blocks)
      CGR_ASSERT_OK(cgr_launch_host(toy_->dev, wait, nullptr, 0, toy_->stream));
    int32_t row = -1, page = loop_.free_pages[0], one = 1;
    CGR_EXPECT_OK(cgr_request_open(toy_->rt, &row));
    CGR_EXPECT_OK(cgr_request_set_pages(toy_->rt, row, 0, 0, &page, 1));
    cgr_key eager = { CGR_KIND_NONE, 0, 0, 1, 1, 0, 0 };
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = 1;
    batch.rows = &row;
    batch.tokens = &one;
    batch.forced_key = &eager;
    cgr_step step = CGR_STEP_INIT;
    for (int n = 0; n < 10 && cgr_step_prepare(toy_->rt, &batch, &step) == CGR_OK; n++)
      CGR_EXPECT_OK(cgr_step_launch(toy_->rt, &step, toy_->stream));
    open = true;
    toy_->Sync();
    CGR_EXPECT_OK(cgr_request_close(toy_->rt, row));
    loop_.last = step.seq;
  }

  std::unique_ptr<Toy> toy_;
  cgr_device *traced_ = nullptr;
  Loop loop_;
};

TEST_P(Steady, AllocatesNothingAndWaitsForNothing) {
  FillTheRing();
  for (int n = 0; n < 200; n++)
    ASSERT_TRUE(Iterate()) << cgr_last_message(); // warm-up
  Loop &L = loop_;
  L.arrivals = L.closes = L.appends = L.fallbacks = L.replays = 0;
  cgr__trace_reset(traced_);
  host_allocations = 0;
  for (size_t place = 0; place < kMaxCallers; place++) {
    callers[place] = nullptr;
    calls[place] = 0;
  }
  homeless = 0;
  counting = true;
  bool good = true;
  for (int n = 0; n < 2000 && good; n++)
    good = Iterate();
  counting = false;
  ASSERT_TRUE(good) << cgr_last_message();
  // What the loop must have had in it.
  EXPECT_GT(L.arrivals, 50u);
  EXPECT_GT(L.closes, 50u);
  EXPECT_GT(L.appends, 100u);
  EXPECT_GT(L.fallbacks, 100u);
  EXPECT_GT(L.replays, 100u);
  EXPECT_EQ(cgr__trace_allocs(traced_), 0u);
  EXPECT_EQ(cgr__trace_failed(traced_), 0u);
  // cgr_step_wait may wait; it is the engine's wish.
  EXPECT_EQ(cgr__trace_count(traced_, CGR__OP_STREAM_SYNC), 0u);
  EXPECT_EQ(cgr__trace_count(traced_, CGR__OP_STREAM_DESTROY), 0u);
  EXPECT_EQ(cgr__trace_count(traced_, CGR__OP_EXEC_DESTROY), 0u);
#if CGR_COUNTS_ALLOCATIONS
  EXPECT_EQ(OurAllocations(), 0u) << host_allocations.load() << " in all";
#endif
}

TEST_P(Steady, UnchangedReplayIsOneLaunch) {
  Loop &L = loop_;
  for (int32_t i = 0; i < 4; i++) {
    CGR_ASSERT_OK(cgr_request_open(toy_->rt, &L.row[i]));
    ASSERT_TRUE(Reserve(i, 150));
    L.rows[i] = L.row[i];
    L.lens[i] = 1;
    L.tokens[i] = i;
  }
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = 4;
  batch.rows = L.rows;
  batch.tokens = L.tokens;
  cgr_step step = CGR_STEP_INIT;
  for (int n = 0; n < 3; n++) {
    CGR_ASSERT_OK(cgr_step_prepare(toy_->rt, &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(toy_->rt, &step, toy_->stream));
    CGR_ASSERT_OK(cgr_step_wait(toy_->rt, step.seq, nullptr));
  }
  batch.tokens = nullptr;
  for (int n = 0; n < 50; n++) {
    cgr__trace_reset(traced_);
    CGR_ASSERT_OK(cgr_step_prepare(toy_->rt, &batch, &step));
    EXPECT_EQ(step.key.kind, CGR_KIND_FULL);
    EXPECT_EQ(step.bytes_staged, 64u);
    CGR_ASSERT_OK(cgr_step_launch(toy_->rt, &step, toy_->stream));
    EXPECT_EQ(cgr__trace_count(traced_, CGR__OP_EXEC_LAUNCH), 1u);
    EXPECT_EQ(cgr__trace_total(traced_), 1u);
    CGR_ASSERT_OK(cgr_step_wait(toy_->rt, step.seq, nullptr));
    EXPECT_EQ(cgr__trace_allocs(traced_), 0u);
  }
}

TEST_P(Steady, RefusedAndPolledCallsWaitForNothing) {
  Loop &L = loop_;
  FillTheRing();
  for (int n = 0; n < 50; n++)
    ASSERT_TRUE(Iterate()) << cgr_last_message();
  cgr__trace_reset(traced_);
  cgr_batch batch = CGR_BATCH_INIT;
  int32_t bad = 999;
  batch.num_requests = 1;
  batch.rows = &bad;
  cgr_step step = CGR_STEP_INIT;
  host_allocations = 0;
  for (size_t place = 0; place < kMaxCallers; place++) {
    callers[place] = nullptr;
    calls[place] = 0;
  }
  homeless = 0;
  counting = true;
  for (int n = 0; n < 100; n++) {
    cgr_step_prepare(toy_->rt, &batch, &step);
    cgr_step_poll(toy_->rt, L.last, nullptr);
    cgr_runtime_completed(toy_->rt);
  }
  counting = false;
  EXPECT_EQ(cgr__trace_syncs(traced_), 0u);
  EXPECT_EQ(cgr__trace_allocs(traced_), 0u);
#if CGR_COUNTS_ALLOCATIONS
  EXPECT_EQ(OurAllocations(), 0u) << host_allocations.load() << " in all";
#endif
}

CGR_INSTANTIATE_OVER_DEVICES(Steady);

} // namespace
} // namespace cgr_test
