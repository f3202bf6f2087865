// The protocol of steps (buffers/PROTOCOL.md), simulated: a step acts on what the host has staged for its number, however late
// or early each of its kernels runs, with fetches ahead, cancels, failed launches and losses; no ring slot is torn or stale. Now
// and then kernels run between two instructions of a prepare, and a commit falls between two instructions of a fetch. 20,000
// steps; CGR_SIM_STEPS in the environment sets another number.
#include <chrono>
#include <cstdlib>

#include "tests/support/simulation.h"
#include "tests/support/single_step.h"

namespace cgr_test {
namespace {

using sim::Counts;
using sim::Options;
using sim::Pace;
using sim::Simulation;

enum { kStepsOfARuntime = 1000 };

uint64_t NumSteps() {
  const char *given = std::getenv("CGR_SIM_STEPS");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : 20000;
}

// Every depth with every pace and mode.
Options OptionsOf(uint64_t n, Random *random) {
  static const int32_t modes[] = { CGR_MODE_FULL,      CGR_MODE_FULL_AND_PIECEWISE,
                                   CGR_MODE_FULL,      CGR_MODE_FULL_DECODE_ONLY,
                                   CGR_MODE_PIECEWISE, CGR_MODE_NONE };
  Options options;
  options.seed = random->Bits(), options.depth = int32_t(2 + n % 7), options.pace = Pace(n / 7 % 4);
  options.mode = modes[n % 11 < 6 ? n % 11 : 0];
  options.max_changes = random->OneIn(2) ? random->Pick32(4, 12) : random->Pick32(13, 200);
  return options;
}

void Print(const Counts &c, double seconds) {
  const struct {
    const char *name;
    uint64_t count;
  } lines[] = { { "steps", c.steps },
                { "full, decodes", c.full_decode },
                { "full, mixed", c.full_mixed },
                { "piecewise", c.piecewise },
                { "eager", c.eager },
                { "of these, of the standing batch", c.standing },
                { "of these, of whole batches", c.whole },
                { "of these, without requests", c.dummy },
                { "of these, with a forced key", c.forced },
                { "standing batches above a limit", c.above },
                { "changes sent ahead", c.change_steps },
                { "flushes", c.flushes },
                { "prepares that found no slot", c.busy },
                { "cancelled", c.cancels },
                { "launches that failed", c.failed },
                { "of these, the step had run", c.failed_ran },
                { "given up by a callback", c.callbacks },
                { "abandoned on the device", c.abandoned },
                { "empty", c.empty },
                { "slots spoiled", c.spoiled },
                { "refused or in error", c.refused },
                { "fetches that hit", c.hits },
                { "fetches that missed", c.misses },
                { "steps from the inbox", c.from_inbox },
                { "that append before they attend", c.append_first },
                { "prepares with kernels in between", c.in_prepare },
                { "fetches looked at in between", c.in_fetch },
                { "commits in the middle of a fetch", c.torn_commits },
                { "results", c.results },
                { "results dropped by a flush", c.expired } };
  for (const auto &line : lines)
    printf("%-34s %9llu\n", line.name, static_cast<unsigned long long>(line.count));
  printf("%-34s %9.1f\n", "seconds", seconds);
}

TEST(Simulation, NoSlotIsTornOrStale) {
  const uint64_t seed = Seed(), num_steps = NumSteps();
  Random random{ seed };
  Counts all = {};
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t n = 0; all.steps < num_steps && !HasFailure(); n++) {
    const Options options = OptionsOf(n, &random);
    Simulation simulation{ options };
    simulation.Run(kStepsOfARuntime);
    EXPECT_EQ(simulation.failure(), "") << Repeat(seed) << ": runtime " << n << ", depth " << options.depth << ", mode "
                                        << options.mode << ", pace " << sim::PaceName(options.pace);
    all.Add(simulation.counts());
  }
  Print(all, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  printf("%s\n", Repeat(seed).c_str());
  const uint64_t all_kinds[] = { all.full_decode, all.full_mixed,   all.piecewise, all.eager,   all.standing, all.dummy,
                                 all.forced,      all.change_steps, all.flushes,   all.busy,    all.cancels,  all.failed,
                                 all.failed_ran,  all.callbacks,    all.empty,     all.spoiled, all.refused,  all.hits,
                                 all.misses,      all.append_first, all.above };
  const uint64_t interrupted[] = { all.in_prepare, all.in_fetch, all.torn_commits };
  for (uint64_t count : interrupted)
    EXPECT_TRUE(count > 0 || num_steps < 20000 || HasFailure() || !CanInterrupt()) << "nothing was interrupted";
  for (uint64_t count : all_kinds)
    EXPECT_TRUE(count > 0 || num_steps < 20000 || HasFailure()) << "something did not happen at all";
}

} // namespace
} // namespace cgr_test
