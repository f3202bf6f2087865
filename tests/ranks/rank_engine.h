// One rank with an engine whose next token is the last one plus 1: random batches of up to two requests, or none.
#pragma once

#include <cstring>

#include "tests/ranks/rig.h"
#include "tests/support/seed.h"

namespace cgr_test {

class RankEngine {
public:
  // `adjust`: of the configuration of this rank alone.
  RankEngine(const std::string &name, int rank, int num_ranks, cgr_ranks_rule rule = CGR_RANKS_LARGEST, int timeout_ms = 20000,
             std::function<void(cgr_config *)> adjust = nullptr, cgr_graph_mode mode = CGR_MODE_FULL,
             std::function<cgr_status(cgr_recorder *)> also = nullptr)
      : place(name, rank, num_ranks), device(CGR_SCHEDULE_ASYNC),
        engine(device, TinyOptions{ mode, 0, 0, { {} }, {}, 0, false, std::move(adjust), std::move(also) }) {
    cgr_ranks_config config = CGR_RANKS_CONFIG_INIT;
    config.rule = rule;
    config.exchange = &place.exchange;
    config.timeout_ms = timeout_ms;
    status = place.status == CGR_OK ? cgr_ranks_create(engine.rt, &config, &ranks) : place.status;
    message = status == CGR_OK ? "" : cgr_last_message();
  }
  ~RankEngine() { CGR_EXPECT_OK(cgr_ranks_destroy(ranks)); }
  RankEngine(const RankEngine &) = delete;
  RankEngine &operator=(const RankEngine &) = delete;

  cgr_status Capture() {
    const cgr_capture capture = engine.CaptureStruct();
    return cgr_ranks_capture(ranks, &capture);
  }
  // A request with `length` tokens in its two pages, of up to 32.
  struct Request {
    int32_t row = -1, next = 0, length = 0;
  };
  void Open() {
    Request r;
    CGR_ASSERT_OK(cgr_request_open(engine.rt, 1 + uint64_t(opened_), &r.row));
    const int32_t pair = FreePair(), pages[] = { 2 + 2 * pair, 3 + 2 * pair };
    CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, r.row, 0, 0, pages, 2));
    pair_[pair] = r.row;
    r.next = 10 + 7 * opened_++ % 90;
    requests.push_back(r);
  }
  void Close(size_t i) {
    for (int32_t &row : pair_)
      row = row == requests[i].row ? -1 : row;
    CGR_ASSERT_OK(cgr_request_close(engine.rt, requests[i].row));
    requests.erase(requests.begin() + long(i));
  }
  // Some of the requests, each with a token or a chunk.
  struct Work {
    std::vector<int32_t> rows, lens, tokens;
    std::vector<size_t> of;
  };
  Work Choose(Random *random, bool idle, int32_t chunks_one_in = 3) {
    Work w;
    for (size_t i = 0; i < requests.size() && !idle; i++) {
      const int32_t most = std::min<int32_t>(TinyEngine::kTokens - int32_t(w.tokens.size()), 32 - requests[i].length);
      const int32_t len = std::min<int32_t>(most, random->OneIn(chunks_one_in) ? random->Pick32(1, 4) : 1);
      if (len < 1)
        continue;
      w.of.push_back(i);
      w.rows.push_back(requests[i].row);
      w.lens.push_back(len);
      for (int32_t t = 0; t < len; t++)
        w.tokens.push_back(requests[i].next + t);
    }
    return w;
  }
  static cgr_batch BatchOf(const Work &w) {
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = int32_t(w.rows.size());
    batch.rows = w.rows.data(), batch.query_lens = w.lens.data(), batch.tokens = w.tokens.data();
    return batch;
  }
  // Agrees on the work's key; what the ranks agreed on is in `agreed`.
  cgr_status Agree(const Work &w) {
    const cgr_batch batch = BatchOf(w);
    return cgr_ranks_agree(ranks, w.rows.empty() ? nullptr : &batch, &agreed);
  }
  // Runs it as the key says, and checks what it gives.
  void Run(const Work &w, const cgr_key &key) {
    cgr_batch batch = BatchOf(w);
    batch.forced_key = &key, batch.variant = key.variant;
    cgr_step step = CGR_STEP_INIT;
    CGR_ASSERT_OK(cgr_step_prepare(engine.rt, &batch, &step));
    CGR_ASSERT_OK(cgr_step_launch(engine.rt, &step, engine.stream));
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_ASSERT_OK(cgr_step_wait(engine.rt, step.mark, -1, &result));
    ASSERT_EQ(result.num_requests, int32_t(w.rows.size()));
    for (size_t i = 0; i < w.of.size(); i++) {
      Request &r = requests[w.of[i]];
      ASSERT_EQ(result.tokens[i], r.next + w.lens[i]);
      r.length += w.lens[i];
      r.next = result.tokens[i];
    }
  }

  PlaceOnBoard place;
  HostDevice device;
  TinyEngine engine;
  cgr_ranks *ranks = nullptr;
  cgr_agreement agreed = CGR_AGREEMENT_INIT;
  cgr_status status;
  std::string message;
  std::vector<Request> requests;

private:
  int32_t FreePair() {
    for (int32_t i = 0; i < 2; i++)
      if (pair_[i] < 0)
        return i;
    ADD_FAILURE() << "no pages";
    return 0;
  }
  int opened_ = 0;
  int32_t pair_[2] = { -1, -1 };
};

// Calls work(rank, engine) on a thread for each rank, whose graphs are captured.
inline void OnCaptured(int num_ranks, const std::function<void(int, RankEngine &)> &work) {
  const std::string name = NewBoardName();
  OnRanks(num_ranks, [&](int rank) {
    RankEngine engine(name, rank, num_ranks);
    ASSERT_EQ(engine.status, CGR_OK) << engine.message;
    CGR_ASSERT_OK(engine.Capture());
    work(rank, engine);
  });
}

} // namespace cgr_test
