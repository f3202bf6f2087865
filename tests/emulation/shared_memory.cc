#include "tests/emulation/shared_memory.h"

#include <link.h>

#include <algorithm>
#include <vector>

#include "tests/emulation/block.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace cgr_emulation {
namespace {

constexpr size_t kTail = 4096; // bytes checked past the dynamic shared memory

std::vector<void *(*)()> &Variables() {
  static std::vector<void *(*)()> *variables = new std::vector<void *(*)()>;
  return *variables;
}

struct Range {
  char *begin, *end;
};

// Finds the calling thread's uninitialised thread-local variables of the main program.
int FindSharedMemory(dl_phdr_info *info, size_t, void *) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) &header = info->dlpi_phdr[i];
    if (header.p_type != PT_TLS || info->dlpi_tls_data == nullptr)
      continue;
    char *data = static_cast<char *>(info->dlpi_tls_data);
    builtins.shared = data + header.p_filesz;
    builtins.shared_end = data + header.p_memsz;
  }
  return 1; // the first is the main program
}

// As much poison as is compared or copied at once.
const char *ManyPoison() {
  static const std::vector<uint16_t> *many = new std::vector<uint16_t>(kTail / sizeof kPoison, kPoison);
  return reinterpret_cast<const char *>(many->data());
}

void Poison(char *begin, const char *end) {
  for (size_t bytes; (bytes = std::min(kTail, size_t(end - begin) / sizeof kPoison * sizeof kPoison)) > 0; begin += bytes)
    __builtin_memcpy(begin, ManyPoison(), bytes);
}

size_t DynamicBytes(size_t bytes) { return std::min(kMostShared, (bytes + 15) / 16 * 16); }

} // namespace

void BeginSharedMemory(size_t bytes) {
  if (builtins.shared == nullptr)
    dl_iterate_phdr(FindSharedMemory, nullptr);
  // Must not be touched: the emulation's own variables, and the long ends of dynamic shared memory.
  std::vector<Range> kept = { { reinterpret_cast<char *>(&builtins), reinterpret_cast<char *>(&builtins + 1) } };
  for (void *(*where)() : Variables()) {
    char *data = static_cast<char *>(where());
    kept.push_back({ data + std::min(kMostShared, DynamicBytes(bytes) + kTail), data + kMostShared });
  }
  std::sort(kept.begin(), kept.end(), [](const Range &a, const Range &b) { return a.begin < b.begin; });
  char *from = builtins.shared;
  for (const Range &one : kept) {
    if (one.begin < from || one.end > builtins.shared_end)
      continue;
    Poison(from, one.begin);
    from = one.end;
  }
  Poison(from, builtins.shared_end);
#if defined(__SANITIZE_ADDRESS__)
  for (void *(*where)() : Variables())
    ASAN_POISON_MEMORY_REGION(static_cast<char *>(where()) + bytes, kMostShared - bytes);
#endif
}

bool EndSharedMemory(size_t bytes) {
  bool good = true;
  for (void *(*where)() : Variables()) {
    char *data = static_cast<char *>(where());
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(data + bytes, kMostShared - bytes);
#endif
    const size_t begin = DynamicBytes(bytes), end = std::min(kMostShared, begin + kTail);
    good &= __builtin_memcmp(data + begin, ManyPoison(), end - begin) == 0;
  }
  return good;
}

bool AddDynamicSharedMemory(void *(*where)()) {
  Variables().push_back(where);
  return true;
}

bool IsDynamicSharedMemory(const void *address, size_t bytes, size_t shared) {
  for (void *(*where)() : Variables()) {
    const char *data = static_cast<const char *>(where()), *begin = static_cast<const char *>(address);
    if (begin >= data && begin + bytes <= data + shared)
      return true;
  }
  return false;
}

// Thread-local storage is much smaller than 2 GiB, so the distance from one variable identifies an address.
uint32_t ToShared(const void *address) { return uint32_t(reinterpret_cast<uintptr_t>(address)); }

void *FromShared(uint32_t address) {
  uintptr_t here = reinterpret_cast<uintptr_t>(&builtins);
  return reinterpret_cast<void *>(here + uintptr_t(intptr_t(int32_t(address - uint32_t(here)))));
}

} // namespace cgr_emulation
