// Holds up a stream: what is enqueued after the gate does not run before the gate opens. For devices that run steps by
// themselves (DeviceParam::HasThreads); a host that runs a step when it is waited for would wait for ever. One at a time.
#pragma once

#include <sched.h>

#include <atomic>

#include "cgr/device.h"
#include "tests/support/expect.h"

namespace cgr_test {

inline std::atomic<bool> gate_is_open{ true };

class Gate {
public:
  Gate(cgr_device *dev, cudaStream_t stream) {
    auto wait = [](const void *) {
      while (!gate_is_open)
        sched_yield();
    };
    gate_is_open = false;
    CGR_EXPECT_OK(cgr_launch_host(dev, wait, nullptr, 0, stream));
  }
  ~Gate() { Open(); }
  Gate(const Gate &) = delete;
  Gate &operator=(const Gate &) = delete;
  void Open() { gate_is_open = true; }
};

} // namespace cgr_test
