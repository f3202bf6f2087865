// The epilogue commits the rows, writes the result and publishes the step, in that order.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/support/step_case.h"

namespace cgr_test {
namespace {

constexpr int32_t kPoisonWord = int32_t(0xA5A5A5A5u);

class KernelEpilogue : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_prologue, &cgr__kernel_epilogue }); }

  static StepLimits WithStride(int32_t token_stride, bool scattered = false) {
    StepLimits limits;
    limits.token_stride = token_stride;
    limits.scattered = scattered;
    return limits;
  }
  static StagedStep WithPages(StagedStep step) {
    for (int32_t row : { 3, 5, 2, 8 })
      for (int32_t p = 0; p < 4; p++)
        AddChange(&step, CGR__CHANGE_PAGE, row, p, 10 + row * 4 + p);
    return step;
  }
  // `first`, `first` + 1, ... for every request that a step can have.
  static Words Sampled(const StepLimits &limits, int32_t first) {
    Words tokens(size_t(limits.max_requests * limits.token_stride));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }
  static Words Beginning(Words words, size_t count) {
    words.resize(count);
    return words;
  }
  static int32_t LastToken(const StepBuffers &b, int32_t row, int32_t j = 0) {
    return b->row_last_tokens[row * b.arena().limits.token_stride + j];
  }
  static void ExpectResult(const StepPair &pair, const StepLimits &limits, uint64_t seq, const cgr__step_error &error,
                           const Words &num_tokens, const Words &tokens) {
    StepResult result = ReadResult(pair, limits, seq);
    EXPECT_EQ(result.record.seq, seq);
    ExpectError({ result.record.error, result.record.error_row, result.record.error_index, 0, result.record.error_value }, error);
    EXPECT_EQ(result.record.num_requests, int32_t(num_tokens.size()));
    EXPECT_EQ(result.num_tokens, num_tokens);
    EXPECT_EQ(result.tokens, tokens);
  }
};

TEST_P(KernelEpilogue, CommitsTheRowsThatSampled) {
  for (bool scattered : { false, true }) {
    for (int32_t stride : { 1, 2, 3 }) {
      SCOPED_TRACE("stride " + std::to_string(stride));
      StepLimits limits = WithStride(stride, scattered);
      StepPair pair(*bench_, limits);
      StagedStep step = WithPages(pair.Step({ 3, 5, 2, 8 }, { 4, 2, 0, 7 }, 8, 20));
      step.flags[1] = CGR_REQUEST_PARTIAL;
      AddChange(&step, CGR__CHANGE_COMPUTED, 2, 0, 12);
      pair.Prologue(step);
      Words tokens = Sampled(limits, 70);
      pair.PutNextTokens(tokens);
      pair.Epilogue();
      const StepBuffers got = pair.device.Get();
      EXPECT_EQ(Words(got->row_computed, got->row_computed + 9), (Words{ 0, 0, 12, 4, 0, 2, 0, 0, 7 }));
      EXPECT_EQ(LastToken(got, 3), 70);
      EXPECT_EQ(LastToken(got, 5), kPoisonWord) << "partial: more of its prompt follows";
      EXPECT_EQ(LastToken(got, 2), kPoisonWord) << "nothing new";
      EXPECT_EQ(LastToken(got, 8), 70 + 3 * stride);
      EXPECT_EQ(LastToken(got, 12), kPoisonWord) << "the padding row";
      if (stride > 1) {
        EXPECT_EQ(LastToken(got, 3, 1), kPoisonWord) << "one token was sampled";
        EXPECT_EQ(got->row_num_accepted[3], 0);
        EXPECT_EQ(got->row_num_accepted[5], kPoisonWord) << "partial";
      }
      ExpectResult(pair, limits, 1, kNoError, { 1, 0, 0, 1 }, Beginning(tokens, 4 * size_t(stride)));
    }
  }
}

// Bits of values that another step has found do not count.
TEST_P(KernelEpilogue, WritesTheBitsOfItsOwnStep) {
  for (bool scattered : { false, true }) {
    StepLimits limits = WithStride(1, scattered);
    limits.values = true;
    StepPair pair(*bench_, limits);
    for (int64_t seq = 1; seq < 4; seq++) {
      pair.Prologue(WithPages(pair.Step({ 3, 5, 2 }, { 1, 1, 1 }, 4, 4)));
      const std::vector<int64_t> words = { seq << 16 | 0x8001, (seq - 1) << 16 | 7, (seq + 1) << 16 | 9 };
      std::copy(words.begin(), words.end(), pair.model.b->value_flags);
      pair.Upload();
      pair.Epilogue(); // which compares all of the slot
      uint32_t bits[3];
      std::memcpy(bits, pair.device.readback(uint64_t(seq)) + pair.model.readback_slot().values, sizeof bits);
      EXPECT_EQ(bits[0], 0x8001u);
      EXPECT_EQ(bits[1], 0u);
      EXPECT_EQ(bits[2], 0u);
    }
  }
}

// By hand, so that the model is not the only check: 7 tokens of a prompt and 3 guesses, 2 of which are accepted; one token and no
// guess; one and 3 guesses, none accepted; a partial chunk, whose flags cannot have guesses.
TEST_P(KernelEpilogue, TakesRejectedGuessesOffTheRow) {
  for (bool scattered : { false, true }) {
    StepLimits limits = WithStride(4, scattered);
    StepPair pair(*bench_, limits);
    StagedStep step = WithPages(pair.Step({ 3, 5, 2, 8 }, { 10, 1, 4, 4 }, 8, 20));
    step.flags = { int32_t(CGR_REQUEST_DRAFTS(3)), 0, int32_t(CGR_REQUEST_DRAFTS(3)),
                   int32_t(CGR_REQUEST_DRAFTS(3) | CGR_REQUEST_PARTIAL) };
    pair.Prologue(step);
    EXPECT_EQ(First(pair.device.Get()->num_drafts, 5), (Words{ 3, 0, 3, 0, 0 }));
    StepBuffers &b = pair.model.b;
    for (int32_t i = 0; i < 24; i++)
      b->draft_tokens[i] = 500 + i;
    const int32_t accepted[] = { 2, 99, 0, 99 }; // without guesses it is not read
    std::copy_n(accepted, 4, b->num_accepted);
    Words tokens = Sampled(limits, 70);
    pair.PutNextTokens(tokens);
    pair.Epilogue();
    const StepBuffers got = pair.device.Get();
    EXPECT_EQ(Words(got->row_computed, got->row_computed + 9), (Words{ 0, 0, 1, 9, 0, 1, 0, 0, 4 }));
    EXPECT_EQ(Words(got->row_last_tokens + 12, got->row_last_tokens + 16), (Words{ 72, 71, 70, kPoisonWord }));
    EXPECT_EQ(LastToken(got, 5), 74);
    EXPECT_EQ(LastToken(got, 2), 78);
    EXPECT_EQ(LastToken(got, 8), kPoisonWord);
    EXPECT_EQ((Words{ got->row_num_accepted[3], got->row_num_accepted[5], got->row_num_accepted[2] }), (Words{ 2, 0, 0 }));
    EXPECT_EQ(Words(got->row_draft_tokens + 9, got->row_draft_tokens + 12), (Words{ 500, 501, 502 }));
    ExpectResult(pair, limits, 1, kNoError, { 3, 1, 1, 0 }, Beginning(tokens, 16));
    StagedStep next = pair.Step({ 3, 5 }, { 4, 2 }, 4, 8);
    next.flags = { int32_t(CGR_REQUEST_DRAFTS(3)), int32_t(CGR_REQUEST_DRAFTS(1)) };
    next.tokens = { CGR_TOKEN_LAST, CGR_TOKEN_DRAFT(1), 9, CGR_TOKEN_LAST, CGR_TOKEN_LAST, CGR_TOKEN_DRAFT(3) };
    pair.Prologue(next);
    EXPECT_EQ(First(pair.device.Get()->input_ids, 6), (Words{ 72, 501, 9, 502, 74, 0 })) << "the last names no guess";
    EXPECT_EQ(First(pair.device.Get()->positions, 6), (Words{ 9, 10, 11, 12, 1, 2 }));
    pair.Epilogue();
  }
}

// What a sampler may not write is reported, and the row goes on as if nothing were accepted, or with token 0.
TEST_P(KernelEpilogue, RefusesWhatASamplerMayNotWrite) {
  struct Case {
    int32_t accepted, token;
    cgr__step_error error;
    int32_t length, last;
  };
  for (const Case &c :
       { Case{ 3, 70, { CGR_GUARD_ACCEPTED, 3, 0, 0, 3 }, 2, 70 }, Case{ -1, 70, { CGR_GUARD_ACCEPTED, 3, 0, 0, -1 }, 2, 70 },
         Case{ INT32_MIN, 70, { CGR_GUARD_ACCEPTED, 3, 0, 0, INT32_MIN }, 2, 70 },
         Case{ 2, 1000, { CGR_GUARD_TOKEN, 3, 0, 0, 1000 }, 4, 72 }, Case{ 0, -1, { CGR_GUARD_TOKEN, 3, 0, 0, -1 }, 2, 0 },
         Case{ 2, 999, kNoError, 4, 72 } }) {
    StepLimits limits = WithStride(3);
    limits.vocab_size = 1000;
    StepPair pair(*bench_, limits);
    StagedStep step = WithPages(pair.Step({ 3 }, { 4 }, 1, 4));
    step.flags[0] = int32_t(CGR_REQUEST_DRAFTS(2));
    pair.Prologue(step);
    pair.model.b->num_accepted[0] = c.accepted;
    Words tokens = Sampled(limits, 70);
    tokens[0] = c.token;
    pair.PutNextTokens(tokens);
    pair.Epilogue();
    const StepBuffers got = pair.device.Get();
    EXPECT_EQ(got->row_computed[3], c.length);
    EXPECT_EQ(LastToken(got, 3), c.last);
    ExpectResult(pair, limits, 1, c.error, { c.length - 1 }, Beginning(tokens, 3));
  }
}

// Of what a draft has left, a guess that a step takes is looked at then, and one that none takes is not.
TEST_P(KernelEpilogue, TheNextStepRefusesAGuessThatIsNoToken) {
  for (bool go_on : { false, true })
    for (int32_t bad : { 1000, -1, INT32_MAX, INT32_MIN }) {
      SCOPED_TRACE(bad);
      StepLimits limits = WithStride(4);
      limits.vocab_size = 1000;
      StepPair pair(*bench_, limits);
      pair.Prologue(WithPages(pair.Step({ 3, 5 }, { 4, 2 }, 4, 8)));
      const Words guesses = { 1, 2, 3, 0, bad, 999 };
      std::copy(guesses.begin(), guesses.end(), pair.model.b->draft_tokens);
      pair.PutNextTokens(Sampled(limits, 70));
      pair.Epilogue();
      ExpectError(pair.error(), kNoError);
      StagedStep first = pair.Step({ 3, 5 }, { 4, 2 }, 4, 8), all = pair.Step({ 3, 5 }, { 4, 4 }, 4, 8);
      first.flags = { int32_t(CGR_REQUEST_DRAFTS(3)), int32_t(CGR_REQUEST_DRAFTS(1)) };
      all.flags = { int32_t(CGR_REQUEST_DRAFTS(3)), int32_t(CGR_REQUEST_DRAFTS(3)) };
      for (StagedStep *step : { &first, &all })
        for (int32_t i = 0; i < 2; i++)
          for (int32_t j = 0; j < step->starts[size_t(i) + 1] - step->starts[size_t(i)]; j++)
            step->tokens[size_t(step->starts[size_t(i)] + j)] = j == 0 || go_on ? CGR_TOKEN_LAST : CGR_TOKEN_DRAFT(j - 1);
      pair.Prologue(first);
      ExpectError(pair.error(), kNoError);
      EXPECT_EQ(First(pair.device.Get()->input_ids, 6), (Words{ 70, 1, 2, 3, 74, 0 }));
      std::copy(guesses.begin(), guesses.end(), pair.model.b->draft_tokens);
      pair.model.b->num_accepted[0] = pair.model.b->num_accepted[1] = 0;
      pair.PutNextTokens(Sampled(limits, 70));
      pair.Epilogue();
      all.seq = all.batch_seq = first.seq + 1;
      pair.Prologue(all);
      ExpectError(pair.error(), { CGR_GUARD_TOKEN, 5, 1, 0, bad });
      EXPECT_EQ(First(pair.device.Get()->input_ids, 8), (Words{ 70, 1, 2, 3, 74, 0, 0, 999 }));
      pair.Epilogue();
    }
}

// The token that a row sampled last comes back as its next input.
TEST_P(KernelEpilogue, TheNextStepReadsWhatWasSampled) {
  for (int32_t stride : { 1, 2, 3 }) {
    StepLimits limits = WithStride(stride);
    StepPair pair(*bench_, limits);
    pair.Prologue(WithPages(pair.Step({ 3, 5 }, { 4, 2 }, 4, 8)));
    pair.PutNextTokens(Sampled(limits, 70));
    pair.Epilogue();
    StagedStep next = pair.Step({ 5, 3 }, { 1, 1 }, 4, 4);
    next.with_tokens = false;
    pair.Prologue(next);
    EXPECT_EQ(pair.device.Get()->input_ids[0], 70 + stride);
    EXPECT_EQ(pair.device.Get()->input_ids[1], 70);
    pair.Epilogue();
  }
}

TEST_P(KernelEpilogue, ReportsErrorsAndCountsThem) {
  StepLimits limits;
  StepPair pair(*bench_, limits);
  StagedStep step = WithPages(pair.Step({ 3, 5 }, { 1, 1 }, 4, 4));
  step.rows[1] = 12;
  pair.Prologue(step);
  pair.PutNextTokens(Words(8, 9));
  pair.Epilogue();
  ExpectResult(pair, limits, 1, { CGR_GUARD_ROW, -1, 1, 0, 12 }, { 1, 0 }, { 9, 9 });
  StagedStep bad = pair.Step({ 3, 5 }, { 1, 1 }, 4, 4);
  bad.seq = 77;
  pair.PrologueAndEpilogue(bad);
  ExpectResult(pair, limits, 2, { CGR_GUARD_SEQUENCE, -1, 0, 0, 77 }, {}, {});
  EXPECT_EQ(pair.device.completion()->errors, 2u);
  pair.PrologueAndEpilogue(pair.Step({ 3, 5 }, { 1, 1 }, 4, 4)); // a good one: the first step's pages were applied
  ExpectResult(pair, limits, 3, kNoError, { 1, 1 }, { 9, 9 });
  pair.PrologueAndEpilogue(pair.Step({ 6 }, { 1 }, 4, 4)); // a row without pages
  ExpectResult(pair, limits, 4, { CGR_GUARD_PAGE, 6, 0, 0, 0 }, { 1 }, { 9 });
  EXPECT_EQ(pair.device.completion()->errors, 3u);
}

// A request that a guard refused leaves its row as it was.
TEST_P(KernelEpilogue, RefusedRequestCommitsNothing) {
  StepLimits limits;
  StepPair pair(*bench_, limits);
  StagedStep step = WithPages(pair.Step({ 3, 5 }, { 4, 2 }, 4, 8));
  AddChange(&step, CGR__CHANGE_COMPUTED, 5, 0, 299);
  pair.Prologue(step);
  pair.PutNextTokens(Words(8, 70));
  pair.Epilogue();
  const StepBuffers got = pair.device.Get();
  EXPECT_EQ(got->row_computed[3], 4);
  EXPECT_EQ(got->row_computed[5], 299);
  EXPECT_EQ(LastToken(got, 5), kPoisonWord);
  ExpectResult(pair, limits, 1, { CGR_GUARD_LENGTH, 5, 1, 0, 301 }, { 1, 0 }, { 70, 70 });
}

// A step that the host gave up half-way completes, reports its error, changes no row and has no requests.
TEST_P(KernelEpilogue, AbandonedStepCommitsNothing) {
  for (bool refused : { false, true }) {
    StepLimits limits = WithStride(2);
    StepPair pair(*bench_, limits);
    StagedStep step = WithPages(pair.Step({ 3, 5 }, { 4, 2 }, 4, 8));
    if (refused)
      step.rows[1] = -4;
    pair.Prologue(step);
    pair.PutNextTokens(Sampled(limits, 70));
    const StepBuffers before = pair.device.Get();
    pair.Epilogue(true);
    const StepBuffers after = pair.device.Get();
    for (int32_t row = 0; row <= limits.max_rows; row++) {
      EXPECT_EQ(after->row_computed[row], before->row_computed[row]);
      EXPECT_EQ(LastToken(after, row), LastToken(before, row));
    }
    ExpectResult(pair, limits, 1, refused ? cgr__step_error{ CGR_GUARD_ROW, -1, 1, 0, -4 } : kNoError, {}, {});
    EXPECT_EQ(pair.device.completion()->errors, refused ? 1u : 0u);
  }
}

// An empty step has a result too, with no requests in it.
TEST_P(KernelEpilogue, EmptyStepHasAnEmptyResult) {
  StepLimits limits;
  StepPair pair(*bench_, limits);
  pair.PrologueAndEpilogue(WithPages(pair.Step({ 3, 5 }, { 4, 2 }, 4, 8)));
  pair.EmptyPrologue(4, 8, true);
  pair.PutNextTokens(Words(8, 9));
  pair.Epilogue();
  ExpectResult(pair, limits, 2, kNoError, {}, {});
}

// Results stay where they are until ring_depth newer steps have run.
TEST_P(KernelEpilogue, ResultsStayForARingOfSteps) {
  StepLimits limits;
  limits.ring_depth = 4;
  StepPair pair(*bench_, limits);
  pair.PrologueAndEpilogue(WithPages(pair.Step({}, {}, 1, 1)));
  for (int32_t s = 2; s < 20; s++) {
    pair.Prologue(pair.Step({ 3 }, { 1 }, 2, 2));
    pair.PutNextTokens(Words(8, s));
    pair.Epilogue();
    for (int32_t old = std::max(2, s - 3); old <= s; old++)
      ExpectResult(pair, limits, uint64_t(old), kNoError, { 1 }, { old });
  }
}

// Nothing after the real requests counts: no row is committed for it and none of its tokens is in the result.
class KernelEpilogueGarbage : public KernelEpilogue {
protected:
  // A step of 0, 1 or 3 requests in a bucket of 8; 0: emptied by a guard, which leaves a count of 0 and 8 rows.
  static StagedStep StepOf(StepPair &pair, int32_t n) {
    if (n == 1)
      return WithPages(pair.Step({ 3 }, { 4 }, 8, 20));
    StagedStep step = WithPages(pair.Step({ 3, 5, 2 }, { 4, 2, 1 }, 8, 20));
    step.seq += n == 0 ? 76 : 0;
    return step;
  }
  static void PutGarbage(StepPair *pair, int32_t n, bool wild) {
    const Words rows = { 9, 10, 11, 0, 1, 4, 6, 7 };
    for (int32_t i = n; i < 8; i++) {
      cgr__buffers &b = *pair->model.b.operator->();
      b.seq_lens[0][i] = wild ? Words{ INT32_MAX, 1, INT32_MIN, 299 }[size_t(i) % 4] : 20 + i;
      b.query_start_loc[i + 1] = wild ? Words{ INT32_MAX, 1, INT32_MIN, 7 }[size_t(i) % 3] : 30 + 3 * i;
      b.request_rows[i] = wild ? Words{ INT32_MAX, 12, -1, INT32_MIN }[size_t(i) % 4] : rows[i];
      b.request_flags[i] = 0;
    }
    pair->Upload();
  }
};

TEST_P(KernelEpilogueGarbage, AfterTheRequestsCommitsNothing) {
  StepLimits limits;
  for (bool wild : { false, true }) {
    for (int32_t n : { 0, 1, 3 }) {
      SCOPED_TRACE("requests " + std::to_string(n) + (wild ? " wild" : ""));
      StepPair pair(*bench_, limits);
      pair.Prologue(StepOf(pair, n));
      pair.PutNextTokens(Sampled(limits, 70));
      PutGarbage(&pair, n, wild);
      pair.Epilogue();
      const StepBuffers got = pair.device.Get();
      for (int32_t row : { 0, 1, 4, 6, 7, 8, 9, 10, 11, 12 }) {
        EXPECT_EQ(got->row_computed[row], 0) << "row " << row;
        EXPECT_EQ(LastToken(got, row), kPoisonWord) << "row " << row;
      }
      EXPECT_EQ(got->row_computed[3], n > 0 ? 4 : 0);
      ExpectResult(pair, limits, 1, n > 0 ? kNoError : cgr__step_error{ CGR_GUARD_SEQUENCE, -1, 0, 0, 77 }, Words(size_t(n), 1),
                   Beginning({ 70, 71, 72 }, size_t(n)));
      ASSERT_FALSE(HasFailure());
    }
  }
}

// A host that sees completed_seq sees the result, and may fill the slot again; nothing else orders the two sides. Every step has
// different tokens and a different number of them.
class KernelEpiloguePublishing : public KernelEpilogue {
protected:
  static constexpr int32_t kRows = CGR__MAX_REQUESTS;
  static constexpr uint64_t kKinds = 64; // steps of one kind are further apart than the ring is deep

  static StagedStep StepOf(StepPair &pair, uint64_t seq) {
    Words rows(size_t(kRows) - seq % 3 * 100); // without new tokens, and thus without pages
    for (size_t i = 0; i < rows.size(); i++)
      rows[i] = int32_t((i + seq) % size_t(kRows));
    StagedStep step = pair.Step(rows, Words(rows.size(), 0), kRows, 1);
    step.seq = step.batch_seq = seq;
    return step;
  }
  static void Await(const cgr__completion *completion, uint64_t seq) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (int spins = 0; __atomic_load_n(&completion->completed_seq, __ATOMIC_ACQUIRE) != seq; spins++) {
      if (spins % 4096 != 4095)
        continue;
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "step " << seq << " does not complete";
      std::this_thread::yield();
    }
  }
};

TEST_P(KernelEpiloguePublishing, CompletedSeqAloneOrdersTheResult) {
  StepLimits limits;
  limits.max_requests = limits.max_rows = kRows;
  StepPair pair(*bench_, limits);
  pair.PrologueAndEpilogue(pair.Step({}, {}, kRows, 1));
  Words all(kKinds * size_t(kRows));
  std::iota(all.begin(), all.end(), 1000000);
  Array<int32_t> tokens(*bench_, all, CGR__MEMORY_PINNED);
  cgr__step_args args = pair.device.Args(kRows, 1);
  for (uint64_t seq = 2; seq < 1000; seq++) {
    StagedStep step = StepOf(pair, seq);
    WriteSlot(pair.device.slot_layout(), step, pair.device.slot(seq));
    bench_->Enqueue(cgr__kernel_prologue, &args);
    bench_->EnqueueCopy(args.buffers.next_tokens, tokens.data() + seq % kKinds * size_t(kRows), size_t(kRows) * sizeof(int32_t));
    bench_->Enqueue(cgr__kernel_epilogue, &args);
    const int32_t *result = reinterpret_cast<const int32_t *>(pair.device.readback(seq) + args.readback_slot.tokens);
    const int32_t *expected = &all[seq % kKinds * size_t(kRows)];
    size_t count = step.rows.size();
    ASSERT_NO_FATAL_FAILURE(Await(pair.device.completion(), seq));
    int32_t final_token = __atomic_load_n(&result[count - 1], __ATOMIC_RELAXED); // what a careless epilogue would store last
    ASSERT_EQ(final_token, expected[count - 1]) << "step " << seq;
    ExpectResult(pair, limits, seq, kNoError, Words(count, 0), Words(expected, expected + count));
    ASSERT_FALSE(HasFailure()) << "step " << seq;
  }
  bench_->Sync();
}

// The same on the host at any moment: a process that dies at the first byte of completed_seq has written everything else. The
// record straddles the end of a read-only page, so that errors and generation can be written.
class HostEpilogue : public ::testing::Test {
protected:
  static constexpr size_t kPage = 4096, kReadback = 2 * kPage; // of memory that both processes see
  void SetUp() override {
    void *memory = mmap(nullptr, kPage + kReadback, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    shared_ = static_cast<unsigned char *>(memory);
    std::memset(shared_, kPoisonByte, kPage + kReadback);
    ASSERT_EQ(mprotect(shared_, kPage, PROT_READ), 0);
  }
  void TearDown() override { munmap(shared_, kPage + kReadback); }
  // Runs it in another process and returns how that ended.
  static int RunApart(const cgr__step_args &args) {
    pid_t child = fork();
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL);
      cgr__kernel_epilogue.host(&args);
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }
  unsigned char *shared_ = nullptr;
};

TEST_F(HostEpilogue, WritesCompletedSeqAfterEverythingElse) {
  Bench bench(OpenDevice(HostParam(CGR_SCHEDULE_ASYNC)));
  StepLimits limits;
  StepPair pair(bench, limits);
  pair.Prologue(pair.Step({ 3, 12 }, { 0, 0 }, 4, 4));
  pair.PutNextTokens({ 70, 71, 72, 73, 74, 75, 76, 77 });
  cgr__step_args args = pair.device.Args(4, 4);
  args.readback = shared_ + kPage + 256;
  args.completion = reinterpret_cast<cgr__completion *>(shared_ + kPage - sizeof args.completion->completed_seq);
  int status = RunApart(args);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << "completed_seq was not written: " << status;
  pair.model.Epilogue(false, kNoError);
  EXPECT_EQ(args.completion->errors, 1u);
  EXPECT_EQ(args.completion->generation, 0u);
  size_t stride = size_t(args.readback_slot.stride);
  EXPECT_EQ(std::memcmp(args.readback + stride, pair.model.readback.data() + stride, stride), 0) << "the result of step 1";
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelEpilogue);
CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelEpilogueGarbage);
CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelEpiloguePublishing);

} // namespace
} // namespace cgr_test
