// What hangs is named by ranks that look, or by their watchdogs: which rank, step, key and collective, since when, and who is
// behind.
#include "tests/ranks/nccl_engine.h"
#include "tests/support/gate.h"

namespace cgr_test {
namespace {

cgr_rank_watch WatchOf(NcclEngine *e, int timeout_ms) {
  cgr_rank_watch watch = CGR_RANK_WATCH_INIT;
  watch.timeout_ms = timeout_ms;
  watch.where = cgr_nccl_where;
  watch.where_context = e->nccl;
  return watch;
}

// Looks until something hangs.
std::string LookUntilItHangs(NcclEngine *e, const cgr_rank_watch &watch) {
  char text[4096] = "";
  size_t length = 0;
  for (;;) {
    const cgr_status status = cgr_ranks_look(e->engine->ranks, &watch, text, sizeof text, &length);
    if (status != CGR_OK) {
      EXPECT_EQ(status, CGR_NOT_READY);
      EXPECT_EQ(length, std::strlen(text));
      EXPECT_EQ("cgr_ranks_look: " + std::string(text).substr(0, std::string(text).find('\n')), cgr_last_message());
      return text;
    }
    EXPECT_EQ(length, 0u);
    usleep(2000);
  }
}

void ExpectWords(const std::string &text, const std::vector<std::string> &words) {
  size_t at = 0;
  for (const std::string &word : words) {
    const size_t found = text.find(word, at);
    EXPECT_NE(found, std::string::npos) << "\"" << word << "\" is not in\n" << text;
    at = found == std::string::npos ? at : found;
  }
}

// Prepares and launches the agreed step, and does not wait for it.
cgr_step Launch(NcclEngine *e) {
  RankEngine &r = *e->engine;
  const RankEngine::Work work = { { r.requests[0].row }, { 1 }, { r.requests[0].next }, { 0 } };
  cgr_batch batch = RankEngine::BatchOf(work);
  cgr_step step = CGR_STEP_INIT;
  CGR_EXPECT_OK(r.Agree(work));
  batch.forced_key = &r.agreed.key;
  CGR_EXPECT_OK(cgr_step_prepare(e->rt(), &batch, &step));
  CGR_EXPECT_OK(cgr_step_launch(e->rt(), &step, r.engine.stream));
  return step;
}

// Rank 1 agrees on a step and does not launch it: the others hang in its collective, and go on once it comes.
TEST(Looks, NameTheStepKeyAndCollectiveThatHangsAndWhoIsBehind) {
  FakeNccl fake(3);
  std::atomic<int> told{ 0 };
  OnStepped(&fake, 3, [&](int rank, NcclEngine &e) {
    const cgr_rank_watch watch = WatchOf(&e, 150);
    char text[64];
    size_t length = 77;
    CGR_EXPECT_OK(cgr_ranks_look(e.engine->ranks, &watch, text, sizeof text, &length));
    EXPECT_EQ(length, 0u) << "nothing hangs";
    if (rank == 1)
      CGR_EXPECT_OK(cgr_ranks_note(e.engine->ranks, "writes a file"));
    cgr_step step = CGR_STEP_INIT;
    if (rank == 1) {
      const RankEngine::Work work = { { e.engine->requests[0].row }, { 1 }, { e.engine->requests[0].next }, { 0 } };
      CGR_ASSERT_OK(e.engine->Agree(work));
      while (told < 2)
        usleep(1000);
      cgr_batch batch = RankEngine::BatchOf(work);
      batch.forced_key = &e.engine->agreed.key;
      CGR_ASSERT_OK(cgr_step_prepare(e.rt(), &batch, &step));
      CGR_ASSERT_OK(cgr_step_launch(e.rt(), &step, e.engine->engine.stream));
    } else {
      step = Launch(&e);
      const std::string report = LookUntilItHangs(&e, watch);
      const std::string number = std::to_string(step.mark.seq);
      ExpectWords(report, { "hang", ": step " + number + " (full 1r 1t q1 v0) of rank ", " has not completed for 0.",
                            ", in tp all-reduce next; rank 1 is behind\n", "rank 1: in none of these calls for ",
                            "agreement 2 on full 1r 1t q1 v0; launched step " + std::to_string(step.mark.seq - 1),
                            "\"writes a file\" for " });
      ExpectWords(report, { "rank " + std::to_string(rank) + " (this one): in none of these calls", "launched step " + number,
                            "step " + number + " (full 1r 1t q1 v0) has not completed for 0.", ", in tp all-reduce next" });
      told++;
    }
    CGR_EXPECT_OK(cgr_step_wait(e.rt(), step.mark, -1, nullptr));
    CGR_EXPECT_OK(cgr_ranks_barrier(e.engine->ranks, "done"));
  });
}

// Rank 1 does not come to an agreement.
TEST(Looks, NameTheRankThatIsMissing) {
  FakeNccl fake(2);
  std::atomic<bool> told{ false };
  OnStepped(&fake, 2, [&](int rank, NcclEngine &e) {
    if (rank == 1) {
      while (!told)
        usleep(1000);
      CGR_EXPECT_OK(e.Step());
      return;
    }
    std::thread looks([&] {
      ExpectWords(LookUntilItHangs(&e, WatchOf(&e, 100)), { "rank 0 waits: rank 0 in cgr_ranks_agree for 0.",
                                                            "s; rank 1 is behind\nrank 0 (this one): in cgr_ranks_agree for " });
      told = true;
    });
    CGR_EXPECT_OK(e.Step());
    looks.join();
  });
}

// A watchdog tells once, and again only after what hung has gone on.
TEST(Watchdog, TellsOnceForEachThatHangs) {
  FakeNccl fake(2);
  struct Told {
    std::atomic<int> times{ 0 };
    std::string last;
  } told;
  OnStepped(&fake, 2, [&](int rank, NcclEngine &e) {
    cgr_watchdog *dog = nullptr;
    cgr_rank_watch watch = WatchOf(&e, 60);
    watch.interval_ms = 10;
    watch.hangs = [](void *context, const char *report) {
      static_cast<Told *>(context)->last = report;
      static_cast<Told *>(context)->times++;
    };
    watch.hangs_context = &told;
    if (rank == 0)
      CGR_ASSERT_OK(cgr_ranks_watch(e.engine->ranks, &watch, &dog));
    for (int round = 1; round <= 2; round++) {
      while (rank == 1 && told.times < round)
        usleep(1000);
      if (rank == 1)
        usleep(100000); // more looks, that say nothing new
      CGR_ASSERT_OK(e.Step());
      if (rank == 0) {
        EXPECT_EQ(told.times, round);
        usleep(round == 1 ? 200000 : 0); // looks at which nothing hangs: in the last round rank 1 would wait for this rank
      }
    }
    CGR_EXPECT_OK(cgr_watchdog_stop(dog));
    CGR_EXPECT_OK(cgr_ranks_barrier(e.engine->ranks, "done"));
  });
  ExpectWords(told.last, { "rank 0 waits", "rank 1 is behind" });
}

// A rank whose other one is a copy of what it has shown itself: as old as the test wants it. Its step waits for Finish.
class WithACopy {
public:
  WithACopy() : device(CGR_SCHEDULE_ASYNC), engine(device, CGR_MODE_FULL) {
    cgr_exchange exchange = CGR_EXCHANGE_INIT;
    exchange.num_ranks = 2, exchange.context = this;
    exchange.gather = [](void *context, const void *mine, size_t bytes, void *all, int32_t, uint64_t *missing) {
      std::memcpy(all, mine, bytes);
      std::memcpy(static_cast<char *>(all) + bytes, mine, bytes);
      *missing = 2;
      return static_cast<WithACopy *>(context)->absent ? CGR_NOT_READY : CGR_OK;
    };
    exchange.show = [](void *context, const void *state, size_t bytes) {
      static_cast<WithACopy *>(context)->shown.assign(static_cast<const char *>(state), bytes);
    };
    exchange.look = [](void *context, int32_t, void *state, size_t bytes) {
      const std::string &old = static_cast<WithACopy *>(context)->copy;
      std::memcpy(state, old.data(), std::min(bytes, old.size()));
      return old.empty() ? CGR_NOT_READY : CGR_OK;
    };
    cgr_ranks_config config = CGR_RANKS_CONFIG_INIT;
    config.exchange = &exchange;
    config.timeout_ms = 50;
    CGR_EXPECT_OK(cgr_ranks_create(engine.rt, &config, &ranks));
    const cgr_capture capture = engine.CaptureStruct();
    CGR_EXPECT_OK(cgr_runtime_capture(engine.rt, &capture));
  }
  ~WithACopy() { CGR_EXPECT_OK(cgr_ranks_destroy(ranks)); }
  // Agrees on a step of one request and launches it.
  void Launch() {
    const int32_t pages[] = { 2, 3 }, len = 1, token = 5;
    int32_t row = -1;
    CGR_ASSERT_OK(cgr_request_open(engine.rt, 1, &row));
    CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, row, 0, 0, pages, 2));
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = 1, batch.rows = &row, batch.query_lens = &len, batch.tokens = &token;
    cgr_agreement agreed = CGR_AGREEMENT_INIT;
    CGR_ASSERT_OK(cgr_ranks_agree(ranks, &batch, &agreed));
    batch.forced_key = &agreed.key;
    CGR_ASSERT_OK(cgr_step_prepare(engine.rt, &batch, &step));
    gate_.reset(new Gate(device, engine.stream));
    CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
  }
  void Finish() {
    gate_->Open();
    CGR_ASSERT_OK(cgr_step_wait(engine.rt, step.mark, -1, nullptr));
  }
  std::string Report() {
    char text[4096] = "";
    size_t length = 0;
    CGR_EXPECT_OK(cgr_ranks_report(ranks, text, sizeof text, &length));
    return text;
  }

  bool absent = false;
  std::string shown, copy;
  HostDevice device;
  TinyEngine engine;
  cgr_ranks *ranks = nullptr;
  cgr_step step = CGR_STEP_INIT;

private:
  std::unique_ptr<Gate> gate_;
};

// The other rank's process is stopped just after it has shown that its device is in a step.
TEST(Looks, NameARankThatShowsNothingNew) {
  WithACopy e;
  cgr_rank_watch watch = CGR_RANK_WATCH_INIT;
  char text[4096] = "";
  size_t length = 0;
  watch.timeout_ms = 100;
  e.Launch();
  CGR_EXPECT_OK(cgr_ranks_look(e.ranks, &watch, text, sizeof text, &length));
  e.copy = e.shown;
  e.Finish();
  usleep(120000);
  CGR_EXPECT_OK(cgr_ranks_look(e.ranks, &watch, text, sizeof text, &length)); // no one waits for it
  e.absent = true;
  cgr_agreement agreed = CGR_AGREEMENT_INIT;
  EXPECT_EQ(cgr_ranks_agree(e.ranks, nullptr, &agreed), CGR_NOT_READY);
  usleep(120000);
  EXPECT_EQ(cgr_ranks_look(e.ranks, &watch, text, sizeof text, &length), CGR_NOT_READY);
  ExpectWords(text, { "rank 0 waits: rank 0 in cgr_ranks_agree for 0.", "; rank 1 is behind\n" });
}

// The rank itself sees its step completed while a look is under way that has seen it uncompleted.
TEST(Looks, TakeBackNothingThatTheRankHasShown) {
  WithACopy e;
  cgr_rank_watch watch = CGR_RANK_WATCH_INIT;
  size_t length = 0;
  watch.where = [](void *context, char *out, size_t) {
    static_cast<WithACopy *>(context)->Finish();
    (void)static_cast<WithACopy *>(context)->Report();
    *out = 0;
    return CGR_OK;
  };
  watch.where_context = &e;
  e.Launch();
  CGR_EXPECT_OK(cgr_ranks_look(e.ranks, &watch, nullptr, 0, &length));
  e.copy = e.shown;
  EXPECT_EQ(e.Report().find("has not completed"), std::string::npos) << e.Report();
}

TEST(Watchdog, IsNotStoppedByItself) {
  WithACopy e;
  cgr_agreement agreed = CGR_AGREEMENT_INIT;
  struct Dog {
    cgr_watchdog *dog;
    std::atomic<int> status;
  } dog = { nullptr, { CGR_OK } };
  cgr_rank_watch watch = CGR_RANK_WATCH_INIT;
  watch.timeout_ms = 20;
  watch.hangs = [](void *context, const char *) {
    static_cast<Dog *>(context)->status = cgr_watchdog_stop(static_cast<Dog *>(context)->dog);
  };
  watch.hangs_context = &dog;
  CGR_ASSERT_OK(cgr_ranks_watch(e.ranks, &watch, &dog.dog));
  e.absent = true;
  EXPECT_EQ(cgr_ranks_agree(e.ranks, nullptr, &agreed), CGR_NOT_READY);
  while (dog.status == CGR_OK)
    usleep(1000);
  EXPECT_EQ(dog.status, CGR_ERROR_STATE);
  CGR_EXPECT_OK(cgr_watchdog_stop(dog.dog));
}

TEST(Looks, RefuseByName) {
  FakeNccl fake(1);
  NcclEngine e(&fake, NewBoardName(), 0, 1, OneReduce);
  cgr_ranks *ranks = e.engine->ranks;
  size_t length = 0;
  cgr_watchdog *dog = nullptr;
  cgr_rank_watch watch = CGR_RANK_WATCH_INIT;
  ExpectMessage(cgr_ranks_watch(ranks, &watch, &dog), CGR_ERROR_NULL_POINTER, { "cgr_ranks_watch: watch.hangs is NULL" });
  ExpectMessage(cgr_ranks_look(nullptr, &watch, nullptr, 0, &length), CGR_ERROR_NULL_POINTER, { "cgr_ranks_look: " });
  ExpectMessage(cgr_ranks_look(ranks, &watch, nullptr, 0, nullptr), CGR_ERROR_NULL_POINTER, { "cgr_ranks_look: length is NULL" });
  ExpectMessage(cgr_ranks_look(ranks, &watch, nullptr, 5, &length), CGR_ERROR_NULL_POINTER, { "out is NULL, expected 5 bytes" });
  watch.timeout_ms = -1;
  ExpectMessage(cgr_ranks_look(ranks, &watch, nullptr, 0, &length), CGR_ERROR_INVALID_ARGUMENT,
                { "cgr_ranks_look: watch.timeout_ms is -1, expected 0 or more" });
  watch.timeout_ms = 0, watch.interval_ms = -2;
  ExpectMessage(cgr_ranks_watch(ranks, &watch, &dog), CGR_ERROR_INVALID_ARGUMENT, { "watch.interval_ms is -2" });
  watch.interval_ms = 0, watch.reserved = 1;
  ExpectMessage(cgr_ranks_look(ranks, &watch, nullptr, 0, &length), CGR_ERROR_NEWER_STRUCT, { "watch.reserved is 1" });
  watch.reserved = 0;
  CGR_EXPECT_OK(cgr_ranks_look(ranks, &watch, nullptr, 0, &length));
  CGR_EXPECT_OK(cgr_watchdog_stop(nullptr));
}

} // namespace
} // namespace cgr_test
