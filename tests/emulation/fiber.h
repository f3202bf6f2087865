// A stack of its own and the place on it at which it goes on: what a thread of an emulated block runs on. A switch is a dozen
// instructions where this knows the processor, and swapcontext elsewhere.
#ifndef CGR_TESTS_EMULATION_FIBER_H
#define CGR_TESTS_EMULATION_FIBER_H

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cgr_emulation {

class Fiber {
public:
  Fiber() = default; // the calling thread's own stack
  explicit Fiber(size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;

  // From now on the fiber begins with `entry`, which never returns; whatever it was doing is forgotten.
  void Begin(void (*entry)());
  // Leaves `from`, on which the caller runs, and goes on with this one; returns when somebody goes on with `from`. `forever`:
  // nobody will.
  void SwitchFrom(Fiber *from, bool forever = false);
  // The first thing that an entry does.
  static void Entered();

private:
  void *stack_ = nullptr; // above a page that nobody may touch
  size_t bytes_ = 0;
  [[maybe_unused]] void *shadow_ = nullptr; // of the address sanitizer
  bool ended_ = true;
#if defined(__x86_64__)
  void *top_ = nullptr; // of the stack, where the registers are
#else
  ucontext_t context_;
#endif
};

} // namespace cgr_emulation

#endif // CGR_TESTS_EMULATION_FIBER_H
