// A thread of an emulated block runs on a fiber: its own stack and the place at which it resumes. A switch takes a dozen
// instructions on x86-64, and swapcontext elsewhere.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cgr_emulation {

class Fiber {
public:
  Fiber() = default; // the calling thread's own stack
  // `number`: of the fibers of a block. Their stacks begin at different places of a page, or all of them would compete for the
  // same lines of the processor's cache.
  Fiber(size_t stack_bytes, size_t number);
  ~Fiber();
  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;

  // Restarts the fiber at `entry`, which never returns; whatever it was doing is forgotten.
  void Begin(void (*entry)());
  // Leaves `from`, on which the caller runs, and resumes this one; returns when `from` is resumed. `forever`: nothing
  // will.
  void SwitchFrom(Fiber *from, bool forever = false);
  // An entry must call this first.
  static void Entered();

private:
  void *stack_ = nullptr; // above a guard page
  size_t bytes_ = 0, shift_ = 0;
  [[maybe_unused]] void *shadow_ = nullptr; // for the address sanitizer
  bool ended_ = true;
#if defined(__x86_64__)
  void *top_ = nullptr; // of the stack, where the registers are
#else
  ucontext_t context_;
#endif
};

} // namespace cgr_emulation
