// Data of rows: what the host keeps and the device gets, whatever becomes of the steps that carry it.
#include <algorithm>
#include <map>

#include "tests/requests/rig.h"
#include "tests/support/seed.h"

namespace {

using namespace cgr_test;

enum { kMaxRows = 7, kBuffers = 4 };
// Buffers 0 and 2 are of rows; the others are not.
const int32_t kWords[kBuffers] = { 3, 0, 8, 0 };
const uint32_t kPadding[2] = { 0x01020304, 0xfffffff7 };

struct Data {
  cgr__rows rows;
  cgr__limits limits = {};
  cgr__lane_batches batches;
  Memory memory{ nullptr, free }, memory_of_batches{ nullptr, free };
  std::map<std::pair<int32_t, int32_t>, int32_t> device[kBuffers]; // by row and word; what was not sent is padding
  std::map<int32_t, std::vector<int32_t>> model[kBuffers];         // of open rows

  Data() {
    cgr_group group = CGR_GROUP_INIT;
    group.page_size = 16;
    group.num_pages = 100;
    group.write_trash_page = 1;
    cgr__rows_config config = {};
    limits.max_rows = kMaxRows;
    limits.max_lens[0] = 64;
    limits.num_groups = 1;
    config.limits = &limits;
    config.groups = &group;
    config.num_data = 3;
    for (int b = 0; b < 3; b++) {
      config.data[b].words = kWords[b];
      std::copy(kPadding, kPadding + 2, config.data[b].padding);
    }
    memory = Cleared(cgr__rows_bytes(&config));
    memset(&rows, 0xa5, sizeof rows);
    cgr__rows_init(&rows, &batches, &config, memory.get());
    memory_of_batches = Cleared(cgr__lane_batches_bytes(&limits));
    cgr__lane_batches_init(&batches, &limits, memory_of_batches.get());
    for (int b = 0; b < kBuffers; b++)
      for (int32_t row = 0; row < kMaxRows; row++)
        for (int32_t w = 0; w < kWords[b]; w++)
          device[b][{ row, w }] = static_cast<int32_t>(kPadding[w % 2]);
  }
  std::vector<int32_t> Padding(int b) const {
    std::vector<int32_t> words;
    for (int32_t w = 0; w < kWords[b]; w++)
      words.push_back(static_cast<int32_t>(kPadding[w % 2]));
    return words;
  }
  int32_t Open() {
    int32_t row = -1;
    EXPECT_EQ(cgr__rows_open(&rows, 1, &row), CGR_OK);
    for (int b : { 0, 2 })
      model[b][row] = Padding(b);
    return row;
  }
  void Close(int32_t row) {
    EXPECT_EQ(cgr__rows_close(&rows, row), CGR_OK);
    for (int b : { 0, 2 })
      model[b].erase(row);
  }
  void Set(int32_t row, int b, const std::vector<int32_t> &words) {
    cgr__rows_set_data(&rows, row, b, words.data());
    model[b][row] = words;
  }
  std::vector<cgr__change> Collect(int32_t capacity) {
    std::vector<cgr__change> changes(static_cast<size_t>(capacity));
    int64_t pending = cgr__changes_pending(&rows);
    int32_t count = cgr__changes_collect(&rows, changes.data(), capacity);
    EXPECT_EQ(count, std::min<int64_t>(pending, capacity));
    EXPECT_EQ(cgr__changes_pending(&rows), pending - count);
    changes.resize(static_cast<size_t>(count));
    return changes;
  }
  void Apply(const std::vector<cgr__change> &changes) {
    for (const cgr__change &c : changes)
      if ((c.kind & 0xff) == CGR__CHANGE_DATA) {
        ASSERT_EQ(device[c.kind >> 8].count({ c.row, c.index }), 1u) << "no such word";
        device[c.kind >> 8][{ c.row, c.index }] = c.value;
      }
  }
  // Everything that is pending reaches the device, which then has what the model says.
  void Drain() {
    while (cgr__changes_pending(&rows) > 0)
      Apply(Collect(5));
    for (int b : { 0, 2 })
      for (const auto &[row, words] : model[b])
        for (int32_t w = 0; w < kWords[b]; w++)
          ASSERT_EQ((device[b][{ row, w }]), words[static_cast<size_t>(w)])
              << "buffer " << b << ", row " << row << ", word " << w;
  }
};

TEST(Data, OnlyTheWordsBetweenTheFirstAndTheLastChangedTravel) {
  Data d;
  int32_t row = d.Open();
  d.Drain();
  d.Set(row, 2, { 1, 2, 3, 4, 5, 6, 7, 8 });
  EXPECT_EQ(cgr__changes_pending(&d.rows), 8);
  d.Drain();
  d.Set(row, 2, { 1, 2, 3, 4, 5, 6, 7, 8 });
  EXPECT_EQ(cgr__changes_pending(&d.rows), 0);
  d.Set(row, 2, { 1, 2, 9, 4, 9, 6, 7, 8 });
  EXPECT_EQ(cgr__changes_pending(&d.rows), 3);
  d.Drain();
}

// A row that is closed before its padding has travelled still has its last owner's data on the device.
TEST(Data, ARowThatOpensAgainIsPadding) {
  Data d;
  int32_t row = d.Open();
  d.Set(row, 0, { 5, 6, 7 });
  d.Drain();
  d.Close(row);
  ASSERT_EQ(d.Open(), row);
  d.Close(row); // nothing of that has travelled
  ASSERT_EQ(d.Open(), row);
  d.Drain();
}

// A slot that carried the padding and was lost, or taken back, while the row is closed.
TEST(Data, WhatAClosedRowMissedIsSentWhenItOpens) {
  for (bool lost : { false, true }) {
    Data d;
    int32_t row = d.Open();
    d.Set(row, 2, { 1, 2, 3, 4, 5, 6, 7, 8 });
    d.Drain();
    d.Close(row);
    ASSERT_EQ(d.Open(), row);
    std::vector<cgr__change> padding = d.Collect(100);
    d.Close(row);
    if (lost)
      cgr__changes_mark_all(&d.rows);
    else
      cgr__changes_restore(&d.rows, padding.data(), static_cast<int32_t>(padding.size()));
    ASSERT_EQ(d.Open(), row);
    ASSERT_NO_FATAL_FAILURE(d.Drain());
  }
}

TEST(Data, NothingIsLostWhateverBecomesOfTheSteps) {
  SeededRandom random;
  Data d;
  bool losing = false; // the device refuses what comes until the host knows
  for (int n = 0; n < 20000 && !::testing::Test::HasFailure(); n++) {
    std::vector<int32_t> open;
    for (const auto &row : d.model[0])
      open.push_back(row.first);
    auto any = [&] { return open[static_cast<size_t>(random.Pick(0, static_cast<int64_t>(open.size()) - 1))]; };
    switch (random.Pick(0, 7)) {
    case 0:
      if (open.size() < kMaxRows)
        d.Open();
      break;
    case 1:
      if (!open.empty())
        d.Close(any());
      break;
    case 2:
    case 3:
    case 4:
      if (!open.empty()) {
        int b = random.OneIn(2) ? 0 : 2;
        int32_t row = any();
        std::vector<int32_t> words = random.OneIn(4) ? d.Padding(b) : d.model[b][row];
        for (int32_t &word : words)
          word = random.OneIn(3) ? random.Pick32(0, 9) : word;
        d.Set(row, b, words);
      }
      break;
    case 5: { // a step that is cancelled, after other calls perhaps
      std::vector<cgr__change> taken = d.Collect(random.Pick32(1, 12));
      if (!open.empty() && random.OneIn(3))
        d.Close(any());
      if (random.OneIn(3) && d.model[0].size() < kMaxRows)
        d.Open();
      cgr__changes_restore(&d.rows, taken.data(), static_cast<int32_t>(taken.size()));
      break;
    }
    case 6: { // a step that runs, or is lost
      std::vector<cgr__change> taken = d.Collect(random.Pick32(1, 12));
      losing = losing || random.OneIn(8);
      if (!losing)
        d.Apply(taken);
      break;
    }
    default:
      if (losing)
        cgr__changes_mark_all(&d.rows);
      losing = false;
      if (random.OneIn(4))
        d.Drain();
    }
  }
}

} // namespace
