// The step model and its comparison: they follow the table of buffers and notice every difference.
#include <gtest/gtest-spi.h>
#include "tests/support/step_case.h"

namespace cgr_test {
namespace {

StepLimits Limits() {
  StepLimits limits;
  limits.token_stride = 3;
  limits.groups.resize(2);
  return limits;
}

// One element at a time: the first and the last of every buffer, and one of its padding.
TEST(StepCase, NoticesEveryElementOfEveryBuffer) {
  static const StepModel *model = new StepModel(Limits());
  static StepBuffers *changed = nullptr;
  int compared = 0;
  EachBuffer(model->b.arena().limits, [&](int id, int32_t copy, const cgr__buffer_shape &shape) {
    SCOPED_TRACE(shape.name);
    if (!IsCompared(id, shape))
      return;
    for (int64_t at : { int64_t{ 0 }, shape.rows * shape.columns / 2, shape.rows * shape.columns - 1 }) {
      changed = new StepBuffers(model->b);
      changed->SetElement(id, copy, at, model->b.Element(id, copy, at) ^ 1);
      EXPECT_NONFATAL_FAILURE(ExpectBuffers(*changed, model->b), shape.name);
      delete changed;
    }
    compared++;
  });
  ExpectBuffers(model->b, model->b);
  EXPECT_GE(compared, 23) << "all but the two partials; four buffers have a copy per group";
}

// Padding values are those of the table, in what was staged or planned, from the real count to the padded one.
TEST(StepCase, FillsThePaddingOfTheTable) {
  StepModel model(Limits());
  StepBuffers &b = model.b;
  std::fill_n(b->query_start_loc, 9, 40);
  std::fill_n(b->group[1].kv_indptr, 9, 41);
  FillPadding({ 3, 10, 6, 20 }, &b);
  for (int32_t i = 0; i < 8; i++) {
    bool padding = i >= 3 && i < 6;
    EXPECT_EQ(b->request_rows[i] == 12, padding) << i;
    EXPECT_EQ(b->seq_lens[0][i] == 0, padding) << i;
    EXPECT_EQ(b->request_flags[i] == 0, padding) << i;
    EXPECT_EQ(b->logits_indices[i] == 0, padding) << i;
    EXPECT_EQ(b->group[0].kv_last_page_len[i] == 1, padding) << i;
    EXPECT_NE(b->next_tokens[i], 0) << i;
  }
  for (int32_t t = 0; t < 64; t++) {
    bool padding = t >= 10 && t < 20;
    EXPECT_EQ(b->input_ids[t] == 0, padding) << t;
    EXPECT_EQ(b->positions[t] == 0, padding) << t;
    EXPECT_EQ(b->group[0].slot_mapping[t] == -1, padding) << t;
    EXPECT_EQ(b->group[1].slot_mapping[t] == -1, padding) << t;
  }
  EXPECT_EQ(b->query_start_loc[4], 40);
  EXPECT_EQ(b->group[1].kv_indptr[6], 41);
  EXPECT_EQ(b->group[0].kv_indptr[4], b->group[0].kv_indptr[3]) << "repeats what is before it";
}

// The slot says what was staged, in both layouts.
TEST(StepCase, ReadsTheSlotThatItWrote) {
  for (bool scattered : { false, true }) {
    StepLimits limits = Limits();
    limits.scattered = scattered;
    const cgr__ring_slot_layout layout = StepArena(limits).layout.slot;
    Bytes slot(size_t(layout.stride), 0x77);
    StagedStep step;
    step.seq = 5;
    step.batch_seq = 4;
    step.generation = 3;
    step.num_requests = 2;
    step.num_tokens = 3;
    step.rows = { 7, 8 };
    step.starts = { 0, 1, 3 };
    step.flags = { 0, 1 };
    step.tokens = { 11, 12, 13 };
    AddChange(&step, CGR__CHANGE_COMPUTED, 1, 2, 3);
    WriteSlot(layout, step, slot.data());
    StagedStep read = ReadSlot(limits, layout, slot.data());
    read.tokens.resize(3);
    EXPECT_EQ(read.seq, 5u);
    EXPECT_EQ(read.batch_seq, 4u);
    EXPECT_EQ(read.generation, 3u);
    EXPECT_EQ(read.rows, step.rows);
    EXPECT_EQ(read.starts, step.starts);
    EXPECT_EQ(read.flags, step.flags);
    EXPECT_EQ(read.tokens, step.tokens);
    ASSERT_EQ(read.changes.size(), 1u);
    EXPECT_EQ(std::memcmp(read.changes.data(), step.changes.data(), sizeof(cgr__change)), 0);
  }
}

} // namespace
} // namespace cgr_test
