// The steady loop after warm-up: no allocation on the host (malloc and its relatives and mmap are counted), no synchronisation
// and no allocation on the device (counted at the device table), with arrivals, closes, page appends and eager fallbacks in it.
#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "devices/shims/trace.h"
#include "tests/support/refused.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CGR_COUNTS_ALLOCATIONS 0 // a sanitizer has put functions of its own there
#else
#define CGR_COUNTS_ALLOCATIONS 1
#endif

namespace {

std::atomic<bool> counting{ false };
std::atomic<uint64_t> host_allocations{ 0 };

// The distinct call sites and how often each called; resolved only after the loop, because resolving may allocate. A call site
// that finds no room counts as ours.
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
// refills pools of its own every few hundred launches, whoever launches, and the checkers that are loaded alongside it.
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

// Starts and stops counting; nothing in between may allocate.
void StartCounting() {
  host_allocations = 0;
  for (size_t place = 0; place < kMaxCallers; place++) {
    callers[place] = nullptr;
    calls[place] = 0;
  }
  homeless = 0;
  counting = true;
}
void StopCounting() { counting = false; }
void ExpectNoAllocations() {
#if CGR_COUNTS_ALLOCATIONS
  EXPECT_EQ(OurAllocations(), 0u) << host_allocations.load() << " in all";
#endif
}

class Steady : public EngineTest {
protected:
  void SetUpOnDevice() override {
    ASSERT_EQ(cgr__trace_open(OpenDevice(GetParam()), &traced_), CGR__DEVICE_OK);
    EngineOptions options = OptionsFor(GetParam());
    options.handle = traced_;
    options.buckets = { 1, 2, 4, 6 };
    engine_ = std::make_unique<Engine>(options);
    engine_->records.reserve(100000);
    CGR_ASSERT_OK(engine_->Warmup());
    CGR_ASSERT_OK(engine_->Capture());
    engine_->Forget(); // nothing here is compared by values
    engine_->leave_in_flight = true;
    std::memset(&loop_, 0, sizeof loop_);
    loop_.random = 12345;
    for (int32_t &row : loop_.row)
      row = -1;
    for (int32_t p = 2; p < 128; p++)
      loop_.free_pages[loop_.num_free++] = p;
    MakeInputsFinite();
  }
  void MakeInputsFinite() {
    for (int32_t l = 0; l < engine_->state.num_layers; l++)
      for (Tensor which : kTensors)
        CGR_ASSERT_OK(cgr_fill(engine_->dev, engine_->state.layer[l].in[which].data, 0, engine_->state.layer[l].in_bytes[which],
                               engine_->stream));
    engine_->Sync();
  }

  // Any call that fails ends the loop without printing anything, which would allocate.
  bool Reserve(int32_t i, int32_t tokens) {
    Loop &L = loop_;
    while (L.num_pages[i] * 16 < tokens) {
      if (L.num_free == 0)
        return false;
      int32_t page = L.free_pages[--L.num_free];
      if (cgr_request_set_pages(engine_->rt, L.row[i], 0, L.num_pages[i], &page, 1) != CGR_OK)
        return false;
      L.pages[i][L.num_pages[i]++] = page;
      L.appends++;
    }
    return true;
  }
  bool WaitForLast() {
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    return cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, loop_.last }, -1, &result) == CGR_OK;
  }
  bool Turnover() {
    Loop &L = loop_;
    for (int32_t i = 0; i < kRows; i++) {
      if (L.row[i] >= 0 && (L.length[i] > 140 || L.Random() % 40 == 0)) {
        if (!WaitForLast() || cgr_request_close(engine_->rt, L.row[i]) != CGR_OK)
          return false;
        while (L.num_pages[i] > 0)
          L.free_pages[L.num_free++] = L.pages[i][--L.num_pages[i]];
        L.row[i] = -1;
        L.closes++;
      } else if (L.row[i] < 0 && L.Random() % 3 == 0) {
        if (cgr_request_open(engine_->rt, 7, &L.row[i]) != CGR_OK)
          return false;
        L.length[i] = L.age[i] = 0;
        L.arrivals++;
      }
    }
    return true;
  }
  // A batch of some requests: new ones with a prompt, the others with one token. False: out of pages.
  bool MakeBatch(cgr_batch *batch) {
    Loop &L = loop_;
    int32_t count = 0, tokens = 0, most = 1 + int32_t(L.Random() % kBatch);
    for (int32_t i = 0; i < kRows && count < most; i++) {
      if (L.row[i] < 0)
        continue;
      int32_t length = L.age[i]++ == 0 ? 1 + int32_t(L.Random() % 7) : 1;
      if (!Reserve(i, L.length[i] + length))
        return false;
      for (int32_t j = 0; j < length; j++)
        L.tokens[tokens++] = L.age[i] == 1 ? j + 1 : CGR_TOKEN_LAST;
      L.length[i] += length;
      L.rows[count] = L.row[i];
      L.lens[count++] = length;
    }
    batch->num_requests = count, batch->rows = L.rows, batch->query_lens = L.lens, batch->tokens = L.tokens;
    return true;
  }
  bool Iterate() {
    Loop &L = loop_;
    cgr_batch batch = CGR_BATCH_INIT;
    cgr_step step = CGR_STEP_INIT;
    if (L.Random() % 4 == 0 && !Turnover())
      return false;
    if (!MakeBatch(&batch))
      return false;
    cgr_status status = cgr_step_prepare(engine_->rt, &batch, &step);
    while (status == CGR_ERROR_BUSY) { // as an engine does: wait for a step that it needs
      if (!WaitForLast())
        return false;
      status = cgr_step_prepare(engine_->rt, &batch, &step);
    }
    if (status != CGR_OK)
      return false;
    if (L.Random() % 16 == 0) {
      if (cgr_step_cancel(engine_->rt, &step) != CGR_OK || cgr_step_prepare(engine_->rt, &batch, &step) != CGR_OK)
        return false;
    }
    if (cgr_step_launch(engine_->rt, &step, engine_->stream) != CGR_OK)
      return false;
    L.last = step.mark.seq;
    ++*(step.key.kind == CGR_KIND_NONE ? &L.fallbacks : &L.replays);
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    status = cgr_step_wait(engine_->rt, step.mark, 0, &result);
    if (L.Random() % 2 == 0)
      status = cgr_step_wait(engine_->rt, step.mark, -1, &result);
    return status == CGR_OK || status == CGR_NOT_READY;
  }

  // As many eager steps in flight as there can be, so that whatever the device keeps per step has grown to its maximum.
  void FillTheRing() {
    static std::atomic<bool> open;
    open = false;
    bool blocks = !GetParam().IsCuda() && GetParam().config.host_schedule == CGR_SCHEDULE_ASYNC;
    auto wait = [](const void *) {
      while (!open.load())
        sched_yield();
    };
    if (blocks)
      CGR_ASSERT_OK(cgr_launch_host(engine_->dev, wait, nullptr, 0, engine_->stream));
    int32_t row = -1, page = loop_.free_pages[0], one = 1;
    CGR_EXPECT_OK(cgr_request_open(engine_->rt, 7, &row));
    CGR_EXPECT_OK(cgr_request_set_pages(engine_->rt, row, 0, 0, &page, 1));
    const cgr_key eager = EagerKey(1, 1);
    cgr_batch batch = BatchOf(1, &row, &one);
    batch.forced_key = &eager;
    cgr_step step = CGR_STEP_INIT;
    for (int n = 0; n < 10 && cgr_step_prepare(engine_->rt, &batch, &step) == CGR_OK; n++)
      CGR_EXPECT_OK(cgr_step_launch(engine_->rt, &step, engine_->stream));
    open = true;
    engine_->Sync();
    CGR_EXPECT_OK(cgr_request_close(engine_->rt, row));
    loop_.last = step.mark.seq;
  }

  cgr_device *traced_ = nullptr;
  Loop loop_;
};

TEST_P(Steady, AllocatesNothingAndWaitsForNothing) {
  ASSERT_NO_FATAL_FAILURE(FillTheRing());
  for (int n = 0; n < 200; n++)
    ASSERT_TRUE(Iterate()) << cgr_last_message(); // warm-up
  Loop &L = loop_;
  L.arrivals = L.closes = L.appends = L.fallbacks = L.replays = 0;
  cgr__trace_reset(traced_);
  StartCounting();
  bool good = true;
  for (int n = 0; n < 2000 && good; n++)
    good = Iterate();
  StopCounting();
  ASSERT_TRUE(good) << cgr_last_message();
  // What the loop must have had in it.
  EXPECT_GT(L.arrivals, 50u);
  EXPECT_GT(L.closes, 50u);
  EXPECT_GT(L.appends, 100u);
  EXPECT_GT(L.fallbacks, 100u);
  EXPECT_GT(L.replays, 100u);
  EXPECT_EQ(cgr__trace_allocs(traced_), 0u);
  EXPECT_EQ(cgr__trace_failed(traced_), 0u);
  // cgr_step_wait may wait, because the engine asked it to.
  EXPECT_EQ(cgr__trace_count(traced_, CGR__OP_STREAM_SYNC), 0u);
  EXPECT_EQ(cgr__trace_count(traced_, CGR__OP_STREAM_DESTROY), 0u);
  EXPECT_EQ(cgr__trace_count(traced_, CGR__OP_EXEC_DESTROY), 0u);
  ExpectNoAllocations();
}

TEST_P(Steady, UnchangedReplayIsOneLaunch) {
  Loop &L = loop_;
  for (int32_t i = 0; i < 4; i++) {
    CGR_ASSERT_OK(cgr_request_open(engine_->rt, 7, &L.row[i]));
    ASSERT_TRUE(Reserve(i, 150));
    L.rows[i] = L.row[i], L.lens[i] = 1, L.tokens[i] = i;
  }
  cgr_batch batch = BatchOf(4, L.rows, L.tokens);
  cgr_step step = CGR_STEP_INIT;
  for (int n = 0; n < 3; n++) {
    CGR_ASSERT_OK(cgr_step_prepare(engine_->rt, &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(engine_->rt, &step, engine_->stream));
    CGR_ASSERT_OK(cgr_step_wait(engine_->rt, step.mark, -1, nullptr));
  }
  batch.tokens = nullptr;
  for (int n = 0; n < 50; n++) {
    cgr__trace_reset(traced_);
    CGR_ASSERT_OK(cgr_step_prepare(engine_->rt, &batch, &step));
    EXPECT_EQ(step.key.kind, CGR_KIND_FULL);
    EXPECT_EQ(step.bytes_staged, 64u);
    CGR_ASSERT_OK(cgr_step_launch(engine_->rt, &step, engine_->stream));
    EXPECT_EQ(cgr__trace_count(traced_, CGR__OP_EXEC_LAUNCH), 1u);
    // Besides the launch, the stream is asked whether it captures.
    EXPECT_EQ(cgr__trace_total(traced_), 1u + cgr__trace_count(traced_, CGR__OP_CAPTURE_STATUS));
    EXPECT_LE(cgr__trace_count(traced_, CGR__OP_CAPTURE_STATUS), 1u);
    CGR_ASSERT_OK(cgr_step_wait(engine_->rt, step.mark, -1, nullptr));
    EXPECT_EQ(cgr__trace_allocs(traced_), 0u);
  }
}

TEST_P(Steady, RefusedAndPolledCallsWaitForNothing) {
  ASSERT_NO_FATAL_FAILURE(FillTheRing());
  for (int n = 0; n < 50; n++)
    ASSERT_TRUE(Iterate()) << cgr_last_message();
  cgr_batch bad = CGR_BATCH_INIT;
  int32_t row = 999;
  bad.num_requests = 1, bad.rows = &row;
  cgr_step step = CGR_STEP_INIT;
  int32_t refused = 0, polled = 0, other = 0;
  cgr__trace_reset(traced_);
  StartCounting();
  for (int n = 0; n < 100; n++) {
    cgr_status status = cgr_step_prepare(engine_->rt, &bad, &step);
    refused += status == CGR_ERROR_INVALID_ARGUMENT;
    status = cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, loop_.last }, 0, nullptr);
    polled += status == CGR_OK || status == CGR_NOT_READY;
    other += cgr_test::Completed(engine_->rt) <= loop_.last;
  }
  StopCounting();
  EXPECT_EQ(refused, 100) << cgr_last_message();
  EXPECT_EQ(polled, 100);
  EXPECT_EQ(other, 100);
  EXPECT_EQ(cgr__trace_syncs(traced_), 0u);
  EXPECT_EQ(cgr__trace_allocs(traced_), 0u);
  ExpectNoAllocations();
}

CGR_INSTANTIATE_OVER_DEVICES(Steady);

} // namespace
} // namespace cgr_test
