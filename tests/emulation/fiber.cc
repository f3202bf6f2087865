#include "tests/emulation/fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// void cgr_emulation_switch(void **save, void *load): pushes the callee-saved registers, saves the top of the stack, and restores
// the registers from the other stack.
asm(R"(
.text
.globl cgr_emulation_switch
.hidden cgr_emulation_switch
.type cgr_emulation_switch, @function
cgr_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cgr_emulation_switch, . - cgr_emulation_switch
)");
extern "C" void cgr_emulation_switch(void **save, void *load);
#endif

namespace cgr_emulation {

Fiber::Fiber(size_t stack_bytes, size_t number) : bytes_(stack_bytes), shift_(number * 5 % 64 * 64) {
  size_t page = size_t(sysconf(_SC_PAGESIZE));
  void *memory =
      mmap(nullptr, page + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
    std::abort();
  stack_ = static_cast<char *>(memory) + page;
}

Fiber::~Fiber() {
  size_t page = size_t(sysconf(_SC_PAGESIZE));
  if (stack_ != nullptr)
    munmap(static_cast<char *>(stack_) - page, page + bytes_);
}

void Fiber::Begin(void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  // Frames that never returned: the first few, or, where it was abandoned, all.
  size_t left = ended_ ? size_t{ 8192 } : bytes_;
  ASAN_UNPOISON_MEMORY_REGION(static_cast<char *>(stack_) + bytes_ - left, left);
  ended_ = false;
#endif
#if defined(__x86_64__)
  uintptr_t end = (reinterpret_cast<uintptr_t>(stack_) + bytes_ - shift_) & ~uintptr_t{ 15 };
  void **top = reinterpret_cast<void **>(end) - 8; // six registers, the entry, and no return address
  for (int i = 0; i < 8; i++)
    top[i] = nullptr;
  top[6] = reinterpret_cast<void *>(entry);
  top_ = top;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = bytes_ - shift_;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
#endif
}

void Fiber::SwitchFrom(Fiber *from, bool forever) {
  from->ended_ = forever;
#if defined(__SANITIZE_ADDRESS__)
  if (stack_ == nullptr) { // the thread's own: its place has to be looked up
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0 || pthread_attr_getstack(&attributes, &stack_, &bytes_) != 0)
      std::abort();
    pthread_attr_destroy(&attributes);
    __sanitizer_start_switch_fiber(forever ? nullptr : &from->shadow_, stack_, bytes_);
    stack_ = nullptr;
  } else {
    __sanitizer_start_switch_fiber(forever ? nullptr : &from->shadow_, stack_, bytes_);
  }
#endif
#if defined(__x86_64__)
  cgr_emulation_switch(&from->top_, top_);
#else
  swapcontext(&from->context_, &context_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from->shadow_, nullptr, nullptr);
#endif
}

void Fiber::Entered() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

} // namespace cgr_emulation
