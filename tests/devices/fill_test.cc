// Fills: elements of 1, 2, 4 and 8 bytes, at any address that is aligned to their size, enqueued and captured.
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/devices/device_case.h"

namespace {

constexpr size_t kBytes = 4096;

class FillTest : public cgr_test::DeviceCase {
protected:
  void SetUpOnDevice() override {
    stream_ = NewStream();
    device_ = NewMemory(kBytes);
    pinned_ = NewMemory(kBytes, CGR__MEMORY_PINNED);
  }

  // What the memory must hold, element by element, in this host's byte order.
  static void Expected(unsigned char *bytes, size_t at, uint64_t value, size_t width, size_t count) {
    for (size_t i = 0; i < count; i++)
      std::memcpy(bytes + at + i * width, &value, width);
  }

  int Fill(void *base, size_t at, uint64_t value, size_t width, size_t count) {
    return ops_->fill(dev_, static_cast<unsigned char *>(base) + at, value, width, count, stream_);
  }

  void ExpectContent(const std::vector<unsigned char> &expected, const void *memory) {
    std::vector<unsigned char> got(kBytes);
    ASSERT_EQ(ops_->stream_sync(dev_, stream_), CGR__DEVICE_OK);
    ASSERT_EQ(ops_->copy(dev_, got.data(), memory, kBytes, stream_), CGR__DEVICE_OK);
    ASSERT_EQ(ops_->stream_sync(dev_, stream_), CGR__DEVICE_OK);
    EXPECT_EQ(got, expected);
  }

  cudaStream_t stream_ = nullptr;
  void *device_ = nullptr, *pinned_ = nullptr;
};

// For 8 bytes: two halves that are the same, two that are not, and one that is zero.
const uint64_t kValues[] = { 0, ~0ull, 0x0123456789abcdefull, 0xfedcba9800000000ull, 0x89abcdef89abcdefull };

TEST_P(FillTest, WritesTheLowBitsOfTheValue) {
  for (void *memory : { device_, pinned_ })
    for (size_t width : { 1, 2, 4, 8 })
      for (uint64_t value : kValues)
        for (size_t count : { 1, 2, 7, 100 }) {
          std::vector<unsigned char> expected(kBytes, 0x5A);
          ASSERT_EQ(Fill(memory, 0, 0x5A, 1, kBytes), CGR__DEVICE_OK);
          size_t at = 64 + 3 * width; // aligned to the width and to nothing more
          Expected(expected.data(), at, value, width, count);
          ASSERT_EQ(Fill(memory, at, value, width, count), CGR__DEVICE_OK) << width << " " << count;
          ExpectContent(expected, memory);
          if (HasFailure())
            FAIL() << "width " << width << ", value " << value << ", count " << count;
        }
}

TEST_P(FillTest, IsCapturedAndReplayed) {
  std::vector<unsigned char> expected(kBytes, 0x77);
  ASSERT_EQ(Fill(device_, 0, 0x77, 1, kBytes), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->stream_sync(dev_, stream_), CGR__DEVICE_OK);
  ASSERT_EQ(ops_->capture_begin(dev_, stream_), CGR__DEVICE_OK);
  size_t at = 0;
  for (size_t width : { 1, 2, 4, 8 })
    for (uint64_t value : kValues) {
      ASSERT_EQ(Fill(device_, at, value, width, 5), CGR__DEVICE_OK);
      Expected(expected.data(), at, value, width, 5);
      at += 64;
    }
  cgr__exec *exec = Captured(stream_);
  ExpectContent(std::vector<unsigned char>(kBytes, 0x77), device_); // nothing has been written yet
  for (int i = 0; i < 2; i++) {
    ASSERT_EQ(ops_->exec_launch(dev_, exec, stream_), CGR__DEVICE_OK);
    ExpectContent(expected, device_);
    ASSERT_EQ(Fill(device_, 0, 0x77, 1, kBytes), CGR__DEVICE_OK);
  }
  ASSERT_EQ(ops_->stream_sync(dev_, stream_), CGR__DEVICE_OK);
}

TEST_P(FillTest, RefusesOtherWidthsAndPlaces) {
  std::vector<unsigned char> expected(kBytes, 0x11);
  ASSERT_EQ(Fill(device_, 0, 0x11, 1, kBytes), CGR__DEVICE_OK);
  for (size_t width : { 0, 3, 5, 16 })
    EXPECT_EQ(Fill(device_, 0, 1, width, 1), CGR__DEVICE_INVALID) << width;
  for (size_t width : { 2, 4, 8 })
    EXPECT_EQ(Fill(device_, width / 2, 1, width, 1), CGR__DEVICE_INVALID) << width;
  for (size_t width : { 2, 4, 8 })
    EXPECT_EQ(Fill(device_, 0, 1, width, SIZE_MAX / width + 1), CGR__DEVICE_INVALID) << width;
  EXPECT_EQ(dev_->last_raw, 1);
  EXPECT_EQ(ops_->fill(dev_, nullptr, 1, 4, 1, stream_), CGR__DEVICE_INVALID);
  EXPECT_EQ(ops_->fill(dev_, nullptr, 1, 4, 0, stream_), CGR__DEVICE_OK);
  ExpectContent(expected, device_);
}

CGR_INSTANTIATE_OVER_DEVICES(FillTest);

} // namespace
