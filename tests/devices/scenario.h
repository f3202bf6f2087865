// A small program over the table.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cgr/device.h"
#include "devices/device.h"
#include "tests/support/devices.h"
#include "tests/support/violations.h"

namespace cgr_test {

// True when the last message names every part.
inline ::testing::AssertionResult MessageHas(const std::vector<std::string> &parts) {
  std::string message = cgr_last_message();
  for (const std::string &part : parts) {
    if (message.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << message << "\" lacks \"" << part << "\"";
  }
  return ::testing::AssertionSuccess();
}

// Every kind of call once or more, cleaning up after itself whatever fails. Returns the first error.
inline int Scenario(cgr_device *dev, int *result) {
  const cgr__device_ops *ops = dev->ops;
  cudaStream_t a = nullptr, b = nullptr;
  cgr__event *fork = nullptr, *join = nullptr;
  cgr__graph *graph = nullptr;
  cgr__exec *exec = nullptr;
  void *memory = nullptr;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  int capturing = 0;
  int error = ops->info(dev, &info);
  auto step = [&error](int answer) {
    if (error == CGR__DEVICE_OK)
      error = answer;
  };
#define STEP(call)             \
  if (error == CGR__DEVICE_OK) \
  step(call)
  STEP(ops->mem_alloc(dev, 4 * sizeof(int), CGR__MEMORY_PINNED, &memory));
  STEP(ops->stream_create(dev, CGR__STREAM_NORMAL, &a));
  STEP(ops->stream_create(dev, CGR__STREAM_NORMAL, &b));
  STEP(ops->event_create(dev, &fork));
  STEP(ops->event_create(dev, &join));
  int *words = static_cast<int *>(memory);
  STEP(ops->fill(dev, words, 0, sizeof(int), 4, a));
  STEP(ops->fill(dev, words, 0x03, 1, sizeof(int), a));
  STEP(ops->stream_sync(dev, a));
  STEP(ops->capture_begin(dev, a));
  bool begun = error == CGR__DEVICE_OK;
  STEP(ops->copy(dev, words + 1, words, sizeof(int), a));
  STEP(ops->event_record(dev, fork, a));
  STEP(ops->event_wait(dev, fork, b));
  STEP(ops->copy(dev, words + 2, words + 1, sizeof(int), b));
  STEP(ops->event_record(dev, join, b));
  STEP(ops->event_wait(dev, join, a));
  STEP(ops->copy(dev, words + 3, words + 2, sizeof(int), a));
  STEP(ops->capture_status(dev, a, &capturing));
  if (begun)
    step(ops->capture_end(dev, a, &graph));
  STEP(ops->instantiate(dev, graph, &exec, nullptr));
  STEP(ops->exec_launch(dev, exec, a));
  STEP(ops->event_record(dev, fork, a));
  STEP(ops->event_sync(dev, fork));
  if (error == CGR__DEVICE_OK && result != nullptr)
    *result = words[3];
  // A failed wait means nothing about the work itself: destroying the streams below still finishes it.
  if (a != nullptr)
    step(ops->stream_destroy(dev, a));
  if (b != nullptr)
    step(ops->stream_destroy(dev, b));
  if (exec != nullptr)
    step(ops->exec_destroy(dev, exec));
  if (graph != nullptr)
    step(ops->graph_destroy(dev, graph));
  if (fork != nullptr)
    step(ops->event_destroy(dev, fork));
  if (join != nullptr)
    step(ops->event_destroy(dev, join));
  if (memory != nullptr)
    step(ops->mem_free(dev, memory, CGR__MEMORY_PINNED));
  return error;
#undef STEP
}

} // namespace cgr_test
