// The kernels around a step (prologue, epilogue) on a device, and next to them a plain host model of what kernels/step.h says
// about each buffer. A test stages a slot, runs a kernel in both, and compares every buffer.
#ifndef CGR_TESTS_SUPPORT_STEP_CASE_H
#define CGR_TESTS_SUPPORT_STEP_CASE_H

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cgr/names.h"
#include "tests/support/step_buffers.h"

namespace cgr_test {

// Page tables of two groups, the second with other trash pages; decodes have at most four tokens.
inline StepLimits TwoGroups() {
  StepLimits limits;
  limits.reorder_threshold = 4;
  limits.groups = { { 16, 0, 1, 0, 100, 20, 0 }, { 64, 7, 0, 0, 30, 5, 0 } };
  return limits;
}

// The first entries of a buffer.
template <class T> std::vector<T> First(const T *from, int count) { return std::vector<T>(from, from + count); }

// ------------------------------------------------------------------------------------------------------------------- slots

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
  bool empty = false; // the slot does not count
  int32_t set = 0;    // whose tokens it has
  int32_t max_query_len = 0;
};

inline void AddChange(StagedStep *step, int32_t kind, int32_t row, int32_t index, int32_t value) {
  step->changes.push_back({ kind, row, index, value });
  step->num_changes++;
}

inline void AddEdit(StagedStep *step, int32_t index, uint32_t flags, int32_t row, int32_t query_len, int32_t first_token) {
  step->with_edits = true;
  step->edits.push_back({ int32_t(uint32_t(index) | flags << 16), row, query_len, first_token });
  step->num_edits++;
}

// One declared buffer has data of rows; with num_sets 1 + kRowWords their lengths in the sets after 0.
enum { kRowBuffer = 2, kRowWords = 3, kDataChange = CGR__CHANGE_DATA | kRowBuffer << 8 };

inline int32_t PageChange(size_t group) { return CGR__CHANGE_PAGE | int32_t(group) << 8; }

// Writes what the step stages into the slot; the rest keeps what it holds.
inline void WriteSlot(const cgr__slot_layout &layout, const StagedStep &step, unsigned char *slot) {
  cgr__slot_header header = {};
  header.seq = step.seq;
  header.batch_seq = step.batch_seq;
  header.generation = step.generation;
  header.num_requests = step.num_requests;
  header.num_tokens = step.num_tokens;
  header.num_changes = step.num_changes;
  header.num_edits = step.num_edits;
  header.num_ids = step.num_ids != kIdsOfTokens ? step.num_ids : step.with_edits ? int32_t(step.tokens.size()) : 0;
  header.staged = step.staged;
  if (step.with_batch)
    header.flags |= CGR__SLOT_BATCH;
  if (step.with_tokens)
    header.flags |= CGR__SLOT_TOKENS;
  if (step.with_edits)
    header.flags |= CGR__SLOT_EDITS;
  if (step.append_first)
    header.flags |= CGR__SLOT_APPEND_FIRST;
  std::memcpy(slot, &header, sizeof header);
  auto put = [&](int64_t at, const void *from, size_t bytes) {
    if (bytes > 0)
      std::memcpy(slot + at, from, bytes);
  };
  Words words = step.rows;
  words.insert(words.end(), step.starts.begin(), step.starts.end());
  words.insert(words.end(), step.flags.begin(), step.flags.end());
  if (step.with_batch)
    put(layout.batch, words.data(), words.size() * 4);
  if (step.with_tokens || step.with_edits)
    put(layout.tokens, step.tokens.data(), step.tokens.size() * 4);
  put(layout.changes, step.changes.data(), step.changes.size() * sizeof(cgr__change));
  put(layout.edits, step.edits.data(), step.edits.size() * sizeof(cgr__edit));
}

// What a slot says, whatever it holds; sections only as far as they have room.
inline StagedStep ReadSlot(const StepLimits &limits, const cgr__slot_layout &layout, const unsigned char *slot) {
  cgr__slot_header header;
  std::memcpy(&header, slot, sizeof header);
  StagedStep step;
  step.seq = header.seq;
  step.batch_seq = header.batch_seq;
  step.generation = header.generation;
  step.num_requests = header.num_requests;
  step.num_tokens = header.num_tokens;
  step.num_changes = header.num_changes;
  step.num_edits = header.num_edits;
  step.staged = header.staged;
  step.with_batch = (header.flags & CGR__SLOT_BATCH) != 0;
  step.with_tokens = (header.flags & CGR__SLOT_TOKENS) != 0;
  step.with_edits = (header.flags & CGR__SLOT_EDITS) != 0;
  step.append_first = (header.flags & CGR__SLOT_APPEND_FIRST) != 0;
  auto words = [&](int64_t at, int64_t count) {
    Words content;
    content.resize(size_t(count));
    if (count > 0)
      std::memcpy(content.data(), slot + at, content.size() * 4);
    return content;
  };
  int64_t n = header.num_requests;
  if (step.with_batch && n >= 0 && n <= limits.max_requests) {
    step.rows = words(layout.batch, n);
    step.starts = words(layout.batch + 4 * n, n + 1);
    step.flags = words(layout.batch + 4 * (2 * n + 1), n);
  }
  step.tokens = words(layout.tokens, limits.max_tokens);
  for (int32_t c = 0; header.num_changes <= limits.max_changes && c < header.num_changes; c++) {
    Words change = words(layout.changes + 16 * c, 4);
    step.changes.push_back({ change[0], change[1], change[2], change[3] });
  }
  for (int32_t e = 0; header.num_edits <= limits.max_requests && e < header.num_edits; e++) {
    Words edit = words(layout.edits + 16 * e, 4);
    step.edits.push_back({ edit[0], edit[1], edit[2], edit[3] });
  }
  return step;
}

// Whether two changes that pass the guards name the same word: then it cannot be known which of them holds.
inline bool ChangesCollide(const StepLimits &limits, const StagedStep &step) {
  std::set<std::tuple<int32_t, int32_t, int32_t>> words;
  for (const cgr__change &change : step.changes) {
    bool indexed = (change.kind & 0xff) == CGR__CHANGE_PAGE || change.kind == kDataChange;
    if (change.row < 0 || change.row >= limits.max_rows || (!indexed && change.kind != CGR__CHANGE_COMPUTED))
      continue;
    if (!words.insert({ change.kind, change.row, indexed ? change.index : 0 }).second)
      return true;
  }
  return false;
}

// Whether two edits name the same place; then too.
inline bool EditsCollide(const StagedStep &step) {
  std::set<int32_t> places;
  for (const cgr__edit &edit : step.edits)
    if (step.with_edits && !places.insert(edit.place & 0xffff).second)
      return true;
  return false;
}

// ------------------------------------------------------------------------------------------------------------------ errors

constexpr cgr__step_error kNoError = { CGR_GUARD_NONE, -1, 0, 0, 0 };

inline bool SameError(const cgr__step_error &a, const cgr__step_error &b) {
  return a.error == b.error && a.row == b.row && a.index == b.index && a.value == b.value;
}

inline std::string ErrorText(const cgr__step_error &e) {
  return std::string(cgr_guard_error_name(cgr_guard_error(e.error))) + " row " + std::to_string(e.row) + " index " +
         std::to_string(e.index) + " value " + std::to_string(e.value);
}

inline void ExpectError(const cgr__step_error &got, const cgr__step_error &expected) {
  EXPECT_TRUE(SameError(got, expected)) << "reported " << ErrorText(got) << ", expected " << ErrorText(expected);
}

// ------------------------------------------------------------------------------------------------------------------- model

// What the kernels must leave in the buffers, in the readback ring and in the completion record; and the errors that may be a
// step's first.
class StepModel {
public:
  // `seq`: of the last step, before the first one of the test.
  explicit StepModel(const StepLimits &limits, uint64_t seq = 0) : b(std::make_shared<StepArena>(limits)), limits_(limits) {
    std::fill_n(b->step_state, 16, 0);
    b.state().seq = seq;
    b.state().error = kNoError;
    std::fill_n(b->row_computed, limits.max_rows + 1, 0);
    for (size_t g = 0; g < limits.groups.size(); g++)
      std::fill_n(b->group[g].page_table, (limits.max_rows + 1) * limits.groups[g].stride, limits.groups[g].read_trash);
    row_data.assign(size_t(limits.max_rows + 1) * kRowWords, limits.num_sets > 1 ? 0 : -77);
    readback.assign(size_t(readback_slot().stride * limits.ring_depth), kPoisonByte);
    std::memset(&completion, kPoisonByte, sizeof completion);
  }

  void Prologue(const StagedStep &staged) {
    candidates.clear();
    phase_ended_ = false;
    b.state().lost = 0;
    set_ = staged.set;
    StagedStep step = staged;
    if (!step.empty && IsAcceptable(&step)) {
      ApplyChanges(step);
      TakeBatch(step);
    } else {
      b.state().batch_seq = 0;
      step.num_requests = step.num_tokens = 0;
      step.append_first = false;
      step.staged = 0;
    }
    b.state().staged = step.staged;
    Derive(step);
  }

  void Epilogue(bool abandon) {
    cgr__step_state &state = b.state();
    uint64_t seq = ++state.seq;
    int32_t n = abandon ? 0 : b->counts[CGR_COUNT_REQUESTS];
    state.errors += state.error.error != CGR_GUARD_NONE;
    state.generation += uint64_t(state.lost);
    unsigned char *slot = readback.data() + int64_t(seq % uint64_t(limits_.ring_depth)) * readback_slot().stride;
    for (int32_t i = 0; i < n; i++) {
      int32_t sampled = Commit(i);
      std::memcpy(slot + readback_slot().num_tokens + 4 * i, &sampled, 4);
    }
    std::memcpy(slot + readback_slot().tokens, b->next_tokens, size_t(n) * size_t(limits_.token_stride) * 4);
    for (int32_t i = 0; limits_.values && i < n; i++) {
      const uint64_t word = uint64_t(b->value_flags[i]);
      const uint32_t bits = word >> 16 == seq ? uint32_t(word & 0xffff) : 0;
      std::memcpy(slot + readback_slot().values + 4 * i, &bits, 4);
    }
    cgr__result_record record = {};
    record.seq = seq;
    record.num_requests = n;
    record.error = state.error.error;
    record.error_row = state.error.row;
    record.error_index = state.error.index;
    record.error_value = state.error.value;
    std::memcpy(slot, &record, sizeof record);
    completion.completed_seq = seq;
    completion.errors = state.errors;
    completion.generation = state.generation;
  }

  // The device's error must be one that may be the first; the model then takes it over.
  void TakeError(const cgr__step_error &got) {
    bool allowed = candidates.empty() && SameError(got, kNoError);
    std::string expected = candidates.empty() ? "none" : "one of:";
    for (const cgr__step_error &candidate : candidates) {
      allowed = allowed || SameError(got, candidate);
      expected += "\n  " + ErrorText(candidate);
    }
    EXPECT_TRUE(allowed) << "reported " << ErrorText(got) << ", expected " << expected;
    b.state().error = got;
  }

  const cgr__readback_layout &readback_slot() const { return b.arena().layout.readback; }

  StepBuffers b;
  Bytes readback;
  Words row_data;
  cgr__completion completion;
  std::vector<cgr__step_error> candidates; // empty: no error

private:
  void Trip(int32_t error, int32_t row, int32_t index, int64_t value) {
    if (!phase_ended_)
      candidates.push_back({ error, row, index, 0, value });
  }
  // Refuses the whole step. It is a loss, unless the loss was counted before.
  bool Refuse(int32_t error, int32_t index, int64_t value, bool lost = true) {
    b.state().lost = lost;
    Trip(error, -1, index, value);
    return false;
  }

  // The batch layout of the step is in it afterwards.
  bool IsAcceptable(StagedStep *given) {
    StagedStep &step = *given;
    const cgr__step_state &state = b.state();
    if (step.seq != state.seq + 1)
      return Refuse(CGR_GUARD_SEQUENCE, 0, int64_t(step.seq));
    if (step.generation != state.generation)
      return Refuse(CGR_GUARD_SEQUENCE, 2, int64_t(step.generation), false);
    if (step.num_requests < 0 || step.num_requests > std::min(limits_.max_requests, step.padded_requests))
      return Refuse(CGR_GUARD_COUNT, 0, step.num_requests);
    if (step.num_tokens < 0 || step.num_tokens > std::min(limits_.max_tokens, step.padded_tokens))
      return Refuse(CGR_GUARD_COUNT, 1, step.num_tokens);
    if (!step.with_batch && (state.batch_seq == 0 || step.batch_seq != state.batch_seq))
      return Refuse(CGR_GUARD_SEQUENCE, 1, int64_t(step.batch_seq));
    if (step.with_edits && !ApplyEdits(&step))
      return false;
    Words starts = step.starts;
    if (!step.with_batch)
      starts.assign(b->query_start_loc, b->query_start_loc + step.num_requests + 1);
    for (int32_t i = 0; i <= step.num_requests; i++)
      if (i == 0 ? starts[0] != 0
                 : starts[i] < starts[i - 1] ||
                       (step.max_query_len > 0 && int64_t{ starts[i] } - starts[i - 1] > step.max_query_len))
        return Refuse(CGR_GUARD_COUNT, 2 + i, starts[i]);
    if (starts.back() != step.num_tokens)
      return Refuse(CGR_GUARD_COUNT, 2 + step.num_requests, starts.back());
    return true;
  }

  // Turns the step into one with a batch section. The device may see any of the bad edits first.
  bool ApplyEdits(StagedStep *step) {
    const size_t n = size_t(step->num_requests);
    if (step->num_edits < 0 || step->num_edits > limits_.max_requests)
      return Refuse(CGR_GUARD_CHANGE, -2, step->num_edits);
    if (!step->with_batch) {
      step->rows.assign(b->request_rows, b->request_rows + n);
      step->starts.assign(b->query_start_loc, b->query_start_loc + n + 1);
      step->flags.assign(b->request_flags, b->request_flags + n);
    }
    std::vector<uint32_t> lens(n);
    for (size_t i = 0; i < n; i++)
      lens[i] = uint32_t(step->starts[i + 1]) - uint32_t(step->starts[i]);
    first_token_.assign(n, -1);
    bool good = true;
    for (int32_t e = 0; e < step->num_edits; e++) {
      const cgr__edit &edit = step->edits[size_t(e)];
      const size_t i = size_t(edit.place & 0xffff);
      bool fits =
          edit.first_token == -1 || (edit.first_token >= 0 && int64_t{ edit.first_token } + edit.query_len <= limits_.max_tokens);
      if (i >= n || edit.query_len < 0 || !fits) {
        good = Refuse(CGR_GUARD_CHANGE, limits_.max_changes + e, edit.place);
        continue;
      }
      step->rows[i] = edit.row;
      step->flags[i] = int32_t(uint32_t(edit.place) >> 16);
      lens[i] = uint32_t(edit.query_len);
      first_token_[i] = edit.first_token;
    }
    for (size_t i = 0; i < n; i++)
      step->starts[i + 1] = int32_t(uint32_t(step->starts[i]) + lens[i]);
    step->with_batch = true;
    return good;
  }

  static bool IsBadPage(const StepGroup &group, int32_t page) {
    return page < 0 || page >= group.num_pages || page == group.write_trash;
  }
  void ApplyChanges(const StagedStep &step) {
    if (step.num_changes < 0 || step.num_changes > limits_.max_changes) {
      b.state().lost = 1;
      Trip(CGR_GUARD_CHANGE, -1, -1, step.num_changes);
    } else {
      for (int32_t c = 0; c < step.num_changes; c++)
        if (!ApplyChange(step.changes[c])) {
          b.state().lost = 1;
          Trip(CGR_GUARD_CHANGE, -1, c, step.changes[c].kind);
        }
    }
    phase_ended_ = !candidates.empty(); // what comes later cannot be first
  }
  bool ApplyChange(const cgr__change &change) {
    if (change.row < 0 || change.row >= limits_.max_rows)
      return false;
    if (change.kind == CGR__CHANGE_COMPUTED) {
      b->row_computed[change.row] = change.value;
      b->row_num_accepted[change.row] = 0;
      return true;
    }
    if (change.kind == kDataChange && change.index >= 0 && change.index < kRowWords) {
      row_data[size_t(change.row * kRowWords + change.index)] = change.value;
      return true;
    }
    for (size_t g = 0; g < limits_.groups.size(); g++)
      if (change.kind == PageChange(g))
        return ApplyPage(g, change);
    return false;
  }
  bool ApplyPage(size_t g, const cgr__change &change) {
    const StepGroup &group = limits_.groups[g];
    if (group.engine_table || change.index < 0 || change.index >= group.stride)
      return false;
    bool bad = IsBadPage(group, change.value);
    if (bad)
      Trip(CGR_GUARD_PAGE, change.row, change.index, change.value);
    b->group[g].page_table[change.row * group.stride + change.index] = bad ? group.read_trash : change.value;
    return true;
  }
  void TakeBatch(const StagedStep &step) {
    if (!step.with_batch)
      return;
    b.state().batch_seq = step.seq;
    std::copy(step.starts.begin(), step.starts.end(), b->query_start_loc);
    std::copy(step.rows.begin(), step.rows.end(), b->request_rows);
    std::copy(step.flags.begin(), step.flags.end(), b->request_flags);
  }

  void Derive(const StagedStep &step) {
    b->query_start_loc[0] = 0;
    for (size_t g = 0; g < limits_.groups.size(); g++)
      b->group[g].kv_indptr[0] = 0;
    for (int32_t i = 0; i < step.num_requests; i++)
      DeriveRequest(step, i);
    FillPadding({ step.num_requests, step.num_tokens, step.padded_requests, step.padded_tokens }, &b);
    std::fill(b->input_ids + step.num_tokens, b->input_ids + step.padded_tokens, b.state().padding_token);
    b->counts[CGR_COUNT_REQUESTS] = step.num_requests;
    b->counts[CGR_COUNT_TOKENS] = step.num_tokens;
    b->counts[CGR_COUNT_PADDED_REQUESTS] = step.padded_requests;
    b->counts[CGR_COUNT_PADDED_TOKENS] = step.padded_tokens;
    const Words starts(b->query_start_loc, b->query_start_loc + step.num_requests + 1);
    const auto prefill =
        std::adjacent_find(starts.begin(), starts.end(), [&](int32_t a, int32_t z) { return z - a > limits_.reorder_threshold; });
    const auto decodes = std::min(prefill, starts.end() - 1) - starts.begin();
    b->counts[CGR_COUNT_DECODES] = limits_.reorder_threshold > 0 ? int32_t(decodes) : 0;
    b->counts[CGR_COUNT_DECODE_TOKENS] = limits_.reorder_threshold > 0 ? starts[size_t(decodes)] : 0;
    b->counts[CGR_COUNT_APPEND_FIRST] = step.append_first;
  }
  void DeriveRequest(const StagedStep &step, int32_t i) {
    int32_t start = b->query_start_loc[i], query_len = b->query_start_loc[i + 1] - start;
    const Words lengths = LengthsOf(i, query_len);
    for (int32_t s = 0; s < limits_.num_sets; s++)
      b->seq_lens[s][i] = lengths[size_t(s)];
    b->logits_indices[i] = query_len > 0 ? start + query_len - 1 : 0;
    for (size_t g = 0; g < limits_.groups.size(); g++) {
      cgr__group_buffers &group = b->group[g];
      int32_t seq_len = lengths[size_t(limits_.groups[g].set)];
      int32_t size = limits_.groups[g].page_size, pages = (seq_len + size - 1) / size;
      group.kv_indptr[i + 1] = group.kv_indptr[i] + pages;
      group.kv_last_page_len[i] = pages == 0 ? 1 : seq_len - (pages - 1) * size;
    }
    for (int32_t j = 0; j < query_len; j++)
      DeriveToken(step, i, start + j, lengths[size_t(set_)] - query_len + j);
  }
  // In each set; the new tokens are added to the sequence alone.
  Words LengthsOf(int32_t i, int32_t query_len) {
    const Words none(size_t(limits_.num_sets), 0);
    Words lengths;
    int32_t row = b->request_rows[i];
    if (row < 0 || row >= limits_.max_rows) {
      Trip(CGR_GUARD_ROW, -1, i, row);
      return none;
    }
    for (int32_t s = 0; s < limits_.num_sets; s++) {
      const int32_t has = s == 0 ? b->row_computed[row] : row_data[size_t(row * kRowWords + s - 1)];
      const int64_t length = s == 0 && set_ == 0 ? int64_t{ has } + query_len : has;
      if (has < 0 || length > limits_.MaxLen(s) || (s > 0 && s == set_ && has < query_len)) {
        Trip(CGR_GUARD_LENGTH, row, i, length);
        return none;
      }
      lengths.push_back(int32_t(length));
    }
    return lengths;
  }
  void DeriveToken(const StagedStep &step, int32_t i, int32_t t, int32_t position) {
    bool refused = b->seq_lens[set_][i] == 0;
    int32_t token = step.with_tokens && !step.with_edits ? step.tokens[t] : CGR_TOKEN_LAST;
    if (step.with_edits && first_token_[size_t(i)] >= 0)
      token = step.tokens[size_t(first_token_[size_t(i)] + t - b->query_start_loc[i])];
    if (!refused && token == CGR_TOKEN_LAST)
      token = b->row_last_tokens[b->request_rows[i] * limits_.token_stride];
    b->input_ids[t] = refused ? 0 : token;
    b->positions[t] = refused ? 0 : position;
    for (size_t g = 0; g < limits_.groups.size(); g++)
      b->group[g].slot_mapping[t] = refused || limits_.groups[g].set != set_ ? -1 : SlotOf(g, b->request_rows[i], position);
  }
  int64_t SlotOf(size_t g, int32_t row, int32_t position) {
    const StepGroup &group = limits_.groups[g];
    int32_t index = position / group.page_size;
    int32_t page = index < group.stride ? b->group[g].page_table[row * group.stride + index] : -1;
    if (!IsBadPage(group, page) && page != group.read_trash)
      return int64_t{ page } * group.page_size + position % group.page_size;
    Trip(CGR_GUARD_PAGE, row, index, page);
    return -1;
  }

  // What request i sampled.
  int32_t Commit(int32_t i) {
    int32_t row = b->request_rows[i];
    if (set_ > 0 || b->seq_lens[0][i] == 0 || b->query_start_loc[i] == b->query_start_loc[i + 1])
      return 0;
    b->row_computed[row] = b->seq_lens[0][i];
    if (b->request_flags[i] & CGR_REQUEST_PARTIAL)
      return 0;
    b->row_last_tokens[row * limits_.token_stride] = b->next_tokens[i * limits_.token_stride];
    return 1;
  }

  StepLimits limits_;
  int32_t set_ = 0;   // of the last step
  Words first_token_; // of each request, of a step with edits
  bool phase_ended_ = false;
};

// ------------------------------------------------------------------------------------------------------------------ device

// The same on a device.
class StepDevice {
public:
  StepDevice(Bench &bench, const StepLimits &limits, const StepModel &first)
      : limits_(limits), slot_(first.b.arena().layout.slot), readback_slot_(first.b.arena().layout.readback),
        arena_(std::make_shared<StepArena>(first.b.arena())), buffers_(bench, arena_->places, CGR__MEMORY_DEVICE),
        staging_(bench, size_t(slot_.stride * limits.ring_depth), CGR__MEMORY_PINNED),
        readback_(bench, first.readback, CGR__MEMORY_PINNED), completion_(bench, 1, CGR__MEMORY_PINNED),
        row_data_(bench, first.row_data) {
    Put(first.b);
  }

  void Put(const StepBuffers &b) { buffers_.Put(b.image()); }
  StepBuffers Get() const {
    Bytes image = buffers_.Get();
    buffers_.ExpectGuards(image);
    return StepBuffers(arena_, image);
  }
  unsigned char *slot(uint64_t seq) { return staging_.data() + int64_t(seq % uint64_t(limits_.ring_depth)) * slot_.stride; }
  const cgr__slot_layout &slot_layout() const { return slot_; }
  unsigned char *staging() { return staging_.data(); }
  Bytes Readback() const { return readback_.Get(); }
  Words RowData() const { return row_data_.Get(); }
  const unsigned char *readback(uint64_t seq) const {
    return readback_.data() + int64_t(seq % uint64_t(limits_.ring_depth)) * readback_slot_.stride;
  }
  cgr__completion *completion() { return completion_.data(); }

  cgr__step_args Args(int32_t padded_requests, int32_t padded_tokens) {
    cgr__step_args a = {};
    a.staging = staging_.data();
    a.readback = readback_.data();
    a.completion = completion_.data();
    a.slot = slot_;
    a.readback_slot = readback_slot_;
    a.ring_depth = limits_.ring_depth;
    a.max_requests = limits_.max_requests;
    a.max_rows = limits_.max_rows;
    a.max_tokens = limits_.max_tokens;
    for (int32_t s = 0; s < limits_.num_sets; s++)
      a.max_lens[s] = limits_.MaxLen(s);
    a.max_changes = limits_.max_changes;
    a.token_stride = limits_.token_stride;
    a.reorder_threshold = limits_.reorder_threshold;
    a.padded_requests = padded_requests;
    a.padded_tokens = padded_tokens;
    a.num_groups = int32_t(limits_.groups.size());
    a.buffers = arena_->View(buffers_.base());
    a.state = reinterpret_cast<cgr__step_state *>(a.buffers.step_state);
    a.rows[kRowBuffer] = { row_data_.data(), kRowWords };
    a.num_sets = limits_.num_sets;
    a.lengths = limits_.num_sets > 1 ? row_data_.data() : nullptr;
    for (size_t g = 0; g < limits_.groups.size(); g++) {
      const StepGroup &group = limits_.groups[g];
      a.group[g] = { group.page_size, group.read_trash, group.write_trash, group.engine_table,
                     group.num_pages, group.stride,     group.set,         0 };
    }
    // A missing group looks like a real one, so that only its number can keep a kernel away.
    for (size_t g = limits_.groups.size(); g < CGR__MAX_GROUPS; g++) {
      a.group[g] = a.group[0];
      a.buffers.group[g] = a.buffers.group[0];
    }
    return a;
  }

private:
  StepLimits limits_;
  cgr__slot_layout slot_;
  cgr__readback_layout readback_slot_;
  std::shared_ptr<const StepArena> arena_;
  GuardedMemory buffers_;
  Array<unsigned char> staging_, readback_;
  Array<cgr__completion> completion_;
  Array<int32_t> row_data_; // [max_rows + 1][kRowWords]
};

// ----------------------------------------------------------------------------------------------------------- side by side

// Model and device, side by side.
class StepPair {
public:
  StepPair(Bench &bench, const StepLimits &limits) : StepPair(bench, limits, StepModel(limits)) {}
  StepPair(Bench &bench, const StepLimits &limits, const StepModel &first)
      : model(first), device(bench, limits, first), bench_(bench), limits_(limits) {}

  // A good step of these rows, padded as asked.
  StagedStep Step(const Words &rows, const Words &query_lens, int32_t padded_requests, int32_t padded_tokens) {
    StagedStep step;
    step.seq = step.batch_seq = NextSeq();
    step.generation = model.b.state().generation;
    step.num_requests = int32_t(rows.size());
    step.rows = rows;
    step.starts.assign(1, 0);
    for (int32_t length : query_lens)
      step.starts.push_back(step.starts.back() + length);
    step.num_tokens = step.starts.back();
    step.flags.assign(rows.size(), 0);
    for (int32_t t = 0; t < step.num_tokens; t++)
      step.tokens.push_back(1000 + t);
    step.padded_requests = padded_requests;
    step.padded_tokens = padded_tokens;
    return step;
  }
  // The batch that is on the device, and no tokens.
  StagedStep Unchanged(int32_t num_requests, int32_t num_tokens, int32_t padded_requests, int32_t padded_tokens) {
    StagedStep step = Step({}, {}, padded_requests, padded_tokens);
    step.num_requests = num_requests;
    step.num_tokens = num_tokens;
    step.batch_seq = model.b.state().batch_seq;
    step.with_batch = step.with_tokens = false;
    return step;
  }

  // Stages and runs a prologue in both and compares.
  void Prologue(const StagedStep &step) {
    EXPECT_FALSE(ChangesCollide(limits_, step) || EditsCollide(step));
    unsigned char *slot = device.slot(NextSeq());
    WriteSlot(device.slot_layout(), step, slot);
    if (fetches && Fetch())
      std::memset(slot, kPoisonByte, size_t(device.slot_layout().stride)); // it is no longer read
    RunPrologue(step, device.Args(step.padded_requests, step.padded_tokens));
  }
  // The same with whatever bytes are in the slot. If the contract leaves open what they mean, the model takes it from the device.
  void PrologueOfSlot(int32_t padded_requests, int32_t padded_tokens) {
    StagedStep step = ReadSlot(limits_, device.slot_layout(), device.slot(NextSeq()));
    step.padded_requests = padded_requests;
    step.padded_tokens = padded_tokens;
    if (fetches && Fetch() && step.with_edits) { // edits of such a slot may name ids that it does not count: not fetched, then
      model.b->inbox[0] = model.b->inbox[1] = 0;
      Upload();
    }
    RunPrologue(step, device.Args(padded_requests, padded_tokens));
  }
  // With `empty`: the slot is not read, whatever is in it.
  void EmptyPrologue(int32_t padded_requests, int32_t padded_tokens, bool with_staging) {
    StagedStep step;
    step.empty = true;
    step.padded_requests = padded_requests;
    step.padded_tokens = padded_tokens;
    cgr__step_args args = device.Args(padded_requests, padded_tokens);
    args.empty = 1;
    if (!with_staging)
      args.staging = nullptr;
    RunPrologue(step, args);
  }
  void Epilogue(bool abandon = false) {
    args_.abandon = abandon;
    bench_.Run(cgr__kernel_epilogue, &args_);
    StepBuffers got = device.Get();
    bool repeated = RowsRepeat();
    model.Epilogue(abandon);
    if (repeated) { // which of its requests a row keeps is open
      model.b.CopyFrom(got, CGR__BUFFER_ROW_COMPUTED);
      model.b.CopyFrom(got, CGR__BUFFER_ROW_LAST_TOKENS);
    }
    ExpectBuffers(got, model.b);
    ExpectPublished();
  }
  // Runs the fetch of the next step, as the step before does while its own epilogue has not counted it yet. The model takes over
  // the inbox. Returns whether the inbox has the slot now.
  bool Fetch() {
    cgr__step_args args = device.Args(1, 1);
    model.b.state().seq--;
    Upload();
    bench_.Run(cgr__kernel_fetch, &args);
    StepBuffers got = device.Get();
    model.b.CopyFrom(got, CGR__BUFFER_INBOX);
    ExpectBuffers(got, model.b);
    model.b = got;
    model.b.state().seq++;
    Upload();
    return got.inbox().seq == NextSeq();
  }
  void PrologueAndEpilogue(const StagedStep &step) {
    Prologue(step);
    Epilogue();
  }

  // Copies what the test has changed in the model's buffers to the device.
  void Upload() { device.Put(model.b); }
  void PutNextTokens(const Words &tokens) {
    std::copy(tokens.begin(), tokens.end(), model.b->next_tokens);
    Upload();
  }

  const cgr__step_error &error() { return model.b.state().error; }
  uint64_t NextSeq() { return model.b.state().seq + 1; }
  int32_t num_requests() const { return model.b->counts[CGR_COUNT_REQUESTS]; }

  StepModel model;
  StepDevice device;
  bool fetches = false; // each slot is fetched before its step

private:
  void RunPrologue(const StagedStep &step, const cgr__step_args &args) {
    args_ = args;
    args_.set = step.set;
    args_.max_query_len = step.max_query_len;
    bench_.Run(cgr__kernel_prologue, &args_);
    StepBuffers got = device.Get();
    if (ChangesCollide(limits_, step) || EditsCollide(step)) {
      Adopt(got, step);
      return;
    }
    model.Prologue(step);
    model.TakeError(got.state().error);
    ExpectBuffers(got, model.b);
    EXPECT_EQ(device.RowData(), model.row_data);
  }
  void Adopt(StepBuffers &got, const StagedStep &step) {
    model.row_data = device.RowData();
    EXPECT_EQ(got.state().seq, model.b.state().seq);
    EXPECT_EQ(got->counts[CGR_COUNT_PADDED_REQUESTS], step.padded_requests);
    EXPECT_EQ(got->counts[CGR_COUNT_PADDED_TOKENS], step.padded_tokens);
    model.b = got;
    model.candidates.clear();
  }
  // The readback ring and the completion record, every byte of them.
  void ExpectPublished() {
    EXPECT_EQ(device.completion()->completed_seq, model.completion.completed_seq);
    EXPECT_EQ(std::memcmp(device.completion(), &model.completion, sizeof model.completion), 0) << "completion record";
    Bytes got = device.Readback();
    if (got == model.readback)
      return;
    int64_t at = std::mismatch(got.begin(), got.end(), model.readback.begin()).first - got.begin();
    ADD_FAILURE() << "result slot " << at / model.readback_slot().stride << " differs at byte "
                  << at % model.readback_slot().stride;
  }
  // Whether two requests commit to one row.
  bool RowsRepeat() {
    std::set<int32_t> rows;
    const StepBuffers &b = model.b;
    for (int32_t i = 0; i < num_requests(); i++)
      if (b->seq_lens[0][i] > 0 && b->query_start_loc[i] < b->query_start_loc[i + 1] && !rows.insert(b->request_rows[i]).second)
        return true;
    return false;
  }

  Bench &bench_;
  StepLimits limits_;
  cgr__step_args args_{};
};

// The result of a step, as the host reads it.
struct StepResult {
  cgr__result_record record;
  Words num_tokens, tokens;
};
inline StepResult ReadResult(const StepPair &pair, const StepLimits &limits, uint64_t seq) {
  StepResult result;
  const unsigned char *slot = pair.device.readback(seq);
  const cgr__readback_layout &layout = pair.model.readback_slot();
  std::memcpy(&result.record, slot, sizeof result.record);
  size_t n = size_t(std::clamp(result.record.num_requests, 0, limits.max_requests));
  result.num_tokens.resize(n);
  result.tokens.resize(n * size_t(limits.token_stride));
  if (n > 0) {
    std::memcpy(result.num_tokens.data(), slot + layout.num_tokens, result.num_tokens.size() * 4);
    std::memcpy(result.tokens.data(), slot + layout.tokens, result.tokens.size() * 4);
  }
  return result;
}

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_STEP_CASE_H
