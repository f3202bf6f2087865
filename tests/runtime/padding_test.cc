// Every persistent buffer after every step: real rows as the batch says, rows behind them up to the bucket the padding value;
// and what no request owns (pages, tails, the trash pages) is neither written nor able to change a bit.
#include "tests/support/toy_engine.h"

namespace cgr_test {
namespace {

using Numbers = std::vector<int64_t>;

// What the buffers must hold after the step `toy` has just run over `items`; `last` are the rows' tokens before it.
class Expected {
public:
  Expected(Toy &toy, const std::vector<ToyItem> &items, const std::map<int32_t, int32_t> &last) : toy_(toy) {
    int64_t token = 0, pages = 0;
    starts = indptr = { 0 };
    for (const ToyItem &item : items) {
      const ToyRequest &r = *toy.requests.at(item.row);
      int64_t query_len = static_cast<int64_t>(item.tokens.size()), begin = r.num_tokens - query_len, ps = toy.o.page_size;
      for (int64_t j = 0; j < query_len; j++) {
        int64_t position = begin + j;
        ids.push_back(item.tokens[static_cast<size_t>(j)] == CGR_TOKEN_LAST ? last.at(item.row)
                                                                            : item.tokens[static_cast<size_t>(j)]);
        positions.push_back(position);
        slots.push_back(r.pages[static_cast<size_t>(position / ps)] * ps + position % ps);
      }
      token += query_len;
      pages += (r.num_tokens + ps - 1) / ps;
      starts.push_back(token);
      indptr.push_back(pages);
      lens.push_back(r.num_tokens);
      rows.push_back(item.row);
      last_page.push_back(r.num_tokens == 0 ? 1 : (r.num_tokens - 1) % ps + 1);
      logits.push_back(query_len == 0 ? 0 : token - 1);
    }
    counts = { static_cast<int64_t>(items.size()), token };
  }
  void Check() {
    size_t padded_requests = static_cast<size_t>(toy_.step.key.num_requests),
           padded_tokens = static_cast<size_t>(toy_.step.key.num_tokens);
    ASSERT_GE(padded_requests, rows.size());
    ASSERT_GE(padded_tokens, ids.size());
    Compare("input_ids", CGR_BUFFER_INPUT_IDS, ids, padded_tokens, 0);
    Compare("positions", CGR_BUFFER_POSITIONS, positions, padded_tokens, 0);
    Compare("slot_mapping", CGR_BUFFER_SLOT_MAPPING, slots, padded_tokens, -1);
    Compare("query_start_loc", CGR_BUFFER_QUERY_START_LOC, starts, padded_requests + 1, starts.back());
    Compare("seq_lens", CGR_BUFFER_SEQ_LENS, lens, padded_requests, 0);
    Compare("request_rows", CGR_BUFFER_REQUEST_ROWS, rows, padded_requests, 0);
    Compare("kv_indptr", CGR_BUFFER_KV_INDPTR, indptr, padded_requests + 1, indptr.back());
    Compare("kv_last_page_len", CGR_BUFFER_KV_LAST_PAGE_LEN, last_page, padded_requests, 1);
    Compare("logits_indices", CGR_BUFFER_LOGITS_INDICES, logits, padded_requests, 0);
    Compare("counts", CGR_BUFFER_COUNTS, counts, 2, 0);
    Numbers computed = toy_.Buffer(CGR_BUFFER_ROW_COMPUTED), table = toy_.Buffer(CGR_BUFFER_PAGE_TABLE);
    size_t stride = static_cast<size_t>(toy_.View(CGR_BUFFER_PAGE_TABLE).stride);
    for (auto &[row, r] : toy_.requests) {
      ASSERT_EQ(computed[static_cast<size_t>(row)], r->num_tokens) << "row_computed of row " << row;
      for (size_t p = 0; p * static_cast<size_t>(toy_.o.page_size) < static_cast<size_t>(r->num_tokens); p++)
        ASSERT_EQ(table[static_cast<size_t>(row) * stride + p], r->pages[p]) << "page_table of row " << row;
    }
  }

private:
  void Compare(const char *name, cgr_buffer buffer, const Numbers &want, size_t padded, int64_t padding) {
    Numbers got = toy_.Buffer(buffer);
    ASSERT_GE(got.size(), padded) << name;
    for (size_t i = 0; i < std::max(padded, want.size()); i++)
      ASSERT_EQ(got[i], i < want.size() ? want[i] : padding) << name << "[" << i << "], " << want.size() << " real of " << padded;
  }
  Toy &toy_;
  Numbers ids, positions, slots, starts, lens, rows, indptr, last_page, logits, counts;
};

class Padding : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam()); }
  std::unique_ptr<Toy> Make(double unowned = NAN) {
    ToyOptions options = ToyOptionsFor(GetParam());
    options.unowned = unowned;
    auto toy = std::make_unique<Toy>(options);
    CGR_EXPECT_OK(toy->Capture());
    return toy;
  }
  static cgr_key Key(int32_t kind, int32_t requests, int32_t tokens) {
    return { kind, 0, 0, tokens, requests, kind == CGR_KIND_FULL ? 1 : 0, 0 };
  }
  // A step, then every buffer.
  static void StepAndCheck(Toy &toy, const std::vector<ToyItem> &items, const cgr_key *forced = nullptr) {
    std::map<int32_t, int32_t> last;
    for (auto &[row, r] : toy.requests)
      last[row] = r->last;
    toy.Step(items, forced);
    if (HasFatalFailure())
      return;
    Expected(toy, items, last).Check();
  }
  std::vector<int32_t> Open(Toy &toy, int32_t count) {
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < count; i++)
      rows.push_back(toy.Start(1 + i * 9, i));
    return rows;
  }
};

TEST_P(Padding, BuffersHoldThePaddingValuesAtEveryRealCount) {
  auto toy = Make();
  std::vector<int32_t> rows = Open(*toy, 8);
  for (int32_t kind : { CGR_KIND_FULL, CGR_KIND_NONE })
    for (int32_t bucket : { 8, 4, 2, 1 })
      for (int32_t real : { bucket, 0, 1, bucket / 2, bucket - 1 }) {
        SCOPED_TRACE("kind " + std::to_string(kind) + ", " + std::to_string(real) + " of " + std::to_string(bucket));
        cgr_key key = Key(kind, bucket, bucket);
        StepAndCheck(*toy, toy->Decode(std::vector<int32_t>(rows.begin(), rows.begin() + std::min(real, bucket))), &key);
        if (HasFatalFailure())
          return;
      }
}

TEST_P(Padding, GrowsShrinksAndGrowsAgain) {
  auto toy = Make();
  std::vector<int32_t> rows = Open(*toy, 8);
  std::mt19937 random(5);
  for (int32_t count : { 8, 1, 7, 3, 8, 2, 5, 0, 6, 4, 8, 0, 8, 1, 1, 3 }) {
    SCOPED_TRACE(count);
    std::shuffle(rows.begin(), rows.end(), random);
    StepAndCheck(*toy, toy->Decode(std::vector<int32_t>(rows.begin(), rows.begin() + count)));
    if (HasFatalFailure())
      return;
  }
}

TEST_P(Padding, MixedStepsWithEmptyRequests) {
  auto toy = Make();
  std::vector<int32_t> rows = Open(*toy, 6);
  std::mt19937 random(6);
  std::map<int32_t, bool> has_token;
  for (int32_t row : rows)
    has_token[row] = true;
  for (int n = 0; n < 40; n++) {
    SCOPED_TRACE(n);
    std::shuffle(rows.begin(), rows.end(), random);
    std::vector<ToyItem> items;
    int32_t tokens = 0;
    for (size_t i = 0; i < 1 + random() % 6; i++) {
      int32_t row = rows[i], length = random() % 3 == 0 ? 0 : 1 + static_cast<int32_t>(random() % 9);
      if (toy->requests[row]->num_tokens > 120)
        toy->Rewind(row, 3), has_token[row] = false;
      toy->Reserve(row, toy->requests[row]->num_tokens + length);
      items.push_back({ row, Toy::Prompt(length, n), random() % 4 == 0 });
      tokens += length;
      if (length > 0 && random() % 2 == 0 && has_token[row])
        items.back().tokens[0] = CGR_TOKEN_LAST;
      if (length > 0)
        has_token[row] = !items.back().partial;
    }
    int32_t requests = static_cast<int32_t>(items.size());
    cgr_key key = Key(CGR_KIND_NONE, std::min(8, requests + static_cast<int32_t>(random() % 3)),
                      std::max(1, std::min(64, tokens + static_cast<int32_t>(random() % 7))));
    StepAndCheck(*toy, items, n % 2 == 0 ? &key : nullptr);
    if (HasFatalFailure())
      return;
  }
}

// What a step may write of the caches: the slots of its tokens, nothing else.
TEST_P(Padding, NothingButTheStepsOwnSlotsIsWritten) {
  auto toy = Make();
  auto pools = [&] {
    std::vector<std::vector<unsigned char>> all;
    for (int i = 0; i < 4; i++)
      all.push_back(toy->Pool(i / 2, i % 2 != 0));
    return all;
  };
  size_t token_bytes = static_cast<size_t>(toy->o.num_kv_heads * toy->o.head_dim) * toy->ElementBytes();
  auto expect_only = [&](const std::vector<std::vector<unsigned char>> &before, const std::vector<size_t> &slots) {
    std::vector<std::vector<unsigned char>> after = pools();
    for (size_t i = 0; i < 4; i++) {
      for (size_t slot : slots)
        std::memcpy(&after[i][slot * token_bytes], &before[i][slot * token_bytes], token_bytes);
      for (size_t b = 0; b < after[i].size(); b++)
        ASSERT_EQ(after[i][b], before[i][b]) << "slot " << b / token_bytes << " of pool " << i << " was written";
    }
  };
  std::vector<std::vector<unsigned char>> before = pools();
  CGR_ASSERT_OK(cgr_runtime_warmup(toy->rt, ToyRecord, &toy->engine));
  CGR_ASSERT_OK(toy->Capture());
  expect_only(before, {});
  std::vector<int32_t> rows = Open(*toy, 8);
  std::mt19937 random(3);
  for (int n = 0; n < 30 && !HasFatalFailure(); n++) {
    SCOPED_TRACE(n);
    if (n == 10) { // again, with requests alive
      int32_t region = -1;
      CGR_ASSERT_OK(cgr_region_register(toy->rt, toy->engine.q[0], 64, &region));
      CGR_ASSERT_OK(cgr_region_move(toy->rt, region, toy->engine.q[0], 64));
      before = pools();
      CGR_ASSERT_OK(cgr_runtime_warmup(toy->rt, ToyRecord, &toy->engine));
      CGR_ASSERT_OK(toy->Capture());
      expect_only(before, {});
    }
    std::shuffle(rows.begin(), rows.end(), random);
    std::vector<ToyItem> items = toy->Decode(std::vector<int32_t>(rows.begin(), rows.begin() + n % 9));
    if (n % 4 == 3 && !items.empty()) {
      toy->Reserve(items[0].row, toy->requests[items[0].row]->num_tokens + 5);
      items[0].tokens = { 1, 2, 3, 4, 5 };
    }
    std::vector<size_t> slots;
    for (const ToyItem &item : items)
      for (size_t j = 0; j < item.tokens.size(); j++) {
        const ToyRequest &r = *toy->requests[item.row];
        size_t position = static_cast<size_t>(r.num_tokens) + j, ps = static_cast<size_t>(toy->o.page_size);
        slots.push_back(static_cast<size_t>(r.pages[position / ps]) * ps + position % ps);
      }
    before = pools();
    toy->Step(items);
    expect_only(before, slots);
  }
}

TEST_P(Padding, WhatNobodyOwnsChangesNoBit) {
  const double fills[] = { 0.0, NAN, INFINITY, -INFINITY, 12345.0 };
  std::vector<std::unique_ptr<Toy>> toys;
  std::vector<std::vector<int32_t>> rows;
  for (double fill : fills) {
    toys.push_back(Make(fill));
    rows.push_back(Open(*toys.back(), 7));
  }
  for (int n = 0; n < 24 && !HasFatalFailure(); n++) {
    SCOPED_TRACE(n);
    int32_t count = n % 8;
    std::vector<std::vector<unsigned char>> bits;
    std::vector<std::vector<float>> lse;
    for (size_t i = 0; i < toys.size(); i++) {
      Toy &toy = *toys[i];
      std::vector<ToyItem> items = toy.Decode(std::vector<int32_t>(rows[i].begin(), rows[i].begin() + count));
      if (n % 5 == 4 && count > 0)
        items[0].tokens = { 4 };
      toy.FillUnowned(fills[i]);
      toy.Step(items);
      if (HasFatalFailure())
        return;
      for (int32_t l = 0; l < 2; l++) {
        bits.push_back(toy.Out(l, toy.step.key.num_tokens));
        lse.push_back(toy.Lse(l, toy.step.key.num_tokens));
      }
    }
    for (size_t i = 2; i < bits.size(); i++) {
      ASSERT_TRUE(bits[i] == bits[i % 2]) << "unowned memory of " << fills[i / 2] << " has changed an output";
      ASSERT_EQ(lse[i], lse[i % 2]);
    }
  }
}

CGR_INSTANTIATE_OVER_DEVICES(Padding);

} // namespace
} // namespace cgr_test
