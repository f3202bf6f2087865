// Memory and kernels of a device for tests that stand on the device table: everything goes through its operations, so that the
// same test runs on the host device and on a GPU.
#ifndef CGR_TESTS_DEVICE_MEMORY_H
#define CGR_TESTS_DEVICE_MEMORY_H

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tests/devices.h"

namespace cgr_test {

// Kernels compute the same whenever the host device runs them: one host device and the first GPU.
inline std::vector<DeviceParam> KernelDevices() { return {HostParam(CGR_HOST_ASYNC), CudaParam()}; }

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
    if (bytes == 0) return;
    EXPECT_EQ(dev_->ops->copy(dev_, to, from, bytes, stream_), CGR__DEVICE_OK);
    Sync();
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

// An array of the device. Without content it is filled with 0xA5 bytes.
template <class T>
class Array {
 public:
  Array(Bench &bench, size_t count, cgr__memory_kind kind = CGR__MEMORY_DEVICE)
      : Array(bench, Poison(count), kind) {}
  Array(Bench &bench, const std::vector<T> &content, cgr__memory_kind kind = CGR__MEMORY_DEVICE)
      : bench_(bench), kind_(kind), count_(content.size()) {
    data_ = static_cast<T *>(bench_.Alloc(count_ * sizeof(T) + 256, kind_));
    Put(content);
  }
  ~Array() { bench_.Free(data_, kind_); }
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;

  static std::vector<T> Poison(size_t count) {
    std::vector<T> content(count);
    if (count > 0) std::memset(static_cast<void *>(content.data()), 0xA5, count * sizeof(T));
    return content;
  }
  void Put(const std::vector<T> &content) {
    ASSERT_EQ(content.size(), count_);
    bench_.Copy(data_, content.data(), count_ * sizeof(T));
  }
  std::vector<T> Get() const {
    std::vector<T> content(count_);
    bench_.Copy(content.data(), data_, count_ * sizeof(T));
    return content;
  }
  T *data() const { return data_; }
  size_t size() const { return count_; }

 private:
  Bench &bench_;
  cgr__memory_kind kind_;
  size_t count_;
  T *data_ = nullptr;
};

}  // namespace cgr_test

#endif  // CGR_TESTS_DEVICE_MEMORY_H
