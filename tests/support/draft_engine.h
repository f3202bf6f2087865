// An engine with a target and a draft, each with a cache, a page table and a `record` of its own. Both hash what their own cache
// has, so a wrong page, length, position or token of either shows: in the target's tokens, and in what the draft guesses.
#pragma once

#include <map>

#include "cgr/programs.h"
#include "tests/support/guess_arithmetic.h"
#include "tests/support/guess_engine.h"

namespace cgr_test {
namespace drafts {

using namespace guesses;

// What the draft says follows a row whose tokens have this hash: a quarter is wrong.
inline int32_t GuessOf(uint64_t hash) { return hash % 4 == 0 ? int32_t(hash >> 34) % kVocab : NextOf(hash); }

inline List GuessesAfter(const List &tokens, int32_t count) {
  List guesses;
  for (uint64_t hash = FoldAll(tokens); int32_t(guesses.size()) < count; hash = Fold(hash, guesses.back()))
    guesses.push_back(GuessOf(hash));
  return guesses;
}

struct DraftArgs {
  ModelArgs model;
  const int32_t *logits;
};

// The draft guesses all at once.
inline void RunDraft(const void *raw) {
  const DraftArgs &args = *static_cast<const DraftArgs *>(raw);
  const ModelArgs &a = args.model;
  for (int32_t t = 0; t < a.num_tokens; t++)
    AppendToken(a, t);
  for (int32_t i = 0; i < a.num_requests; i++) {
    a.next[i * a.stride] = 0;
    if (a.seq_lens[i] == 0 || a.starts[i + 1] == a.starts[i])
      continue;
    uint64_t hash = HashOfRow(a, a.rows[i], a.positions[args.logits[i]]);
    for (int32_t j = 0; j < a.stride - 1; j++) {
      const int32_t guess = GuessOf(hash);
      (j == 0 ? a.next[i * a.stride] : a.draft_tokens[i * (a.stride - 1) + j]) = *a.rubbish == 4 ? kVocab : guess;
      hash = Fold(hash, guess);
    }
  }
}

// The target only verifies: what it leaves in DRAFT_TOKENS is no guess.
inline void RunTarget(const void *raw) {
  const ModelArgs &a = *static_cast<const ModelArgs *>(raw);
  for (int32_t t = 0; t < a.num_tokens; t++)
    AppendToken(a, t);
  for (int32_t i = 0; i < a.num_requests; i++)
    Sample(a, i);
  for (int32_t j = 0; j < a.num_requests * (a.stride - 1); j++)
    a.draft_tokens[j] = 0;
}

class DraftEngine {
public:
  DraftEngine(const DeviceParam &device, int32_t num_pages, bool faults = false, cgr_graph_mode mode = CGR_MODE_FULL,
              uint64_t on_demand = 0, int32_t max_stop_tokens = 0) {
    CGR_EXPECT_OK(cgr_device_open(device.name.c_str(), &device.config, &dev));
    if (faults) {
      EXPECT_EQ(cgr__fault_open(dev, &dev), CGR__DEVICE_OK);
    }
    CGR_EXPECT_OK(cgr_stream_create(dev, &stream));
    CGR_EXPECT_OK(cgr_memory_alloc(dev, 64, &rubbish_));
    *rubbish() = 0;
    cgr_group groups[2] = { CGR_GROUP_INIT, CGR_GROUP_INIT };
    for (int32_t p = 0; p < 2; p++) {
      CGR_EXPECT_OK(cgr_memory_alloc(dev, size_t(num_pages) * kPage * 4, &cache_[p]));
      groups[p].page_size = kPage, groups[p].num_pages = num_pages, groups[p].program = p;
    }
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev, config.groups = groups, config.num_groups = 2, config.num_programs = 2;
    config.max_requests = kRequests, config.max_rows = kRows, config.max_tokens = kTokens, config.max_seq_len = kSeqLen;
    config.ring_depth = kDepth, config.graph_mode = mode, config.vocab_size = kVocab, config.num_draft_tokens = kMost;
    config.on_demand = on_demand, config.max_stop_tokens = max_stop_tokens;
    CGR_EXPECT_OK(cgr_runtime_create(&config, &rt));
    for (int32_t p = 0; p < 2; p++) {
      cgr_capture capture = CaptureOf(p == 0 ? RecordTarget : RecordDraft, this);
      capture.program = p;
      CGR_EXPECT_OK(cgr_runtime_capture(rt, &capture));
    }
  }
  ~DraftEngine() {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt));
    for (void *cache : cache_)
      CGR_EXPECT_OK(cgr_memory_free(dev, cache));
    CGR_EXPECT_OK(cgr_memory_free(dev, rubbish_));
    CGR_EXPECT_OK(cgr_stream_destroy(dev, stream));
    CGR_EXPECT_OK(cgr_device_close(dev));
  }
  DraftEngine(const DraftEngine &) = delete;
  DraftEngine &operator=(const DraftEngine &) = delete;

  int32_t *rubbish() { return static_cast<int32_t *>(rubbish_); }
  // On the device.
  int32_t Length(int32_t row, int32_t program) {
    const cgr_where where = { 0, program };
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    CGR_EXPECT_OK(cgr_buffer_get(rt, &where, CGR_BUFFER_ROW_COMPUTED, 0, &view));
    EXPECT_EQ(view.shape[0], kRows + 1);
    return static_cast<const int32_t *>(view.data)[row];
  }
  // As the host knows it: at most and at least.
  std::pair<int32_t, int32_t> Bounds(int32_t row, int32_t program) {
    std::pair<int32_t, int32_t> bounds = { -1, -1 };
    CGR_EXPECT_OK(cgr_program_get_length(rt, row, program, &bounds.first, &bounds.second));
    return bounds;
  }
  int32_t Most(int32_t row, int32_t program) { return Bounds(row, program).first; }
  cgr_request_info Info(int32_t row) {
    cgr_request_info info = CGR_REQUEST_INFO_INIT;
    CGR_EXPECT_OK(cgr_request_get_info(rt, row, &info));
    return info;
  }
  void DamagePrepared() { cgr__ring_slot(&rt->lane.ring, rt->lane.prepared.seq)->num_tokens = -1; }

  cgr_device *dev = nullptr;
  cudaStream_t stream = nullptr;
  cgr_runtime *rt = nullptr;

private:
  static cgr_status ArgsOf(cgr_recorder *recorder, DraftEngine &self, int32_t program, ModelArgs *args) {
    cgr_status status = CGR_OK;
    const cgr_record_info info = InfoOf(recorder);
    EXPECT_EQ(info.key.program, program);
    auto buffer = [&](cgr_buffer which) { return RecordBuffer(recorder, which, &status); };
    auto view = [&](cgr_buffer which, int32_t index) {
      cgr_buffer_view of = CGR_BUFFER_VIEW_INIT;
      CGR_EXPECT_OK(cgr_record_buffer(recorder, which, index, &of));
      return of;
    };
    const cgr_buffer_view next = view(CGR_BUFFER_NEXT_TOKENS, 0), table = view(CGR_BUFFER_PAGE_TABLE, program);
    ModelArgs &a = *args;
    a.input_ids = buffer(CGR_BUFFER_INPUT_IDS), a.positions = buffer(CGR_BUFFER_POSITIONS);
    a.starts = buffer(CGR_BUFFER_QUERY_START_LOC), a.rows = buffer(CGR_BUFFER_REQUEST_ROWS);
    a.seq_lens = buffer(CGR_BUFFER_SEQ_LENS), a.table = static_cast<const int32_t *>(table.data);
    a.slots = static_cast<const int64_t *>(view(CGR_BUFFER_SLOT_MAPPING, program).data);
    a.num_drafts = buffer(CGR_BUFFER_NUM_DRAFTS), a.num_accepted = buffer(CGR_BUFFER_NUM_ACCEPTED);
    a.draft_tokens = buffer(CGR_BUFFER_DRAFT_TOKENS), a.next = static_cast<int32_t *>(next.data);
    a.cache = static_cast<int32_t *>(self.cache_[program]), a.rubbish = self.rubbish();
    a.table_stride = table.stride, a.num_requests = info.num_requests, a.num_tokens = info.num_tokens;
    a.stride = int32_t(next.shape[1]);
    return status;
  }
  static cgr_status RecordTarget(cgr_recorder *recorder, void *engine) {
    DraftEngine &self = *static_cast<DraftEngine *>(engine);
    ModelArgs a = {};
    const cgr_status status = ArgsOf(recorder, self, 0, &a);
    return status == CGR_OK ? cgr_launch_host(self.dev, RunTarget, &a, sizeof a, InfoOf(recorder).stream) : status;
  }
  static cgr_status RecordDraft(cgr_recorder *recorder, void *engine) {
    DraftEngine &self = *static_cast<DraftEngine *>(engine);
    DraftArgs a = {};
    cgr_status status = ArgsOf(recorder, self, 1, &a.model);
    a.logits = RecordBuffer(recorder, CGR_BUFFER_LOGITS_INDICES, &status);
    return status == CGR_OK ? cgr_launch_host(self.dev, RunDraft, &a, sizeof a, InfoOf(recorder).stream) : status;
  }

  void *cache_[2] = {}, *rubbish_ = nullptr;
};

} // namespace drafts
} // namespace cgr_test
