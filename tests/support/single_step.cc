#include "tests/support/single_step.h"

#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CGR_TEST_CAN_INTERRUPT 1
#include <csignal>
#include <cstdlib>
#include <link.h>
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

// What is counted. The C library is at [begin, end).
struct Counter {
  uintptr_t begin, end, last;
  volatile int64_t own, of_c_library;
  volatile std::sig_atomic_t over;
};
Counter counter;

void OnCount(int, siginfo_t *, void *context) {
  greg_t *registers = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
  const uintptr_t at = uintptr_t(registers[REG_RIP]);
  registers[REG_EFL] = counter.over ? registers[REG_EFL] & ~kTrapFlag : registers[REG_EFL] | kTrapFlag;
  if (at == counter.last)
    return;
  counter.last = at;
  if (at >= counter.begin && at < counter.end)
    counter.of_c_library = counter.of_c_library + 1;
  else
    counter.own = counter.own + 1;
}

// Whether the object is the C library, whose place it notes.
int FindCLibrary(struct dl_phdr_info *info, size_t, void *) {
  const uintptr_t inside = reinterpret_cast<uintptr_t>(&std::abort);
  uintptr_t begin = UINTPTR_MAX, end = 0;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_LOAD) {
      const uintptr_t first = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
      begin = first < begin ? first : begin;
      end = first + info->dlpi_phdr[i].p_memsz > end ? first + info->dlpi_phdr[i].p_memsz : end;
    }
  if (inside < begin || inside >= end)
    return 0;
  counter.begin = begin, counter.end = end;
  return 1;
}

Instructions CountAll(void (*body)(void *), void *context) {
  struct sigaction action = {}, before;
  action.sa_sigaction = OnCount;
  action.sa_flags = SA_SIGINFO;
  counter = {};
  dl_iterate_phdr(FindCLibrary, nullptr);
  sigaction(SIGTRAP, &action, &before);
  __asm__ volatile("int3" ::: "memory");
  body(context);
  counter.over = 1;
  __asm__ volatile("nop\n\tnop" ::: "memory"); // the flag is off from here on
  sigaction(SIGTRAP, &before, nullptr);
  return { counter.own, counter.of_c_library };
}

} // namespace

Instructions CountInstructions(void (*body)(void *), void *context) {
  const Instructions all = CountAll(body, context), call = CountAll([](void *) {}, nullptr);
  return { all.own - call.own, all.of_c_library };
}

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

Instructions CountInstructions(void (*body)(void *), void *context) {
  body(context);
  return { 0, 0 };
}

#endif

} // namespace cgr_test
