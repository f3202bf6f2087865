// Shared memory of the block that a thread runs: all of the program's thread-local variables, since __shared__ puts variables
// there (cuda.h). When a block begins they hold NaN in every floating type, and a number out of every range in the others. The
// memory past the dynamic shared memory that the launch asked for must stay like that; under the address sanitizer it may not
// be touched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cgr_emulation {

constexpr uint16_t kPoison = 0x7fff; // NaN in fp16 and bf16, in fp32 twice

// For the calling thread. `bytes`: of dynamic shared memory.
void BeginSharedMemory(size_t bytes);
// Makes all of it accessible again. False: something was written past its end.
bool EndSharedMemory(size_t bytes);

// Registers a variable of dynamic shared memory; `where` returns its address in the calling thread.
bool AddDynamicSharedMemory(void *(*where)());
// Whether [address, address + bytes) is in the launch's dynamic shared memory.
bool IsDynamicSharedMemory(const void *address, size_t bytes, size_t shared);

// Addresses in the shared window are 32 bits.
uint32_t ToShared(const void *address);
void *FromShared(uint32_t address);

} // namespace cgr_emulation
