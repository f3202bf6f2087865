#include "tests/support/step_model.h"

#include <algorithm>
#include <cstring>

#include "cgr/names.h"
#include "tests/support/split.h"

namespace cgr_test {

bool SameError(const cgr__step_error &a, const cgr__step_error &b) {
  return a.error == b.error && a.row == b.row && a.index == b.index && a.value == b.value;
}

std::string ErrorText(const cgr__step_error &e) {
  return std::string(cgr_guard_error_name(cgr_guard_error(e.error))) + " row " + std::to_string(e.row) + " index " +
         std::to_string(e.index) + " value " + std::to_string(e.value);
}

void ExpectError(const cgr__step_error &got, const cgr__step_error &expected) {
  EXPECT_TRUE(SameError(got, expected)) << "reported " << ErrorText(got) << ", expected " << ErrorText(expected);
}

StepModel::StepModel(const StepLimits &limits, uint64_t seq) : b(std::make_shared<StepArena>(limits)), limits_(limits) {
  std::fill_n(b->step_state, 16, 0);
  b.state().seq = seq;
  b.state().error = kNoError;
  std::fill_n(b->row_computed, limits.num_programs * (limits.max_rows + 1), 0);
  for (size_t g = 0; g < limits.groups.size(); g++)
    std::fill_n(b->group[g].page_table, (limits.max_rows + 1) * limits.groups[g].stride, limits.groups[g].read_trash);
  row_data.assign(size_t(limits.max_rows + 1) * kRowWords, limits.num_sets > 1 ? 0 : -77);
  stops.assign(size_t(limits.max_rows + 1) * size_t(limits.StopWords()), 0);
  readback.assign(size_t(readback_slot().stride * limits.ring_depth), kPoisonByte);
  std::memset(&completion, kPoisonByte, sizeof completion);
}

void StepModel::Prologue(const StagedStep &staged) {
  candidates.clear();
  phase_ended_ = false;
  b.state().lost = 0;
  set_ = staged.set, program_ = staged.program;
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
  const StepBuffers before = b;
  Derive(step);
  KeepOthers(before);
}

void StepModel::KeepOthers(const StepBuffers &before) {
  for (size_t g = 0; g < limits_.groups.size(); g++)
    for (int id : { int(CGR__BUFFER_SLOT_MAPPING), int(CGR__BUFFER_KV_INDPTR), int(CGR__BUFFER_KV_LAST_PAGE_LEN) })
      if (limits_.groups[g].program != program_)
        std::memcpy(b.at(id, int32_t(g)), before.at(id, int32_t(g)),
                    SizeInBytes(cgr__buffer_shape_of(&b.arena().limits, id, int32_t(g))));
}

void StepModel::Epilogue(bool abandon, const cgr__step_error &got) {
  cgr__step_state &state = b.state();
  uint64_t seq = ++state.seq;
  int32_t n = abandon ? 0 : b->counts[CGR_COUNT_REQUESTS];
  unsigned char *slot = readback.data() + int64_t(seq % uint64_t(limits_.ring_depth)) * readback_slot().stride;
  candidates.clear();
  phase_ended_ = !SameError(state.error, kNoError);
  ended_.assign(size_t(n), CGR_END_NONE);
  bool ends = false;
  for (int32_t i = 0; i < n; i++) {
    int32_t sampled = Commit(i);
    std::memcpy(slot + readback_slot().num_tokens + 4 * i, &sampled, 4);
    if (limits_.stop_tokens == 0)
      continue;
    const int64_t section = (int64_t{ limits_.max_requests } * 4 + 63) / 64 * 64, at = readback_slot().num_tokens + 4 * i;
    std::memcpy(slot + at + section, &ended_[size_t(i)], 4);
    if (ended_[size_t(i)] == CGR_END_NONE || ended_[size_t(i)] == CGR_END_BEFORE)
      continue;
    const int32_t length = int32_t(uint32_t(b->row_computed[b->request_rows[i]]) - 0x80000000u);
    std::memcpy(slot + at + 2 * section, &length, 4);
    ends = true;
  }
  if (!candidates.empty())
    TakeError(got);
  state.errors += state.error.error != CGR_GUARD_NONE;
  state.generation += uint64_t(state.lost);
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
  record.generation = limits_.token_stride > 1 || limits_.stop_tokens > 0 ? state.generation : 0;
  record.ended = ends;
  std::memcpy(slot, &record, sizeof record);
  completion.completed_seq = seq;
  completion.errors = state.errors;
  completion.generation = state.generation;
}

void StepModel::TakeError(const cgr__step_error &got) {
  bool allowed = candidates.empty() && SameError(got, kNoError);
  std::string expected = candidates.empty() ? "none" : "one of:";
  for (const cgr__step_error &candidate : candidates) {
    allowed = allowed || SameError(got, candidate);
    expected += "\n  " + ErrorText(candidate);
  }
  EXPECT_TRUE(allowed) << "reported " << ErrorText(got) << ", expected " << expected;
  b.state().error = got;
}

void StepModel::Trip(int32_t error, int32_t row, int32_t index, int64_t value) {
  if (!phase_ended_)
    candidates.push_back({ error, row, index, 0, value });
}

bool StepModel::Refuse(int32_t error, int32_t index, int64_t value, bool lost) {
  b.state().lost = lost;
  Trip(error, -1, index, value);
  return false;
}

bool StepModel::IsAcceptable(StagedStep *given) {
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
    if (i == 0
            ? starts[0] != 0
            : starts[i] < starts[i - 1] || (step.max_query_len > 0 && int64_t{ starts[i] } - starts[i - 1] > step.max_query_len))
      return Refuse(CGR_GUARD_COUNT, 2 + i, starts[i]);
  if (starts.back() != step.num_tokens)
    return Refuse(CGR_GUARD_COUNT, 2 + step.num_requests, starts.back());
  return true;
}

bool StepModel::ApplyEdits(StagedStep *step) {
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

bool StepModel::IsBadPage(const StepGroup &group, int32_t page) {
  return page < 0 || page >= group.num_pages || page == group.write_trash;
}

void StepModel::ApplyChanges(const StagedStep &step) {
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

bool StepModel::ApplyChange(const cgr__change &change) {
  if (change.row < 0 || change.row >= limits_.max_rows)
    return false;
  for (int32_t p = 0; p < limits_.num_programs; p++) {
    if (change.kind != (CGR__CHANGE_COMPUTED | p << 8))
      continue;
    b->row_computed[p * (limits_.max_rows + 1) + change.row] = change.value;
    if (p == 0)
      b->row_num_accepted[change.row] = 0;
    return true;
  }
  if (change.kind == kDataChange && change.index >= 0 && change.index < kRowWords) {
    row_data[size_t(change.row * kRowWords + change.index)] = change.value;
    return true;
  }
  if (change.kind == kStopsChange && change.index >= 0 && change.index < limits_.StopWords()) {
    stops[size_t(change.row * limits_.StopWords() + change.index)] = change.value;
    return true;
  }
  for (size_t g = 0; g < limits_.groups.size(); g++)
    if (change.kind == PageChange(g))
      return ApplyPage(g, change);
  return false;
}

bool StepModel::ApplyPage(size_t g, const cgr__change &change) {
  const StepGroup &group = limits_.groups[g];
  if (group.engine_table || change.index < 0 || change.index >= group.stride)
    return false;
  bool bad = IsBadPage(group, change.value);
  if (bad)
    Trip(CGR_GUARD_PAGE, change.row, change.index, change.value);
  b->group[g].page_table[change.row * group.stride + change.index] = bad ? group.read_trash : change.value;
  return true;
}

void StepModel::TakeBatch(const StagedStep &step) {
  if (!step.with_batch)
    return;
  b.state().batch_seq = step.seq;
  std::copy(step.starts.begin(), step.starts.end(), b->query_start_loc);
  std::copy(step.rows.begin(), step.rows.end(), b->request_rows);
  std::copy(step.flags.begin(), step.flags.end(), b->request_flags);
}

void StepModel::Derive(const StagedStep &step) {
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
  Words lens;
  for (size_t i = 1; i < starts.size(); i++)
    lens.push_back(starts[i] - starts[i - 1]);
  const Split split = SplitOf(lens, limits_.reorder_threshold, limits_.uniform_split != 0);
  b->counts[CGR_COUNT_DECODES] = split.decodes;
  b->counts[CGR_COUNT_DECODE_TOKENS] = split.tokens;
  b->counts[CGR_COUNT_APPEND_FIRST] = step.append_first;
}

void StepModel::DeriveRequest(const StagedStep &step, int32_t i) {
  int32_t start = b->query_start_loc[i], query_len = b->query_start_loc[i + 1] - start;
  const Words lengths = LengthsOf(i, query_len);
  for (int32_t s = 0; s < limits_.num_sets; s++)
    b->seq_lens[s][i] = lengths[size_t(s)];
  const bool runs = lengths[size_t(set_)] > 0;
  b->logits_indices[i] = query_len > 0 ? start + (runs ? TokensOf(i, query_len) : query_len) - 1 : 0;
  if (limits_.token_stride > 1)
    b->num_drafts[i] = runs && program_ == 0 ? GuessesOf(i) : 0;
  for (size_t g = 0; g < limits_.groups.size(); g++) {
    cgr__group_buffers &group = b->group[g];
    int32_t seq_len = lengths[size_t(limits_.groups[g].set)];
    int32_t of_kernel = limits_.groups[g].kernel_page_size, size = of_kernel > 0 ? of_kernel : limits_.groups[g].page_size;
    int32_t pages = (seq_len + size - 1) / size;
    group.kv_indptr[i + 1] = group.kv_indptr[i] + pages;
    group.kv_last_page_len[i] = pages == 0 ? 1 : seq_len - (pages - 1) * size;
  }
  for (int32_t j = 0; j < query_len; j++)
    DeriveToken(step, i, start + j, lengths[size_t(set_)] - query_len + j);
}

Words StepModel::LengthsOf(int32_t i, int32_t query_len) {
  const Words none(size_t(limits_.num_sets), 0);
  Words lengths;
  int32_t row = b->request_rows[i];
  if (row < 0 || row >= limits_.max_rows) {
    Trip(CGR_GUARD_ROW, -1, i, row);
    return none;
  }
  if (HasEnded(row) && (program_ == 0 || Follows(i)))
    return none;
  for (int32_t s = 0; s < limits_.num_sets; s++) {
    const int32_t has = s == 0 ? Computed()[row] : row_data[size_t(row * kRowWords + s - 1)];
    const int64_t length = s == 0 && set_ == 0 ? int64_t{ has } + query_len : has;
    if (has < 0 || length > limits_.MaxLen(s) || (s > 0 && s == set_ && has < query_len)) {
      Trip(CGR_GUARD_LENGTH, row, i, length);
      return none;
    }
    lengths.push_back(int32_t(length));
  }
  const int64_t lacks = int64_t{ b->row_computed[row] } + 1 - Computed()[row];
  if (!Follows(i) || (lacks > 0 && lacks <= query_len && lacks <= int64_t{ b->row_num_accepted[row] } + 1))
    return lengths;
  Trip(CGR_GUARD_LENGTH, row, i, lacks);
  return none;
}

int32_t StepModel::TokensOf(int32_t i, int32_t query_len) {
  const int32_t row = b->request_rows[i];
  return Follows(i) ? b->row_computed[row] + 1 - Computed()[row] : query_len;
}

void StepModel::DeriveToken(const StagedStep &step, int32_t i, int32_t t, int32_t position) {
  bool refused = b->seq_lens[set_][i] == 0;
  int32_t token = step.with_tokens && size_t(t) < step.tokens.size() ? step.tokens[size_t(t)] : CGR_TOKEN_LAST;
  if (step.with_edits && first_token_[size_t(i)] >= 0)
    token = step.tokens[size_t(first_token_[size_t(i)] + t - b->query_start_loc[i])];
  const int32_t k = limits_.token_stride - 1, row = b->request_rows[i];
  const bool first = t == b->query_start_loc[i];
  if (!refused && Follows(i)) {
    const int32_t back = std::max(b->logits_indices[i] - t, 0); // 0: the latest
    token = b->row_last_tokens[row * limits_.token_stride + back];
  } else if (!refused && k > 0 && program_ == 0 && (token < CGR_TOKEN_LAST || (token == CGR_TOKEN_LAST && !first))) {
    const int64_t guess = token == CGR_TOKEN_LAST ? t - b->query_start_loc[i] - 1 : -2 - int64_t{ token };
    token = guess < k ? TokenOfVocabulary(i, row, b->row_draft_tokens[row * k + guess]) : 0;
  } else if (!refused && token == CGR_TOKEN_LAST) {
    token = b->row_last_tokens[row * limits_.token_stride];
  }
  b->input_ids[t] = refused ? 0 : token;
  b->positions[t] = refused ? 0 : position;
  for (size_t g = 0; g < limits_.groups.size(); g++)
    if (limits_.groups[g].program == program_)
      b->group[g].slot_mapping[t] = refused || limits_.groups[g].set != set_ ? -1 : SlotOf(g, b->request_rows[i], position);
}

int64_t StepModel::SlotOf(size_t g, int32_t row, int32_t position) {
  const StepGroup &group = limits_.groups[g];
  int32_t index = position / group.page_size;
  int32_t page = index < group.stride ? b->group[g].page_table[row * group.stride + index] : -1;
  if (!IsBadPage(group, page) && page != group.read_trash)
    return int64_t{ page } * group.page_size + position % group.page_size;
  Trip(CGR_GUARD_PAGE, row, index, page);
  return -1;
}

int32_t StepModel::GuessesOf(int32_t i) const {
  const uint32_t flags = uint32_t(b->request_flags[i]);
  const int32_t guesses = int32_t(flags >> 8 & 255), query_len = b->query_start_loc[i + 1] - b->query_start_loc[i];
  return guesses >= limits_.token_stride || guesses >= query_len || (flags & 1) != 0 ? 0 : guesses;
}

int32_t StepModel::TokenOfVocabulary(int32_t i, int32_t row, int32_t token) {
  if (limits_.vocab_size == 0 || (token >= 0 && token < limits_.vocab_size))
    return token;
  Trip(CGR_GUARD_TOKEN, row, i, token);
  return 0;
}

bool StepModel::HasEnded(int32_t row) const {
  if (limits_.stop_tokens == 0 || row < 0 || row >= limits_.max_rows)
    return false;
  const int64_t length = int64_t{ b->row_computed[row] } + (int64_t{ 1 } << 31);
  return b->row_computed[row] < 0 && length <= limits_.max_seq_len;
}

cgr_end StepModel::EndOf(int32_t row, int32_t token, int32_t length) const {
  if (limits_.stop_tokens == 0)
    return CGR_END_NONE;
  const auto of = stops.begin() + row * limits_.StopWords(), tokens = of + 3;
  if (length >= of[1] && std::count(tokens, tokens + of[2], token) > 0)
    return CGR_END_STOP_TOKEN;
  return of[0] != 0 && of[0] <= length ? CGR_END_LENGTH : CGR_END_NONE;
}

int32_t StepModel::CommitDraft(int32_t i) {
  const int32_t row = b->request_rows[i], stride = limits_.token_stride, most = stride - 1;
  const int32_t query_len = b->query_start_loc[i + 1] - b->query_start_loc[i];
  if (b->seq_lens[0][i] == 0 && HasEnded(row))
    ended_[size_t(i)] = CGR_END_BEFORE;
  if (b->seq_lens[0][i] == 0 || query_len == 0)
    return 0;
  Computed()[row] = b->seq_lens[0][i] - query_len + (b->logits_indices[i] + 1 - b->query_start_loc[i]);
  if (b->request_flags[i] & CGR_REQUEST_PARTIAL)
    return 0;
  std::copy_n(b->draft_tokens + i * most, most, b->row_draft_tokens + row * most);
  b->row_draft_tokens[row * most] = TokenOfVocabulary(i, row, b->next_tokens[i * stride]);
  return 1;
}

int32_t StepModel::Commit(int32_t i) {
  if (program_ > 0)
    return CommitDraft(i);
  const int32_t row = b->request_rows[i], stride = limits_.token_stride, guesses = GuessesOf(i);
  if (b->seq_lens[0][i] == 0 && HasEnded(row))
    ended_[size_t(i)] = CGR_END_BEFORE;
  if (set_ > 0 || b->seq_lens[0][i] == 0 || b->query_start_loc[i] == b->query_start_loc[i + 1])
    return 0;
  int32_t accepted = guesses > 0 ? b->num_accepted[i] : 0;
  if (accepted < 0 || accepted > guesses) {
    Trip(CGR_GUARD_ACCEPTED, row, i, accepted);
    accepted = 0;
  }
  b->row_computed[row] = b->seq_lens[0][i] - (guesses - accepted);
  if (b->request_flags[i] & CGR_REQUEST_PARTIAL)
    return 0;
  for (int32_t j = 0, kept = b->seq_lens[0][i] - guesses; j <= accepted && ended_[size_t(i)] == CGR_END_NONE; j++) {
    ended_[size_t(i)] = EndOf(row, b->next_tokens[i * stride + j], kept + j + 1);
    if (ended_[size_t(i)] == CGR_END_NONE)
      continue;
    b->row_computed[row] = int32_t(0x80000000u + uint32_t(kept + j));
    accepted = j;
  }
  for (int32_t j = 0; j <= accepted; j++)
    b->row_last_tokens[row * stride + j] = TokenOfVocabulary(i, row, b->next_tokens[i * stride + accepted - j]);
  if (stride > 1) {
    b->row_num_accepted[row] = accepted;
    std::copy_n(b->draft_tokens + i * (stride - 1), stride - 1, b->row_draft_tokens + row * (stride - 1));
  }
  return accepted + 1;
}

} // namespace cgr_test
