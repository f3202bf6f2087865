// Interrupts a function between two of its instructions, or counts them: the processor's trap flag raises a signal after each.
// x86-64 Linux without sanitizers; elsewhere nothing is interrupted or counted.
#pragma once

#include <cstdint>
#include <functional>

namespace cgr_test {

// For torn states that no call in the interrupted code exposes. The function must not hold a lock, or be in an allocation, that
// the interruption needs too. Runs `body`; after `instructions` of them runs `interruption`, once, and then the rest of `body`.
// False: it ended before.
bool Interrupted(const std::function<void()> &body, int64_t instructions, const std::function<void()> &interruption);

// What a call of `body` executes on this thread. Instructions of the C library, which depend on the processor and the
// distribution, are counted by themselves. A repeated string instruction counts once.
struct Instructions {
  int64_t own, of_c_library;
};
Instructions CountInstructions(void (*body)(void *context), void *context);

// Whether it can do so here.
bool CanInterrupt();

} // namespace cgr_test
