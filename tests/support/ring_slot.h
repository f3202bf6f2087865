// What the host stages for one step (kernels/step.h), and how it is in a ring slot.
#pragma once

#include <vector>

#include "tests/support/step_buffers.h"

namespace cgr_test {

enum { kIdsOfTokens = -2 }; // as many as there are tokens

// What the host stages for one step, and what the kernels are launched with.
struct StagedStep {
  uint64_t seq = 0, batch_seq = 0, generation = 0, staged = 0;
  int32_t num_requests = 0, num_tokens = 0;
  bool with_batch = true, with_tokens = true, with_edits = false;
  Words rows, starts, flags; // with_batch
  Words tokens;              // with_tokens
  std::vector<cgr__change> changes;
  int32_t num_changes = 0;
  std::vector<cgr__edit> edits; // with_edits; then `tokens` are theirs
  int32_t num_edits = 0, num_ids = kIdsOfTokens;
  int32_t padded_requests = 0, padded_tokens = 0;
  bool append_first = false;
  bool empty = false; // the ring slot does not count
  int32_t set = 0;    // whose tokens it has
  int32_t program = 0;
  int32_t max_query_len = 0;
};

void AddChange(StagedStep *step, int32_t kind, int32_t row, int32_t index, int32_t value);

void AddEdit(StagedStep *step, int32_t index, uint32_t flags, int32_t row, int32_t query_len, int32_t first_token);

// One declared buffer has data of rows; with num_sets 1 + kRowWords their lengths in the sets after 0.
enum { kRowBuffer = 2, kRowWords = 3, kDataChange = CGR__CHANGE_DATA | kRowBuffer << 8 };
// With stop_tokens another one has their stops: max_length, min_length, the number of stop tokens, and these.
enum { kStopsBuffer = 5, kStopsChange = CGR__CHANGE_DATA | kStopsBuffer << 8 };

inline int32_t PageChange(size_t group) { return CGR__CHANGE_PAGE | int32_t(group) << 8; }

// Writes what the step stages into the ring slot; the rest keeps what it holds.
void WriteSlot(const cgr__ring_slot_layout &layout, const StagedStep &step, unsigned char *slot);

// What a ring slot says, whatever it holds; sections only as far as they have room.
StagedStep ReadSlot(const StepLimits &limits, const cgr__ring_slot_layout &layout, const unsigned char *slot);

// Whether two changes that pass the guards name the same word: then it cannot be known which of them holds.
bool ChangesCollide(const StepLimits &limits, const StagedStep &step);

// Whether two edits name the same place; then too.
bool EditsCollide(const StagedStep &step);

} // namespace cgr_test
