// Two groups of layers in one runtime: outputs of replayed and eager steps against the fp64 oracle, pages that are set, dropped
// and counted per group, and an engine's own table next to the library's.
#include <memory>

#include "tests/support/groups_case.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

using groups::kGroups;
using Range = std::pair<int32_t, int32_t>;

class Groups : public OverDevices {
protected:
  using Chunks = std::vector<std::pair<int32_t, int32_t>>;

  void SetUpOnDevice() override { seed_ = Seed(); }
  // The first engine is compared with the oracle, the others, which do the same, with it. The engine's table is group 1's.
  void Add(cgr_graph_mode mode = CGR_MODE_FULL_DECODE_ONLY, bool engine_table = false) {
    EngineOptions options = groups::OptionsFor(GetParam(), mode, seed_, groups::LayersFor(GetParam()));
    options.groups[1].engine_table = engine_table;
    engines_.push_back(std::make_unique<Engine>(options));
    CGR_EXPECT_OK(engines_.back()->Capture());
    engines_.back()->check_outputs = engines_.size() == 1;
  }
  // One engine, whose rows get pages and lengths that it does not know of.
  Engine &One() {
    Add();
    engines_[0]->check_at_end = false;
    return *engines_[0];
  }
  int32_t Open() {
    int32_t row = engines_[0]->Open();
    for (size_t e = 1; e < engines_.size(); e++)
      EXPECT_EQ(engines_[e]->Open(), row);
    return row;
  }
  void Step(const Chunks &chunks, int32_t kind = CGR_KIND_NONE) {
    SCOPED_TRACE("step " + std::to_string(++steps_));
    for (size_t e = 0; e < engines_.size(); e++) {
      SCOPED_TRACE("engine " + std::to_string(e));
      Engine &engine = *engines_[e];
      ASSERT_NO_FATAL_FAILURE(engine.Step(engine.Chunks(chunks)));
      ASSERT_FALSE(HasFailure());
      ASSERT_EQ(engine.step.key.kind, engine.o.mode == CGR_MODE_NONE ? int32_t(CGR_KIND_NONE) : kind);
      ASSERT_NO_FATAL_FAILURE(groups::ExpectBuffers(engine));
      ASSERT_NO_FATAL_FAILURE(groups::ExpectSameBits(engine, *engines_[0], engine.step.num_tokens));
    }
  }
  void Decode(const std::vector<int32_t> &rows) {
    Chunks chunks;
    for (int32_t row : rows)
      chunks.push_back({ row, 1 });
    Step(chunks, CGR_KIND_FULL);
  }
  // Prompts around both page sizes, decode steps at padded and exact counts over the ends of pages, a row that changes its owner.
  void Scenario() {
    std::vector<int32_t> r;
    for (int i = 0; i < 8; i++)
      r.push_back(Open());
    ASSERT_NO_FATAL_FAILURE(Step({ { r[0], 1 }, { r[1], 100 }, { r[2], 15 }, { r[3], 17 }, { r[4], 64 } }));
    ASSERT_NO_FATAL_FAILURE(Step({ { r[5], 63 }, { r[0], 2 }, { r[6], 16 }, { r[7], 65 } }));
    EXPECT_NE(engines_[0]->requests[r[1]]->Of(0).pages, engines_[0]->requests[r[1]]->Of(1).pages);
    ASSERT_NO_FATAL_FAILURE(Decode(r));
    ASSERT_NO_FATAL_FAILURE(Decode({ r[2], r[5], r[1] }));
    ASSERT_NO_FATAL_FAILURE(Decode({ r[4] }));
    ASSERT_NO_FATAL_FAILURE(Decode({ r[7], r[6], r[5], r[0], r[3] }));
    for (auto &engine : engines_)
      engine->Close(r[1]);
    r[1] = Open();
    ASSERT_NO_FATAL_FAILURE(Step({ { r[1], 31 }, { r[3], 45 }, { r[5], 1 } })); // r[3] has 64 tokens then
    ASSERT_NO_FATAL_FAILURE(Decode(r));
    ASSERT_NO_FATAL_FAILURE(Decode({ r[3], r[1] }));
    for (auto &engine : engines_)
      engine->CheckCaches();
  }
  // (first, end) as the runtime reports them.
  static Range Has(Engine &e, int32_t row, int32_t group) {
    Range has = { -1, -1 };
    CGR_EXPECT_OK(cgr_request_get_pages(e.rt, row, group, &has.first, &has.second));
    return has;
  }
  static cgr_status Prepare(Engine &e, int32_t row, int32_t tokens) { return e.Prepare({ Engine::Chunk(row, tokens) }); }

  std::vector<std::unique_ptr<Engine>> engines_;
  uint64_t seed_ = 0, steps_ = 0;
};

TEST_P(Groups, LayersOfBothGroupsGiveTheOraclesOutputsReplayedAndEager) {
  Add();
  Add(CGR_MODE_NONE);
  SCOPED_TRACE(Repeat(seed_));
  Scenario();
}

TEST_P(Groups, AnEnginesTableStandsNextToTheLibrarys) {
  Add(CGR_MODE_FULL_DECODE_ONLY, true);
  Add(CGR_MODE_NONE, true);
  Add();
  SCOPED_TRACE(Repeat(seed_));
  Scenario();
  ASSERT_FALSE(HasFailure());
  Engine &e = *engines_[0];
  EXPECT_EQ(e.View(CGR_BUFFER_PAGE_TABLE, 1).data, e.tables[1]);
  EXPECT_EQ(e.View(CGR_BUFFER_PAGE_TABLE, 1).stride, e.TableStride(1));
  EXPECT_NE(e.View(CGR_BUFFER_PAGE_TABLE, 0).data, e.tables[1]);
  // The library's group keeps its rules, and the other one takes no pages.
  const int32_t row = e.Open();
  const std::vector<int32_t> pages = e.SparePages(2);
  e.check_at_end = false;
  ExpectMessage(Prepare(e, row, 1), CGR_ERROR_PAGES_MISSING, { "row " + std::to_string(row) });
  ExpectMessage(cgr_request_set_pages(e.rt, row, 1, 0, pages.data(), 1), CGR_ERROR_STATE, { "page_table" });
  ExpectMessage(cgr_request_drop_pages(e.rt, row, 1, 0, 1), CGR_ERROR_STATE, { "page_table" });
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 0, 0, pages.data(), 2));
  EXPECT_EQ(Has(e, row, 0), Range(0, 2));
  EXPECT_EQ(Has(e, row, 1), Range(0, 0));
  ExpectMessage(Prepare(e, row, 33), CGR_ERROR_PAGES_MISSING, { "row " + std::to_string(row), "32" });
  CGR_EXPECT_OK(Prepare(e, row, 32));
  CGR_EXPECT_OK(cgr_step_cancel(e.rt, &e.step));
}

TEST_P(Groups, PagesAreKeptPerGroup) {
  Engine &e = One();
  const int32_t row = e.Open(), other = e.Open();
  const int32_t narrow[] = { 7, 90, 3, 5 }, wide[] = { 7, 0, 9 }, trash[] = { 0, 5 };
  auto expect_table = [&](int32_t group, std::vector<int32_t> expected) {
    uint64_t seq = 0;
    CGR_EXPECT_OK(cgr_test::Flush(e.rt, e.stream, &seq));
    if (seq > 0)
      CGR_EXPECT_OK(cgr_step_wait(e.rt, cgr_mark{ 0, 0, seq }, -1, nullptr));
    const std::vector<int64_t> table = e.Buffer(CGR_BUFFER_PAGE_TABLE, group);
    size_t stride = table.size() / (groups::kMaxRows + 1);
    EXPECT_EQ(stride, size_t((groups::kMaxSeqLen + kGroups[size_t(group)].page_size - 1) / kGroups[size_t(group)].page_size));
    expected.resize(stride, trash[group]);
    for (int32_t i = 0; i <= groups::kMaxRows; i++) {
      const std::vector<int32_t> got(table.begin() + i * int64_t(stride), table.begin() + (i + 1) * int64_t(stride));
      EXPECT_EQ(got, i == row ? expected : std::vector<int32_t>(stride, trash[group])) << "group " << group << ", row " << i;
    }
  };
  expect_table(0, {});
  expect_table(1, {});
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 1, 0, wide, 3));
  EXPECT_EQ(Has(e, row, 0), Range(0, 0));
  EXPECT_EQ(Has(e, row, 1), Range(0, 3));
  EXPECT_EQ(Has(e, other, 1), Range(0, 0));
  expect_table(0, {});
  expect_table(1, { 7, 0, 9 });
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 0, 0, narrow, 4)); // page 7 of another pool
  expect_table(0, { 7, 90, 3, 5 });
  expect_table(1, { 7, 0, 9 });
  CGR_EXPECT_OK(cgr_request_drop_pages(e.rt, row, 1, 2, 1));
  EXPECT_EQ(Has(e, row, 1), Range(0, 2));
  CGR_EXPECT_OK(cgr_request_drop_pages(e.rt, row, 1, 0, 1));
  EXPECT_EQ(Has(e, row, 1), Range(1, 2));
  EXPECT_EQ(Has(e, row, 0), Range(0, 4));
  expect_table(0, { 7, 90, 3, 5 });
  expect_table(1, { 5, 0 });
  CGR_EXPECT_OK(cgr_request_drop_pages(e.rt, row, 0, 1, 3));
  EXPECT_EQ(Has(e, row, 0), Range(0, 1));
  EXPECT_EQ(Has(e, row, 1), Range(1, 2));
  expect_table(0, { 7 });
  expect_table(1, { 5, 0 });
  e.Close(row);
  const int32_t again = e.Open();
  for (int32_t group = 0; group < 2; group++)
    EXPECT_EQ(Has(e, again, group), Range(0, 0));
}

TEST_P(Groups, PagesAreCheckedAgainstTheirOwnPool) {
  Engine &e = One();
  const int32_t row = e.Open();
  const int32_t outside[] = { kGroups[1].num_pages }, twice[] = { 8, 8 };
  for (int32_t group = 0; group < 2; group++) {
    for (int32_t bad :
         { -1, kGroups[size_t(group)].num_pages, kGroups[size_t(group)].read_trash, kGroups[size_t(group)].write_trash })
      CGR_EXPECT(CGR_ERROR_PAGE_OUT_OF_RANGE, cgr_request_set_pages(e.rt, row, group, 0, &bad, 1));
    CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, cgr_request_set_pages(e.rt, row, group, 0, twice, 2));
  }
  // A page outside one pool, or reserved there, is a page of the other.
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 0, 0, outside, 1));
  for (int32_t i = 0; i < 2; i++) {
    CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 0, 1 + i, i == 0 ? &kGroups[1].read_trash : &kGroups[1].write_trash, 1));
    CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 1, i, i == 0 ? &kGroups[0].read_trash : &kGroups[0].write_trash, 1));
  }
  // Four pages of 64 tokens are more than a sequence has, four of 16 are not.
  const int32_t four[] = { 20, 21, 22, 23 }, next = 24;
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 0, 0, four, 4));
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 1, 0, four, 3));
  CGR_EXPECT(CGR_ERROR_SEQUENCE_TOO_LONG, cgr_request_set_pages(e.rt, row, 1, 3, &next, 1));
  EXPECT_EQ(Has(e, row, 0), Range(0, 4));
  EXPECT_EQ(Has(e, row, 1), Range(0, 3));
}

TEST_P(Groups, GroupsThatDoNotExistAreRefused) {
  Engine &e = One();
  const int32_t row = e.Open(), page = 9;
  int32_t first = 0, end = 0;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  for (int32_t group : { -1, int32_t(kGroups.size()), INT32_MAX, INT32_MIN }) {
    ExpectMessage(cgr_request_set_pages(e.rt, row, group, 0, &page, 1), CGR_ERROR_INVALID_ARGUMENT, { "group", "0 .. 1" });
    ExpectMessage(cgr_request_drop_pages(e.rt, row, group, 0, 0), CGR_ERROR_INVALID_ARGUMENT, { "group", "0 .. 1" });
    ExpectMessage(cgr_request_get_pages(e.rt, row, group, &first, &end), CGR_ERROR_INVALID_ARGUMENT, { "group", "0 .. 1" });
    for (cgr_buffer buffer :
         { CGR_BUFFER_PAGE_TABLE, CGR_BUFFER_SLOT_MAPPING, CGR_BUFFER_KV_INDPTR, CGR_BUFFER_KV_LAST_PAGE_LEN })
      CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, cgr_buffer_get(e.rt, nullptr, buffer, group, &view));
    cgr_config config = e.Config();
    const_cast<cgr_layer *>(config.layers)[4].group = group;
    int32_t count = 0;
    ExpectMessage(cgr_validate(&config, e.dev, nullptr, 0, &count), CGR_ERROR_INVALID_ARGUMENT, { "layers[4].group" });
    EXPECT_EQ(count, 1);
  }
  for (int32_t group = 0; group < 2; group++)
    EXPECT_EQ(Has(e, row, group), Range(0, 0));
}

TEST_P(Groups, ABatchNeedsThePagesOfEveryGroup) {
  Engine &e = One();
  e.Open();
  const int32_t row = e.Open();
  const std::string name = "row " + std::to_string(row);
  const int32_t pages[] = { 10, 11, 12, 13, 14, 15, 16, 17 };
  auto refused = [&](int32_t tokens, const Words &words) {
    const std::array<Range, 2> before = { Has(e, row, 0), Has(e, row, 1) };
    ExpectMessage(Prepare(e, row, tokens), CGR_ERROR_PAGES_MISSING, words);
    EXPECT_EQ(Has(e, row, 0), before[0]);
    EXPECT_EQ(Has(e, row, 1), before[1]);
  };
  auto accepted = [&](int32_t tokens) {
    CGR_EXPECT_OK(Prepare(e, row, tokens));
    CGR_EXPECT_OK(cgr_step_cancel(e.rt, &e.step));
  };
  refused(1, { name });
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 0, 0, pages, 5)); // 80 tokens
  refused(1, { name, "group 1" });
  CGR_EXPECT(CGR_ERROR_PAGES_MISSING, cgr_request_set_length(e.rt, row, 1));
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 1, 0, pages, 1)); // 64 tokens
  accepted(64);
  refused(65, { name, "64", "group 1" });
  CGR_EXPECT(CGR_ERROR_PAGES_MISSING, cgr_request_set_length(e.rt, row, 65));
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 1, 1, pages + 1, 1)); // 128 tokens
  accepted(80);
  refused(81, { name, "80", "group 0" });
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 0, 5, pages + 5, 3)); // 128 tokens
  accepted(128);
  refused(129, { name, "128" });
  // Dropped at the end, then at the front.
  CGR_EXPECT_OK(cgr_request_drop_pages(e.rt, row, 1, 1, 1));
  refused(65, { name, "64", "group 1" });
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 1, 1, pages + 1, 1));
  CGR_EXPECT_OK(cgr_request_drop_pages(e.rt, row, 1, 0, 1));
  refused(1, { name, "group 1" });
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 1, 0, pages, 1));
  accepted(128);
  CGR_EXPECT_OK(cgr_request_drop_pages(e.rt, row, 0, 0, 2));
  refused(1, { name, "group 0" });
  // A prepared step keeps the pages of both.
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 0, 0, pages, 2));
  CGR_EXPECT_OK(Prepare(e, row, 5));
  for (int32_t group = 0; group < 2; group++)
    CGR_EXPECT(CGR_ERROR_STATE, cgr_request_drop_pages(e.rt, row, group, 1, 1));
  CGR_EXPECT_OK(cgr_step_cancel(e.rt, &e.step));
}

CGR_INSTANTIATE_OVER_DEVICES(Groups);

} // namespace
} // namespace cgr_test
