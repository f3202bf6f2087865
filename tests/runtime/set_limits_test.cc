// Length sets with bounds of their own (cgr_config.max_other_lens): an encoder's texts may be longer than any sequence, or
// shorter, as in a speech model.
#include <memory>

#include "cgr/inspect.h"
#include "cgr/names.h"
#include "tests/support/mistake.h"
#include "tests/support/sets_case.h"

namespace cgr_test {
namespace {

using namespace sets;

// Pages of 16 tokens for sequences, of 32 for the encoder's.
Options Bounded(int32_t sequence, int32_t encoder) {
  Options o = EncoderAndDecoder();
  o.adjust = [=](cgr_config *config) { config->max_seq_len = sequence, config->max_other_lens[1] = encoder; };
  return o;
}

class SetLimits : public OverDevices {
protected:
  std::unique_ptr<SetsEngine> Make(cgr_graph_mode mode, int32_t sequence, int32_t encoder) {
    return std::make_unique<SetsEngine>(GetParam(), mode, Bounded(sequence, encoder), 7);
  }
};

// Up to the bound of each, in every kind of graph.
TEST_P(SetLimits, EachSetGoesUpToItsOwnBound) {
  for (auto [sequence, encoder] : { std::pair<int32_t, int32_t>{ 40, 128 }, { 128, 40 }, { 17, 33 } }) {
    for (cgr_graph_mode mode : { CGR_MODE_NONE, CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
      SCOPED_TRACE(std::to_string(sequence) + ", " + std::to_string(encoder) + ", " + cgr_graph_mode_name(mode));
      auto engine = Make(mode, sequence, encoder);
      SetsEngine &e = *engine;
      CGR_EXPECT_OK(e.Capture());
      const int32_t a = e.Open(), b = e.Open(), first = std::min(encoder, 90);
      e.Encode({ { a, first }, { b, 5 } });
      if (first < encoder)
        e.Encode({ { a, encoder - first } });
      e.Decode({ { a, sequence - 1 - sequence / 2 }, { b, 3 } });
      e.Decode({ { a, sequence / 2 }, { b, 1 } });
      e.Decode({ { a, 1 }, { b, 1 } });
      // And no further.
      EXPECT_EQ(e.Length(a, 0), sequence);
      ExpectMessage(e.Prepare({ { a, 1 } }, 0), CGR_ERROR_SEQUENCE_TOO_LONG,
                    { std::to_string(sequence + 1) + " tokens", "at most " + std::to_string(sequence), "max_seq_len" });
      ExpectMessage(cgr_request_set_length(e.rt, a, sequence + 1), CGR_ERROR_SEQUENCE_TOO_LONG, { "max_seq_len" });
      ExpectMessage(cgr_request_set_other_length(e.rt, a, 1, encoder + 1), CGR_ERROR_SEQUENCE_TOO_LONG,
                    { "is " + std::to_string(encoder + 1), "at most " + std::to_string(encoder), "max_other_lens[1]" });
      e.Decode({ { b, 1 } });
    }
  }
}

TEST_P(SetLimits, PageTablesHaveTheWidthOfTheirSet) {
  auto engine = Make(CGR_MODE_NONE, 40, 128);
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  for (auto [group, pages] : { std::pair<int32_t, int64_t>{ 0, 3 }, { 1, 4 } }) {
    CGR_EXPECT_OK(cgr_buffer_get(engine->rt, nullptr, CGR_BUFFER_PAGE_TABLE, group, &view));
    EXPECT_EQ(view.shape[1], pages) << "group " << group;
  }
  const int32_t row = engine->Open(), pages[] = { 5, 6, 7, 8, 9 };
  ExpectMessage(cgr_request_set_pages(engine->rt, row, 0, 0, pages, 4), CGR_ERROR_SEQUENCE_TOO_LONG, { "3", "max_seq_len" });
  ExpectMessage(cgr_request_set_pages(engine->rt, row, 1, 0, pages, 5), CGR_ERROR_SEQUENCE_TOO_LONG,
                { "4", "group 1", "max_other_lens[1]" });
  CGR_EXPECT_OK(cgr_request_set_pages(engine->rt, row, 1, 0, pages, 4));
}

// A graph is recorded for the bound of its own set, and the self-test tries lengths up to it.
TEST_P(SetLimits, GraphsAreMadeAndTriedForTheBoundOfTheirSet) {
  auto engine = Make(CGR_MODE_FULL, 40, 128);
  SetsEngine &e = *engine;
  std::map<uint32_t, int32_t> longest; // by variant
  e.on_record = [&](const cgr_record_info &info) {
    if (info.capturing)
      longest[info.key.variant] = std::max(longest[info.key.variant], info.max_seq_len);
  };
  CGR_EXPECT_OK(e.Capture());
  EXPECT_EQ(longest, (std::map<uint32_t, int32_t>{ { 0, 40 }, { 1, 128 } }));
  std::vector<int32_t> pages; // of both groups
  for (int32_t i = 0; i < 40; i++)
    pages.push_back(2 + i % 20);
  cgr_self_test test = CGR_SELF_TEST_INIT;
  test.pages = pages.data(), test.num_pages = 20, test.max_token = 9;
  std::vector<cgr_finding> findings(8, cgr_finding{});
  int32_t count = 0;
  CGR_EXPECT_OK(cgr_runtime_self_test(e.rt, &test, findings.data(), int32_t(findings.size()), &count));
  EXPECT_EQ(count, 0) << findings[0].field << " " << findings[0].text;
}

// A backend's plan on the host and the info given to `record` are about the tokens of the step's own set.
TEST_P(SetLimits, BackendsPlanForTheSetOfAStep) {
  struct Planned {
    std::vector<int32_t> flags, set, max_seq_len, lens; // of the first request
    static cgr_status Plan(void *context, void *, const cgr_plan_step *step) {
      Planned &p = *static_cast<Planned *>(context);
      p.flags.push_back(int32_t(step->flags));
      p.set.push_back(step->length_set);
      p.max_seq_len.push_back(step->max_seq_len);
      p.lens.push_back(step->seq_lens[0]);
      return CGR_OK;
    }
  } planned;
  cgr_backend backend = CGR_BACKEND_INIT;
  backend.name = "planned", backend.context = &planned;
  backend.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
  backend.record = [](void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; };
  backend.plan_host = Planned::Plan, backend.plan_bytes = 64;
  Options o = Bounded(40, 128);
  o.adjust = [&, bounds = o.adjust](cgr_config *config) {
    bounds(config);
    config->backends = &backend, config->num_backends = 1;
    const_cast<cgr_layer *>(config->layers)[0].backend = 1; // the encoder's own
  };
  SetsEngine e(GetParam(), CGR_MODE_NONE, o, 7);
  int32_t longest = 0; // as the last `record` was told
  e.on_record = [&](const cgr_record_info &info) { longest = info.max_seq_len; };
  CGR_EXPECT_OK(e.Capture());
  planned = {};
  const int32_t row = e.Open();
  e.SetOther(row, 1, 70);
  e.Reserve(row, 0, 9);
  auto step = [&](int32_t set, int32_t tokens) {
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_EXPECT_OK(e.Prepare({ { row, tokens } }, set));
    CGR_EXPECT_OK(cgr_step_launch(e.rt, &e.step, e.stream));
    CGR_EXPECT_OK(cgr_step_wait(e.rt, e.step.mark, -1, &result));
    EXPECT_EQ(result.guard.error, int32_t(CGR_GUARD_NONE));
    return longest;
  };
  EXPECT_EQ(step(1, 60), 70);
  EXPECT_EQ(step(0, 9), 9);
  EXPECT_EQ(planned.set, (std::vector<int32_t>{ 1, 0 }));
  EXPECT_EQ(planned.lens, (std::vector<int32_t>{ 70, 9 }));
  EXPECT_EQ(planned.max_seq_len, planned.lens);
  EXPECT_EQ(planned.flags, (std::vector<int32_t>{ 0, 0 }));
}

TEST_P(SetLimits, BoundsThatCannotBeAreRefused) {
  SetsEngine e(GetParam(), CGR_MODE_NONE, EncoderAndDecoder(), 11);
  const std::vector<Mistake<cgr_config>> rows = {
    { kArgument, "max_other_lens[1] is -1 ... 1 .. 1073741824", [](cgr_config &c) { c.max_other_lens[1] = -1; } },
    { kArgument, "max_other_lens[1] ... 1 .. 1073741824", [](cgr_config &c) { c.max_other_lens[1] = (1 << 30) + 1; } },
    { kArgument, "max_other_lens[0] is 5 ... expected 0 ... max_seq_len", [](cgr_config &c) { c.max_other_lens[0] = 5; } },
    { kArgument, "max_other_lens[2] is 5 ... expected 0 ... no such length set", [](cgr_config &c) { c.max_other_lens[2] = 5; } },
    // 22 pages of 32 tokens.
    { kArgument, "max_other_lens[1] is 705 ... at most 704 ... groups[1]", [](cgr_config &c) { c.max_other_lens[1] = 705; } },
    { kArgument, "max_seq_len is 609 ... at most 608 ... groups[0]",
      [](cgr_config &c) { c.max_seq_len = 609, c.max_other_lens[1] = 704; } },
    { kArgument, "on_demand ... kv_start_loc ... 4096 x 524288 ... max_other_lens[1]",
      [](cgr_config &c) {
        c.max_requests = c.max_rows = c.max_tokens = 4096, c.max_seq_len = 600;
        c.num_layers = 2; // no cache of the encoder's tokens
        c.on_demand = CGR_ON_DEMAND(CGR_BUFFER_KV_START_LOC);
        const_cast<cgr_group *>(c.groups)[1].num_pages = 1 << 26;
        c.max_other_lens[1] = 524288;
      } },
  };
  EachMistake(
      rows, [&] { return e.Config(); },
      [&](const cgr_config &config, const Mistake<cgr_config> &row) {
        int32_t count = 0;
        ExpectMessage(cgr_validate(&config, e.dev, nullptr, 0, &count), row.status, PartsOf(row.says));
        EXPECT_EQ(count, 1);
      });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(SetLimits);

} // namespace
} // namespace cgr_test
