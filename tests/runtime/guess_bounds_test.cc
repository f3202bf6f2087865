// Around steps that guess: the buffers and graphs that a runtime has for them, and the bounds that others are told.
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
  int32_t seq_len;
};

// Plans of the host's get the upper bound, and are told that it is one.
TEST(GuessPlans, AreToldOfBounds) {
  HostDevice device(CGR_SCHEDULE_LATEST);
  std::vector<Seen> seen;
  cgr_backend backend = CGR_BACKEND_INIT;
  backend.name = "that plans", backend.context = &seen, backend.plan_bytes = 64;
  backend.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
  backend.record = [](void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; };
  backend.plan_host = [](void *context, void *, const cgr_plan_step *step) {
    if (!(step->flags & CGR_PLAN_CAPTURE))
      static_cast<std::vector<Seen> *>(context)->push_back({ step->flags, step->seq_lens[0] });
    return CGR_OK;
  };
  TinyOptions options;
  options.layers = { { 1, 0 } };
  options.adjust = [&](cgr_config *config) { config->num_draft_tokens = 2, config->backends = &backend; };
  Captured<TinyEngine> engine(device, options);
  int32_t row = -1;
  const int32_t page = 5, tokens[3] = { 41, 9, 9 }, one = 1, three = 3;
  const uint32_t guesses = CGR_REQUEST_DRAFTS(2);
  CGR_ASSERT_OK(cgr_request_open(engine.rt, 1, &row));
  CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, row, 0, 0, &page, 1));
  cgr_mark mark = {};
  for (const int32_t *len : { &one, &three, &three, &three }) {
    cgr_step step = CGR_STEP_INIT;
    cgr_batch batch = BatchOf(1, &row, tokens, len);
    batch.flags = len == &three ? &guesses : nullptr;
    if (seen.size() == 3)
      CGR_ASSERT_OK(cgr_step_wait(engine.rt, mark, -1, nullptr));
    CGR_ASSERT_OK(cgr_step_prepare(engine.rt, &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
    mark = step.mark;
  }
  CGR_ASSERT_OK(cgr_step_wait(engine.rt, mark, -1, nullptr));
  ASSERT_EQ(seen.size(), 4u);
  const Seen want[] = { { 0, 1 }, { 0, 4 }, { CGR_PLAN_BOUNDS, 7 }, { 0, 6 } }; // the sampler accepts none
  for (size_t i = 0; i < 4; i++) {
    EXPECT_EQ(seen[i].flags, want[i].flags) << i;
    EXPECT_EQ(seen[i].seq_len, want[i].seq_len) << i;
  }
  CGR_ASSERT_OK(cgr_request_close(engine.rt, row));
}

} // namespace
} // namespace cgr_test
