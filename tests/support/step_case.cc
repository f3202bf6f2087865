#include "tests/support/step_case.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace cgr_test {

StepLimits TwoGroups() {
  StepLimits limits;
  limits.reorder_threshold = 4;
  limits.groups = { { 16, 0, 1, 0, 100, 20, 0 }, { 64, 7, 0, 0, 30, 5, 0 } };
  return limits;
}

StepDevice::StepDevice(Bench &bench, const StepLimits &limits, const StepModel &first)
    : limits_(limits), slot_(first.b.arena().layout.slot), readback_slot_(first.b.arena().layout.readback),
      arena_(std::make_shared<StepArena>(first.b.arena())), buffers_(bench, arena_->places, CGR__MEMORY_DEVICE),
      staging_(bench, size_t(slot_.stride * limits.ring_depth), CGR__MEMORY_PINNED),
      readback_(bench, first.readback, CGR__MEMORY_PINNED), completion_(bench, 1, CGR__MEMORY_PINNED),
      row_data_(bench, first.row_data), stops_(bench, first.stops) {
  Put(first.b);
}

StepBuffers StepDevice::Get() const {
  Bytes image = buffers_.Get();
  buffers_.ExpectGuards(image);
  return StepBuffers(arena_, image);
}

const unsigned char *StepDevice::readback(uint64_t seq) const {
  return readback_.data() + int64_t(seq % uint64_t(limits_.ring_depth)) * readback_slot_.stride;
}

cgr__step_args StepDevice::Args(int32_t padded_requests, int32_t padded_tokens) {
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
  a.vocab_size = limits_.vocab_size;
  a.split = { limits_.reorder_threshold, limits_.uniform_split };
  a.padded_requests = padded_requests;
  a.padded_tokens = padded_tokens;
  a.num_groups = int32_t(limits_.groups.size());
  a.buffers = arena_->View(buffers_.base());
  a.state = reinterpret_cast<cgr__step_state *>(a.buffers.step_state);
  a.rows[kRowBuffer] = { row_data_.data(), kRowWords };
  if (limits_.stop_tokens > 0) {
    a.rows[kStopsBuffer] = { stops_.data(), limits_.StopWords() };
    a.stops = stops_.data(), a.stop_words = limits_.StopWords();
  }
  a.num_sets = limits_.num_sets;
  a.num_programs = limits_.num_programs;
  a.lengths = limits_.num_sets > 1 ? row_data_.data() : nullptr;
  for (size_t g = 0; g < limits_.groups.size(); g++) {
    const StepGroup &group = limits_.groups[g];
    a.group[g] = { group.page_size, group.read_trash, group.write_trash, group.engine_table,
                   group.num_pages, group.stride,     group.set,         group.kernel_page_size };
  }
  // A missing group looks like a real one, so that only its number can keep a kernel away.
  for (size_t g = limits_.groups.size(); g < CGR__MAX_GROUPS; g++) {
    a.group[g] = a.group[0];
    a.buffers.group[g] = a.buffers.group[0];
  }
  return a;
}

StagedStep StepPair::Step(const Words &rows, const Words &query_lens, int32_t padded_requests, int32_t padded_tokens) {
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

StagedStep StepPair::Unchanged(int32_t num_requests, int32_t num_tokens, int32_t padded_requests, int32_t padded_tokens) {
  StagedStep step = Step({}, {}, padded_requests, padded_tokens);
  step.num_requests = num_requests;
  step.num_tokens = num_tokens;
  step.batch_seq = model.b.state().batch_seq;
  step.with_batch = step.with_tokens = false;
  return step;
}

void StepPair::Prologue(const StagedStep &step) {
  EXPECT_FALSE(ChangesCollide(limits_, step) || EditsCollide(step));
  unsigned char *slot = device.slot(NextSeq());
  WriteSlot(device.slot_layout(), step, slot);
  if (fetches && Fetch())
    std::memset(slot, kPoisonByte, size_t(device.slot_layout().stride)); // it is no longer read
  RunPrologue(step, device.Args(step.padded_requests, step.padded_tokens));
}

void StepPair::PrologueOfSlot(int32_t padded_requests, int32_t padded_tokens) {
  StagedStep step = ReadSlot(limits_, device.slot_layout(), device.slot(NextSeq()));
  step.padded_requests = padded_requests;
  step.padded_tokens = padded_tokens;
  if (fetches && Fetch() && step.with_edits) { // edits of such a slot may name ids that it does not count: not fetched, then
    model.b->inbox[0] = model.b->inbox[1] = 0;
    Upload();
  }
  RunPrologue(step, device.Args(padded_requests, padded_tokens));
}

void StepPair::EmptyPrologue(int32_t padded_requests, int32_t padded_tokens, bool with_staging) {
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

void StepPair::Epilogue(bool abandon) {
  args_.abandon = abandon;
  bench_.Run(cgr__kernel_epilogue, &args_);
  StepBuffers got = device.Get();
  bool repeated = RowsRepeat();
  model.Epilogue(abandon, got.state().error);
  if (repeated) { // which of its requests a row keeps is open
    model.b.CopyFrom(got, CGR__BUFFER_ROW_COMPUTED);
    model.b.CopyFrom(got, CGR__BUFFER_ROW_LAST_TOKENS);
    model.b.CopyFrom(got, CGR__BUFFER_ROW_NUM_ACCEPTED);
    if (limits_.token_stride > 1)
      model.b.CopyFrom(got, CGR__BUFFER_ROW_DRAFT_TOKENS);
  }
  ExpectBuffers(got, model.b);
  ExpectPublished();
}

bool StepPair::Fetch() {
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

void StepPair::PrologueAndEpilogue(const StagedStep &step) {
  Prologue(step);
  Epilogue();
}

void StepPair::PutNextTokens(const Words &tokens) {
  std::copy(tokens.begin(), tokens.end(), model.b->next_tokens);
  Upload();
}

void StepPair::RunPrologue(const StagedStep &step, const cgr__step_args &args) {
  args_ = args;
  args_.set = step.set;
  args_.program = step.program;
  args_.buffers.row_computed += step.program * (limits_.max_rows + 1);
  for (size_t g = 0; g < limits_.groups.size(); g++)
    args_.other_groups |= limits_.groups[g].program != step.program ? 1u << g : 0;
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
  EXPECT_TRUE(limits_.stop_tokens == 0 || device.Stops() == model.stops);
}

void StepPair::Adopt(StepBuffers &got, const StagedStep &step) {
  model.row_data = device.RowData();
  EXPECT_EQ(got.state().seq, model.b.state().seq);
  EXPECT_EQ(got->counts[CGR_COUNT_PADDED_REQUESTS], step.padded_requests);
  EXPECT_EQ(got->counts[CGR_COUNT_PADDED_TOKENS], step.padded_tokens);
  model.b = got;
  model.candidates.clear();
}

void StepPair::ExpectPublished() {
  EXPECT_EQ(device.completion()->completed_seq, model.completion.completed_seq);
  EXPECT_EQ(std::memcmp(device.completion(), &model.completion, sizeof model.completion), 0) << "completion record";
  Bytes got = device.Readback();
  if (got == model.readback)
    return;
  int64_t at = std::mismatch(got.begin(), got.end(), model.readback.begin()).first - got.begin();
  ADD_FAILURE() << "result slot " << at / model.readback_slot().stride << " differs at byte "
                << at % model.readback_slot().stride;
}

bool StepPair::RowsRepeat() {
  std::set<int32_t> rows;
  const StepBuffers &b = model.b;
  for (int32_t i = 0; i < num_requests(); i++)
    if (b->seq_lens[0][i] > 0 && b->query_start_loc[i] < b->query_start_loc[i + 1] && !rows.insert(b->request_rows[i]).second)
      return true;
  return false;
}

StepResult ReadResult(const StepPair &pair, const StepLimits &limits, uint64_t seq) {
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
