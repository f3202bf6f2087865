// Every persistent buffer after every step: real rows match the batch, and rows after them, up to the bucket, hold the padding
// value. Memory that no request owns (pages, tails, the trash pages) is not written and cannot change a bit.
#include "cgr/names.h"
#include "tests/support/tables.h"

namespace cgr_test {
namespace {

using Numbers = std::vector<int64_t>;

// What the buffers must hold after the step `engine` has just run over `items`; `last` are the rows' tokens before it.
class Expected {
public:
  Expected(Engine &engine, const std::vector<Item> &items, const std::map<int32_t, int32_t> &last) : engine_(engine) {
    for (const Item &item : items)
      Add(item, *engine.requests.at(item.row), last);
    counts_ = { int64_t(items.size()), int64_t(ids_.size()), engine.step.key.num_requests, engine.step.key.num_tokens };
    counts_.resize(16);
  }
  void Check() {
    size_t requests = size_t(engine_.step.key.num_requests), tokens = size_t(engine_.step.key.num_tokens);
    ASSERT_GE(requests, rows_.size());
    ASSERT_GE(tokens, ids_.size());
    Compare(CGR_BUFFER_INPUT_IDS, ids_, tokens, 0);
    Compare(CGR_BUFFER_POSITIONS, positions_, tokens, 0);
    Compare(CGR_BUFFER_SLOT_MAPPING, slots_, tokens, -1);
    Compare(CGR_BUFFER_QUERY_START_LOC, starts_, requests + 1, starts_.back());
    Compare(CGR_BUFFER_SEQ_LENS, lens_, requests, 0);
    Compare(CGR_BUFFER_REQUEST_ROWS, rows_, requests, engine_.o.max_rows);
    Compare(CGR_BUFFER_KV_INDPTR, indptr_, requests + 1, indptr_.back());
    Compare(CGR_BUFFER_KV_LAST_PAGE_LEN, last_page_, requests, 1);
    Compare(CGR_BUFFER_LOGITS_INDICES, logits_, requests, 0);
    Compare(CGR_BUFFER_COUNTS, counts_, 16, 0);
    ExpectTables(engine_);
  }

private:
  void Add(const Item &item, const Request &r, const std::map<int32_t, int32_t> &last) {
    int64_t query_len = int64_t(item.tokens.size()), begin = r.num_tokens - query_len, size = engine_.o.page_size;
    for (int64_t j = 0; j < query_len; j++) {
      int32_t token = item.tokens[size_t(j)];
      ids_.push_back(token == CGR_TOKEN_LAST ? last.at(item.row) : token);
      positions_.push_back(begin + j);
      slots_.push_back(r.pages[size_t((begin + j) / size)] * size + (begin + j) % size);
    }
    starts_.push_back(starts_.back() + query_len);
    indptr_.push_back(indptr_.back() + (r.num_tokens + size - 1) / size);
    lens_.push_back(r.num_tokens);
    rows_.push_back(item.row);
    last_page_.push_back(r.num_tokens == 0 ? 1 : (r.num_tokens - 1) % size + 1);
    logits_.push_back(query_len == 0 ? 0 : starts_.back() - 1);
  }
  void Compare(cgr_buffer buffer, const Numbers &want, size_t padded, int64_t padding) {
    Numbers got = engine_.Buffer(buffer);
    ASSERT_GE(got.size(), padded) << cgr_buffer_name(buffer);
    for (size_t i = 0; i < std::max(padded, want.size()); i++)
      ASSERT_EQ(got[i], i < want.size() ? want[i] : padding)
          << cgr_buffer_name(buffer) << "[" << i << "], " << want.size() << " real of " << padded;
  }
  Engine &engine_;
  Numbers ids_, positions_, slots_, starts_ = { 0 }, lens_, rows_, indptr_ = { 0 }, last_page_, logits_, counts_;
};

class Padding : public OverDevices {
protected:
  std::unique_ptr<Engine> Make(double unowned = NAN) {
    EngineOptions options = OptionsFor(GetParam());
    options.unowned = unowned;
    return MakeCaptured(options);
  }
  // A step, then every buffer.
  static void StepAndCheck(Engine &engine, const std::vector<Item> &items, const cgr_key *forced = nullptr) {
    std::map<int32_t, int32_t> last;
    for (const auto &[row, r] : engine.requests)
      last[row] = r->last;
    ASSERT_NO_FATAL_FAILURE(engine.Step(items, forced));
    Expected(engine, items, last).Check();
  }
  std::vector<int32_t> Open(Engine &engine, int32_t count) {
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < count; i++)
      rows.push_back(engine.Start(1 + i * 9 % 61, i));
    return rows;
  }
  static std::vector<int32_t> First(const std::vector<int32_t> &rows, int32_t count) {
    return { rows.begin(), rows.begin() + count };
  }
};

TEST_P(Padding, BuffersHoldThePaddingValuesAtEveryRealCount) {
  auto engine = Make();
  std::vector<int32_t> rows = Open(*engine, 8);
  for (int32_t kind : { CGR_KIND_FULL, CGR_KIND_NONE })
    for (int32_t bucket : { 8, 4, 2, 1 })
      for (int32_t real : { bucket, 0, 1, bucket / 2, bucket - 1 }) {
        SCOPED_TRACE("kind " + std::to_string(kind) + ", " + std::to_string(real) + " of " + std::to_string(bucket));
        cgr_key key = KeyOf(kind, bucket, bucket);
        ASSERT_NO_FATAL_FAILURE(StepAndCheck(*engine, engine->Decode(First(rows, std::min(real, bucket))), &key));
      }
}

TEST_P(Padding, GrowsShrinksAndGrowsAgain) {
  auto engine = Make();
  std::vector<int32_t> rows = Open(*engine, 8);
  std::mt19937 random(5);
  for (int32_t count : { 8, 1, 7, 3, 8, 2, 5, 0, 6, 4, 8, 0, 8, 1, 1, 3 }) {
    SCOPED_TRACE(count);
    std::shuffle(rows.begin(), rows.end(), random);
    ASSERT_NO_FATAL_FAILURE(StepAndCheck(*engine, engine->Decode(First(rows, count))));
  }
}

TEST_P(Padding, MixedStepsWithEmptyRequests) {
  auto engine = Make();
  std::vector<int32_t> rows = Open(*engine, 6);
  const uint32_t seed = 6;
  std::mt19937 random(seed);
  for (int n = 0; n < 40; n++) {
    SCOPED_TRACE("seed 6, iteration " + std::to_string(n));
    std::shuffle(rows.begin(), rows.end(), random);
    std::vector<Item> items;
    int32_t tokens = 0;
    for (size_t i = 0; i < 1 + random() % 6; i++) {
      int32_t row = rows[i], length = random() % 3 == 0 ? 0 : 1 + int32_t(random() % 9);
      const Request &r = *engine->requests[row];
      if (r.num_tokens > 120)
        engine->SetLength(row, 3);
      engine->Reserve(row, r.num_tokens + length);
      items.push_back(Engine::Chunk(row, length, n, random() % 4 == 0));
      if (length > 0 && random() % 2 == 0 && r.has_token)
        items.back().tokens[0] = CGR_TOKEN_LAST;
      tokens += length;
    }
    int32_t requests = int32_t(items.size());
    cgr_key key = EagerKey(std::min(8, requests + int32_t(random() % 3)), std::clamp(tokens + int32_t(random() % 7), 1, 64));
    ASSERT_NO_FATAL_FAILURE(StepAndCheck(*engine, items, n % 2 == 0 ? &key : nullptr));
  }
}

// A step may write only the slots of its tokens in the caches, nothing else. The engine's model compares every byte.
TEST_P(Padding, NothingButTheStepsOwnSlotsIsWritten) {
  auto engine = Make();
  std::vector<int32_t> rows = Open(*engine, 8);
  std::mt19937 random(3);
  int32_t region = NewRegion(engine->rt, engine->state.layer[0].in[kQ].data, 64);
  for (int n = 0; n < 30 && !HasFailure(); n++) {
    SCOPED_TRACE(n);
    if (n % 10 == 5) { // captured again, with requests alive
      CGR_ASSERT_OK(cgr_region_move(engine->rt, region, engine->state.layer[0].in[kQ].data, 64));
      CGR_ASSERT_OK(engine->Warmup());
      CGR_ASSERT_OK(engine->Capture());
      engine->CheckCaches();
    }
    std::shuffle(rows.begin(), rows.end(), random);
    std::vector<Item> items = engine->Decode(First(rows, n % 9));
    if (n % 4 == 3 && !items.empty())
      items[0] = engine->Chunks({ { items[0].row, 5 } })[0];
    std::vector<unsigned char> before = engine->ReadCaches();
    engine->Step(items);
    std::vector<unsigned char> after = engine->ReadCaches();
    for (const InFlight::Taken &taken : engine->last->items) // and the slots of its tokens are
      for (size_t j = 0; j < taken.item.tokens.size(); j++) {
        int32_t position = taken.start + int32_t(j), page = taken.pages[0][size_t(position / 16)];
        EXPECT_TRUE(engine->caches.TokenBytes(before, page, position % 16) !=
                    engine->caches.TokenBytes(after, page, position % 16));
      }
    engine->CheckCaches();
  }
}

TEST_P(Padding, WhatNoRequestOwnsChangesNoBit) {
  const double fills[] = { 0.0, NAN, INFINITY, -INFINITY, 12345.0 };
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<std::vector<int32_t>> rows;
  for (double fill : fills) {
    engines.push_back(Make(fill));
    rows.push_back(Open(*engines.back(), 7));
  }
  for (int n = 0; n < 24; n++) {
    SCOPED_TRACE(n);
    std::vector<std::vector<unsigned char>> bits;
    std::vector<std::vector<float>> lse;
    for (size_t i = 0; i < engines.size(); i++) {
      Engine &engine = *engines[i];
      std::vector<Item> items = engine.Decode(First(rows[i], n % 8));
      if (n % 5 == 4 && !items.empty())
        items[0].tokens = { 4 };
      engine.PoisonUnowned(fills[i]);
      ASSERT_NO_FATAL_FAILURE(engine.Step(items));
      for (int32_t c = 0; c < 2; c++) {
        bits.push_back(engine.Out(c, engine.step.key.num_tokens));
        lse.push_back(engine.Lse(c, engine.step.key.num_tokens));
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
