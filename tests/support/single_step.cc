#include "tests/support/single_step.h"

#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CGR_TEST_CAN_INTERRUPT 1
#include <csignal>
#include <ucontext.h>
#endif

namespace cgr_test {

#ifdef CGR_TEST_CAN_INTERRUPT

namespace {

struct State {
  const std::function<void()> *interruption;
  int64_t left;
  volatile std::sig_atomic_t begun, over, happened;
};
State state;

const greg_t kTrapFlag = 0x100;

// The first signal comes from the breakpoint, the others from the trap flag.
void OnTrap(int, siginfo_t *, void *context) {
  greg_t *flags = &static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL];
  if (!state.begun) {
    state.begun = 1;
    *flags |= kTrapFlag;
    return;
  }
  if (!state.over && --state.left > 0)
    return;
  *flags &= ~kTrapFlag;
  if (state.over)
    return;
  state.happened = 1;
  (*state.interruption)();
}

} // namespace

bool CanInterrupt() { return true; }

bool Interrupted(const std::function<void()> &body, int64_t instructions, const std::function<void()> &interruption) {
  struct sigaction action = {}, before;
  action.sa_sigaction = OnTrap;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, &before);
  state = { &interruption, instructions, 0, 0, 0 };
  __asm__ volatile("int3" ::: "memory");
  body();
  state.over = 1;
  __asm__ volatile("nop\n\tnop" ::: "memory"); // the flag is off from here on
  sigaction(SIGTRAP, &before, nullptr);
  return state.happened != 0;
}

#else

bool CanInterrupt() { return false; }

bool Interrupted(const std::function<void()> &body, int64_t, const std::function<void()> &) {
  body();
  return false;
}

#endif

} // namespace cgr_test
