// Shared memory of the block that a thread runs: all of the program's variables in thread-local storage, which is where
// __shared__ puts them (cuda.h). When a block begins they hold NaN in every type, or a number that is far outside of everything;
// what lies after the dynamic shared memory that the launch asked for must stay like that, and may not be touched under the
// address sanitizer.
#ifndef CGR_TESTS_EMULATION_SHARED_MEMORY_H
#define CGR_TESTS_EMULATION_SHARED_MEMORY_H

#include <cstddef>
#include <cstdint>

namespace cgr_emulation {

constexpr uint16_t kPoison = 0x7fff; // NaN in fp16 and bf16, in fp32 twice

// Of the calling thread. `bytes`: of dynamic shared memory.
void BeginSharedMemory(size_t bytes);
// Opens all of it again. False: something was written after its end.
bool EndSharedMemory(size_t bytes);

// A variable of dynamic shared memory: where the calling thread has it.
bool AddDynamicSharedMemory(void *(*where)());
// Whether [address, address + bytes) lies in dynamic shared memory that the launch has.
bool IsDynamicSharedMemory(const void *address, size_t bytes, size_t shared);

// Addresses in the shared window are 32 bits.
uint32_t ToShared(const void *address);
void *FromShared(uint32_t address);

} // namespace cgr_emulation

#endif // CGR_TESTS_EMULATION_SHARED_MEMORY_H
