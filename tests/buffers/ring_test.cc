// The staging ring and the readback ring against a model: which slot a step may have, what a slot's number says, and that no one
// writes what a step in flight may still read (PROTOCOL.md).
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "buffers/ring.h"
#include "tests/buffers/limits.h"

namespace {

using namespace cgr_test;

cgr__layout LayoutFor(Random &random, int32_t depth, cgr__limits *limits) {
  cgr__layout layout;
  *limits = RandomLimits(random);
  limits->ring_depth = depth;
  EXPECT_EQ(cgr__layout_make(limits, nullptr, 0, &layout), CGR_OK);
  return layout;
}

// A ring in memory of exactly its size, with a device that completes steps when told to.
struct Rig {
  cgr__limits limits;
  cgr__layout layout;
  std::unique_ptr<void, decltype(&free)> memory;
  cgr__ring ring;
  int32_t depth;

  Rig(Random &random, int32_t slots) : layout(LayoutFor(random, slots, &limits)), memory(nullptr, free), depth(slots) {
    memory.reset(aligned_alloc(64, (layout.pinned_bytes + 63) / 64 * 64));
    memset(memory.get(), 0xa5, layout.pinned_bytes);
    cgr__ring_init(&ring, &layout, depth, memory.get());
  }
  void Complete(uint64_t seq) { __atomic_store_n(&ring.completion->completed_seq, seq, __ATOMIC_RELEASE); }

  // Fills all of a slot, to the ends of its sections, with `word` and a number per section. The slot's number is not touched.
  void Write(cgr__ring_slot_header *slot, int32_t word) {
    slot->num_requests = slot->num_tokens = slot->num_changes = word;
    for (int32_t i = 0; i < 3 * limits.max_requests + 1; i++)
      cgr__ring_batch(&ring, slot)[i] = word ^ 1 << 20;
    for (int32_t i = 0; i < limits.max_tokens; i++)
      cgr__ring_tokens(&ring, slot)[i] = word ^ 1 << 21;
    for (int32_t i = 0; i < limits.max_changes; i++)
      cgr__ring_changes(&ring, slot)[i] = { word, word, word, word };
  }
  bool Holds(cgr__ring_slot_header *slot, int32_t word) {
    bool same = slot->num_requests == word && slot->num_tokens == word && slot->num_changes == word;
    for (int32_t i = 0; i < 3 * limits.max_requests + 1; i++)
      same &= cgr__ring_batch(&ring, slot)[i] == (word ^ 1 << 20);
    for (int32_t i = 0; i < limits.max_tokens; i++)
      same &= cgr__ring_tokens(&ring, slot)[i] == (word ^ 1 << 21);
    for (int32_t i = 0; i < limits.max_changes; i++)
      same &= cgr__ring_changes(&ring, slot)[i].value == word && cgr__ring_changes(&ring, slot)[i].kind == word;
    return same;
  }
};

TEST(Ring, BeginsClearedAndInsideItsMemory) {
  Random random(1);
  for (int32_t depth = 2; depth <= 8; depth++) {
    Rig rig(random, depth);
    EXPECT_EQ(cgr__ring_completed(&rig.ring), 0u);
    EXPECT_EQ(cgr__ring_generation(&rig.ring), 0u);
    EXPECT_EQ(cgr__ring_errors(&rig.ring), 0u);
    const unsigned char *begin = static_cast<unsigned char *>(rig.memory.get());
    for (size_t i = 0; i < rig.layout.pinned_bytes; i++)
      ASSERT_EQ(begin[i], 0) << i;
    std::map<ptrdiff_t, ptrdiff_t> places = { { 0, sizeof(cgr__completion) } }; // begin and end of everything
    for (int32_t i = 0; i < depth; i++) {
      ptrdiff_t slot = rig.ring.staging + i * rig.layout.slot.stride - begin;
      ptrdiff_t result = rig.ring.readback + i * rig.layout.readback.stride - begin;
      EXPECT_TRUE(places.emplace(slot, slot + rig.layout.slot.stride).second);
      EXPECT_TRUE(places.emplace(result, result + rig.layout.readback.stride).second);
      EXPECT_EQ(slot % 64, 0);
      EXPECT_EQ(result % 64, 0);
    }
    ptrdiff_t end = 0;
    for (const auto &[first, last] : places) {
      EXPECT_GE(first, end) << "two of them overlap";
      end = last;
    }
    EXPECT_LE(end, static_cast<ptrdiff_t>(rig.layout.pinned_bytes));
  }
}

TEST(Ring, ReadsTheCompletionRecord) {
  Random random(1);
  Rig rig(random, 2);
  rig.Complete(7);
  rig.ring.completion->generation = 3;
  rig.ring.completion->errors = 5;
  EXPECT_EQ(cgr__ring_completed(&rig.ring), 7u);
  EXPECT_EQ(cgr__ring_generation(&rig.ring), 3u);
  EXPECT_EQ(cgr__ring_errors(&rig.ring), 5u);
}

TEST(Ring, ASlotIsFreeOnceTheStepOneRoundBeforeHasCompleted) {
  Random random(1);
  for (int32_t depth = 2; depth <= 8; depth++) {
    Rig rig(random, depth);
    const uint64_t d = static_cast<uint64_t>(depth);
    for (uint64_t completed : { uint64_t{ 0 }, uint64_t{ 1 }, d - 1, d, d + 1, 10 * d + 3, uint64_t{ 1 } << 40 }) {
      rig.Complete(completed);
      for (uint64_t seq = completed + 1; seq <= completed + 2 * d + 1; seq++)
        EXPECT_EQ(cgr__ring_acquire(&rig.ring, seq) != nullptr, seq <= completed + d)
            << "step " << seq << ", completed " << completed << ", depth " << depth;
    }
  }
}

TEST(Ring, StepsOfOneRoundHaveSlotsOfTheirOwnAndTheNextRoundHasTheSame) {
  Random random(1);
  for (int32_t depth = 2; depth <= 8; depth++) {
    Rig rig(random, depth);
    const uint64_t d = static_cast<uint64_t>(depth);
    std::map<const void *, uint64_t> slots, results;
    for (uint64_t seq = 1; seq <= d; seq++) {
      EXPECT_TRUE(slots.emplace(cgr__ring_acquire(&rig.ring, seq), seq).second);
      EXPECT_TRUE(results.emplace(cgr__ring_result(&rig.ring, seq), seq).second);
    }
    rig.Complete(d);
    for (uint64_t seq = d + 1; seq <= 2 * d; seq++) {
      EXPECT_EQ(slots[cgr__ring_acquire(&rig.ring, seq)], seq - d);
      EXPECT_EQ(results[cgr__ring_result(&rig.ring, seq)], seq - d);
    }
  }
}

// A host that prepares, cancels and launches, and a device that completes in order, at random.
struct RingModel {
  Rig rig;
  Random &random;
  uint64_t launched = 0, completed = 0;
  cgr__ring_slot_header *prepared = nullptr;
  int32_t word = 0;                  // what is staged now
  std::map<uint64_t, int32_t> words; // of the steps in flight
  RingModel(Random &source, int32_t depth) : rig(source, depth), random(source) {}

  bool IsFree(uint64_t seq) const { return seq <= completed + static_cast<uint64_t>(rig.depth); }

  void Prepare() {
    uint64_t seq = launched + 1 + static_cast<uint64_t>(random.OneIn(4) ? random.Pick(0, rig.depth) : 0);
    cgr__ring_slot_header *slot = cgr__ring_acquire(&rig.ring, seq);
    ASSERT_EQ(slot != nullptr, IsFree(seq)) << "step " << seq;
    if (slot == nullptr || seq != launched + 1)
      return; // a look ahead
    uint64_t older = seq > static_cast<uint64_t>(rig.depth) ? seq - static_cast<uint64_t>(rig.depth) : 0;
    ASSERT_EQ(slot->seq, older) << "a slot that is not committed bears its older number";
    rig.Write(slot, ++word);
    ASSERT_EQ(slot->seq, older);
    prepared = slot;
  }
  void Launch() {
    if (prepared == nullptr)
      return;
    cgr__ring_commit(prepared, ++launched);
    ASSERT_EQ(prepared->seq, launched);
    words[launched] = word;
    prepared = nullptr;
  }
  // What the device reads of each step in flight is what was staged for it.
  void CheckInFlight() {
    for (const auto &[seq, expected] : words) {
      uint64_t index = seq % static_cast<uint64_t>(rig.depth);
      auto *slot =
          reinterpret_cast<cgr__ring_slot_header *>(rig.ring.staging + static_cast<int64_t>(index) * rig.layout.slot.stride);
      ASSERT_EQ(slot->seq, seq);
      ASSERT_TRUE(rig.Holds(slot, expected)) << "step " << seq << " was overwritten";
    }
  }
  void Complete() {
    if (completed == launched)
      return;
    words.erase(++completed);
    rig.Complete(completed);
  }
};

TEST(RingModel, NoSlotIsGivenOutWhileAStepMayReadIt) {
  SeededRandom random;
  for (int32_t depth = 2; depth <= 8; depth++) {
    RingModel model(random, depth);
    SCOPED_TRACE("depth " + std::to_string(depth));
    for (int step = 0; step < 3000; step++) {
      switch (random.Pick(0, 4)) {
      case 0:
      case 1:
        model.Prepare();
        break;
      case 2:
        model.Launch();
        break;
      case 3:
        model.Complete();
        break;
      default: // cancelled: its bytes stay, its number does not change
        model.prepared = nullptr;
      }
      if (step % 16 == 0)
        model.CheckInFlight();
      ASSERT_FALSE(HasFatalFailure());
    }
    EXPECT_GT(model.completed, 100u);
  }
}

TEST(RingResults, OfDepthStepsAreKeptApart) {
  Random random(2);
  for (int32_t depth = 2; depth <= 8; depth++) {
    Rig rig(random, depth);
    auto number = [](uint64_t seq, int32_t i) { return static_cast<int32_t>(seq) * 1000 + i; };
    for (uint64_t seq = 1; seq <= 40; seq++) {
      auto *result = const_cast<cgr__result_record *>(cgr__ring_result(&rig.ring, seq));
      result->seq = seq;
      for (int32_t i = 0; i < rig.limits.max_requests; i++)
        const_cast<int32_t *>(cgr__ring_result_counts(&rig.ring, result))[i] = number(seq, i);
      for (int32_t i = 0; i < rig.limits.max_requests * rig.limits.token_stride; i++)
        const_cast<int32_t *>(cgr__ring_result_tokens(&rig.ring, result))[i] = -number(seq, i);
      for (uint64_t kept = seq; kept > 0 && kept + static_cast<uint64_t>(depth) > seq; kept--) {
        const cgr__result_record *old = cgr__ring_result(&rig.ring, kept);
        ASSERT_EQ(old->seq, kept);
        for (int32_t i = 0; i < rig.limits.max_requests; i++)
          ASSERT_EQ(cgr__ring_result_counts(&rig.ring, old)[i], number(kept, i));
        for (int32_t i = 0; i < rig.limits.max_requests * rig.limits.token_stride; i++)
          ASSERT_EQ(cgr__ring_result_tokens(&rig.ring, old)[i], -number(kept, i));
      }
    }
    EXPECT_EQ(cgr__ring_completed(&rig.ring), 0u) << "results reach into the completion record";
  }
}

} // namespace
