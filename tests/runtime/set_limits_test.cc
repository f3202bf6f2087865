// Length sets with bounds of their own (cgr_config.max_other_lens): an encoder's texts that are longer than any sequence, or
// shorter, as those of a speech model are.
#include <memory>

#include "tests/support/sets_case.h"

namespace cgr_test {
namespace {

using sets::EncoderAndDecoder;
using sets::Options;
using sets::SetsEngine;

// Pages of 16 tokens for sequences, of 32 for the encoder's.
Options Bounded(int32_t sequence, int32_t encoder) {
  Options o = EncoderAndDecoder();
  o.adjust = [=](cgr_config *config) {
    config->max_seq_len = sequence;
    config->max_other_lens[1] = encoder;
  };
  return o;
}

class SetLimits : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam()); }
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
      EXPECT_EQ(e.length[a][0], sequence);
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
    CGR_EXPECT_OK(cgr_buffer_get(engine->rt, 0, 0, CGR_BUFFER_PAGE_TABLE, group, &view));
    EXPECT_EQ(view.shape[1], pages) << "group " << group;
  }
  const int32_t row = engine->Open(), pages[] = { 5, 6, 7, 8, 9 };
  ExpectMessage(cgr_request_set_pages(engine->rt, row, 0, 0, pages, 4), CGR_ERROR_SEQUENCE_TOO_LONG, { "3", "max_seq_len" });
  ExpectMessage(cgr_request_set_pages(engine->rt, row, 1, 0, pages, 5), CGR_ERROR_SEQUENCE_TOO_LONG, { "4", "max_other_lens" });
  CGR_EXPECT_OK(cgr_request_set_pages(engine->rt, row, 1, 0, pages, 4));
}

// What a graph is recorded for is the bound of its own set, and the self-test tries lengths up to it.
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
  test.pages = pages.data();
  test.num_pages = 20;
  test.max_token = 9;
  std::vector<cgr_finding> findings(8, cgr_finding{});
  int32_t count = 0;
  CGR_EXPECT_OK(cgr_runtime_self_test(e.rt, &test, findings.data(), int32_t(findings.size()), &count));
  EXPECT_EQ(count, 0) << findings[0].field << " " << findings[0].text;
}

TEST_P(SetLimits, BoundsThatCannotBeAreRefused) {
  SetsEngine e(GetParam(), CGR_MODE_NONE, EncoderAndDecoder(), 11);
  auto refused = [&](const std::function<void(cgr_config *)> &change, const Words &words) {
    cgr_config config = e.Config();
    change(&config);
    int32_t count = 0;
    cgr_finding finding = {};
    EXPECT_NE(cgr_validate(&config, e.dev, &finding, 1, &count), CGR_OK);
    ASSERT_EQ(count, 1) << finding.field << " " << finding.text;
    const std::string text = std::string(finding.field) + " " + finding.text;
    for (const std::string &word : words)
      EXPECT_NE(text.find(word), std::string::npos) << text << ": lacks " << word;
  };
  refused([](cgr_config *c) { c->max_other_lens[1] = -1; }, { "max_other_lens[1]", "is -1", "1 .. 1073741824" });
  refused([](cgr_config *c) { c->max_other_lens[1] = (1 << 30) + 1; }, { "max_other_lens[1]", "1 .. 1073741824" });
  refused([](cgr_config *c) { c->max_other_lens[0] = 5; }, { "max_other_lens[0]", "is 5", "expected 0", "max_seq_len" });
  refused([](cgr_config *c) { c->max_other_lens[2] = 5; }, { "max_other_lens[2]", "is 5", "expected 0", "no such length set" });
  // 22 pages of 32 tokens.
  refused([](cgr_config *c) { c->max_other_lens[1] = 705; }, { "max_other_lens[1]", "is 705", "at most 704", "groups[1]" });
  refused(
      [](cgr_config *c) {
        c->max_seq_len = 609;
        c->max_other_lens[1] = 704;
      },
      { "max_seq_len", "is 609", "at most 608", "groups[0]" });
  refused(
      [](cgr_config *c) {
        c->max_requests = c->max_rows = c->max_tokens = 4096;
        c->max_seq_len = 600;
        c->num_layers = 2; // no cache of the encoder's tokens
        c->derived = CGR_DERIVED(CGR_BUFFER_KV_START_LOC);
        const_cast<cgr_group *>(c->groups)[1].num_pages = 1 << 26;
        c->max_other_lens[1] = 524288;
      },
      { "derived", "kv_start_loc", "4096 x 524288", "max_other_lens[1]" });
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(SetLimits);

} // namespace
} // namespace cgr_test
