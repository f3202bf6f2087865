// A plain host model of what kernels/step.h says about each buffer around a step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/ring_slot.h"

namespace cgr_test {

constexpr cgr__step_error kNoError = { CGR_GUARD_NONE, -1, 0, 0, 0 };

bool SameError(const cgr__step_error &a, const cgr__step_error &b);

std::string ErrorText(const cgr__step_error &e);

void ExpectError(const cgr__step_error &got, const cgr__step_error &expected);

// What the kernels must leave in the buffers, in the readback ring and in the completion record; and the errors that may be a
// step's first.
class StepModel {
public:
  // `seq`: of the last step, before the first one of the test.
  explicit StepModel(const StepLimits &limits, uint64_t seq = 0);

  void Prologue(const StagedStep &staged);

  // `got`: the device's error after it; taken over where it may be the first.
  void Epilogue(bool abandon, const cgr__step_error &got);

  // The device's error must be one that may be the first; the model then takes it over.
  void TakeError(const cgr__step_error &got);

  const cgr__readback_layout &readback_slot() const { return b.arena().layout.readback; }

  StepBuffers b;
  Bytes readback;
  Words row_data, stops;
  cgr__completion completion;
  std::vector<cgr__step_error> candidates; // empty: no error

private:
  void Trip(int32_t error, int32_t row, int32_t index, int64_t value);
  // Refuses the whole step. It is a loss, unless the loss was counted before.
  bool Refuse(int32_t error, int32_t index, int64_t value, bool lost = true);

  // The batch layout of the step is in it afterwards.
  bool IsAcceptable(StagedStep *given);

  // Turns the step into one with a batch section. The device may see any of the bad edits first.
  bool ApplyEdits(StagedStep *step);

  static bool IsBadPage(const StepGroup &group, int32_t page);
  void ApplyChanges(const StagedStep &step);
  bool ApplyChange(const cgr__change &change);
  bool ApplyPage(size_t g, const cgr__change &change);
  void TakeBatch(const StagedStep &step);

  void Derive(const StagedStep &step);
  void DeriveRequest(const StagedStep &step, int32_t i);
  // In each set; the new tokens are added to the sequence alone.
  Words LengthsOf(int32_t i, int32_t query_len);
  void DeriveToken(const StagedStep &step, int32_t i, int32_t t, int32_t position);
  int64_t SlotOf(size_t g, int32_t row, int32_t position);

  // The row's lengths in the program of the last step, by row.
  int32_t *Computed() { return b->row_computed + program_ * (limits_.max_rows + 1); }
  // Whether request i of a draft follows the first program; how many of its tokens count.
  bool Follows(int32_t i) const { return program_ > 0 && GuessesOf(i) > 0; }
  int32_t TokensOf(int32_t i, int32_t query_len);
  int32_t CommitDraft(int32_t i);
  // What a step leaves alone: the buffers of other programs' groups.
  void KeepOthers(const StepBuffers &before);

  // The guesses that request i has, if the step runs it.
  int32_t GuessesOf(int32_t i) const;
  // What request i sampled.
  int32_t Commit(int32_t i);
  int32_t TokenOfVocabulary(int32_t i, int32_t row, int32_t token);
  bool HasEnded(int32_t row) const;
  // Why the row ends with this token, which makes it so long.
  cgr_end EndOf(int32_t row, int32_t token, int32_t length) const;

  StepLimits limits_;
  int32_t set_ = 0, program_ = 0; // of the last step
  Words first_token_;             // of each request, of a step with edits
  Words ended_;                   // of each request, where rows have stops
  bool phase_ended_ = false;
};

} // namespace cgr_test
