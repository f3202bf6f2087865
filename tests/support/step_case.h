// The kernels around a step (prologue, epilogue) on a device, next to the model. A test stages a ring slot, runs a kernel in
// both, and compares every buffer.
#pragma once

#include <memory>
#include <vector>

#include "tests/support/step_model.h"

namespace cgr_test {

// Page tables of two groups, the second with other trash pages; decodes have at most four tokens.
StepLimits TwoGroups();

// The first entries of a buffer.
template <class T> std::vector<T> First(const T *from, int count) { return std::vector<T>(from, from + count); }

// ------------------------------------------------------------------------------------------------------------------ device

// The same on a device.
class StepDevice {
public:
  StepDevice(Bench &bench, const StepLimits &limits, const StepModel &first);

  void Put(const StepBuffers &b) { buffers_.Put(b.image()); }
  StepBuffers Get() const;
  unsigned char *slot(uint64_t seq) { return staging_.data() + int64_t(seq % uint64_t(limits_.ring_depth)) * slot_.stride; }
  const cgr__ring_slot_layout &slot_layout() const { return slot_; }
  unsigned char *staging() { return staging_.data(); }
  Bytes Readback() const { return readback_.Get(); }
  Words RowData() const { return row_data_.Get(); }
  Words Stops() const { return stops_.Get(); }
  const unsigned char *readback(uint64_t seq) const;
  cgr__completion *completion() { return completion_.data(); }

  cgr__step_args Args(int32_t padded_requests, int32_t padded_tokens);

private:
  StepLimits limits_;
  cgr__ring_slot_layout slot_;
  cgr__readback_layout readback_slot_;
  std::shared_ptr<const StepArena> arena_;
  GuardedMemory buffers_;
  Array<unsigned char> staging_, readback_;
  Array<cgr__completion> completion_;
  Array<int32_t> row_data_; // [max_rows + 1][kRowWords]
  Array<int32_t> stops_;    // [max_rows + 1][StopWords()]
};

// ----------------------------------------------------------------------------------------------------------- side by side

// Model and device, side by side.
class StepPair {
public:
  StepPair(Bench &bench, const StepLimits &limits) : StepPair(bench, limits, StepModel(limits)) {}
  StepPair(Bench &bench, const StepLimits &limits, const StepModel &first)
      : model(first), device(bench, limits, first), bench_(bench), limits_(limits) {}

  // A good step of these rows, padded as asked.
  StagedStep Step(const Words &rows, const Words &query_lens, int32_t padded_requests, int32_t padded_tokens);
  // The batch that is on the device, and no tokens.
  StagedStep Unchanged(int32_t num_requests, int32_t num_tokens, int32_t padded_requests, int32_t padded_tokens);

  // Stages and runs a prologue in both and compares.
  void Prologue(const StagedStep &step);
  // The same with whatever bytes are in the ring slot. If the contract leaves open what they mean, the model takes it from the
  // device.
  void PrologueOfSlot(int32_t padded_requests, int32_t padded_tokens);
  // With `empty`: the ring slot is not read, whatever is in it.
  void EmptyPrologue(int32_t padded_requests, int32_t padded_tokens, bool with_staging);
  void Epilogue(bool abandon = false);
  // Runs the fetch of the next step, as the step before does while its own epilogue has not counted it yet. The model takes over
  // the inbox. Returns whether the inbox has the ring slot now.
  bool Fetch();
  void PrologueAndEpilogue(const StagedStep &step);

  // Copies what the test has changed in the model's buffers to the device.
  void Upload() { device.Put(model.b); }
  void PutNextTokens(const Words &tokens);

  const cgr__step_error &error() { return model.b.state().error; }
  uint64_t NextSeq() { return model.b.state().seq + 1; }
  int32_t num_requests() const { return model.b->counts[CGR_COUNT_REQUESTS]; }

  StepModel model;
  StepDevice device;
  bool fetches = false; // each ring slot is fetched before its step

private:
  void RunPrologue(const StagedStep &step, const cgr__step_args &args);
  void Adopt(StepBuffers &got, const StagedStep &step);
  // The readback ring and the completion record, every byte of them.
  void ExpectPublished();
  // Whether two requests commit to one row.
  bool RowsRepeat();

  Bench &bench_;
  StepLimits limits_;
  cgr__step_args args_{};
};

// The result of a step, as the host reads it.
struct StepResult {
  cgr__result_record record;
  Words num_tokens, tokens;
};
StepResult ReadResult(const StepPair &pair, const StepLimits &limits, uint64_t seq);

} // namespace cgr_test
