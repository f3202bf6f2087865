// The model of a test's engine, as `record` enqueues it: q, k and v of each layer, the attention calls, a sampler.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "tests/support/engine_options.h"
#include "tests/support/engine_values.h"

namespace cgr_test {

enum { kRecordMagic = 0x70e57 };

struct Outputs {
  std::vector<unsigned char> out;
  std::vector<float> lse;
};

// One layer's inputs, and what its calls write.
struct RecordLayer {
  int32_t heads[3], dim[3], dtype;           // of q, k and v; out is as wide as v
  int32_t values;                            // the layer whose values they are
  int32_t set;                               // length set
  int32_t has_cache, has_own_cache, attends; // no padding: what a graph holds is compared byte by byte
  cgr_view in[3];
  size_t in_bytes[3];
  void *given[3]; // what Feed::kCopies copies to `in`
};
struct RecordCall {
  cgr_attention attention;
  size_t out_bytes, lse_bytes; // whole allocations, 0 if it has none of its own
};

// What the nodes of Feed::kNodes keep, by the number of the step; they count from 1.
class Recording {
public:
  int32_t Next() {
    std::lock_guard<std::mutex> lock(mutex_);
    return int32_t(kept_.size()) + 1;
  }
  void Keep(std::vector<Outputs> outputs) {
    std::lock_guard<std::mutex> lock(mutex_);
    kept_.push_back(std::move(outputs));
  }
  std::vector<Outputs> Get(int32_t number) {
    std::lock_guard<std::mutex> lock(mutex_);
    return kept_.at(size_t(number) - 1);
  }

private:
  std::mutex mutex_;
  std::vector<std::vector<Outputs>> kept_;
};

// Plain data, so that a test may overwrite it once everything is captured.
struct RecordState {
  int32_t magic;
  Feed feed;
  int32_t num_layers, num_calls, max_tokens, max_requests, num_sets;
  bool samples;
  int32_t fail_after; // `record` fails once it has enqueued this many things; -1: never
  cgr_status fail_status;
  cgr_device *device;
  RecordLayer layer[kMaxLayers];
  RecordCall call[kMaxCalls];
  const int32_t *input_ids, *positions, *logits_indices;
  int32_t *next_tokens;
  const int32_t *token_table; // of the feeds without a sampler
  Recording *recording;
  // Called before anything is enqueued, and after each thing, with the number of things so far.
  std::function<cgr_status(cgr_recorder *, const cgr_record_info &, int32_t)> *hook;
  std::vector<cgr_record_info> *records;
  std::function<void(size_t, cgr_attention *)> *adjust_call;
};

// Call `c` as steps of a length set make it; false: they do not. A layer of a set after 0 takes part in the steps of its set,
// where it only appends unless it `attends` or has no cache, and in those of the sequences, whose queries see its cache.
bool CallInSet(const RecordState &state, int32_t c, int32_t set, cgr_attention *call);

// A cgr_record_function; `engine` is a RecordState.
cgr_status Record(cgr_recorder *recorder, void *engine);

// Calls of Record with a state that has been overwritten.
int &OverwrittenRecords();

// Fills q, k or v of a layer for tokens [0, count), and everything outside them with 0xff; `entry` names the values of a token.
void FillInput(const RecordLayer &layer, Tensor which, int32_t count, const std::function<Entry(int32_t)> &entry, void *to);

} // namespace cgr_test
