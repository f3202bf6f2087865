// The kernels around a step (prologue, planner, epilogue) on a device, and beside them what kernels/step.h says of each
// buffer, computed the plain way on the host. A test stages a slot, runs a kernel in both, and compares every buffer.
#ifndef CGR_TESTS_SUPPORT_STEP_CASE_H
#define CGR_TESTS_SUPPORT_STEP_CASE_H

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/step.h"
#include "planners/attention/plan_host.h"
#include "tests/support/device_memory.h"

namespace cgr_test {

using Words = std::vector<int32_t>;

struct StepGroup {
  int32_t page_size = 16, read_trash = 0, write_trash = 1, engine_table = 0;
  int64_t num_pages = 100, stride = 20;
};

struct StepLimits {
  int32_t max_requests = 8, max_rows = 12, max_tokens = 64, max_seq_len = 300, max_changes = 32, ring_depth = 3;
  int32_t num_parts = 5, tile_q = 8, num_counters = 20;
  std::vector<StepGroup> groups = std::vector<StepGroup>(1);
};

// What the device holds, buffer by buffer.
struct StepBuffers {
  cgr__step_state state{};
  Words input_ids, positions, query_start_loc, seq_lens, request_rows, request_flags, logits_indices;
  Words row_computed, row_last_tokens, row_num_accepted, next_tokens, counts;
  struct Group {
    Words page_table, kv_indptr, kv_last_page_len;
    std::vector<int64_t> slot_mapping;
  };
  std::vector<Group> groups;
};

// What the host stages for one step.
struct StagedStep {
  uint64_t seq = 0, batch_seq = 0, generation = 0;
  int32_t num_requests = 0, num_tokens = 0;
  bool with_batch = true, with_tokens = true;
  Words rows, starts, flags; // with_batch
  Words tokens;              // with_tokens
  std::vector<cgr__change> changes;
  int32_t num_changes = 0;
  int32_t padded_requests = 0, padded_tokens = 0;
};

inline cgr__slot_layout SlotLayout(const StepLimits &limits) {
  auto align = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  cgr__slot_layout slot;
  slot.batch = 64;
  slot.tokens = slot.batch + align(4 * (3 * limits.max_requests + 1));
  slot.changes = slot.tokens + align(4 * limits.max_tokens);
  slot.stride = slot.changes + align(16 * limits.max_changes);
  return slot;
}

// Writes what the step stages into the slot; the rest keeps what it holds.
inline void WriteSlot(const StepLimits &limits, const StagedStep &step, unsigned char *slot) {
  cgr__slot_layout layout = SlotLayout(limits);
  cgr__slot_header header = {};
  header.seq = step.seq;
  header.batch_seq = step.batch_seq;
  header.num_requests = step.num_requests;
  header.num_tokens = step.num_tokens;
  if (step.with_batch)
    header.flags |= CGR__SLOT_BATCH;
  if (step.with_tokens)
    header.flags |= CGR__SLOT_TOKENS;
  header.num_changes = step.num_changes;
  header.generation = step.generation;
  std::memcpy(slot, &header, sizeof header);
  auto put = [&](int64_t at, const void *from, size_t bytes) {
    if (bytes > 0)
      std::memcpy(slot + at, from, bytes);
  };
  if (step.with_batch) {
    Words words = step.rows;
    words.insert(words.end(), step.starts.begin(), step.starts.end());
    words.insert(words.end(), step.flags.begin(), step.flags.end());
    put(layout.batch, words.data(), words.size() * 4);
  }
  if (step.with_tokens)
    put(layout.tokens, step.tokens.data(), step.tokens.size() * 4);
  put(layout.changes, step.changes.data(), step.changes.size() * 16);
}

// What a slot says, whatever it holds; sections as far as there is room for them.
inline StagedStep ReadSlot(const StepLimits &limits, const unsigned char *slot) {
  cgr__slot_layout layout = SlotLayout(limits);
  cgr__slot_header header;
  std::memcpy(&header, slot, sizeof header);
  StagedStep step;
  step.seq = header.seq;
  step.batch_seq = header.batch_seq;
  step.num_requests = header.num_requests;
  step.num_tokens = header.num_tokens;
  step.num_changes = header.num_changes;
  step.generation = header.generation;
  step.with_batch = (header.flags & CGR__SLOT_BATCH) != 0;
  step.with_tokens = (header.flags & CGR__SLOT_TOKENS) != 0;
  auto words = [&](int64_t at, int64_t count) {
    Words content(static_cast<size_t>(count));
    if (count > 0)
      std::memcpy(content.data(), slot + at, content.size() * 4);
    return content;
  };
  if (step.with_batch && header.num_requests >= 0 && header.num_requests <= limits.max_requests) {
    int64_t n = header.num_requests;
    step.rows = words(layout.batch, n);
    step.starts = words(layout.batch + 4 * n, n + 1);
    step.flags = words(layout.batch + 4 * (2 * n + 1), n);
  }
  step.tokens = words(layout.tokens, limits.max_tokens);
  for (int32_t c = 0; header.num_changes <= limits.max_changes && c < header.num_changes; c++) {
    Words change = words(layout.changes + 16 * c, 4);
    step.changes.push_back({ change[0], change[1], change[2], change[3] });
  }
  return step;
}

// The model: buffers and the errors that may be the first of a step.
class StepModel {
public:
  // `seq`: of the last step, before the first one of the test.
  explicit StepModel(const StepLimits &limits, uint64_t seq = 0) : limits_(limits) {
    const int32_t poison = 0x6b6b6b6b;
    auto words = [&](int32_t count) { return Words(static_cast<size_t>(count), poison); };
    b.state = {};
    b.state.seq = seq;
    b.state.error.row = -1;
    b.input_ids = b.positions = words(limits.max_tokens);
    b.query_start_loc = words(limits.max_requests + 1);
    b.seq_lens = b.request_rows = b.request_flags = b.logits_indices = b.next_tokens = words(limits.max_requests);
    b.row_last_tokens = b.row_num_accepted = words(limits.max_rows);
    b.row_computed = Words(static_cast<size_t>(limits.max_rows), 0);
    b.counts = words(16);
    for (const StepGroup &group : limits.groups) {
      StepBuffers::Group g;
      g.page_table = Words(static_cast<size_t>(limits.max_rows * group.stride), group.read_trash);
      g.kv_indptr = words(limits.max_requests + 1);
      g.kv_last_page_len = words(limits.max_requests);
      g.slot_mapping.assign(static_cast<size_t>(limits.max_tokens), 0x6b6b6b6b6b6b6b6b);
      b.groups.push_back(g);
    }
  }

  void Prologue(const StagedStep &staged) {
    candidates.clear();
    b.state.lost = 0;
    StagedStep step = staged;
    if (!Acceptable(step)) {
      b.state.batch_seq = 0;
      step.num_requests = step.num_tokens = 0;
    } else {
      ApplyChanges(step);
      if (candidates.empty())
        phase_ended_ = false;
      if (step.with_batch) {
        b.state.batch_seq = step.seq;
        for (int32_t i = 0; i < step.num_requests; i++)
          b.request_rows[i] = step.rows[i], b.request_flags[i] = step.flags[i];
      }
    }
    Derive(step, Starts(step));
  }

  // `error` is what the device reported.
  void Epilogue(const cgr__step_error &error, bool abandon) {
    for (int32_t i = 0; i < b.counts[CGR__COUNT_REQUESTS] && !abandon; i++) {
      if (b.seq_lens[i] == 0 || b.query_start_loc[i] == b.query_start_loc[i + 1])
        continue;
      b.row_computed[b.request_rows[i]] = b.seq_lens[i];
      if ((b.request_flags[i] & static_cast<int32_t>(CGR_REQUEST_PARTIAL)) == 0)
        b.row_last_tokens[b.request_rows[i]] = b.next_tokens[i];
    }
    if (error.error != 0)
      b.state.errors++;
    if (b.state.lost)
      b.state.generation++;
    b.state.seq++;
  }

  StepBuffers b;
  std::vector<cgr__step_error> candidates; // empty: no error

private:
  void Trip(int32_t error, int32_t row, int32_t index, int64_t value) {
    if (!phase_ended_)
      candidates.push_back({ error, row, index, 0, value });
  }
  Words Starts(const StagedStep &step) const {
    Words starts(1, 0);
    if (step.num_requests == 0 && step.num_tokens == 0)
      return starts;
    if (step.with_batch)
      return step.starts;
    return Words(b.query_start_loc.begin(), b.query_start_loc.begin() + step.num_requests + 1);
  }
  bool Acceptable(const StagedStep &step) {
    phase_ended_ = false;
    b.state.lost = 1; // unless something is in order
    if (step.seq != b.state.seq + 1)
      return Trip(CGR_STEP_SEQUENCE, -1, 0, static_cast<int64_t>(step.seq)), false;
    if (step.generation != b.state.generation) {
      b.state.lost = 0; // it was counted before
      return Trip(CGR_STEP_SEQUENCE, -1, 2, static_cast<int64_t>(step.generation)), false;
    }
    if (step.num_requests < 0 || step.num_requests > std::min(limits_.max_requests, step.padded_requests))
      Trip(CGR_STEP_COUNT, -1, 0, step.num_requests);
    if (step.num_tokens < 0 || step.num_tokens > std::min(limits_.max_tokens, step.padded_tokens))
      Trip(CGR_STEP_COUNT, -1, 1, step.num_tokens);
    if (!step.with_batch && (b.state.batch_seq == 0 || step.batch_seq != b.state.batch_seq))
      Trip(CGR_STEP_SEQUENCE, -1, 1, static_cast<int64_t>(step.batch_seq));
    if (!candidates.empty())
      return false;
    Words starts = step.starts;
    if (!step.with_batch)
      starts.assign(b.query_start_loc.begin(), b.query_start_loc.begin() + step.num_requests + 1);
    int32_t bad = starts[0] != 0 ? 0 : 1; // the first wrong place, and no other
    while (bad > 0 && bad <= step.num_requests && starts[bad] >= starts[bad - 1])
      bad++;
    if (bad > step.num_requests && starts[step.num_requests] == step.num_tokens)
      return b.state.lost = 0, true;
    bad = std::min(bad, step.num_requests);
    return Trip(CGR_STEP_COUNT, -1, 2 + bad, starts[bad]), false;
  }
  static bool BadPage(const StepGroup &group, int32_t page) {
    return page < 0 || page >= group.num_pages || page == group.write_trash;
  }
  void ApplyChanges(const StagedStep &step) {
    if (step.num_changes < 0 || step.num_changes > limits_.max_changes) {
      Trip(CGR_STEP_CHANGE, -1, -1, step.num_changes);
      b.state.lost = 1;
      return;
    }
    for (int32_t c = 0; c < step.num_changes; c++)
      if (!ApplyChange(step.changes[c])) {
        Trip(CGR_STEP_CHANGE, -1, c, step.changes[c].kind);
        b.state.lost = 1;
      }
    phase_ended_ = !candidates.empty(); // what comes later cannot be first
  }
  bool ApplyChange(const cgr__change &change) {
    if (change.row < 0 || change.row >= limits_.max_rows)
      return false;
    if (change.kind == CGR__CHANGE_COMPUTED) {
      b.row_computed[change.row] = change.value;
      b.row_num_accepted[change.row] = 0;
      return true;
    }
    if (change.kind == CGR__CHANGE_LAST_TOKEN) {
      b.row_last_tokens[change.row] = change.value;
      return true;
    }
    for (size_t g = 0; g < limits_.groups.size(); g++) {
      const StepGroup &group = limits_.groups[g];
      if (change.kind != (CGR__CHANGE_PAGE | static_cast<int32_t>(g) << 8))
        continue;
      if (group.engine_table || change.index < 0 || change.index >= group.stride)
        return false;
      bool bad = BadPage(group, change.value);
      if (bad)
        Trip(CGR_STEP_PAGE, change.row, change.index, change.value);
      b.groups[g].page_table[change.row * group.stride + change.index] = bad ? group.read_trash : change.value;
      return true;
    }
    return false;
  }
  int32_t LengthOf(int32_t i, int32_t query_len) {
    int32_t row = b.request_rows[i];
    if (row < 0 || row >= limits_.max_rows)
      return Trip(CGR_STEP_ROW, -1, i, row), 0;
    int64_t length = int64_t{ b.row_computed[row] } + query_len;
    if (b.row_computed[row] < 0 || length > limits_.max_seq_len)
      return Trip(CGR_STEP_LENGTH, row, i, length), 0;
    return static_cast<int32_t>(length);
  }
  int64_t SlotOf(size_t g, int32_t row, int32_t position) {
    const StepGroup &group = limits_.groups[g];
    int32_t page = b.groups[g].page_table[row * group.stride + position / group.page_size];
    if (!BadPage(group, page) && page != group.read_trash)
      return int64_t{ page } * group.page_size + position % group.page_size;
    Trip(CGR_STEP_PAGE, row, position / group.page_size, page);
    return -1;
  }
  void Derive(const StagedStep &step, const Words &starts) {
    int32_t n = step.num_requests;
    for (size_t g = 0; g < limits_.groups.size(); g++)
      b.groups[g].kv_indptr[0] = 0;
    b.query_start_loc[0] = 0;
    for (int32_t i = 0; i < step.padded_requests; i++) {
      int32_t query_len = i < n ? starts[i + 1] - starts[i] : 0;
      if (i >= n)
        b.request_rows[i] = b.request_flags[i] = 0;
      b.query_start_loc[i + 1] = i < n ? starts[i + 1] : step.num_tokens;
      b.seq_lens[i] = i < n ? LengthOf(i, query_len) : 0;
      b.logits_indices[i] = query_len > 0 ? starts[i + 1] - 1 : 0;
      for (size_t g = 0; g < limits_.groups.size(); g++) {
        int32_t size = limits_.groups[g].page_size, pages = (b.seq_lens[i] + size - 1) / size;
        b.groups[g].kv_indptr[i + 1] = b.groups[g].kv_indptr[i] + pages;
        b.groups[g].kv_last_page_len[i] = pages == 0 ? 1 : b.seq_lens[i] - (pages - 1) * size;
      }
      for (int32_t j = 0; j < query_len; j++)
        DeriveToken(step, i, starts[i] + j, b.seq_lens[i] - query_len + j);
    }
    for (int32_t t = step.num_tokens; t < step.padded_tokens; t++) {
      b.input_ids[t] = b.positions[t] = 0;
      for (StepBuffers::Group &group : b.groups)
        group.slot_mapping[t] = -1;
    }
    b.counts[0] = n;
    b.counts[1] = step.num_tokens;
    b.counts[2] = step.padded_requests;
    b.counts[3] = step.padded_tokens;
  }
  void DeriveToken(const StagedStep &step, int32_t i, int32_t t, int32_t position) {
    bool refused = b.seq_lens[i] == 0;
    int32_t token = step.with_tokens ? step.tokens[t] : CGR_TOKEN_LAST;
    if (!refused && token == CGR_TOKEN_LAST)
      token = b.row_last_tokens[b.request_rows[i]];
    b.input_ids[t] = refused ? 0 : token;
    b.positions[t] = refused ? 0 : position;
    for (size_t g = 0; g < limits_.groups.size(); g++)
      b.groups[g].slot_mapping[t] = refused ? -1 : SlotOf(g, b.request_rows[i], position);
  }

  StepLimits limits_;
  bool phase_ended_ = false;
};

// The same buffers on a device.
class StepDevice {
public:
  StepDevice(Bench &bench, const StepLimits &limits, const StepBuffers &b)
      : limits_(limits), slot_(SlotLayout(limits)),
        staging_(bench, static_cast<size_t>(slot_.stride * limits.ring_depth), CGR__MEMORY_PINNED),
        readback_(bench, static_cast<size_t>(ReadbackStride() * limits.ring_depth), CGR__MEMORY_PINNED),
        completion_(bench, std::vector<cgr__completion>(1), CGR__MEMORY_PINNED),
        state_(bench, std::vector<cgr__step_state>{ b.state }), input_ids_(bench, b.input_ids), positions_(bench, b.positions),
        query_start_loc_(bench, b.query_start_loc), seq_lens_(bench, b.seq_lens), request_rows_(bench, b.request_rows),
        request_flags_(bench, b.request_flags), logits_indices_(bench, b.logits_indices), row_computed_(bench, b.row_computed),
        row_last_tokens_(bench, b.row_last_tokens), row_num_accepted_(bench, b.row_num_accepted),
        next_tokens_(bench, b.next_tokens), counts_(bench, b.counts), plan_(bench, (cgr__plan_bytes(limits.num_parts) + 7) / 8),
        counters_(bench, static_cast<size_t>(limits.num_counters)) {
    for (const StepBuffers::Group &group : b.groups) {
      page_tables_.push_back(std::make_unique<Array<int32_t>>(bench, group.page_table));
      kv_indptr_.push_back(std::make_unique<Array<int32_t>>(bench, group.kv_indptr));
      last_page_.push_back(std::make_unique<Array<int32_t>>(bench, group.kv_last_page_len));
      slots_.push_back(std::make_unique<Array<int64_t>>(bench, group.slot_mapping));
    }
  }

  int64_t ReadbackStride() const { return 64 + (4 * limits_.max_requests + 63) / 64 * 64; }

  void Stage(const StagedStep &step) { StageInto(step, step.seq % static_cast<uint64_t>(limits_.ring_depth)); }
  // Into a slot of the test's choice: what is not written keeps the slot's last content.
  void StageInto(const StagedStep &step, uint64_t index) { WriteSlot(limits_, step, slot(index)); }
  unsigned char *slot(uint64_t index) { return staging_.data() + static_cast<int64_t>(index) * slot_.stride; }

  cgr__step_args Args(int32_t padded_requests, int32_t padded_tokens) {
    cgr__step_args a;
    std::memset(&a, 0, sizeof a);
    a.staging = staging_.data();
    a.slot = slot_;
    a.readback = readback_.data();
    a.readback_stride = ReadbackStride();
    a.completion = completion_.data();
    a.state = state_.data();
    a.ring_depth = limits_.ring_depth;
    a.max_requests = limits_.max_requests;
    a.max_rows = limits_.max_rows;
    a.max_tokens = limits_.max_tokens;
    a.max_seq_len = limits_.max_seq_len;
    a.max_changes = limits_.max_changes;
    a.padded_requests = padded_requests;
    a.padded_tokens = padded_tokens;
    a.num_groups = static_cast<int32_t>(limits_.groups.size());
    a.num_parts = limits_.num_parts;
    a.tile_q = limits_.tile_q;
    a.num_counters = limits_.num_counters;
    a.input_ids = input_ids_.data();
    a.positions = positions_.data();
    a.query_start_loc = query_start_loc_.data();
    a.seq_lens = seq_lens_.data();
    a.request_rows = request_rows_.data();
    a.request_flags = request_flags_.data();
    a.logits_indices = logits_indices_.data();
    a.row_computed = row_computed_.data();
    a.row_last_tokens = row_last_tokens_.data();
    a.row_num_accepted = row_num_accepted_.data();
    a.next_tokens = next_tokens_.data();
    a.counts = counts_.data();
    a.plan = reinterpret_cast<int32_t *>(plan_.data());
    a.plan_counters = counters_.data();
    for (size_t g = 0; g < limits_.groups.size(); g++) {
      const StepGroup &group = limits_.groups[g];
      a.groups[g].page_size = group.page_size;
      a.groups[g].read_trash_page = group.read_trash;
      a.groups[g].write_trash_page = group.write_trash;
      a.groups[g].num_pages = group.num_pages;
      a.groups[g].page_table_stride = group.stride;
      a.groups[g].page_table = page_tables_[g]->data();
      a.groups[g].slot_mapping = slots_[g]->data();
      a.groups[g].kv_indptr = kv_indptr_[g]->data();
      a.groups[g].kv_last_page_len = last_page_[g]->data();
      a.groups[g].engine_table = group.engine_table;
    }
    // A group that is not there looks like one, so that only its number can keep a kernel away.
    for (size_t g = limits_.groups.size(); g < CGR__MAX_GROUPS; g++)
      a.groups[g] = a.groups[0];
    return a;
  }

  StepBuffers Get() const {
    StepBuffers b;
    b.state = state_.Get()[0];
    b.input_ids = input_ids_.Get();
    b.positions = positions_.Get();
    b.query_start_loc = query_start_loc_.Get();
    b.seq_lens = seq_lens_.Get();
    b.request_rows = request_rows_.Get();
    b.request_flags = request_flags_.Get();
    b.logits_indices = logits_indices_.Get();
    b.row_computed = row_computed_.Get();
    b.row_last_tokens = row_last_tokens_.Get();
    b.row_num_accepted = row_num_accepted_.Get();
    b.next_tokens = next_tokens_.Get();
    b.counts = counts_.Get();
    for (size_t g = 0; g < limits_.groups.size(); g++)
      b.groups.push_back({ page_tables_[g]->Get(), kv_indptr_[g]->Get(), last_page_[g]->Get(), slots_[g]->Get() });
    return b;
  }
  void PutNextTokens(const Words &tokens) { next_tokens_.Put(tokens); }
  void PutBatch(const StepBuffers &b) {
    query_start_loc_.Put(b.query_start_loc);
    seq_lens_.Put(b.seq_lens);
    request_rows_.Put(b.request_rows);
    request_flags_.Put(b.request_flags);
  }
  void PutPageTable(size_t group, const Words &table) { page_tables_[group]->Put(table); }
  std::vector<int64_t> Plan() const { return plan_.Get(); }
  Words Counters() const { return counters_.Get(); }
  cgr__completion *completion() { return completion_.data(); }
  const unsigned char *readback(uint64_t seq) const {
    return readback_.data() + static_cast<int64_t>(seq % static_cast<uint64_t>(limits_.ring_depth)) * ReadbackStride();
  }
  // The tokens that the result of a step has room for.
  Words ResultTokens(uint64_t seq) const {
    Words tokens(static_cast<size_t>(limits_.max_requests));
    std::memcpy(tokens.data(), readback(seq) + sizeof(cgr__result_record), tokens.size() * 4);
    return tokens;
  }

private:
  StepLimits limits_;
  cgr__slot_layout slot_;
  Array<unsigned char> staging_, readback_;
  Array<cgr__completion> completion_;
  Array<cgr__step_state> state_;
  Array<int32_t> input_ids_, positions_, query_start_loc_, seq_lens_, request_rows_, request_flags_, logits_indices_,
      row_computed_, row_last_tokens_, row_num_accepted_, next_tokens_, counts_;
  Array<int64_t> plan_;
  Array<int32_t> counters_;
  std::vector<std::unique_ptr<Array<int32_t>>> page_tables_, kv_indptr_, last_page_;
  std::vector<std::unique_ptr<Array<int64_t>>> slots_;
};

inline bool SameError(const cgr__step_error &a, const cgr__step_error &b) {
  return a.error == b.error && a.row == b.row && a.index == b.index && a.value == b.value;
}

inline std::string ErrorText(const cgr__step_error &e) {
  return "error " + std::to_string(e.error) + " row " + std::to_string(e.row) + " index " + std::to_string(e.index) + " value " +
         std::to_string(e.value);
}

// Every word of every buffer; and the error is one that the model allows to be the first.
inline void ExpectBuffers(const StepBuffers &got, const StepModel &model) {
  const StepBuffers &b = model.b;
  EXPECT_EQ(got.state.seq, b.state.seq);
  EXPECT_EQ(got.state.batch_seq, b.state.batch_seq);
  EXPECT_EQ(got.state.errors, b.state.errors);
  EXPECT_EQ(got.state.generation, b.state.generation);
  EXPECT_EQ(got.state.lost, b.state.lost);
  EXPECT_EQ(got.input_ids, b.input_ids);
  EXPECT_EQ(got.positions, b.positions);
  EXPECT_EQ(got.query_start_loc, b.query_start_loc);
  EXPECT_EQ(got.seq_lens, b.seq_lens);
  EXPECT_EQ(got.request_rows, b.request_rows);
  EXPECT_EQ(got.request_flags, b.request_flags);
  EXPECT_EQ(got.logits_indices, b.logits_indices);
  EXPECT_EQ(got.row_computed, b.row_computed);
  EXPECT_EQ(got.row_last_tokens, b.row_last_tokens);
  EXPECT_EQ(got.row_num_accepted, b.row_num_accepted);
  EXPECT_EQ(got.next_tokens, b.next_tokens);
  EXPECT_EQ(got.counts, b.counts);
  for (size_t g = 0; g < b.groups.size(); g++) {
    SCOPED_TRACE("group " + std::to_string(g));
    EXPECT_EQ(got.groups[g].page_table, b.groups[g].page_table);
    EXPECT_EQ(got.groups[g].kv_indptr, b.groups[g].kv_indptr);
    EXPECT_EQ(got.groups[g].kv_last_page_len, b.groups[g].kv_last_page_len);
    EXPECT_EQ(got.groups[g].slot_mapping, b.groups[g].slot_mapping);
  }
  bool allowed = model.candidates.empty() && SameError(got.state.error, { 0, -1, 0, 0, 0 });
  std::string expected;
  for (const cgr__step_error &candidate : model.candidates) {
    allowed = allowed || SameError(got.state.error, candidate);
    expected += "\n  " + ErrorText(candidate);
  }
  EXPECT_TRUE(allowed) << "reported " << ErrorText(got.state.error) << ", expected one of:" << expected;
}

// The result of step `seq`, and that it is the last one published. `state` has the counts of the completion record.
inline void ExpectResult(StepDevice &device, uint64_t seq, const cgr__step_error &error, const cgr__step_state &state,
                         const Words &tokens) {
  cgr__result_record record;
  std::memcpy(&record, device.readback(seq), sizeof record);
  EXPECT_EQ(record.seq, seq);
  EXPECT_EQ(record.num_requests, static_cast<int32_t>(tokens.size()));
  const cgr__step_error got_error = { record.error, record.error_row, record.error_index, 0, record.error_value };
  EXPECT_TRUE(SameError(got_error, error)) << ErrorText(got_error) << ", expected " << ErrorText(error);
  Words got = device.ResultTokens(seq);
  got.resize(tokens.size());
  EXPECT_EQ(got, tokens);
  EXPECT_EQ(device.completion()->completed_seq, seq);
  EXPECT_EQ(device.completion()->errors, state.errors);
  EXPECT_EQ(device.completion()->generation, state.generation);
}

// Whether two changes that a guard lets pass name the same word: then nobody can say which of them holds.
inline bool ChangesCollide(const StepLimits &limits, const StagedStep &step) {
  std::set<std::tuple<int32_t, int32_t, int32_t>> words;
  for (const cgr__change &change : step.changes) {
    bool page = (change.kind & 0xff) == CGR__CHANGE_PAGE;
    if (change.row < 0 || change.row >= limits.max_rows)
      continue;
    if (!page && change.kind != CGR__CHANGE_COMPUTED && change.kind != CGR__CHANGE_LAST_TOKEN)
      continue;
    if (!words.insert({ change.kind, change.row, page ? change.index : 0 }).second)
      return true;
  }
  return false;
}

// Device and model, side by side.
class StepPair {
public:
  StepPair(Bench &bench, const StepLimits &limits) : StepPair(bench, limits, StepModel(limits)) {}
  StepPair(Bench &bench, const StepLimits &limits, const StepModel &first)
      : model(first), device(bench, limits, first.b), bench_(bench), limits_(limits) {}

  // Stages and runs a prologue in both and compares.
  void Prologue(const StagedStep &step) {
    device.StageInto(step, NextSlot());
    EXPECT_FALSE(ChangesCollide(limits_, step));
    PrologueOfSlot(step.padded_requests, step.padded_tokens);
  }
  // The same of whatever bytes are in the slot. Where the contract leaves open what they mean, the model takes it from the
  // device.
  void PrologueOfSlot(int32_t padded_requests, int32_t padded_tokens) {
    StagedStep step = ReadSlot(limits_, device.slot(NextSlot()));
    step.padded_requests = padded_requests;
    step.padded_tokens = padded_tokens;
    args_ = device.Args(padded_requests, padded_tokens);
    bench_.Run(cgr__kernel_prologue, &args_);
    StepBuffers got = device.Get();
    error = got.state.error;
    uint64_t seq = model.b.state.seq;
    bool collide = ChangesCollide(limits_, step);
    if (!collide) {
      model.Prologue(step);
      ExpectBuffers(got, model);
      return;
    }
    model.b = got;
    model.candidates.clear();
    if (error.error != CGR_STEP_OK)
      model.candidates.push_back(error);
    EXPECT_EQ(got.state.seq, seq);
    EXPECT_EQ(got.counts[CGR__COUNT_PADDED_REQUESTS], padded_requests);
    EXPECT_EQ(got.counts[CGR__COUNT_PADDED_TOKENS], padded_tokens);
  }
  void Epilogue(bool abandon = false) {
    args_.abandon = abandon;
    bench_.Run(cgr__kernel_epilogue, &args_);
    StepBuffers got = device.Get();
    bool repeated = RowsRepeat();
    model.Epilogue(error, abandon);
    if (repeated) { // which of its requests a row keeps is open
      model.b.row_computed = got.row_computed;
      model.b.row_last_tokens = got.row_last_tokens;
    }
    ExpectBuffers(got, model);
  }
  void PutNextTokens(const Words &tokens) {
    model.b.next_tokens = tokens;
    device.PutNextTokens(tokens);
  }
  // A good step of the rows, padded as asked.
  StagedStep Step(const Words &rows, const Words &query_lens, int32_t padded_requests, int32_t padded_tokens) const {
    StagedStep step;
    step.seq = step.batch_seq = model.b.state.seq + 1;
    step.generation = model.b.state.generation;
    step.num_requests = static_cast<int32_t>(rows.size());
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
  const cgr__step_args &args() const { return args_; }
  uint64_t NextSlot() const { return (model.b.state.seq + 1) % static_cast<uint64_t>(limits_.ring_depth); }

  StepModel model;
  StepDevice device;
  cgr__step_error error{};

private:
  // Whether two requests commit to one row.
  bool RowsRepeat() const {
    std::set<int32_t> rows;
    for (int32_t i = 0; i < model.b.counts[CGR__COUNT_REQUESTS]; i++)
      if (model.b.seq_lens[i] > 0 && model.b.query_start_loc[i] < model.b.query_start_loc[i + 1] &&
          !rows.insert(model.b.request_rows[i]).second)
        return true;
    return false;
  }

  Bench &bench_;
  StepLimits limits_;
  cgr__step_args args_{};
};

inline void AddChange(StagedStep *step, int32_t kind, int32_t row, int32_t index, int32_t value) {
  step->changes.push_back({ kind, row, index, value });
  step->num_changes++;
}

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_STEP_CASE_H
