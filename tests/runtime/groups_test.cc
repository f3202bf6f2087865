// Two groups of layers in one runtime: outputs of replayed and eager steps against the fp64 oracle, pages that are set, dropped
// and counted per group, and an engine's own table next to the library's.
#include "tests/support/groups_case.h"

namespace cgr_test {
namespace {

using groups::Chunk;
using groups::kGroups;
using groups::kNumGroups;
using groups::TwoGroups;
using Range = std::pair<int32_t, int32_t>;

class Groups : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam()); }
  // Engines that do the same; the first one is compared with the oracle, the others with it.
  void Make(const std::vector<groups::Options> &all) {
    seed_ = Seed();
    for (const groups::Options &options : all)
      engines_.push_back(std::make_unique<TwoGroups>(GetParam(), seed_, options));
  }
  int32_t Open() {
    int32_t row = engines_[0]->Open();
    for (size_t e = 1; e < engines_.size(); e++)
      EXPECT_EQ(engines_[e]->Open(), row);
    return row;
  }
  void Step(const std::vector<Chunk> &chunks, int32_t kind = CGR_KIND_NONE) {
    Random random(seed_ + ++steps_);
    SCOPED_TRACE("step " + std::to_string(steps_));
    const groups::Inputs inputs = RandomInputs(engines_[0]->specs, groups::TokensOf(chunks), random);
    std::vector<groups::Outputs> first;
    for (size_t e = 0; e < engines_.size(); e++) {
      SCOPED_TRACE("engine " + std::to_string(e));
      TwoGroups &engine = *engines_[e];
      std::vector<groups::Outputs> got = engine.Run(chunks, inputs);
      ASSERT_FALSE(HasFailure());
      ASSERT_EQ(engine.step.key.kind, engine.o.mode == CGR_MODE_NONE ? int32_t(CGR_KIND_NONE) : kind);
      ASSERT_NO_FATAL_FAILURE(engine.CheckBuffers(chunks));
      if (e == 0) {
        ASSERT_NO_FATAL_FAILURE(engine.CheckOutputs(chunks, inputs, got));
        first = got;
      } else {
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(engine.specs, got, first, groups::TokensOf(chunks)));
      }
    }
  }
  void Decode(const std::vector<int32_t> &rows) {
    std::vector<Chunk> chunks;
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
    EXPECT_NE(engines_[0]->pages[0][r[1]], engines_[0]->pages[1][r[1]]);
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

  std::vector<std::unique_ptr<TwoGroups>> engines_;
  uint64_t seed_ = 0, steps_ = 0;
};

TEST_P(Groups, LayersOfBothGroupsGiveTheOraclesOutputsReplayedAndEager) {
  Make({ { CGR_MODE_FULL_DECODE_ONLY, false, {}, false }, { CGR_MODE_NONE, false, {}, false } });
  SCOPED_TRACE(Repeat(seed_));
  Scenario();
}

TEST_P(Groups, AnEnginesTableStandsBesideTheLibrarys) {
  Make({ { CGR_MODE_FULL_DECODE_ONLY, true, {}, false },
         { CGR_MODE_NONE, true, {}, false },
         { CGR_MODE_FULL_DECODE_ONLY, false, {}, false } });
  SCOPED_TRACE(Repeat(seed_));
  Scenario();
  if (HasFailure())
    return;
  TwoGroups &e = *engines_[0];
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  CGR_EXPECT_OK(cgr_buffer_get(e.rt, nullptr, CGR_BUFFER_PAGE_TABLE, 1, &view));
  EXPECT_EQ(view.data, e.table);
  EXPECT_EQ(view.stride, groups::kStride);
  CGR_EXPECT_OK(cgr_buffer_get(e.rt, nullptr, CGR_BUFFER_PAGE_TABLE, 0, &view));
  EXPECT_NE(view.data, e.table);
  // The library's group keeps its rules, and the other one takes no pages.
  const int32_t row = e.Open(), pages[] = { e.Free(0, 0), e.Free(0, 1) };
  ExpectMessage(e.Prepare({ { row, 1 } }), CGR_ERROR_PAGES_MISSING, { "row " + std::to_string(row) });
  ExpectMessage(cgr_request_set_pages(e.rt, row, 1, 0, pages, 1), CGR_ERROR_STATE, { "page_table" });
  ExpectMessage(cgr_request_drop_pages(e.rt, row, 1, 0, 1), CGR_ERROR_STATE, { "page_table" });
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 0, 0, pages, 2));
  EXPECT_EQ(e.Has(row, 0), Range(0, 2));
  EXPECT_EQ(e.Has(row, 1), Range(0, 0));
  ExpectMessage(e.Prepare({ { row, 33 } }), CGR_ERROR_PAGES_MISSING, { "row " + std::to_string(row), "32" });
  CGR_EXPECT_OK(e.Prepare({ { row, 32 } }));
  CGR_EXPECT_OK(cgr_step_cancel(e.rt, &e.step));
}

TEST_P(Groups, PagesAreKeptPerGroup) {
  Make({ {} });
  TwoGroups &e = *engines_[0];
  const int32_t row = e.Open(), other = e.Open();
  const int32_t narrow[] = { 7, 90, 3, 5 }, wide[] = { 7, 0, 9 }, trash[kNumGroups] = { 0, 5 };
  auto expect_table = [&](int32_t group, std::vector<int32_t> expected) {
    uint64_t seq = 0;
    CGR_EXPECT_OK(cgr_test::Flush(e.rt, e.stream, &seq));
    if (seq > 0)
      CGR_EXPECT_OK(cgr_step_wait(e.rt, cgr_mark{ 0, 0, seq }, -1, nullptr));
    std::vector<int32_t> table = e.Buffer<int32_t>(CGR_BUFFER_PAGE_TABLE, group);
    size_t stride = table.size() / (groups::kMaxRows + 1);
    EXPECT_EQ(stride, size_t((groups::kMaxSeqLen + kGroups[group].page_size - 1) / kGroups[group].page_size));
    expected.resize(stride, trash[group]);
    for (int32_t i = 0; i <= groups::kMaxRows; i++) {
      std::vector<int32_t> got(table.begin() + i * int64_t(stride), table.begin() + (i + 1) * int64_t(stride));
      EXPECT_EQ(got, i == row ? expected : std::vector<int32_t>(stride, trash[group])) << "group " << group << ", row " << i;
    }
  };
  expect_table(0, {});
  expect_table(1, {});
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 1, 0, wide, 3));
  EXPECT_EQ(e.Has(row, 0), Range(0, 0));
  EXPECT_EQ(e.Has(row, 1), Range(0, 3));
  EXPECT_EQ(e.Has(other, 1), Range(0, 0));
  expect_table(0, {});
  expect_table(1, { 7, 0, 9 });
  CGR_EXPECT_OK(cgr_request_set_pages(e.rt, row, 0, 0, narrow, 4)); // page 7 of another pool
  expect_table(0, { 7, 90, 3, 5 });
  expect_table(1, { 7, 0, 9 });
  CGR_EXPECT_OK(cgr_request_drop_pages(e.rt, row, 1, 2, 1));
  EXPECT_EQ(e.Has(row, 1), Range(0, 2));
  CGR_EXPECT_OK(cgr_request_drop_pages(e.rt, row, 1, 0, 1));
  EXPECT_EQ(e.Has(row, 1), Range(1, 2));
  EXPECT_EQ(e.Has(row, 0), Range(0, 4));
  expect_table(0, { 7, 90, 3, 5 });
  expect_table(1, { 5, 0 });
  CGR_EXPECT_OK(cgr_request_drop_pages(e.rt, row, 0, 1, 3));
  EXPECT_EQ(e.Has(row, 0), Range(0, 1));
  EXPECT_EQ(e.Has(row, 1), Range(1, 2));
  expect_table(0, { 7 });
  expect_table(1, { 5, 0 });
  CGR_EXPECT_OK(cgr_request_close(e.rt, row));
  const int32_t again = e.Open();
  for (int32_t group = 0; group < kNumGroups; group++)
    EXPECT_EQ(e.Has(again, group), Range(0, 0));
}

TEST_P(Groups, PagesAreCheckedAgainstTheirOwnPool) {
  Make({ {} });
  TwoGroups &e = *engines_[0];
  const int32_t row = e.Open();
  const int32_t outside[] = { kGroups[1].num_pages }, twice[] = { 8, 8 };
  for (int32_t group = 0; group < kNumGroups; group++) {
    for (int32_t bad : { -1, kGroups[group].num_pages, kGroups[group].read_trash, kGroups[group].write_trash })
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
  EXPECT_EQ(e.Has(row, 0), Range(0, 4));
  EXPECT_EQ(e.Has(row, 1), Range(0, 3));
}

TEST_P(Groups, GroupsThatDoNotExistAreRefused) {
  Make({ {} });
  TwoGroups &e = *engines_[0];
  const int32_t row = e.Open(), page = 9;
  int32_t first = 0, end = 0;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  for (int32_t group : { -1, int32_t(kNumGroups), INT32_MAX, INT32_MIN }) {
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
  for (int32_t group = 0; group < kNumGroups; group++)
    EXPECT_EQ(e.Has(row, group), Range(0, 0));
}

TEST_P(Groups, ABatchNeedsThePagesOfEveryGroup) {
  Make({ {} });
  TwoGroups &e = *engines_[0];
  e.Open();
  const int32_t row = e.Open();
  const std::string name = "row " + std::to_string(row);
  const int32_t pages[] = { 10, 11, 12, 13, 14, 15, 16, 17 };
  auto refused = [&](int32_t tokens, const Words &words) {
    const std::array<Range, kNumGroups> before = { e.Has(row, 0), e.Has(row, 1) };
    ExpectMessage(e.Prepare({ { row, tokens } }), CGR_ERROR_PAGES_MISSING, words);
    EXPECT_EQ(e.Has(row, 0), before[0]);
    EXPECT_EQ(e.Has(row, 1), before[1]);
  };
  auto accepted = [&](int32_t tokens) {
    CGR_EXPECT_OK(e.Prepare({ { row, tokens } }));
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
  CGR_EXPECT_OK(e.Prepare({ { row, 5 } }));
  for (int32_t group = 0; group < kNumGroups; group++)
    CGR_EXPECT(CGR_ERROR_STATE, cgr_request_drop_pages(e.rt, row, group, 1, 1));
  CGR_EXPECT_OK(cgr_step_cancel(e.rt, &e.step));
}

CGR_INSTANTIATE_OVER_DEVICES(Groups);

} // namespace
} // namespace cgr_test
