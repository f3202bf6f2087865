// The planner kernel writes, for every class at once, the plan that a second reading of planners/attention/plan.h gives, with the
// bytes of the host planner, whatever was there before and whatever follows the real requests.
#include "kernels/planner.h"
#include "kernels/step.h"
#include "planners/attention/plan_host.h"
#include "tests/support/device_memory.h"
#include "tests/support/plan_reading.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

// ----------------------------------------------------------------------------------------------------------------- batches

// Words that no batch of ours has.
int32_t Anything(Random &random) {
  const int32_t odd[] = { INT32_MAX, INT32_MIN, -1, 1, random.Pick32(0, 100000), int32_t(random.Bits()) };
  return odd[random.Pick(0, 5)];
}

struct Lengths {
  int32_t requests, longest_query, longest_context;
  int32_t one_in_empty = 12, one_in_emptied = 12;
};

PlanBatch RandomBatch(Random &random, const Lengths &l) {
  PlanBatch batch;
  for (int32_t i = 0; i < l.requests; i++) {
    int32_t len = random.OneIn(l.one_in_empty) ? 0 : random.OneIn(2) ? 1 : random.Pick32(1, l.longest_query);
    bool emptied = random.OneIn(l.one_in_emptied);
    bool is_short = random.OneIn(20); // shorter than the query: a guard's doing, but for another sequence
    batch.lens.push_back(len);
    for (Words &seq_lens : batch.seq_lens) {
      int32_t context = random.Pick32(0, random.OneIn(3) ? l.longest_context : std::min(l.longest_context, 700));
      seq_lens.push_back(emptied || random.OneIn(40) ? 0 : is_short ? std::min(len, context) : len + context);
    }
  }
  return batch;
}

int32_t TokensOf(const PlanBatch &batch) {
  int32_t tokens = 0;
  for (int32_t len : batch.lens)
    tokens += len;
  return tokens;
}

// A class with exactly the room that it is promised for this batch. `unit`: how large costs are.
cgr__plan_class RandomClass(Random &random, const PlanBatch &batch, int32_t max_requests) {
  int32_t unit = random.OneIn(3) ? 4 : 4000;
  cgr__plan_class c = {};
  c.num_parts = random.OneIn(25) ? CGR__MAX_PARTS : random.OneIn(4) ? random.Pick32(1, 8) : random.Pick32(1, 300);
  c.head_blocks = random.Pick32(1, 40);
  c.decode_query_len = random.Pick32(1, 16);
  c.decode_tile_kv = random.OneIn(2) ? 64 : random.Pick32(1, 200);
  c.cost_tile = random.Pick32(0, unit);
  c.cost_kv = random.Pick32(1, unit);
  c.snap = random.Pick32(0, unit);
  c.prefill_tile_q = random.OneIn(2) ? 1 << random.Pick(0, 6) : random.Pick32(1, 70);
  c.prefill_tile_kv = random.OneIn(2) ? 64 : random.Pick32(1, 200);
  c.mixed_parts = random.OneIn(3) ? 0 : random.Pick32(1, c.num_parts);
  c.memory_parts = random.Pick32(0, c.num_parts);
  c.prefill_cost_tile = random.Pick32(0, unit);
  c.prefill_cost_kv = random.Pick32(0, unit);
  const int32_t keys[] = { CGR__SEES_CACHE, CGR__SEES_CACHE, CGR__SEES_STEP, CGR__SEES_OTHER };
  c.sees = keys[random.Pick(0, 3)];
  c.bidirectional = c.sees == CGR__SEES_OTHER || random.OneIn(4);
  if (c.sees != CGR__SEES_OTHER) {
    c.window_left = random.OneIn(3) ? random.Pick32(1, 2000) : 0;
    c.window_right = c.bidirectional && random.OneIn(2) ? random.Pick32(1, 2000) : 0;
    c.chunk = !c.bidirectional && c.window_left == 0 && random.OneIn(2) ? random.Pick32(1, 700) : 0;
  }
  c.max_splits = random.OneIn(3) ? random.Pick32(1, 20) : 0;
  c.length_set = random.Pick32(0, CGR__MAX_SETS - 1);
  c.max_requests = max_requests;
  c.max_entries = int32_t(cgr__plan_max_entries(&c, max_requests, TokensOf(batch)));
  return c;
}

cgr__plan_class PlainClass(int32_t num_parts, int32_t head_blocks, int32_t max_requests, int32_t max_tokens) {
  cgr__plan_class c = {};
  c.num_parts = num_parts;
  c.head_blocks = head_blocks;
  c.decode_query_len = 4;
  c.decode_tile_kv = c.prefill_tile_kv = 64;
  c.cost_tile = 4000;
  c.cost_kv = c.snap = 2000;
  c.prefill_tile_q = 16;
  c.max_requests = max_requests;
  c.max_entries = int32_t(cgr__plan_max_entries(&c, max_requests, max_tokens));
  return c;
}

// ------------------------------------------------------------------------------------------------------------------ kernel

constexpr int32_t kPoison = int32_t(0xA5A5A5A5u);

// A step for the planner. Between the plans, before the first one and after the last one is memory that the planner may not
// write.
struct Step {
  PlanBatch batch;
  std::vector<cgr__plan_class> classes;
  int32_t array_requests; // for which the arrays have room
  int32_t padded_requests;
  int32_t num_counters = 5;
  bool garbage = true; // after the real requests; else padding
};

class KernelPlanner : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_planner }); }

  // Runs the kernel and checks everything in memory; returns where the plans are in the words that it left.
  std::vector<int64_t> Check(const Step &s, Random &random, Words *left = nullptr) {
    int32_t n = int32_t(s.batch.lens.size());
    cgr__planner_args args = {};
    std::vector<int64_t> offsets;
    int64_t words = 4;
    for (const cgr__plan_class &c : s.classes) {
      offsets.push_back(words);
      words += cgr__plan_bytes(&c) / 4 + 4 * random.Pick(0, 3);
    }
    // A class beyond num_classes looks valid, so that only the number can keep the kernel away.
    for (size_t i = 0; i < CGR__MAX_CLASSES; i++) {
      args.classes[i] = s.classes[i < s.classes.size() ? i : 0];
      args.offset[i] = i < s.classes.size() ? offsets[i] : words;
    }
    words += cgr__plan_bytes(&s.classes[0]) / 4;

    const Words starts = Starts(s, random), counts = { n, TokensOf(s.batch), s.padded_requests, TokensOf(s.batch) };
    const Array<int32_t> counts_there(*bench_, counts), starts_there(*bench_, starts);
    std::vector<Words> lens;
    std::vector<std::unique_ptr<Array<int32_t>>> lens_there;
    for (size_t set = 0; set < CGR__MAX_SETS; set++) {
      lens.push_back(s.batch.seq_lens[set]);
      while (int32_t(lens[set].size()) < s.array_requests)
        lens[set].push_back(s.garbage ? Anything(random) : 0);
      lens_there.push_back(std::make_unique<Array<int32_t>>(*bench_, lens[set]));
      args.seq_lens[set] = lens_there[set]->data();
    }
    const Array<int32_t> plan(*bench_, size_t(words)), counters(*bench_, size_t(s.num_counters) + 7);
    args.counts = counts_there.data();
    args.query_start_loc = starts_there.data();
    args.plan = plan.data();
    args.counters = counters.data();
    args.num_counters = s.num_counters;
    args.num_classes = int32_t(s.classes.size());
    args.padded_requests = s.padded_requests;
    bench_->Run(cgr__kernel_planner, &args);

    const Words got = plan.Get();
    if (left != nullptr)
      *left = got;
    ExpectPlans(s, offsets, starts, got);
    Words zeroes(size_t(s.num_counters), 0);
    zeroes.insert(zeroes.end(), 7, kPoison);
    EXPECT_TRUE(counters.Get() == zeroes) << "not exactly its " << s.num_counters << " counters";
    EXPECT_TRUE(counts_there.Get() == counts && starts_there.Get() == starts) << "its input was written";
    for (size_t set = 0; set < CGR__MAX_SETS; set++)
      EXPECT_TRUE(lens_there[set]->Get() == lens[set]) << "the lengths of set " << set << " were written";
    return offsets;
  }

private:
  static Words Starts(const Step &s, Random &random) {
    Words starts(1, 0);
    for (int32_t len : s.batch.lens)
      starts.push_back(starts.back() + len);
    while (int32_t(starts.size()) <= s.array_requests)
      starts.push_back(s.garbage ? Anything(random) : starts.back());
    return starts;
  }
  // The whole memory of the plans: theirs, and poison everywhere else.
  static void ExpectPlans(const Step &s, const std::vector<int64_t> &offsets, const Words &starts, const Words &got) {
    Words expected(got.size(), kPoison);
    for (size_t i = 0; i < s.classes.size(); i++) {
      const cgr__plan_class &c = s.classes[i];
      SCOPED_TRACE("class " + std::to_string(i) + ": parts " + std::to_string(c.num_parts) + " head blocks " +
                   std::to_string(c.head_blocks) + " splits " + std::to_string(c.max_splits) + " set " +
                   std::to_string(c.length_set) + " requests " + std::to_string(s.batch.lens.size()) + " of " +
                   std::to_string(s.padded_requests));
      PlanReading reading(c, s.batch);
      ASSERT_TRUE(reading.Fits()) << "the prefill queue has more entries than cgr__plan_max_entries says";
      Words area(size_t(cgr__plan_bytes(&c) / 4), kPoison), host = area;
      reading.WriteTo(reinterpret_cast<unsigned char *>(area.data()));
      std::vector<int64_t> scratch(cgr__plan_scratch_bytes(&c) / 8 + 1);
      cgr__plan_fill(&c, starts.data(), s.batch.seq_lens[c.length_set].data(), int32_t(s.batch.lens.size()), scratch.data(),
                     host.data());
      std::copy(area.begin(), area.end(), expected.begin() + offsets[i]);
      const Words part(got.begin() + offsets[i], got.begin() + offsets[i] + int64_t(area.size()));
      EXPECT_EQ(FirstDifference(host, part), -1) << "the first word that is not the host planner's";
      EXPECT_EQ(FirstDifference(area, part), -1) << "the first word that is not the second reading's";
    }
    EXPECT_EQ(FirstDifference(expected, got), -1) << "the first word that the kernel should not have written";
  }
  static int64_t FirstDifference(const Words &a, const Words &b) {
    for (size_t i = 0; i < a.size(); i++)
      if (a[i] != b[i])
        return int64_t(i);
    return -1;
  }
};

// ----------------------------------------------------------------------------------------------------------------- by hand

// By hand, as a check next to the second reading. Requests 0 and 4 are in the decode section; 1 has no new tokens, a guard has
// emptied 2, and 3 is in the prefill queue with tiles of 1, 2 and 3 KV tiles. The decode section: two tiles of 2 + 3 * 4 units,
// two of 2 + 4: 40, cut every 10 at 0, 10, 20 and 30. 10 is 8 units into the first tile, 20 is 4 into the second, 30 just after
// the fixed cost of the third.
Step HandStep(int32_t num_parts, int32_t max_splits) {
  Step step;
  step.batch.lens = { 1, 0, 1, 12, 1 };
  for (Words &seq_lens : step.batch.seq_lens)
    seq_lens = { 40, 7, 0, 12, 16 };
  cgr__plan_class c = {};
  c.num_parts = num_parts;
  c.head_blocks = 2;
  c.decode_query_len = 1;
  c.decode_tile_kv = 16;
  c.cost_tile = 2;
  c.cost_kv = 4;
  c.snap = 3;
  c.prefill_tile_q = c.prefill_tile_kv = 4;
  c.max_splits = max_splits;
  c.max_requests = 6;
  c.max_entries = 20;
  step.classes = { c };
  step.array_requests = step.padded_requests = 6;
  return step;
}

void ExpectWords(const Words &got, int64_t at, const Words &expected, const char *what) {
  EXPECT_EQ(Words(got.begin() + at, got.begin() + at + int64_t(expected.size())), expected) << what;
}

TEST_P(KernelPlanner, PlansASmallBatchAsByHand) {
  Random random(1);
  Words got;
  int64_t at = Check(HandStep(4, 0), random, &got)[0];
  ExpectWords(got, at, { 4, 2, 2, 3, 6, 1, 40, 0, 10, 0, 2, 0, 4, 0, 0, 0 }, "header");
  ExpectWords(got, at + 16, { 0, 0, 0, 0, 0, 2, 0, -1, -1, 0, 0, 2 }, "part 0");
  ExpectWords(got, at + 28, { 0, 0, 2, 0, 1, 1, 0, 1, 0, 2, 2, 2 }, "part 1");
  ExpectWords(got, at + 40, { 0, 1, 1, 1, 0, 0, 0, 3, 2, 2, -1, 0 }, "part 2");
  ExpectWords(got, at + 52, { 1, 0, 0, 2, 0, 0, 4, -1, -1, 0, -1, 0 }, "part 3");
  ExpectWords(got, at + 64, { 0, 4, kPoison, kPoison, kPoison, kPoison, kPoison, kPoison }, "requests of the decode section");
  ExpectWords(got, at + 72, { 3, 2, 0, 3, -1, 1, 0, 0 }, "the costliest tile");
  ExpectWords(got, at + 80, { 3, 1, 0, 2, -1, 1, 0, 0 }, "the next");
  ExpectWords(got, at + 88, { 3, 0, 0, 1, -1, 1, 0, 0, kPoison }, "the last");
}

// In two splits, a tile of 3 KV tiles becomes one of 2 and one of 1: both cuts move to the border between them. The part that has
// the first split of a tile has a partial to fold in, after the partials that every part has.
TEST_P(KernelPlanner, PlansASmallBatchInSplitsAsByHand) {
  Random random(2);
  Words got;
  int64_t at = Check(HandStep(4, 2), random, &got)[0];
  ExpectWords(got, at + 16, { 0, 0, 0, 0, 0, 2, 0, -1, -1, 0, 4, 2 }, "part 0");
  ExpectWords(got, at + 28, { 0, 0, 2, 0, 1, 2, 0, 5, 4, 2, 6, 2 }, "part 1");
  ExpectWords(got, at + 40, { 0, 1, 2, 1, 0, 0, 0, 7, 6, 2, -1, 0 }, "part 2");
  ExpectWords(got, at + 52, { 1, 0, 0, 2, 0, 0, 4, -1, -1, 0, -1, 0 }, "part 3");
}

// Three tiles for two head blocks are fewer than ten parts: 1, 2 and 3 splits of 10 / 12 KV tiles and more.
TEST_P(KernelPlanner, CutsFewTilesIntoSplitsAsByHand) {
  Random random(3);
  Words got;
  int64_t at = Check(HandStep(10, 0), random, &got)[0], entries = at + 16 + 10 * 12 + 8;
  EXPECT_EQ(got[size_t(at) + 3], 6);
  EXPECT_EQ(got[size_t(at) + 4], 12);
  ExpectWords(got, entries, { 3, 0, 0, 1, -1, 1, 0, 0 }, "the first tile");
  ExpectWords(got, entries + 8, { 3, 1, 0, 1, 1, 2, 0, 0, 3, 1, 1, 2, 1, 2, 1, 0 }, "the second tile");
  ExpectWords(got, entries + 24, { 3, 2, 0, 1, 3, 3, 0, 0, 3, 2, 1, 2, 3, 3, 1, 0, 3, 2, 2, 3, 3, 3, 2, 0 }, "the third tile");
}

// ------------------------------------------------------------------------------------------------------------------ random

TEST_P(KernelPlanner, EqualsTheSecondReading) {
  ForSeeds(500, [&](Random &random) {
    Lengths lengths = { random.Pick32(0, random.OneIn(2) ? 12 : 300), random.OneIn(2) ? 16 : 400,
                        random.OneIn(2) ? 3000 : 1000000 };
    Step step;
    step.batch = RandomBatch(random, lengths);
    step.padded_requests = std::max(1, lengths.requests + random.Pick32(0, 40));
    step.array_requests = step.padded_requests + random.Pick32(0, 40);
    step.num_counters = random.Pick32(0, 3000);
    step.garbage = !random.OneIn(4);
    int32_t num_classes = random.OneIn(2) ? random.Pick32(1, 3) : random.Pick32(1, CGR__MAX_CLASSES);
    for (int32_t i = 0; i < num_classes; i++)
      step.classes.push_back(RandomClass(random, step.batch, random.Pick32(std::max(1, lengths.requests), step.array_requests)));
    Check(step, random);
  });
}

// ------------------------------------------------------------------------------------------------------------------ limits

// As many requests as a runtime can be made for. Both sides of every number of requests per thread (320, 640, 960) and of each
// round (1280, 2560, 3840), and of each round of 320 cuts.
TEST_P(KernelPlanner, PlansAsManyRequestsAsThereCanBe) {
  SeededRandom random;
  const int32_t parts[] = { 31, 32, 33, 64, 319, 320, 321, 640, CGR__MAX_PARTS };
  for (int32_t n : { 1, 320, 321, 640, 641, 960, 961, 1279, 1280, 1281, 1600, 2560, 2561, 3840, 3841, CGR__MAX_REQUESTS - 1,
                     CGR__MAX_REQUESTS }) {
    Step step;
    step.batch = RandomBatch(random, { n, 20, 30000, 1000, 1000 });
    step.array_requests = CGR__MAX_REQUESTS;
    step.padded_requests = random.OneIn(2) ? n : CGR__MAX_REQUESTS;
    step.num_counters = 20000;
    step.classes.push_back(PlainClass(parts[random.Pick(0, 8)], 8, CGR__MAX_REQUESTS, TokensOf(step.batch)));
    step.classes.push_back(step.classes[0]);
    step.classes[1].max_splits = 16;
    step.classes[1].num_parts = parts[random.Pick(0, 8)];
    step.classes[1].mixed_parts = random.Pick32(0, step.classes[1].num_parts);
    step.classes[1].memory_parts = random.Pick32(0, step.classes[1].num_parts);
    step.classes[1].max_entries = int32_t(cgr__plan_max_entries(&step.classes[1], CGR__MAX_REQUESTS, TokensOf(step.batch)));
    Check(step, random);
  }
}

// Every number of parts around several rounds of warps, for few tiles: cuts that coincide, and parts without work.
TEST_P(KernelPlanner, CutsAFewTilesForManyParts) {
  SeededRandom random;
  Step step;
  step.array_requests = step.padded_requests = 4;
  for (int32_t first = 1; first <= 337; first += CGR__MAX_CLASSES) {
    step.batch = RandomBatch(random, { 4, 60, 3000, 4, 8 });
    step.classes.clear();
    for (int32_t i = 0; i < CGR__MAX_CLASSES; i++) {
      step.classes.push_back(RandomClass(random, step.batch, 4));
      step.classes.back().num_parts = first + i;
      step.classes.back().mixed_parts = random.Pick32(0, first + i);
      step.classes.back().memory_parts = random.Pick32(0, first + i);
      step.classes.back().max_entries = int32_t(cgr__plan_max_entries(&step.classes.back(), 4, TokensOf(step.batch)));
    }
    Check(step, random);
  }
}

// Prompts of thousands of tokens: prefill queues that take many rounds, with few buckets and with many, and just as many tiles as
// parts.
TEST_P(KernelPlanner, SortsLongPrefillQueues) {
  SeededRandom random;
  for (int32_t requests : { 1, 3, 40, 500 }) {
    Step step;
    step.batch = RandomBatch(random, { requests, 20000 / requests, 100000, 20, 20 });
    step.batch.lens[0] = 9999;
    for (Words &seq_lens : step.batch.seq_lens)
      seq_lens[0] = 9999 + random.Pick32(0, 5000);
    step.array_requests = step.padded_requests = requests;
    for (int32_t tile_q : { 1, 3, 16, 64 }) {
      cgr__plan_class c = PlainClass(132, random.Pick32(1, 8), requests, TokensOf(step.batch));
      c.prefill_tile_q = tile_q;
      c.prefill_tile_kv = random.OneIn(2) ? 16 : 64;
      c.window_left = random.OneIn(3) ? 1000 : 0;
      c.max_entries = int32_t(cgr__plan_max_entries(&c, requests, TokensOf(step.batch)));
      step.classes.push_back(c);
    }
    Check(step, random);
  }
  for (int32_t tiles : { 319, 320, 321, 640, 641 }) {
    Step step;
    step.batch.lens = { tiles * 16 };
    for (Words &seq_lens : step.batch.seq_lens)
      seq_lens = { tiles * 16 + 5000 };
    step.array_requests = step.padded_requests = 1;
    for (int32_t parts : { tiles - 1, tiles, tiles + 1 }) // whole tiles, whole tiles, splits
      step.classes.push_back(PlainClass(parts, 1, 1, tiles * 16));
    Check(step, random);
  }
}

// No batch of this many tokens has more tiles: each request has one token more than the decode section takes.
TEST_P(KernelPlanner, FillsThePrefillQueueWithShortRequests) {
  Random random(5);
  Step step;
  step.batch.lens.assign(300, 2);
  for (Words &seq_lens : step.batch.seq_lens)
    seq_lens.assign(300, 1000);
  step.array_requests = step.padded_requests = 300;
  for (int32_t tile_q : { 2, 64 }) {
    cgr__plan_class c = PlainClass(8, 1, 300, 600);
    c.decode_query_len = 1;
    c.prefill_tile_q = tile_q;
    c.max_entries = int32_t(cgr__plan_max_entries(&c, 300, 600));
    EXPECT_LE(c.max_entries, 600) << "more than one for each token";
    step.classes.push_back(c);
  }
  Check(step, random);
}

// Nothing to do, in every possible way: no requests, none with tokens, and all of them emptied.
TEST_P(KernelPlanner, PlansNothingForEmptyBatches) {
  Random random(4);
  const Words lens[] = { {}, { 0, 0, 0 }, { 1, 3, 700, 1, 0 }, { 16, 17 } };
  for (const Words &given : lens) {
    for (int32_t max_splits : { 0, 3 }) {
      Step step;
      step.batch.lens = given;
      for (Words &seq_lens : step.batch.seq_lens)
        seq_lens.assign(given.size(), 0);
      step.array_requests = step.padded_requests = 8;
      step.classes = { PlainClass(40, 8, 8, 800) };
      step.classes[0].max_splits = max_splits;
      Words got;
      int64_t at = Check(step, random, &got)[0];
      int32_t emptied = 0;
      for (int32_t len : given)
        emptied += len > 0;
      ExpectWords(got, at, { 40, 8, 0, 0, 0, emptied, 0, 0, 1, 0, 1000, 0, 40, 0, 0, 0 }, "header");
      for (int64_t p = 0; p < 40; p++)
        ExpectWords(got, at + 16 + 12 * p, { 0, 0, 0, 0, 0, 0, -1, -1, -1, 0, -1, 0 }, "part");
    }
  }
}

// The longest possible sequences: the decode section is far longer than 2^31 units.
TEST_P(KernelPlanner, PlansTheLongestSequences) {
  const uint64_t seed = Seed();
  for (uint64_t round = seed; round < seed + 8 && !HasFailure(); round++) {
    SCOPED_TRACE(Repeat(round));
    Random random(round);
    Step step;
    step.batch = RandomBatch(random, { random.Pick32(1, 300), 200, CGR__MAX_SEQ_LEN - 200 });
    for (Words &seq_lens : step.batch.seq_lens)
      for (size_t i = 0; i < seq_lens.size(); i += 2)
        seq_lens[i] = CGR__MAX_SEQ_LEN - random.Pick32(0, 3);
    step.array_requests = step.padded_requests = 300;
    for (int32_t i = 0; i < CGR__MAX_CLASSES; i++) {
      cgr__plan_class c = RandomClass(random, step.batch, 300);
      const bool has_windows = c.sees != CGR__SEES_OTHER;
      if (has_windows && c.chunk == 0 && random.OneIn(3))
        c.window_left = CGR__MAX_SEQ_LEN - random.Pick32(0, 1000);
      if (has_windows && random.OneIn(3))
        c.window_right = INT32_MAX;
      step.classes.push_back(c);
    }
    Check(step, random);
  }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelPlanner);

} // namespace
} // namespace cgr_test
