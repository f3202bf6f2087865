// Around steps that guess: the buffers and graphs that a runtime has for them, and the bounds that backends and queries get.
#include "tests/support/guess_engine.h"
#include "tests/support/tiny_engine.h"

namespace cgr_test {
namespace {

using namespace guesses;

TEST(GuessBuffers, AreThereOnlyWithGuesses) {
  GuessEngine with(HostParam(CGR_SCHEDULE_EARLIEST), kMost, 34), without(HostParam(CGR_SCHEDULE_EARLIEST), 0, 34);
  const struct {
    cgr_buffer buffer;
    int64_t rows, columns;
  } buffers[] = { { CGR_BUFFER_NUM_DRAFTS, kRequests, 1 },          { CGR_BUFFER_NUM_ACCEPTED, kRequests, 1 },
                  { CGR_BUFFER_DRAFT_TOKENS, kRequests, kMost },    { CGR_BUFFER_ROW_DRAFT_TOKENS, kRows + 1, kMost },
                  { CGR_BUFFER_NEXT_TOKENS, kRequests, 1 + kMost }, { CGR_BUFFER_ROW_LAST_TOKENS, kRows + 1, 1 + kMost } };
  for (const auto &b : buffers) {
    const cgr_buffer_view view = BufferOf(with.rt, b.buffer);
    EXPECT_EQ(view.shape[0], b.rows) << cgr_buffer_name(b.buffer);
    EXPECT_EQ(view.shape[1], b.columns) << cgr_buffer_name(b.buffer);
    cgr_buffer_view none = CGR_BUFFER_VIEW_INIT;
    if (b.buffer < CGR_BUFFER_NUM_DRAFTS)
      EXPECT_EQ(BufferOf(without.rt, b.buffer).shape[1], 1);
    else
      ExpectMessage(cgr_buffer_get(without.rt, nullptr, b.buffer, 0, &none), CGR_ERROR_STATE,
                    { cgr_buffer_name(b.buffer), "num_draft_tokens is 0" });
  }
}

// A graph of at most 1 + k tokens each serves every mix of them, unless one of mixed steps has fewer padded tokens.
TEST(GuessGraphs, AreOfOneTokenAndOfAllByDefault) {
  GuessEngine engine(HostParam(CGR_SCHEDULE_EARLIEST), kMost, 34);
  List rows(3), tokens(16, 1), lens;
  for (int32_t i = 0; i < 3; i++) {
    const int32_t page = 2 + i;
    CGR_ASSERT_OK(cgr_request_open(engine.rt, 1, &rows[size_t(i)]));
    CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, rows[size_t(i)], 0, 0, &page, 1));
  }
  for (const auto &[of, query_len] : std::vector<std::pair<List, int32_t>>{ { { 1, 1, 1 }, 1 },
                                                                            { { 4, 4, 4 }, 4 },
                                                                            { { 1, 4, 4 }, 4 },
                                                                            { { 4, 3, 2 }, 4 },
                                                                            { { 1, 4, 2 }, 0 },
                                                                            { { 5, 1, 1 }, 0 } }) {
    lens = of;
    cgr_batch batch = BatchOf(3, rows.data(), tokens.data(), lens.data());
    cgr_key key = CGR_KEY_INIT;
    CGR_ASSERT_OK(cgr_step_choose(engine.rt, &batch, &key));
    EXPECT_EQ(key.kind, CGR_KIND_FULL);
    EXPECT_EQ(key.query_len, query_len) << of[0] << of[1] << of[2];
  }
  for (int32_t row : rows)
    CGR_ASSERT_OK(cgr_request_close(engine.rt, row));
}

// Its requests have no guesses, and one token each is compared.
TEST(GuessGraphs, PassASelfTest) {
  GuessEngine engine(HostParam(CGR_SCHEDULE_EARLIEST), kMost, 34);
  List pages(32);
  for (int32_t p = 0; p < 32; p++)
    pages[size_t(p)] = 2 + p;
  cgr_self_test test = CGR_SELF_TEST_INIT;
  test.num_pages = 32, test.pages = pages.data(), test.max_token = kVocab - 1;
  int32_t count = -1;
  CGR_EXPECT_OK(cgr_runtime_self_test(engine.rt, &test, nullptr, 0, &count));
  EXPECT_EQ(count, 0);
}

// Attention that can do uniform batches alone has graphs for mixes of lengths if it says that it holds bounds, and all of it
// does.
TEST(GuessGraphs, OfBackendsThatHoldBoundsServeMixes) {
  for (uint32_t flags : { 0u, unsigned(CGR_BACKEND_BOUNDS) })
    for (int32_t own : { CGR_SUPPORT_ALWAYS, CGR_SUPPORT_UNIFORM_BATCH }) {
      HostDevice device;
      cgr_backend backend = CGR_BACKEND_INIT;
      backend.name = "of bounds", backend.flags = flags;
      backend.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_UNIFORM_BATCH; };
      backend.record = [](void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; };
      TinyOptions options;
      options.layers = { { 1, 0 } };
      options.adjust = [&](cgr_config *config) {
        config->num_draft_tokens = 2, config->backends = &backend, config->attention_support = own;
        config->max_tokens = 16, config->max_padding = 16.0f;
      };
      Captured<TinyEngine> engine(device, options);
      const bool bounds = flags != 0 && own == CGR_SUPPORT_ALWAYS;
      List rows(2), tokens(8, 1);
      for (int32_t i = 0; i < 2; i++) {
        const int32_t page = 2 + i;
        CGR_ASSERT_OK(cgr_request_open(engine.rt, 1, &rows[size_t(i)]));
        CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, rows[size_t(i)], 0, 0, &page, 1));
      }
      for (const List &lens : { List{ 3, 3 }, List{ 1, 3 }, List{ 2, 1 }, List{ 2, 2 } }) {
        const bool serves = lens == List{ 3, 3 } || bounds;
        cgr_batch batch = BatchOf(2, rows.data(), tokens.data(), lens.data());
        cgr_key key = CGR_KEY_INIT;
        CGR_ASSERT_OK(cgr_step_choose(engine.rt, &batch, &key));
        EXPECT_EQ(key.kind, serves ? CGR_KIND_FULL : CGR_KIND_PIECEWISE) << lens[0] << lens[1];
        EXPECT_EQ(key.query_len, serves ? 3 : 0);
      }
      for (int32_t row : rows)
        CGR_ASSERT_OK(cgr_request_close(engine.rt, row));
    }
}

struct Seen {
  uint32_t flags;
  int32_t seq_len, num_decodes, num_decode_tokens;
};

struct Planner {
  uint32_t flags = 0;
  int32_t reorder_threshold = 0;
  std::vector<Seen> seen = {};
};

// A runtime of two guesses with layers whose backends plan on the host, and three rows.
class Planning {
public:
  explicit Planning(const std::vector<Planner> &from, bool in_standing = false)
      : planners(from), standing_(in_standing), backends_(MakeBackends()), engine_(device_, Options()) {
    for (int32_t i = 0; i < 3; i++) {
      const int32_t page = 2 + i;
      CGR_EXPECT_OK(cgr_request_open(rt(), 1, &rows[i]));
      CGR_EXPECT_OK(cgr_request_set_pages(rt(), rows[i], 0, 0, &page, 1));
    }
    if (standing_)
      CGR_EXPECT_OK(cgr_standing_add(rt(), nullptr, rows[0], 0, nullptr, 0));
  }
  ~Planning() {
    Wait();
    if (standing_)
      CGR_EXPECT_OK(cgr_standing_remove(rt(), nullptr, rows[0]));
    for (int32_t row : rows)
      CGR_EXPECT_OK(cgr_request_close(rt(), row));
  }
  cgr_runtime *rt() { return engine_.rt; }

  // A step of row `i` alone: a token and so many guesses, of which the sampler accepts none.
  cgr_status Prepare(int32_t i, int32_t guesses, bool wait = false) {
    static const int32_t tokens[3] = { 41, 9, 9 };
    const int32_t len = 1 + guesses;
    const uint32_t flags = CGR_REQUEST_DRAFTS(guesses);
    cgr_batch batch = BatchOf(1, &rows[i], tokens, &len);
    batch.flags = &flags;
    if (standing_) {
      CGR_EXPECT_OK(cgr_standing_update(rt(), nullptr, rows[i], len, tokens, flags));
      batch = StandingBatch();
    }
    return wait ? cgr_step_prepare_wait(rt(), &batch, &step_, -1, engine_.stream) : cgr_step_prepare(rt(), &batch, &step_);
  }
  void Cancel() { CGR_EXPECT_OK(cgr_step_cancel(rt(), &step_)); }
  void Launch() {
    CGR_EXPECT_OK(cgr_step_launch(rt(), &step_, engine_.stream));
    last = step_.mark;
  }
  void Wait() {
    if (last.seq > 0)
      CGR_EXPECT_OK(cgr_step_wait(rt(), last, -1, nullptr));
  }
  // Prepares rows with so many tokens each, and cancels.
  cgr_status Order(const List &lens) {
    const List tokens(16, 1);
    const cgr_batch batch = BatchOf(int32_t(lens.size()), rows, tokens.data(), lens.data());
    const cgr_status status = cgr_step_prepare(rt(), &batch, &step_);
    if (status == CGR_OK)
      Cancel();
    return status;
  }
  void ExpectSeen(size_t planner, const std::vector<std::pair<uint32_t, int32_t>> &want) {
    const std::vector<Seen> &seen = planners[planner].seen;
    ASSERT_EQ(seen.size(), want.size());
    for (size_t i = 0; i < want.size(); i++) {
      EXPECT_EQ(seen[i].flags, want[i].first) << i;
      EXPECT_EQ(seen[i].seq_len, want[i].second) << i;
    }
  }

  std::vector<Planner> planners;
  int32_t rows[3] = { -1, -1, -1 };
  cgr_mark last = {};

private:
  std::vector<cgr_backend> MakeBackends() {
    static const char *const names[] = { "first", "second" };
    std::vector<cgr_backend> backends(planners.size(), cgr_backend CGR_BACKEND_INIT);
    for (size_t i = 0; i < planners.size(); i++) {
      cgr_backend &backend = backends[i];
      backend.name = names[i], backend.context = &planners[i], backend.plan_bytes = 64;
      backend.flags = planners[i].flags, backend.reorder_threshold = planners[i].reorder_threshold;
      backend.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
      backend.record = [](void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; };
      backend.plan_host = [](void *context, void *, const cgr_plan_step *step) {
        if (!(step->flags & CGR_PLAN_CAPTURE))
          static_cast<Planner *>(context)->seen.push_back(
              { step->flags, step->seq_lens[0], step->num_decodes, step->num_decode_tokens });
        return CGR_OK;
      };
    }
    return backends;
  }
  TinyOptions Options() {
    TinyOptions options;
    options.layers.clear();
    for (size_t i = 0; i < backends_.size(); i++)
      options.layers.push_back({ int32_t(1 + i), 0 });
    options.adjust = [this](cgr_config *config) {
      config->backends = backends_.data(), config->num_backends = int32_t(backends_.size());
      config->num_draft_tokens = 2, config->max_tokens = 16;
    };
    return options;
  }

  const bool standing_;
  const std::vector<cgr_backend> backends_;
  HostDevice device_{ CGR_SCHEDULE_LATEST };
  Captured<TinyEngine> engine_;
  cgr_step step_ = CGR_STEP_INIT;
};

// A backend that takes bounds gets the upper one, under CGR_PLAN_BOUNDS.
TEST(GuessPlans, AreToldOfBounds) {
  const Planner takes_bounds = { CGR_BACKEND_PLANS_BOUNDS };
  Planning p(std::vector<Planner>{ takes_bounds });
  for (int32_t guesses : { 0, 2, 2 }) {
    CGR_ASSERT_OK(p.Prepare(0, guesses));
    p.Launch();
  }
  p.Wait();
  CGR_ASSERT_OK(p.Prepare(0, 2));
  p.Launch();
  p.ExpectSeen(0, { { 0, 1 }, { 0, 4 }, { CGR_PLAN_BOUNDS, 7 }, { 0, 6 } });
}

// Other backends never get one: the step is refused until the length is exact. One that takes bounds does not speak for another.
TEST(GuessPlans, GetExactLengthsUnlessTheyTakeBounds) {
  for (bool standing : { false, true })
    for (size_t exact : { 0u, 1u }) {
      SCOPED_TRACE(testing::Message() << (standing ? "standing, backend " : "backend ") << exact);
      Planning p(exact == 0 ? std::vector<Planner>{ {} } : std::vector<Planner>{ { CGR_BACKEND_PLANS_BOUNDS }, {} }, standing);
      CGR_ASSERT_OK(p.Prepare(0, 2));
      p.Launch();
      ExpectMessage(
          p.Prepare(0, 1), CGR_ERROR_BUSY,
          { "cgr_step_prepare: backend " + std::string(exact == 0 ? "first" : "second") + ": plan_host takes exact lengths",
            "CGR_BACKEND_PLANS_BOUNDS", "row " + std::to_string(p.rows[0]) + " has 1 to 3 tokens",
            "expected step " + std::to_string(p.last.seq) + " to be completed" });
      p.ExpectSeen(0, { { 0, 3 } });
      if (!standing) {
        CGR_EXPECT_OK(p.Prepare(1, 2)); // whose length is exact
        p.Cancel();
        p.planners[exact].seen.pop_back();
      }
      CGR_ASSERT_OK(p.Prepare(0, 1, true));
      p.Launch();
      p.Wait();
      CGR_ASSERT_OK(p.Prepare(0, 0));
      p.Launch();
      p.ExpectSeen(exact, { { 0, 3 }, { 0, 3 }, { 0, 3 } });
    }
}

// A backend's threshold follows 1 + k if it says so; of several the smallest counts, as ever.
TEST(GuessPlans, ThresholdsFollowTheGuesses) {
  const uint32_t follows = CGR_BACKEND_DECODES_DRAFTS, uniform = CGR_BACKEND_UNIFORM_SPLIT;
  const std::pair<std::vector<Planner>, int32_t> cases[] = {
    { { { 0, 1 } }, 1 },
    { { { follows, 1 } }, 3 },
    { { { follows, 5 } }, 5 },
    { { { follows | uniform, 1 } }, 3 },
    { { { follows, 1 }, { 0, 2 } }, 2 },
    { { { 0, 4 }, { follows, 1 } }, 3 },
    { { { 0, 0 }, { follows, 1 } }, 3 },
  };
  for (const auto &[planners, threshold] : cases) {
    Planning p(planners);
    for (int32_t len = 1; len < 7; len++) {
      SCOPED_TRACE(testing::Message() << len << " of " << threshold);
      CGR_EXPECT(len <= threshold ? CGR_ERROR_INVALID_ARGUMENT : CGR_OK, p.Order({ 7, len }));
    }
  }
}

// What verifies guesses is a decode, and a prompt is none; where the split is uniform, what differs from the first is none
// either.
TEST(GuessPlans, WhatVerifiesGuessesIsADecode) {
  const struct {
    List lens;
    int32_t decodes, tokens, uniform_decodes, uniform_tokens;
  } cases[] = {
    { { 3, 3, 3 }, 3, 9, 3, 9 }, { { 3, 3, 5 }, 2, 6, 2, 6 }, { { 3, 1, 5 }, 2, 4, 1, 3 }, { { 1, 2, 3 }, 3, 6, 1, 1 }
  };
  for (uint32_t uniform : { 0u, unsigned(CGR_BACKEND_UNIFORM_SPLIT) }) {
    const Planner planner = { CGR_BACKEND_DECODES_DRAFTS | uniform, 1 };
    Planning p(std::vector<Planner>{ planner });
    for (const auto &c : cases) {
      SCOPED_TRACE(testing::Message() << uniform << ": " << c.lens[0] << c.lens[1] << c.lens[2]);
      CGR_ASSERT_OK(p.Order(c.lens));
      EXPECT_EQ(p.planners[0].seen.back().num_decodes, uniform ? c.uniform_decodes : c.decodes);
      EXPECT_EQ(p.planners[0].seen.back().num_decode_tokens, uniform ? c.uniform_tokens : c.tokens);
    }
  }
}

} // namespace
} // namespace cgr_test
