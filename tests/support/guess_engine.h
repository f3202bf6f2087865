// An engine that guesses, with the model of guess_kernels.h.
#pragma once

#include <string>
#include <vector>

#include "devices/shims/fault.h"
#include "runtime/runtime.h"
#include "tests/support/devices.h"
#include "tests/support/expect.h"
#include "tests/support/guess_arithmetic.h"
#include "tests/support/record_buffers.h"

namespace cgr_test {
namespace guesses {

enum { kRequests = 8, kRows = 12, kTokens = 64, kSeqLen = 160, kDepth = 4, kMost = 3 };

using List = std::vector<int32_t>;

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

class GuessEngine {
public:
  // With `faults` the device is one whose calls can be made to fail.
  GuessEngine(const DeviceParam &device, int32_t num_draft_tokens, int32_t num_pages, bool faults = false,
              cgr_graph_mode mode = CGR_MODE_FULL, int32_t max_stop_tokens = 0)
      : on_cuda_(device.IsCuda()) {
    CGR_EXPECT_OK(cgr_device_open(device.name.c_str(), &device.config, &dev));
    if (faults) {
      EXPECT_EQ(cgr__fault_open(dev, &dev), CGR__DEVICE_OK);
    }
    CGR_EXPECT_OK(cgr_stream_create(dev, &stream));
    CGR_EXPECT_OK(cgr_memory_alloc(dev, size_t(num_pages) * kPage * 4, &cache_));
    CGR_EXPECT_OK(cgr_memory_alloc_pinned(dev, sizeof(Pinned), &pinned_));
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
    if (on_cuda_) // loads the engine's kernel
      CGR_EXPECT_OK(cgr_runtime_warmup(rt, &capture));
    CGR_EXPECT_OK(cgr_runtime_capture(rt, &capture));
  }
  ~GuessEngine() {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt));
    CGR_EXPECT_OK(cgr_memory_free(dev, cache_));
    CGR_EXPECT_OK(cgr_memory_free_pinned(dev, pinned_));
    CGR_EXPECT_OK(cgr_stream_destroy(dev, stream));
    CGR_EXPECT_OK(cgr_device_close(dev));
  }
  GuessEngine(const GuessEngine &) = delete;
  GuessEngine &operator=(const GuessEngine &) = delete;

  int32_t *rubbish() { return &static_cast<Pinned *>(pinned_)->rubbish; }
  // Of the device, after the steps that have been waited for.
  int32_t Length(int32_t row) {
    const int32_t *length = static_cast<const int32_t *>(BufferOf(rt, CGR_BUFFER_ROW_COMPUTED).data) + row;
    if (!on_cuda_)
      return *length;
    int32_t *copy = &static_cast<Pinned *>(pinned_)->copy;
    CGR_EXPECT_OK(cgr_copy(dev, copy, length, sizeof *copy, stream));
    CGR_EXPECT_OK(cgr_stream_synchronize(dev, stream));
    return *copy;
  }
  cgr_request_info Info(int32_t row) {
    cgr_request_info info = CGR_REQUEST_INFO_INIT;
    CGR_EXPECT_OK(cgr_request_get_info(rt, row, &info));
    return info;
  }
  // Its first change becomes one that the device drops.
  void DamageChange() {
    cgr__ring_slot_header *slot = cgr__ring_slot(&rt->lane.ring, rt->lane.prepared.seq);
    ASSERT_GT(slot->num_changes, 0);
    cgr__ring_changes(&rt->lane.ring, slot)->kind = 77;
  }
  // The ring slot of the prepared step becomes one that the device refuses.
  void DamagePrepared() { cgr__ring_slot(&rt->lane.ring, rt->lane.prepared.seq)->num_tokens = -1; }

  cgr_device *dev = nullptr;
  cudaStream_t stream = nullptr;
  cgr_runtime *rt = nullptr;

private:
  struct Pinned {
    int32_t rubbish, copy;
  };
  struct CallArgs {
    ModelArgs model;
    cgr_device *device;
    bool on_cuda;
  };

  // A break of PIECEWISE graphs.
  static cgr_status Call(cgr_recorder *recorder, const void *raw) {
    const CallArgs &args = *static_cast<const CallArgs *>(raw);
    return EnqueueModel(args.device, args.on_cuda, args.model, InfoOf(recorder).stream);
  }
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
    const CallArgs args = { a, self.dev, self.on_cuda_ };
    return status == CGR_OK ? cgr_record_call(recorder, Call, &args, sizeof args) : status;
  }

  const bool on_cuda_;
  void *cache_ = nullptr, *pinned_ = nullptr;
};

} // namespace guesses
} // namespace cgr_test
