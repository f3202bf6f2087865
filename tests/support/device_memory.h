// Memory and kernels of a device, for tests on the device table: everything goes through its operations, so that the same test
// runs on the host device and on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/devices.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace cgr_test {

using Bytes = std::vector<unsigned char>;

// Kernels compute the same whenever the host device runs them, so one host device will do, with the first GPU and, in tests that
// link them, the CUDA kernels on the host.
inline std::vector<DeviceParam> KernelDevices() {
  std::vector<DeviceParam> devices = { HostParam(CGR_SCHEDULE_ASYNC), CudaParam() };
  if (EmulationLayer() != nullptr)
    devices.push_back(EmulatedParam());
  return devices;
}

inline int32_t Pick(std::mt19937_64 &random, int32_t low, int32_t high) {
  uint64_t range = uint64_t(int64_t{ high } - low + 1);
  return int32_t(low + int64_t(random() % range));
}

// A device with a stream. When a function returns, everything is complete, except for those named Enqueue.
class Bench {
public:
  enum Ending { kCloses, kLeavesOpen };
  explicit Bench(cgr_device *dev, Ending ending = kCloses) : dev_(dev), ending_(ending) {
    EXPECT_EQ(dev_->ops->stream_create(dev_, CGR__STREAM_NORMAL, &stream_), CGR__DEVICE_OK);
  }
  ~Bench() {
    EXPECT_EQ(dev_->ops->stream_destroy(dev_, stream_), CGR__DEVICE_OK);
    if (ending_ == kCloses) {
      EXPECT_EQ(dev_->ops->close(dev_), CGR__DEVICE_OK);
    }
  }
  Bench(const Bench &) = delete;
  Bench &operator=(const Bench &) = delete;

  bool is_cuda() const { return dev_->kind == CGR_DEVICE_KIND_CUDA; }           // in its memory
  bool has_cuda_kernels() const { return Info().kind == CGR_DEVICE_KIND_CUDA; } // emulated ones too
  cgr_device_info Info() const {
    cgr_device_info info = CGR_DEVICE_INFO_INIT;
    EXPECT_EQ(dev_->ops->info(dev_, &info), CGR__DEVICE_OK);
    return info;
  }

  void Preload(const cgr__kernel &kernel) { EXPECT_EQ(dev_->ops->preload(dev_, &kernel), CGR__DEVICE_OK) << kernel.name; }
  void Copy(void *to, const void *from, size_t bytes) {
    if (bytes == 0)
      return;
    EnqueueCopy(to, from, bytes);
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
  Ending ending_;
  cudaStream_t stream_ = nullptr;
};

// A test over KernelDevices() whose kernels are loaded before it starts.
class KernelTest : public ::testing::TestWithParam<DeviceParam> {
protected:
  void Open(const std::vector<const cgr__kernel *> &kernels) {
    cgr_device *dev = nullptr;
    CGR_OPEN_OR_SKIP(dev, GetParam());
    bench_ = std::make_unique<Bench>(dev);
    for (const cgr__kernel *kernel : kernels)
      bench_->Preload(*kernel);
  }
  std::unique_ptr<Bench> bench_;
};

#define CGR_INSTANTIATE_OVER_KERNEL_DEVICES(Suite) \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::testing::ValuesIn(::cgr_test::KernelDevices()), ::cgr_test::DeviceLabel)

constexpr size_t kGuardBytes = 256; // also the alignment of memory
constexpr unsigned char kGuardByte = 0xC7, kPoisonByte = 0xA5;

// Consecutive places in one block of memory, each between two guards.
class Places {
public:
  struct Place {
    size_t begin, bytes;
  };
  size_t Add(size_t bytes) {
    places_.push_back({ end_, bytes });
    end_ += (bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes + kGuardBytes;
    return places_.back().begin;
  }
  const std::vector<Place> &all() const { return places_; }
  size_t bytes() const { return end_; }
  // The guards hold the guard byte, the places poison.
  Bytes Image() const {
    Bytes image(end_, kGuardByte);
    for (const Place &place : places_)
      std::fill_n(image.begin() + int64_t(place.begin), place.bytes, kPoisonByte);
    return image;
  }
  // Calls visit(begin, bytes) for each stretch that belongs to no place.
  template <class Visit> void EachGuard(Visit visit) const {
    size_t begin = 0;
    for (const Place &place : places_) {
      visit(begin, place.begin - begin);
      begin = place.begin + place.bytes;
    }
    visit(begin, end_ - begin);
  }

private:
  std::vector<Place> places_;
  size_t end_ = kGuardBytes;
};

// Memory of the device with guards: a write to a guard is found when the memory is freed, and the address sanitizer also stops
// reads. The places begin as poison.
class GuardedMemory {
public:
  GuardedMemory(Bench &bench, const Places &places, cgr__memory_kind kind) : bench_(bench), places_(places), kind_(kind) {
    Bytes image = places.Image();
    base_ = static_cast<unsigned char *>(bench.Alloc(image.size(), kind));
    bench.Copy(base_, image.data(), image.size());
    Close(true);
  }
  ~GuardedMemory() {
    Close(false);
    ExpectGuards(Download());
    bench_.Free(base_, kind_);
  }
  GuardedMemory(const GuardedMemory &) = delete;
  GuardedMemory &operator=(const GuardedMemory &) = delete;

  unsigned char *base() const { return base_; }
  // The whole block, with its guards.
  void Put(const Bytes &image) {
    ASSERT_EQ(image.size(), places_.bytes());
    Close(false);
    bench_.Copy(base_, image.data(), image.size());
    Close(true);
  }
  Bytes Get() const {
    Close(false);
    Bytes image = Download();
    Close(true);
    return image;
  }
  void ExpectGuards(const Bytes &image) const {
    places_.EachGuard([&](size_t begin, size_t bytes) {
      for (size_t at = begin; at < begin + bytes; at++)
        ASSERT_EQ(image[at], kGuardByte) << "a guard was written at byte " << at << " of " << image.size();
    });
  }

private:
  Bytes Download() const {
    Bytes image(places_.bytes());
    bench_.Copy(image.data(), base_, image.size());
    return image;
  }
  // Closed guards cannot be touched at all, if a sanitizer can enforce that.
  void Close(bool closed) const {
#if defined(__SANITIZE_ADDRESS__)
    if (bench_.is_cuda())
      return;
    places_.EachGuard([&](size_t begin, size_t bytes) {
      if (closed)
        ASAN_POISON_MEMORY_REGION(base_ + begin, bytes);
      else
        ASAN_UNPOISON_MEMORY_REGION(base_ + begin, bytes);
    });
#else
    (void)closed;
#endif
  }

  Bench &bench_;
  Places places_;
  cgr__memory_kind kind_;
  unsigned char *base_ = nullptr;
};

// An array of the device between two guards. Without content it is poison.
template <class T> class Array {
public:
  Array(Bench &bench, size_t count, cgr__memory_kind kind = CGR__MEMORY_DEVICE) : Array(bench, Poison(count), kind) {}
  Array(Bench &bench, const std::vector<T> &content, cgr__memory_kind kind = CGR__MEMORY_DEVICE)
      : bench_(bench), count_(content.size()), memory_(bench, One(count_ * sizeof(T)), kind) {
    Put(content);
  }

  static std::vector<T> Poison(size_t count) {
    std::vector<T> content(count);
    if (count > 0)
      std::memset(static_cast<void *>(content.data()), kPoisonByte, count * sizeof(T));
    return content;
  }
  void Put(const std::vector<T> &content) {
    ASSERT_EQ(content.size(), count_);
    bench_.Copy(data(), content.data(), count_ * sizeof(T));
  }
  std::vector<T> Get() const {
    std::vector<T> content(count_);
    bench_.Copy(content.data(), data(), count_ * sizeof(T));
    return content;
  }
  T *data() const { return reinterpret_cast<T *>(memory_.base() + kGuardBytes); }
  size_t size() const { return count_; }

private:
  static Places One(size_t bytes) {
    Places places;
    places.Add(bytes);
    return places;
  }

  Bench &bench_;
  size_t count_;
  GuardedMemory memory_;
};

} // namespace cgr_test
