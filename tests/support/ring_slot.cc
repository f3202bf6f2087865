#include "tests/support/ring_slot.h"

#include <cstring>
#include <set>
#include <tuple>

namespace cgr_test {

void AddChange(StagedStep *step, int32_t kind, int32_t row, int32_t index, int32_t value) {
  step->changes.push_back({ kind, row, index, value });
  step->num_changes++;
}

void AddEdit(StagedStep *step, int32_t index, uint32_t flags, int32_t row, int32_t query_len, int32_t first_token) {
  step->with_edits = true;
  step->edits.push_back({ int32_t(uint32_t(index) | flags << 16), row, query_len, first_token });
  step->num_edits++;
}

void WriteSlot(const cgr__ring_slot_layout &layout, const StagedStep &step, unsigned char *slot) {
  cgr__ring_slot_header header = {};
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
    header.flags |= CGR__RING_SLOT_BATCH;
  if (step.with_tokens)
    header.flags |= CGR__RING_SLOT_TOKENS;
  if (step.with_edits)
    header.flags |= CGR__RING_SLOT_EDITS;
  if (step.append_first)
    header.flags |= CGR__RING_SLOT_APPEND_FIRST;
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

StagedStep ReadSlot(const StepLimits &limits, const cgr__ring_slot_layout &layout, const unsigned char *slot) {
  cgr__ring_slot_header header;
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
  step.with_batch = (header.flags & CGR__RING_SLOT_BATCH) != 0;
  step.with_tokens = (header.flags & CGR__RING_SLOT_TOKENS) != 0;
  step.with_edits = (header.flags & CGR__RING_SLOT_EDITS) != 0;
  step.append_first = (header.flags & CGR__RING_SLOT_APPEND_FIRST) != 0;
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

bool ChangesCollide(const StepLimits &limits, const StagedStep &step) {
  std::set<std::tuple<int32_t, int32_t, int32_t>> words;
  for (const cgr__change &change : step.changes) {
    bool indexed = (change.kind & 0xff) == CGR__CHANGE_PAGE || change.kind == kDataChange || change.kind == kStopsChange;
    bool is_length = (change.kind & 0xff) == CGR__CHANGE_COMPUTED && uint32_t(change.kind) >> 8 < uint32_t(limits.num_programs);
    if (change.row < 0 || change.row >= limits.max_rows || (!indexed && !is_length))
      continue;
    if (!words.insert({ change.kind, change.row, indexed ? change.index : 0 }).second)
      return true;
  }
  return false;
}

bool EditsCollide(const StagedStep &step) {
  std::set<int32_t> places;
  for (const cgr__edit &edit : step.edits)
    if (step.with_edits && !places.insert(edit.place & 0xffff).second)
      return true;
  return false;
}

} // namespace cgr_test
