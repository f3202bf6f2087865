// Memory and kernels of a device for tests that stand on the device table: everything goes through its operations, so that the
// same test runs on the host device and on a GPU.
#ifndef CGR_TESTS_SUPPORT_DEVICE_MEMORY_H
#define CGR_TESTS_SUPPORT_DEVICE_MEMORY_H

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tests/support/devices.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace cgr_test {

// Kernels compute the same whenever the host device runs them: one host device and the first GPU.
inline std::vector<DeviceParam> KernelDevices() { return { HostParam(CGR_HOST_ASYNC), CudaParam() }; }

inline int32_t Pick(std::mt19937_64 &random, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(random() % static_cast<uint64_t>(high - low + 1));
}

// A device with a stream. Everything is complete when a function returns.
class Bench {
public:
  explicit Bench(cgr_device *dev) : dev_(dev) { EXPECT_EQ(dev_->ops->stream_create(dev_, &stream_), CGR__DEVICE_OK); }
  ~Bench() {
    EXPECT_EQ(dev_->ops->stream_destroy(dev_, stream_), CGR__DEVICE_OK);
    EXPECT_EQ(dev_->ops->close(dev_), CGR__DEVICE_OK);
  }
  Bench(const Bench &) = delete;
  Bench &operator=(const Bench &) = delete;

  bool is_cuda() const { return dev_->kind == CGR_DEVICE_CUDA; }

  void Copy(void *to, const void *from, size_t bytes) {
    if (bytes == 0)
      return;
    EXPECT_EQ(dev_->ops->copy(dev_, to, from, bytes, stream_), CGR__DEVICE_OK);
    Sync();
  }
  // Both ends are memory of the device, or page-locked.
  void EnqueueCopy(void *to, const void *from, size_t bytes) {
    EXPECT_EQ(dev_->ops->copy(dev_, to, from, bytes, stream_), CGR__DEVICE_OK);
  }
  void Enqueue(const cgr__kernel &kernel, const void *args) {
    EXPECT_EQ(dev_->ops->launch(dev_, &kernel, args, stream_), CGR__DEVICE_OK) << kernel.name << ": " << dev_->last_raw;
  }
  void Run(const cgr__kernel &kernel, const void *args) {
    Enqueue(kernel, args);
    Sync();
  }
  void Sync() { EXPECT_EQ(dev_->ops->stream_sync(dev_, stream_), CGR__DEVICE_OK) << dev_->last_raw; }

  void *Alloc(size_t bytes, cgr__memory_kind kind) {
    void *memory = nullptr;
    EXPECT_EQ(dev_->ops->mem_alloc(dev_, bytes, kind, &memory), CGR__DEVICE_OK);
    return memory;
  }
  void Free(void *memory, cgr__memory_kind kind) { EXPECT_EQ(dev_->ops->mem_free(dev_, memory, kind), CGR__DEVICE_OK); }

private:
  cgr_device *dev_;
  cudaStream_t stream_ = nullptr;
};

// An array of the device between two guards: what is written there is found when the array goes, and under the address
// sanitizer nothing may read there either. Without content it is filled with 0xA5 bytes.
template <class T> class Array {
public:
  Array(Bench &bench, size_t count, cgr__memory_kind kind = CGR__MEMORY_DEVICE) : Array(bench, Poison(count), kind) {}
  Array(Bench &bench, const std::vector<T> &content, cgr__memory_kind kind = CGR__MEMORY_DEVICE)
      : bench_(bench), kind_(kind), count_(content.size()) {
    base_ = static_cast<unsigned char *>(bench_.Alloc(bytes() + 2 * kGuard, kind_));
    std::vector<unsigned char> image(bytes() + 2 * kGuard, kGuardByte);
    if (count_ > 0)
      std::memcpy(&image[kGuard], content.data(), bytes());
    bench_.Copy(base_, image.data(), image.size());
    Close(true);
  }
  ~Array() {
    ExpectIntact();
    Close(false);
    bench_.Free(base_, kind_);
  }
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;

  static std::vector<T> Poison(size_t count) {
    std::vector<T> content(count);
    if (count > 0)
      std::memset(static_cast<void *>(content.data()), 0xA5, count * sizeof(T));
    return content;
  }
  void Put(const std::vector<T> &content) {
    ASSERT_EQ(content.size(), count_);
    bench_.Copy(data(), content.data(), bytes());
  }
  std::vector<T> Get() const {
    std::vector<T> content(count_);
    bench_.Copy(content.data(), data(), bytes());
    return content;
  }
  T *data() const { return reinterpret_cast<T *>(base_ + kGuard); }
  size_t size() const { return count_; }

  void ExpectIntact() const {
    const std::vector<unsigned char> expected(kGuard, kGuardByte);
    std::vector<unsigned char> front(kGuard), back(kGuard);
    Close(false);
    bench_.Copy(front.data(), base_, kGuard);
    bench_.Copy(back.data(), base_ + kGuard + bytes(), kGuard);
    Close(true);
    EXPECT_EQ(front, expected) << "written in front of an array of " << count_;
    EXPECT_EQ(back, expected) << "written behind an array of " << count_;
  }

private:
  static constexpr size_t kGuard = 256; // bytes; also the alignment of memory
  static constexpr unsigned char kGuardByte = 0xC7;

  size_t bytes() const { return count_ * sizeof(T); }
  // Guards that are closed cannot be touched at all, where a sanitizer can see to that.
  void Close(bool closed) const {
#if defined(__SANITIZE_ADDRESS__)
    if (bench_.is_cuda())
      return;
    for (const unsigned char *guard : { base_, base_ + kGuard + bytes() }) {
      if (closed)
        ASAN_POISON_MEMORY_REGION(guard, kGuard);
      else
        ASAN_UNPOISON_MEMORY_REGION(guard, kGuard);
    }
#else
    (void)closed;
#endif
  }

  Bench &bench_;
  cgr__memory_kind kind_;
  size_t count_;
  unsigned char *base_ = nullptr;
};

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_DEVICE_MEMORY_H
