// An engine that guesses, with a model whose next token is a hash of all tokens before it, read through the row's pages. So its
// arithmetic does not depend on the batch, and a wrong page, length, position or token shows in every later token.
#pragma once

#include <string>
#include <vector>

#include "devices/shims/fault.h"
#include "runtime/runtime.h"
#include "tests/support/devices.h"
#include "tests/support/expect.h"
#include "tests/support/record_buffers.h"

namespace cgr_test {
namespace guesses {

enum { kRequests = 8, kRows = 12, kTokens = 64, kSeqLen = 160, kPage = 16, kDepth = 4, kVocab = 40, kMost = 3 };

using List = std::vector<int32_t>;

inline uint64_t Fold(uint64_t hash, int32_t token) {
  return (hash ^ uint64_t(uint32_t(token))) * 0x9e3779b97f4a7c15u + (hash >> 29);
}
inline int32_t NextOf(uint64_t hash) { return int32_t(hash >> 33) % kVocab; }

inline uint64_t FoldAll(const List &tokens) {
  uint64_t hash = 1;
  for (int32_t token : tokens)
    hash = Fold(hash, token);
  return hash;
}

// What follows, one token after the other.
inline List Continued(List tokens, int32_t count) {
  List more;
  for (uint64_t hash = FoldAll(tokens); int32_t(more.size()) < count; hash = Fold(hash, more.back()))
    more.push_back(NextOf(hash));
  return more;
}

struct ModelArgs {
  const int32_t *input_ids, *positions, *starts, *rows, *seq_lens, *table, *num_drafts;
  const int64_t *slots;
  int32_t *next, *num_accepted, *draft_tokens, *cache;
  const int32_t *rubbish; // 0, or what the sampler does wrong
  int64_t table_stride;
  int32_t num_requests, num_tokens, stride, reserved;
};

// The hash of the row's tokens up to this position, as the cache has them.
inline uint64_t HashOfRow(const ModelArgs &a, int32_t row, int32_t position) {
  uint64_t hash = 1;
  for (int32_t p = 0; p <= position; p++)
    hash = Fold(hash, a.cache[a.table[row * a.table_stride + p / kPage] * kPage + p % kPage]);
  return hash;
}

// Guesses of what follows, of which a quarter is wrong.
inline void Guess(const ModelArgs &a, int32_t i, uint64_t hash) {
  for (int32_t j = 0; j < a.stride - 1; j++) {
    const int32_t guess = hash % 4 == 0 ? int32_t((hash >> 20) % kVocab) : NextOf(hash);
    a.draft_tokens[i * (a.stride - 1) + j] = guess;
    hash = Fold(hash, guess);
  }
}

inline void Verify(const ModelArgs &a, int32_t i) {
  const int32_t guesses = a.stride > 1 ? a.num_drafts[i] : 0, first = a.starts[i + 1] - 1 - guesses;
  int32_t *next = a.next + i * a.stride, accepted = 0;
  uint64_t hash = HashOfRow(a, a.rows[i], a.positions[first]);
  next[0] = NextOf(hash);
  while (accepted < guesses && a.input_ids[first + 1 + accepted] == next[accepted]) {
    hash = Fold(hash, next[accepted]);
    next[++accepted] = NextOf(hash);
  }
  if (a.stride == 1)
    return;
  a.num_accepted[i] = *a.rubbish == 1 ? 1000 : *a.rubbish == 2 ? -1 : accepted;
  if (*a.rubbish == 3)
    next[0] = kVocab;
  Guess(a, i, Fold(hash, next[accepted]));
  if (*a.rubbish == 4)
    a.draft_tokens[i * (a.stride - 1)] = kVocab;
}

inline void RunModel(const void *raw) {
  const ModelArgs &a = *static_cast<const ModelArgs *>(raw);
  for (int32_t t = 0; t < a.num_tokens; t++)
    if (a.slots[t] >= 0)
      a.cache[a.slots[t]] = a.input_ids[t];
  for (int32_t i = 0; i < a.num_requests; i++)
    if (a.seq_lens[i] > 0 && a.starts[i + 1] > a.starts[i])
      Verify(a, i);
    else
      a.next[i * a.stride] = 0;
}

class GuessEngine {
public:
  // With `faults` the device is one whose calls can be made to fail.
  GuessEngine(const DeviceParam &device, int32_t num_draft_tokens, int32_t num_pages, bool faults = false,
              cgr_graph_mode mode = CGR_MODE_FULL, int32_t max_stop_tokens = 0) {
    CGR_EXPECT_OK(cgr_device_open(device.name.c_str(), &device.config, &dev));
    if (faults) {
      EXPECT_EQ(cgr__fault_open(dev, &dev), CGR__DEVICE_OK);
    }
    CGR_EXPECT_OK(cgr_stream_create(dev, &stream));
    CGR_EXPECT_OK(cgr_memory_alloc(dev, size_t(num_pages) * kPage * 4, &cache_));
    CGR_EXPECT_OK(cgr_memory_alloc(dev, 64, &rubbish_));
    *rubbish() = 0;
    cgr_group group = CGR_GROUP_INIT;
    group.page_size = kPage, group.num_pages = num_pages;
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev, config.groups = &group, config.num_groups = 1;
    config.max_requests = kRequests, config.max_rows = kRows, config.max_tokens = kTokens, config.max_seq_len = kSeqLen;
    config.ring_depth = kDepth, config.graph_mode = mode, config.vocab_size = kVocab;
    config.num_draft_tokens = num_draft_tokens, config.max_stop_tokens = max_stop_tokens;
    CGR_EXPECT_OK(cgr_runtime_create(&config, &rt));
    const cgr_capture capture = CaptureOf(Record, this);
    CGR_EXPECT_OK(cgr_runtime_capture(rt, &capture));
  }
  ~GuessEngine() {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt));
    CGR_EXPECT_OK(cgr_memory_free(dev, cache_));
    CGR_EXPECT_OK(cgr_memory_free(dev, rubbish_));
    CGR_EXPECT_OK(cgr_stream_destroy(dev, stream));
    CGR_EXPECT_OK(cgr_device_close(dev));
  }
  GuessEngine(const GuessEngine &) = delete;
  GuessEngine &operator=(const GuessEngine &) = delete;

  int32_t *rubbish() { return static_cast<int32_t *>(rubbish_); }
  int32_t Length(int32_t row) { return static_cast<const int32_t *>(BufferOf(rt, CGR_BUFFER_ROW_COMPUTED).data)[row]; }
  cgr_request_info Info(int32_t row) {
    cgr_request_info info = CGR_REQUEST_INFO_INIT;
    CGR_EXPECT_OK(cgr_request_get_info(rt, row, &info));
    return info;
  }
  // The ring slot of the prepared step becomes one that the device refuses.
  void DamagePrepared() { cgr__ring_slot(&rt->lane.ring, rt->lane.prepared.seq)->num_tokens = -1; }

  cgr_device *dev = nullptr;
  cudaStream_t stream = nullptr;
  cgr_runtime *rt = nullptr;

private:
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    GuessEngine &self = *static_cast<GuessEngine *>(engine);
    cgr_status status = CGR_OK;
    const cgr_record_info info = InfoOf(recorder);
    auto buffer = [&](cgr_buffer which) { return RecordBuffer(recorder, which, &status); };
    cgr_buffer_view next = CGR_BUFFER_VIEW_INIT, table = CGR_BUFFER_VIEW_INIT;
    CGR_EXPECT_OK(cgr_record_buffer(recorder, CGR_BUFFER_NEXT_TOKENS, 0, &next));
    CGR_EXPECT_OK(cgr_record_buffer(recorder, CGR_BUFFER_PAGE_TABLE, 0, &table));
    const bool guesses = next.shape[1] > 1;
    ModelArgs a = {};
    a.input_ids = buffer(CGR_BUFFER_INPUT_IDS), a.positions = buffer(CGR_BUFFER_POSITIONS);
    a.starts = buffer(CGR_BUFFER_QUERY_START_LOC), a.rows = buffer(CGR_BUFFER_REQUEST_ROWS);
    a.seq_lens = buffer(CGR_BUFFER_SEQ_LENS), a.table = static_cast<const int32_t *>(table.data);
    a.slots = reinterpret_cast<const int64_t *>(buffer(CGR_BUFFER_SLOT_MAPPING));
    a.num_drafts = guesses ? buffer(CGR_BUFFER_NUM_DRAFTS) : nullptr;
    a.num_accepted = guesses ? buffer(CGR_BUFFER_NUM_ACCEPTED) : nullptr;
    a.draft_tokens = guesses ? buffer(CGR_BUFFER_DRAFT_TOKENS) : nullptr;
    a.next = static_cast<int32_t *>(next.data), a.cache = static_cast<int32_t *>(self.cache_), a.rubbish = self.rubbish();
    a.table_stride = table.stride, a.num_requests = info.num_requests, a.num_tokens = info.num_tokens;
    a.stride = int32_t(next.shape[1]);
    return status == CGR_OK ? cgr_launch_host(self.dev, RunModel, &a, sizeof a, info.stream) : status;
  }

  void *cache_ = nullptr, *rubbish_ = nullptr;
};

} // namespace guesses
} // namespace cgr_test
