// The persistent buffers on the host and on a device, for tests. Everything here follows buffers/table.h: a buffer added there is
// laid out, poisoned, copied and compared without any code of its own.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "buffers/layout.h"
#include "kernels/step.h"
#include "tests/support/device_memory.h"

namespace cgr_test {

using Words = std::vector<int32_t>;

struct StepGroup {
  int32_t page_size = 16, read_trash = 0, write_trash = 1, engine_table = 0;
  int64_t num_pages = 100, stride = 20;
  int32_t set = 0;
  int32_t kernel_page_size = 0;
  int32_t program = 0;
};

struct StepLimits {
  int32_t max_requests = 8, max_rows = 12, max_tokens = 64, max_seq_len = 300, max_changes = 32, ring_depth = 3;
  int32_t token_stride = 1; // 1 + k
  int32_t stop_tokens = 0;  // that a row can have; 0: rows have no stops
  int32_t vocab_size = 0;   // sampled tokens are below it; 0: they are not checked
  int32_t num_sets = 1;
  int32_t num_programs = 1;
  std::array<int32_t, CGR__MAX_SETS> other_lens = {}; // the most tokens of a row in sets after 0; 0: max_seq_len
  int32_t reorder_threshold = 0, uniform_split = 0;
  int32_t plan_words = 60, num_counters = 20; // for kernels that know nothing about them
  int32_t spare = 0;                          // room for requests and tokens beyond the limits: only a guard keeps them away
  bool values = false;                        // the runtime checks values
  bool scattered = false;                     // the ring slots' sections are in another order than the library's, with gaps
  std::vector<StepGroup> groups = std::vector<StepGroup>(1);

  int32_t MaxLen(int32_t set) const { return set > 0 && other_lens[size_t(set)] > 0 ? other_lens[size_t(set)] : max_seq_len; }

  int32_t StopWords() const { return stop_tokens > 0 ? 3 + stop_tokens : 0; }

  // As the table takes them.
  cgr__limits Table() const {
    cgr__limits limits = {};
    limits.max_requests = max_requests + spare;
    limits.max_rows = max_rows;
    limits.max_tokens = max_tokens + spare;
    for (int32_t s = 0; s < num_sets; s++)
      limits.max_lens[s] = MaxLen(s);
    limits.num_groups = int32_t(groups.size());
    limits.num_sets = num_sets;
    limits.num_programs = num_programs;
    for (size_t g = 0; g < groups.size(); g++) {
      limits.pages_per_row[g] = int32_t(groups[g].stride);
      limits.trash_page[g] = groups[g].read_trash;
    }
    limits.token_stride = token_stride;
    limits.ring_depth = ring_depth;
    limits.max_changes = max_changes;
    limits.value_words = values;
    limits.stop_words = StopWords();
    limits.plan_words = plan_words;
    limits.plan_counters = num_counters;
    limits.partial_vectors = 4;
    limits.partial_dim = 8;
    return limits;
  }
};

// Calls visit(id, copy, shape) for every buffer of the table.
template <class Visit> void EachBuffer(const cgr__limits &limits, Visit visit) {
  for (int id = 0; id < CGR__BUFFER_COUNT; id++)
    for (int32_t copy = 0; copy < cgr__buffer_shape_of(&limits, id, 0).copies; copy++)
      visit(id, copy, cgr__buffer_shape_of(&limits, id, copy));
}

inline size_t SizeInBytes(const cgr__buffer_shape &shape) {
  return size_t(shape.rows * shape.columns) * cgr_dtype_size(shape.dtype);
}

// Where each buffer is in an arena with guards.
struct StepArena {
  explicit StepArena(const StepLimits &from) : limits(from.Table()) {
    EXPECT_EQ(cgr__layout_make(&limits, nullptr, 0, &layout), CGR_OK);
    if (from.scattered)
      Scatter();
    EachBuffer(limits, [&](int id, int32_t copy, const cgr__buffer_shape &shape) {
      const size_t bytes = SizeInBytes(shape);
      layout.offset[id][copy] = places.Add(id == CGR__BUFFER_INBOX ? std::max(bytes, size_t(layout.slot.stride)) : bytes);
    });
  }
  cgr__buffers View(unsigned char *base) const {
    cgr__buffers view;
    cgr__layout_view(&limits, &layout, base, &view);
    return view;
  }
  cgr__limits limits;
  cgr__layout layout = {}; // offsets of this arena, and the library's rings
  Places places;

private:
  void Scatter() {
    const cgr__ring_slot_layout slot = layout.slot;
    const cgr__readback_layout readback = layout.readback;
    layout.slot.tokens = slot.batch + 128;
    layout.slot.changes = layout.slot.tokens + slot.changes - slot.tokens + 64;
    layout.slot.edits = layout.slot.changes + slot.edits - slot.changes + 64;
    layout.slot.batch = layout.slot.edits + slot.stride - slot.edits + 128;
    layout.slot.stride = slot.stride + 1024;
    layout.readback.tokens = readback.num_tokens + 64;
    layout.readback.num_tokens = layout.readback.tokens + readback.stride - readback.tokens + 192;
    layout.readback.values = layout.readback.num_tokens + readback.tokens - readback.num_tokens + 64;
    layout.readback.stride = readback.stride + 512;
  }
};

// An image of the arena in the host's memory. Everything is poison at first.
class StepBuffers {
public:
  explicit StepBuffers(std::shared_ptr<const StepArena> arena) : StepBuffers(arena, arena->places.Image()) {}
  StepBuffers(std::shared_ptr<const StepArena> arena, const Bytes &image) : arena_(arena), image_(image) { Refresh(); }
  StepBuffers(const StepBuffers &other) : arena_(other.arena_), image_(other.image_) { Refresh(); }
  StepBuffers &operator=(const StepBuffers &other) {
    arena_ = other.arena_;
    image_ = other.image_;
    Refresh();
    return *this;
  }

  cgr__buffers *operator->() { return &view_; }
  const cgr__buffers *operator->() const { return &view_; }
  cgr__step_state &state() { return *reinterpret_cast<cgr__step_state *>(view_.step_state); }
  const cgr__ring_slot_header &inbox() const { return *reinterpret_cast<const cgr__ring_slot_header *>(view_.inbox); }
  const unsigned char *inbox_bytes() const { return reinterpret_cast<const unsigned char *>(view_.inbox); }
  const StepArena &arena() const { return *arena_; }
  const Bytes &image() const { return image_; }

  // The bytes of one buffer.
  unsigned char *at(int id, int32_t copy) { return image_.data() + arena_->layout.offset[id][copy]; }
  const unsigned char *at(int id, int32_t copy) const { return image_.data() + arena_->layout.offset[id][copy]; }
  int64_t Element(int id, int32_t copy, int64_t index) const {
    cgr_dtype dtype = cgr__buffer_shape_of(&arena_->limits, id, copy).dtype;
    const unsigned char *from = at(id, copy) + index * int64_t(cgr_dtype_size(dtype));
    int32_t word = 0; // fp32: its bits
    int64_t wide = 0;
    if (dtype == CGR_DTYPE_I64)
      std::memcpy(&wide, from, sizeof wide);
    else
      std::memcpy(&word, from, sizeof word);
    return dtype == CGR_DTYPE_I64 ? wide : word;
  }
  void SetElement(int id, int32_t copy, int64_t index, int64_t value) {
    cgr_dtype dtype = cgr__buffer_shape_of(&arena_->limits, id, copy).dtype;
    unsigned char *to = at(id, copy) + index * int64_t(cgr_dtype_size(dtype));
    float number = float(value);
    int32_t word = int32_t(value);
    if (dtype == CGR_DTYPE_I64)
      std::memcpy(to, &value, sizeof value);
    else if (dtype == CGR_DTYPE_FP32)
      std::memcpy(to, &number, sizeof number);
    else
      std::memcpy(to, &word, sizeof word);
  }
  // All copies of a buffer become what they are in `other`.
  void CopyFrom(const StepBuffers &other, int id) {
    for (int32_t copy = 0; copy < cgr__buffer_shape_of(&arena_->limits, id, 0).copies; copy++)
      std::memcpy(at(id, copy), other.at(id, copy), SizeInBytes(cgr__buffer_shape_of(&arena_->limits, id, copy)));
  }

private:
  void Refresh() { view_ = arena_->View(image_.data()); }

  std::shared_ptr<const StepArena> arena_;
  Bytes image_;
  cgr__buffers view_;
};

// The counts of a step: real and padded.
struct StepCounts {
  int32_t requests, tokens, padded_requests, padded_tokens;
};

// What the entries past the real ones hold in every step, in every staged or planned buffer of tokens or requests.
inline void FillPadding(const StepCounts &counts, StepBuffers *b) {
  EachBuffer(b->arena().limits, [&](int id, int32_t copy, const cgr__buffer_shape &shape) {
    bool of_tokens = shape.shape == CGR__SHAPE_TOKENS, one_more = shape.shape == CGR__SHAPE_REQUESTS_1;
    if (!of_tokens && !one_more && shape.shape != CGR__SHAPE_REQUESTS)
      return;
    if (shape.source != CGR__SOURCE_STAGED && shape.source != CGR__SOURCE_PLANNED)
      return;
    int64_t real = of_tokens ? counts.tokens : counts.requests + one_more;
    int64_t padded = of_tokens ? counts.padded_tokens : counts.padded_requests + one_more;
    for (int64_t at = real; at < padded; at++) {
      if (shape.padding == CGR__PADDING_REPEAT)
        b->SetElement(id, copy, at, at > 0 ? b->Element(id, copy, at - 1) : 0);
      else if (shape.padding != CGR__PADDING_NONE)
        b->SetElement(id, copy, at, shape.padding == CGR__PADDING_ROW ? b->arena().limits.max_rows : shape.padding);
    }
  });
}

// Whether tests know what the buffer holds. Buffers that kernels write during a step are left out, except the sampled tokens,
// which no kernel of the library writes.
inline bool IsCompared(int id, const cgr__buffer_shape &shape) {
  return shape.source != CGR__SOURCE_WRITTEN || id == CGR__BUFFER_NEXT_TOKENS;
}

// Every element of every buffer.
inline void ExpectBuffers(const StepBuffers &got, const StepBuffers &expected) {
  EachBuffer(expected.arena().limits, [&](int id, int32_t copy, const cgr__buffer_shape &shape) {
    if (!IsCompared(id, shape) || std::memcmp(got.at(id, copy), expected.at(id, copy), SizeInBytes(shape)) == 0)
      return;
    int64_t e = 0;
    while (got.Element(id, copy, e) == expected.Element(id, copy, e))
      e++;
    ADD_FAILURE() << shape.name << "[" << e / shape.columns << "][" << e % shape.columns << "] of copy " << copy << " is "
                  << got.Element(id, copy, e) << ", expected " << expected.Element(id, copy, e);
  });
}

} // namespace cgr_test
