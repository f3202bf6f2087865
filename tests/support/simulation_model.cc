#include "tests/support/simulation_model.h"

#include <algorithm>
#include <cstring>

#include "kernels/host/launchers.h"

namespace cgr_test {
namespace sim {

namespace {

const cgr__step_args &ArgsOf(const SimWork &work) { return *static_cast<const cgr__step_args *>(work.args); }

} // namespace

int32_t NextToken(int32_t token, int32_t position) { return (token * 31 + position * 7 + 3) % 997; }

Model::Model(cgr_runtime *runtime) : rt_(runtime), b_(runtime->lane.args.buffers) {
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  seq = rt_->lane.launched;
  cgr_buffer_get(rt_, nullptr, CGR_BUFFER_DECLARED, 0, &view);
  staged_data_ = static_cast<const int32_t *>(view.data);
  cgr_buffer_get(rt_, nullptr, CGR_BUFFER_DECLARED, 1, &view);
  row_data_ = static_cast<const int32_t *>(view.data);
  row_stride_ = view.stride;
  batch_ = rt_->lane.args.state->batch_seq;
  Adopt();
}

void Model::Fail(const std::string &what) {
  if (failure.empty())
    failure = "step " + std::to_string(seq + 1) + ": " + what;
}

const unsigned char *Model::SlotOf(uint64_t number) const {
  return reinterpret_cast<const unsigned char *>(cgr__ring_slot(&rt_->lane.ring, number));
}

// The device's tables as they are.
void Model::Adopt() {
  std::copy(b_.row_computed, b_.row_computed + kRows + 1, computed_);
  std::copy(b_.row_last_tokens, b_.row_last_tokens + kRows + 1, last_);
  for (int g = 0; g < kGroups; g++) {
    const int64_t words = rt_->lane.args.group[g].page_table_stride * (kRows + 1);
    table_[g].assign(b_.group[g].page_table, b_.group[g].page_table + words);
  }
  data_.assign(row_data_, row_data_ + row_stride_ * (kRows + 1));
}

// ------------------------------------------------------------------------------------------------------------------ kernels

// The number is committed just before its prologue is enqueued.
void Model::Enqueued(const SimWork &work) {
  if (work.function != cgr__host_prologue || ArgsOf(work).empty)
    return;
  const uint64_t number = rt_->lane.launched + 1;
  const unsigned char *slot = SlotOf(number);
  Shadow shadow;
  shadow.bytes.assign(slot, slot + rt_->lane.ring.slot.stride);
  Check(shadows.find(number) == shadows.end(), "a number is committed twice");
  Check(reinterpret_cast<const cgr__ring_slot_header *>(slot)->seq == number, "the committed ring slot does not bear its number");
  shadows[number] = std::move(shadow);
}

void Model::Before(const SimWork &work) {
  if (work.function == cgr__host_prologue)
    BeforePrologue(ArgsOf(work));
  else if (work.function == cgr__host_fetch)
    BeforeFetch(ArgsOf(work));
  else if (work.function == cgr__host_epilogue)
    BeforeEpilogue(ArgsOf(work));
}

void Model::After(const SimWork &work) {
  if (work.function == cgr__host_prologue)
    AfterPrologue(ArgsOf(work));
  else if (work.function == cgr__host_fetch)
    AfterFetch(ArgsOf(work));
  else if (work.function == cgr__host_epilogue)
    AfterEpilogue(ArgsOf(work));
}

// ------------------------------------------------------------------------------------------------------------------ ring slots

// The header of an inbox or a ring slot, and what it names.
bool Model::SameContent(const unsigned char *content, const Shadow &shadow) const {
  const cgr__ring_slot_header header = *reinterpret_cast<const cgr__ring_slot_header *>(shadow.bytes.data());
  const cgr__ring_slot_layout &layout = rt_->lane.ring.slot;
  const bool edits = (header.flags & CGR__RING_SLOT_EDITS) != 0, tokens = (header.flags & CGR__RING_SLOT_TOKENS) != 0;
  const auto same = [&](int64_t offset, int64_t words) {
    return std::memcmp(content + offset, shadow.bytes.data() + offset, size_t(words) * 4) == 0;
  };
  return same(0, sizeof header / 4) &&
         ((header.flags & CGR__RING_SLOT_BATCH) == 0 || same(layout.batch, 3 * int64_t{ header.num_requests } + 1)) &&
         (!tokens || same(layout.tokens, header.num_tokens)) && (!edits || same(layout.tokens, header.num_ids)) &&
         (!edits || same(layout.edits, 4 * int64_t{ header.num_edits })) &&
         same(layout.changes, 4 * int64_t{ header.num_changes });
}

bool Model::Fits(const cgr__ring_slot_header &h) const {
  const auto within = [](int32_t count, int32_t most) { return count >= 0 && count <= most; };
  return within(h.num_requests, kRequests) && within(h.num_tokens, kTokens) && within(h.num_ids, kTokens) &&
         within(h.num_changes, rt_->lane.args.max_changes) && within(h.num_edits, kRequests);
}

void Model::BeforeFetch(const cgr__step_args &) {
  const uint64_t next = seq + 2;
  const cgr__ring_slot_header &header = *reinterpret_cast<const cgr__ring_slot_header *>(SlotOf(next));
  const auto shadow = shadows.find(next);
  Check(begun, "a fetch runs outside its step");
  predicted_ = shadow != shadows.end() && header.seq == next && Fits(header);
  if (header.seq == next)
    Check(shadow != shadows.end(), "a ring slot bears a number that was not committed");
}

void Model::AfterFetch(const cgr__step_args &args) {
  const uint64_t next = seq + 2;
  const bool hit = reinterpret_cast<const cgr__ring_slot_header *>(args.buffers.inbox)->seq == next;
  (hit ? hits : misses)++;
  if (!Check(hit == predicted_ || racing,
             hit ? "the fetch took a ring slot that does not count" : "the fetch left a ring slot that counts") ||
      !hit)
    return;
  Shadow &shadow = shadows[next];
  shadow.fetched = true;
  shadow.fetched_spoiled = shadow.spoiled;
  if (shadow.spoiled == Spoiled::kNot)
    Check(SameContent(reinterpret_cast<const unsigned char *>(args.buffers.inbox), shadow),
          "the inbox is not the committed ring slot");
}

void Model::CheckInbox(const SimWork &fetch) {
  const unsigned char *inbox = reinterpret_cast<const unsigned char *>(ArgsOf(fetch).buffers.inbox);
  const auto shadow = shadows.find(seq + 2);
  if (reinterpret_cast<const cgr__ring_slot_header *>(inbox)->seq == seq + 2 && predicted_ &&
      shadow->second.spoiled == Spoiled::kNot)
    Check(SameContent(inbox, shadow->second), "the inbox bears a number and is torn");
}

// ----------------------------------------------------------------------------------------------------------------- prologue

void Model::BeforePrologue(const cgr__step_args &args) {
  if (args.empty || !Check(shadows.find(seq + 1) != shadows.end(), "a prologue runs under a number that was not committed"))
    return;
  const Shadow &shadow = shadows[seq + 1];
  const unsigned char *inbox = reinterpret_cast<const unsigned char *>(args.buffers.inbox);
  Check((reinterpret_cast<const cgr__ring_slot_header *>(inbox)->seq == seq + 1) == shadow.fetched,
        "the inbox bears a wrong number");
  from_inbox += shadow.fetched;
  if (shadow.spoiled == Spoiled::kNot)
    Check(SameContent(SlotOf(seq + 1), shadow), "the slot has changed since its commit");
  if (shadow.fetched && shadow.fetched_spoiled == Spoiled::kNot)
    Check(SameContent(inbox, shadow), "the inbox has changed since it was fetched");
}

// Whether the step runs, and what it reports.
void Model::Judge(const cgr__step_args &args) {
  accepted_ = loose_ = false;
  error_ = lost_ = 0;
  plan_ = Plan();
  if (args.empty)
    return;
  const Shadow &shadow = shadows[seq + 1];
  const cgr__ring_slot_header &header = *reinterpret_cast<const cgr__ring_slot_header *>(shadow.bytes.data());
  const Spoiled spoiled = shadow.fetched ? shadow.fetched_spoiled : shadow.spoiled;
  if (spoiled == Spoiled::kNumber || header.generation != generation_) {
    error_ = CGR_GUARD_SEQUENCE;
    lost_ = spoiled == Spoiled::kNumber;
    return;
  }
  if (spoiled != Spoiled::kNot) {
    error_ = shadow.error;
    lost_ = 1;
  }
  accepted_ = spoiled == Spoiled::kNot || spoiled == Spoiled::kChanges;
  loose_ = spoiled == Spoiled::kChanges;
  const auto plan = plans.find(seq + 1);
  if (accepted_ && plan != plans.end())
    plan_ = plan->second;
}

void Model::Apply(const unsigned char *slot) {
  const cgr__ring_slot_header &header = *reinterpret_cast<const cgr__ring_slot_header *>(slot);
  const cgr__change *changes = reinterpret_cast<const cgr__change *>(slot + rt_->lane.ring.slot.changes);
  for (int32_t c = 0; c < header.num_changes; c++) {
    const cgr__change &change = changes[c];
    const int32_t kind = change.kind & 0xff, which = change.kind >> 8;
    if (kind == CGR__CHANGE_PAGE)
      table_[which][size_t(change.row * rt_->lane.args.group[which].page_table_stride + change.index)] = change.value;
    else if (kind == CGR__CHANGE_COMPUTED)
      computed_[change.row] = change.value;
    else
      data_[size_t(change.row * row_stride_ + change.index)] = change.value;
  }
}

void Model::AfterPrologue(const cgr__step_args &args) {
  begun = true;
  Judge(args);
  CheckState(args);
  if (loose_)
    return Adopt();
  if (accepted_)
    Apply(shadows[seq + 1].bytes.data());
  CheckTables();
  if (accepted_)
    CheckPlan();
  Check(b_.counts[CGR_COUNT_REQUESTS] == int32_t(plan_.items.size()), "the step has another number of requests");
  CheckAppendFirst();
}

// Also whose batch layout the device has, and which of the engine's sections it takes.
void Model::CheckState(const cgr__step_args &args) {
  const cgr__step_state &state = *args.state;
  Check(state.error.error == error_, "the prologue reports another error, or none");
  Check(state.lost == lost_, "the prologue loses what it should not, or does not say so");
  if (!accepted_) {
    batch_ = 0;
    Check(state.batch_seq == 0 && state.staged == 0, "a step that does not count leaves its batch layout or sections");
    return;
  }
  const cgr__ring_slot_header &header = *reinterpret_cast<const cgr__ring_slot_header *>(shadows[seq + 1].bytes.data());
  if (header.flags & (CGR__RING_SLOT_BATCH | CGR__RING_SLOT_EDITS))
    batch_ = seq + 1;
  Check(state.batch_seq == batch_, "the batch layout is that of another step");
  Check(state.staged == header.staged, "the step takes other sections of the engine's");
}

void Model::CheckAppendFirst() {
  bool said = false;
  if (accepted_)
    said = reinterpret_cast<const cgr__ring_slot_header *>(shadows[seq + 1].bytes.data())->flags & CGR__RING_SLOT_APPEND_FIRST;
  append_first += said;
  Check(b_.counts[CGR_COUNT_APPEND_FIRST] == int32_t(said),
        "attention may begin during the append, or not, unlike the slot says");
}

void Model::CheckTables() {
  for (int32_t row = 0; row <= kRows; row++)
    if (computed_[row] != b_.row_computed[row] || last_[row] != b_.row_last_tokens[row])
      return Fail("row " + std::to_string(row) + " has length " + std::to_string(b_.row_computed[row]) + " and token " +
                  std::to_string(b_.row_last_tokens[row]) + ", expected " + std::to_string(computed_[row]) + " and " +
                  std::to_string(last_[row]));
  for (int g = 0; g < kGroups; g++)
    Check(std::equal(table_[g].begin(), table_[g].end(), b_.group[g].page_table), "a page table differs");
  Check(std::equal(data_.begin(), data_.end(), row_data_), "the rows' data differ");
}

// The tables as the host had them when it prepared this step.
void Model::CheckPlan() {
  for (const auto &[row, view] : plan_.rows) {
    if (computed_[row] != view.length)
      Fail("row " + std::to_string(row) + " has length " + std::to_string(computed_[row]) + ", the host has " +
           std::to_string(view.length));
    for (int g = 0; g < kGroups; g++)
      Check(std::equal(view.pages[g].begin(), view.pages[g].end(),
                       table_[g].begin() + row * rt_->lane.args.group[g].page_table_stride),
            "a row has not the pages that the host gave it");
    Check(std::equal(view.data.begin(), view.data.end(), data_.begin() + row * row_stride_),
          "a row has not the data that the host gave it");
  }
}

// ----------------------------------------------------------------------------------------------------------------- epilogue

void Model::CheckRequests(const cgr__step_args &) {
  int32_t start = 0;
  for (size_t i = 0; i < plan_.items.size(); i++) {
    const Item &item = plan_.items[i];
    Check(b_.request_rows[i] == item.row, "a request is of another row");
    Check(b_.request_flags[i] == (item.partial ? CGR_REQUEST_PARTIAL : 0), "a request has other flags");
    Check(b_.query_start_loc[i] == start, "a request starts elsewhere");
    Check(b_.seq_lens[0][i] == computed_[item.row] + item.len, "a request has another length");
    start += item.len;
    Check(b_.logits_indices[i] == (item.len > 0 ? start - 1 : 0), "a request's last token is elsewhere");
  }
}

void Model::CheckTokens(const cgr__step_args &args) {
  int32_t t = 0;
  for (const Item &item : plan_.items)
    for (int32_t j = 0; j < item.len; j++, t++) {
      const int32_t given = item.tokens.empty() ? int32_t{ CGR_TOKEN_LAST } : item.tokens[size_t(j)];
      const int32_t token = given == CGR_TOKEN_LAST ? last_[item.row] : given, position = computed_[item.row] + j;
      if (b_.input_ids[t] != token)
        Fail("token " + std::to_string(t) + " is " + std::to_string(b_.input_ids[t]) + ", expected " + std::to_string(token));
      Check(b_.positions[t] == position, "a token has another position");
      for (int g = 0; g < kGroups; g++) {
        const int64_t stride = args.group[g].page_table_stride;
        const int64_t page = table_[g][size_t(item.row * stride + position / kPageSize[g])];
        Check(b_.group[g].slot_mapping[t] == page * kPageSize[g] + position % kPageSize[g], "a token goes elsewhere");
      }
    }
  CheckPadding(args, int32_t(plan_.items.size()), t);
  CheckStaged(args, t);
}

void Model::CheckPadding(const cgr__step_args &args, int32_t num_requests, int32_t num_tokens) {
  Check(b_.counts[CGR_COUNT_TOKENS] == num_tokens, "the step has another number of tokens");
  for (int32_t i = num_requests; i < args.padded_requests; i++)
    Check(b_.request_rows[i] == kRows && b_.request_flags[i] == 0 && b_.seq_lens[0][i] == 0 &&
              b_.query_start_loc[i + 1] == num_tokens,
          "a padded request is none");
  for (int32_t t = num_tokens; t < args.padded_tokens; t++)
    Check(b_.input_ids[t] == 0 && b_.positions[t] == 0 && b_.group[0].slot_mapping[t] == -1, "a padded token is none");
}

void Model::CheckStaged(const cgr__step_args &args, int32_t num_tokens) {
  for (int32_t t = 0; t < args.padded_tokens; t++) {
    const bool given = t < num_tokens && !plan_.staged.empty();
    Check(staged_data_[t] == (given ? plan_.staged[size_t(t)] : int32_t{ kPadding }), "the engine's data of tokens differ");
  }
}

void Model::BeforeEpilogue(const cgr__step_args &args) {
  Check(begun, "an epilogue runs without a prologue");
  outcome_ = Outcome();
  outcome_.error = error_;
  outcome_.known = !loose_;
  if (!loose_ && !args.abandon) { // an abandoned one may not have got to its key's metadata
    CheckRequests(args);
    CheckTokens(args);
  }
  abandoned += args.abandon != 0;
  empty += error_ == 0 && !accepted_;
  refused += error_ != 0;
  if (args.abandon || loose_)
    return;
  for (const Item &item : plan_.items) {
    const bool is_last = item.tokens.empty() || item.tokens.back() == CGR_TOKEN_LAST;
    const int32_t token = is_last ? last_[item.row] : item.tokens.back();
    const bool samples = item.len > 0 && !item.partial;
    outcome_.counts.push_back(samples);
    computed_[item.row] += item.len;
    outcome_.tokens.push_back(samples ? NextToken(token, computed_[item.row] - 1) : -1);
    if (samples)
      last_[item.row] = outcome_.tokens.back();
  }
}

// Checks the record as the host will find it.
void Model::CheckRecord() {
  const cgr__ring &ring = rt_->lane.ring;
  const cgr__result_record *record = cgr__ring_result(&ring, seq);
  const int32_t *counts = cgr__ring_result_counts(&ring, record), *tokens = cgr__ring_result_tokens(&ring, record);
  Check(record->seq == seq && record->error == outcome_.error, "the result is of another step, or has another error");
  if (!outcome_.known || !Check(record->num_requests == int32_t(outcome_.counts.size()), "the result has other requests"))
    return;
  for (size_t i = 0; i < outcome_.counts.size(); i++)
    Check(counts[i] == outcome_.counts[i] && (counts[i] == 0 || tokens[i] == outcome_.tokens[i]), "the result has other tokens");
}

void Model::AfterEpilogue(const cgr__step_args &args) {
  if (loose_)
    Adopt();
  CheckTables();
  generation_ += uint64_t(lost_);
  errors_ += error_ != 0;
  seq++;
  begun = false;
  Check(args.state->seq == seq && args.completion->completed_seq == seq, "the device counts otherwise");
  Check(args.state->generation == generation_ && args.completion->generation == generation_, "losses are counted otherwise");
  Check(args.state->errors == errors_ && args.completion->errors == errors_, "errors are counted otherwise");
  CheckRecord();
  outcomes[seq] = outcome_;
  plans.erase(seq);
  shadows.erase(seq);
}

} // namespace sim
} // namespace cgr_test
