// Interrupts a function between two of its instructions: the processor's trap flag raises a signal after each, and the handler
// counts them. For torn states that no call in the interrupted code exposes. The function must not hold a lock, or be in an
// allocation, that the interruption needs too. x86-64 Linux without sanitizers; elsewhere nothing is interrupted.
#pragma once

#include <cstdint>
#include <functional>

namespace cgr_test {

// Runs `body`; after `instructions` of them runs `interruption`, once, and then the rest of `body`. False: it ended before.
bool Interrupted(const std::function<void()> &body, int64_t instructions, const std::function<void()> &interruption);

// Whether it can interrupt here.
bool CanInterrupt();

} // namespace cgr_test
