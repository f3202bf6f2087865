// The engine's own staged buffers: data of tokens and requests comes with a batch and is padding otherwise; data of rows stays
// until it is set again or the row is reopened, even if steps that carry it are cancelled (losses: requests/data_test).
#include <algorithm>
#include <cstring>

#include "cgr/names.h"
#include "tests/support/refused.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

using Bytes = std::vector<unsigned char>;

struct Declared {
  const char *name;
  cgr_dimension dimension;
  cgr_dtype dtype;
  int64_t width, padding;
  cgr_source source = CGR_SOURCE_STAGED;
};
// Rows of 12, 10, 1, 16384 and 8 bytes, 20 and 16 for data of rows; in between, one buffer that the device writes.
const Declared kDeclared[] = {
  { "words", CGR_DIMENSION_TOKENS, CGR_DTYPE_I32, 3, -7 },
  { "halves", CGR_DIMENSION_REQUESTS, CGR_DTYPE_BF16, 5, 0 },
  { "written", CGR_DIMENSION_TOKENS, CGR_DTYPE_FP32, 2, 1, CGR_SOURCE_DEVICE },
  { "bytes", CGR_DIMENSION_REQUESTS, CGR_DTYPE_U8, 1, 201 },
  { "embeddings", CGR_DIMENSION_TOKENS, CGR_DTYPE_FP32, 4096, -1 },
  { "long", CGR_DIMENSION_TOKENS, CGR_DTYPE_I64, 1, -3 },
  { "sampling", CGR_DIMENSION_ROWS, CGR_DTYPE_FP32, 5, 2 },
  { "adapter", CGR_DIMENSION_ROWS, CGR_DTYPE_I64, 2, INT64_C(-81985529216486896) },
};
enum { kNum = 8, kWords = 0, kHalves = 1, kWritten = 2, kSampling = 6, kAdapter = 7, kMaxChanges = 9 };

size_t RowBytes(int i) { return size_t(kDeclared[i].width) * cgr_dtype_size(kDeclared[i].dtype); }
bool IsOfRows(int i) { return kDeclared[i].dimension == CGR_DIMENSION_ROWS; }

Bytes Padding(int i, size_t rows) {
  size_t size = cgr_dtype_size(kDeclared[i].dtype);
  Bytes bytes(rows * RowBytes(i));
  for (size_t at = 0; at < bytes.size(); at += size) {
    float number = float(kDeclared[i].padding);
    if (kDeclared[i].dtype == CGR_DTYPE_FP32)
      std::memcpy(&bytes[at], &number, 4);
    else
      std::memcpy(&bytes[at], &kDeclared[i].padding, size);
  }
  return bytes;
}

class Staged : public EngineTest {
protected:
  void SetUpOnDevice() override { Make(CGR_MODE_FULL); }
  void TearDown() override {
    if (engine_)
      engine_->Forget(); // what the caches hold is not looked at
    EngineTest::TearDown();
  }
  void Make(cgr_graph_mode mode) {
    TearDown();
    for (int i = 0; i < kNum; i++) {
      decl_[i] = CGR_BUFFER_DECL_INIT;
      decl_[i].dimension = kDeclared[i].dimension;
      decl_[i].dtype = kDeclared[i].dtype;
      decl_[i].source = kDeclared[i].source;
      decl_[i].width = kDeclared[i].width;
      decl_[i].padding = kDeclared[i].padding;
      decl_[i].name = kDeclared[i].name;
    }
    EngineOptions options = OptionsFor(GetParam(), mode, { { 8, 4 }, { 24, 8 }, { 64, 8 } });
    options.adjust = [this](cgr_config *config) {
      config->buffers = decl_, config->num_buffers = kNum, config->max_changes = kMaxChanges;
      config->ring_depth = 8;
    };
    engine_ = MakeCaptured(options);
    rows_of_[kSampling].assign(size_t(options.max_rows) + 1, Padding(kSampling, 1));
    rows_of_[kAdapter].assign(size_t(options.max_rows) + 1, Padding(kAdapter, 1));
  }
  cgr_buffer_view ViewOf(int i) {
    const cgr_buffer_view view = BufferOf(engine_->rt, CGR_BUFFER_DECLARED, i);
    return view;
  }
  Bytes Content(int i) {
    cgr_buffer_view view = ViewOf(i);
    return engine_->Read<unsigned char>(view.data, size_t(view.shape[0]) * RowBytes(i));
  }
  Bytes RandomBytes(size_t count) {
    Bytes bytes(count);
    for (size_t at = 0; at < count; at += 8) {
      const uint64_t bits = random_.Bits();
      std::memcpy(&bytes[at], &bits, std::min<size_t>(8, count - at));
    }
    return bytes;
  }
  size_t Count(int i, const cgr_step &step, bool padded) const {
    const cgr_key &key = step.key;
    return size_t(kDeclared[i].dimension == CGR_DIMENSION_TOKENS ? (padded ? key.num_tokens : step.num_tokens)
                                                                 : (padded ? key.num_requests : step.num_requests));
  }
  // The batch of `items` with what is in given_.
  cgr_status Prepare(const std::vector<Item> &items) {
    rows_.clear(), lens_.clear(), tokens_.clear(), staged_.clear();
    for (const Item &item : items) {
      rows_.push_back(item.row);
      lens_.push_back(int32_t(item.tokens.size()));
      tokens_.insert(tokens_.end(), item.tokens.begin(), item.tokens.end());
    }
    given_.clear();
    for (int i = 0; i < kNum; i++)
      if (!IsOfRows(i) && i != kWritten && random_.OneIn(2)) {
        size_t count = kDeclared[i].dimension == CGR_DIMENSION_TOKENS ? tokens_.size() : rows_.size();
        given_[i] = RandomBytes(count * RowBytes(i) + 1); // never NULL
      }
    for (const auto &[i, bytes] : given_)
      staged_.push_back({ i, 0, bytes.data() });
    cgr_batch batch = BatchOf(int32_t(rows_.size()), rows_.data(), tokens_.data(), lens_.data());
    batch.staged = staged_.data(), batch.num_staged = int32_t(staged_.size());
    step_ = CGR_STEP_INIT;
    return cgr_step_prepare(engine_->rt, &batch, &step_);
  }
  void Poison() {
    for (int i = 0; i < kNum; i++)
      if (!IsOfRows(i))
        CGR_EXPECT_OK(cgr_fill(engine_->dev, ViewOf(i).data, 0x5a, size_t(ViewOf(i).shape[0]) * RowBytes(i), engine_->stream));
    engine_->Sync();
  }
  void Launch() {
    CGR_ASSERT_OK(cgr_step_launch(engine_->rt, &step_, engine_->stream));
    CGR_ASSERT_OK(cgr_step_wait(engine_->rt, step_.mark, -1, nullptr));
  }
  void CheckTokensAndRequests() {
    for (int i = 0; i < kNum; i++) {
      if (IsOfRows(i))
        continue;
      SCOPED_TRACE(kDeclared[i].name);
      Bytes got = Content(i), want(got.size(), 0x5a);
      size_t end = 0;
      if (i != kWritten) {
        size_t real = given_.count(i) ? Count(i, step_, false) * RowBytes(i) : 0;
        end = Count(i, step_, true) * RowBytes(i);
        Bytes padding = Padding(i, end / RowBytes(i));
        std::copy(padding.begin(), padding.end(), want.begin());
        if (real > 0)
          std::copy(given_[i].begin(), given_[i].begin() + ptrdiff_t(real), want.begin());
      }
      size_t after = std::min((end + 15) / 16 * 16, got.size()); // may hold padding too
      EXPECT_TRUE(std::equal(got.begin(), got.begin() + ptrdiff_t(end), want.begin()));
      EXPECT_TRUE(std::equal(got.begin() + ptrdiff_t(after), got.end(), want.begin() + ptrdiff_t(after)));
    }
  }
  void CheckRows() {
    for (int i : { int(kSampling), int(kAdapter) }) {
      SCOPED_TRACE(kDeclared[i].name);
      Bytes got = Content(i);
      for (size_t row = 0; row < rows_of_[i].size(); row++)
        if (row + 1 == rows_of_[i].size() || open_.count(int32_t(row))) {
          auto at = got.begin() + ptrdiff_t(row * RowBytes(i));
          EXPECT_TRUE(std::equal(rows_of_[i][row].begin(), rows_of_[i][row].end(), at)) << "row " << row;
        }
    }
  }
  int32_t Open() {
    int32_t row = -1;
    CGR_EXPECT_OK(cgr_request_open(engine_->rt, 1, &row));
    open_.insert(row);
    std::vector<int32_t> pages;
    for (int32_t p = 0; p < 7; p++)
      pages.push_back(2 + row * 7 + p);
    CGR_EXPECT_OK(cgr_request_set_pages(engine_->rt, row, 0, 0, pages.data(), 7));
    for (int i : { int(kSampling), int(kAdapter) })
      rows_of_[i][size_t(row)] = Padding(i, 1);
    return row;
  }
  void Close(int32_t row) {
    CGR_EXPECT_OK(cgr_request_close(engine_->rt, row));
    open_.erase(row);
  }
  void Set(int32_t row, int i) {
    Bytes data = RandomBytes(RowBytes(i) + 1);
    if (random_.OneIn(3))
      std::copy(rows_of_[i][size_t(row)].begin(), rows_of_[i][size_t(row)].end() - 4, data.begin() + 1); // all but a word
    CGR_EXPECT_OK(cgr_request_set_data(engine_->rt, row, i, data.data() + 1));                           // not aligned
    rows_of_[i][size_t(row)].assign(data.begin() + 1, data.end());
  }
  std::vector<Item> Compose() {
    std::vector<Item> items;
    for (int32_t row : open_)
      if (items.size() < 8 && random_.OneIn(2))
        items.push_back({ row, std::vector<int32_t>(size_t(random_.OneIn(3) ? random_.Pick(0, 7) : 1), 3) });
    return items;
  }
  // Tokens do not matter here, so every row starts over.
  void ResetLengths() {
    for (int32_t row : open_)
      CGR_EXPECT_OK(cgr_request_set_length(engine_->rt, row, 0));
  }
  cgr_status PrepareAfterFlush(const std::vector<Item> &items) {
    cgr_status status = Prepare(items);
    for (int n = 0; n < 20 && status == CGR_ERROR_CHANGES_PENDING; n++) {
      uint64_t seq = 0;
      if (cgr_test::Flush(engine_->rt, engine_->stream, &seq) == CGR_ERROR_BUSY)
        CGR_EXPECT_OK(cgr_step_wait(engine_->rt, cgr_mark{ 0, 0, seq }, -1, nullptr));
      engine_->Sync();
      status = Prepare(items);
    }
    return status;
  }

  cgr_buffer_decl decl_[kNum];
  Random random_{ Seed() };
  std::map<int, Bytes> given_;
  std::map<int, std::vector<Bytes>> rows_of_;
  std::set<int32_t> open_;
  std::vector<int32_t> rows_, lens_, tokens_;
  std::vector<cgr_staged> staged_;
  cgr_step step_ = CGR_STEP_INIT;
};

TEST_P(Staged, DataIsWhatWasGivenAndPaddingOtherwise) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    ASSERT_NO_FATAL_FAILURE(Make(mode));
    open_.clear();
    for (int n = 0; n < 60 && !HasFailure(); n++) {
      SCOPED_TRACE("step " + std::to_string(n));
      if (open_.size() < 10)
        Open();
      ResetLengths();
      CGR_ASSERT_OK(PrepareAfterFlush(Compose()));
      Poison();
      ASSERT_NO_FATAL_FAILURE(Launch());
      CheckTokensAndRequests();
    }
    EXPECT_EQ(step_.key.kind == CGR_KIND_NONE, mode == CGR_MODE_NONE) << cgr_reason_name(cgr_reason(step_.reason));
  }
}

TEST_P(Staged, AStepThatNamesNoneStagesNothingForThem) {
  int32_t row = engine_->Open();
  engine_->Step(engine_->Chunks({ { row, 3 } }));
  engine_->Step(engine_->Decode({ row }));
  engine_->Step(engine_->Decode({ row }));
  EXPECT_EQ(engine_->step.bytes_staged, 64u + 4u); // a header and the token; nothing else has changed
  std::vector<unsigned char> bytes(RowBytes(kHalves));
  cgr_staged staged = { kHalves, 0, bytes.data() };
  int32_t token = CGR_TOKEN_LAST;
  cgr_batch batch = BatchOf(1, &row, &token);
  cgr_step step = CGR_STEP_INIT;
  engine_->Reserve(row, 16);
  CGR_ASSERT_OK(cgr_step_prepare(engine_->rt, &batch, &step));
  uint64_t without = step.bytes_staged;
  CGR_ASSERT_OK(cgr_step_cancel(engine_->rt, &step));
  batch.staged = &staged, batch.num_staged = 1;
  CGR_ASSERT_OK(cgr_step_prepare(engine_->rt, &batch, &step));
  EXPECT_EQ(step.bytes_staged, without + RowBytes(kHalves));
  CGR_ASSERT_OK(cgr_step_cancel(engine_->rt, &step));
}

// Opens, closes, sets, cancels, flushes and steps in any order; the device's rows match the model whenever they are read.
TEST_P(Staged, DataOfRowsStays) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  random_ = Random(seed);
  for (int n = 0; n < 600 && !HasFailure(); n++) {
    SCOPED_TRACE("round " + std::to_string(n));
    for (int k = 0; k < 3; k++) {
      int what = int(random_.Pick(0, 5));
      if (what == 0 && open_.size() < 12)
        Open();
      else if (what == 1 && open_.size() > 2)
        Close(*std::next(open_.begin(), ptrdiff_t(random_.Pick(0, int64_t(open_.size()) - 1))));
      else if (what > 1 && !open_.empty())
        Set(*std::next(open_.begin(), ptrdiff_t(random_.Pick(0, int64_t(open_.size()) - 1))), what % 2 ? kSampling : kAdapter);
    }
    ResetLengths();
    CGR_ASSERT_OK(PrepareAfterFlush(Compose()));
    if (random_.OneIn(4)) { // nothing is lost
      CGR_ASSERT_OK(cgr_step_cancel(engine_->rt, &step_));
      continue;
    }
    int32_t late = open_.empty() || !random_.OneIn(3) ? -1 : *open_.begin();
    Bytes before = late < 0 ? Bytes() : rows_of_[kSampling][size_t(late)];
    if (late >= 0)
      Set(late, kSampling); // travels with the next step
    ASSERT_NO_FATAL_FAILURE(Launch());
    if (late >= 0)
      std::swap(before, rows_of_[kSampling][size_t(late)]);
    CheckRows();
    if (late >= 0)
      std::swap(before, rows_of_[kSampling][size_t(late)]);
  }
}

TEST_P(Staged, WhatIsWrongIsRefusedByName) {
  int32_t row = Open();
  Bytes data(1 << 16);
  auto refused = [&](std::vector<cgr_staged> staged, cgr_status status, const Words &words) {
    cgr_batch batch = CGR_BATCH_INIT;
    int32_t token = 1;
    batch.num_requests = 1, batch.rows = &row, batch.tokens = &token, batch.staged = staged.data();
    batch.num_staged = int32_t(staged.size());
    cgr_step step = CGR_STEP_INIT;
    ExpectMessage(cgr_step_prepare(engine_->rt, &batch, &step), status, words);
    cgr_key key;
    ExpectMessage(cgr_step_choose(engine_->rt, &batch, &key), status, words);
  };
  refused({ { -1, 0, data.data() } }, CGR_ERROR_INVALID_ARGUMENT, { "staged[0].buffer", "is -1", "num_buffers is 8" });
  refused({ { 0, 0, data.data() }, { 8, 0, data.data() } }, CGR_ERROR_INVALID_ARGUMENT, { "staged[1].buffer", "is 8" });
  refused({ { kWritten, 0, data.data() } }, CGR_ERROR_INVALID_ARGUMENT, { "staged[0]", "written", "by the device" });
  refused({ { kSampling, 0, data.data() } }, CGR_ERROR_INVALID_ARGUMENT, { "staged[0]", "sampling", "cgr_request_set_data" });
  refused({ { 0, 0, data.data() }, { 0, 0, data.data() } }, CGR_ERROR_INVALID_ARGUMENT,
          { "staged[1]", "words", "as staged[0].buffer is" });
  refused({ { 0, 0, nullptr } }, CGR_ERROR_NULL_POINTER, { "staged[0].data", "words" });
  refused({ { 0, 1, data.data() } }, CGR_ERROR_NEWER_STRUCT, { "staged[0].reserved", "is 1" });
  refused(std::vector<cgr_staged>(65, { 0, 0, data.data() }), CGR_ERROR_INVALID_ARGUMENT, { "num_staged", "is 65", "64" });
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  batch.num_staged = 1;
  ExpectMessage(cgr_step_prepare(engine_->rt, &batch, &step), CGR_ERROR_NULL_POINTER, { "staged is NULL" });
  batch.num_staged = -1;
  ExpectMessage(cgr_step_prepare(engine_->rt, &batch, &step), CGR_ERROR_INVALID_ARGUMENT, { "num_staged", "is -1" });
  for (int bad : { -1, 8, 100 })
    ExpectMessage(cgr_request_set_data(engine_->rt, row, bad, data.data()), CGR_ERROR_INVALID_ARGUMENT,
                  { "buffer is " + std::to_string(bad), "index of a declared buffer (num_buffers is 8)" });
  const std::pair<int, const char *> others[] = { { kWords, "(words), which has data of tokens (cgr_batch.staged)" },
                                                  { kWritten, "which is written by the device" } };
  for (auto [bad, what] : others)
    ExpectMessage(cgr_request_set_data(engine_->rt, row, bad, data.data()), CGR_ERROR_INVALID_ARGUMENT,
                  { "buffer is " + std::to_string(bad), what, "CGR_DIMENSION_ROWS" });
  ExpectMessage(cgr_request_set_data(engine_->rt, row, kSampling, nullptr), CGR_ERROR_NULL_POINTER, { "data" });
  ExpectMessage(cgr_request_set_data(engine_->rt, row + 1, kSampling, data.data()), CGR_ERROR_ROW_CLOSED, {});
  ExpectMessage(cgr_request_set_data(engine_->rt, -1, kSampling, data.data()), CGR_ERROR_INVALID_ARGUMENT, {});
  CGR_ASSERT_OK(PrepareAfterFlush({ { row, { 1, 2 } } }));
  Poison();
  ASSERT_NO_FATAL_FAILURE(Launch());
  CheckTokensAndRequests();
}

CGR_INSTANTIATE_OVER_DEVICES(Staged);

} // namespace
} // namespace cgr_test
