// A host device that runs emulated CUDA kernels. It has the host's memory and streams, tells the registry of kernel kinds that it
// is a GPU of compute capability 8.0, and runs kernels that are not emulated as the host does. It is a layer over the host device
// (cgr_device_config.layer), so that a runtime can be created on it.
//
// A test that links this has one more device to run on (tests/support/devices.h). A kernel that breaks a rule fails the test.
#pragma once

#include "devices/device.h"

namespace cgr_emulation {

extern const cgr_device_layer kLayer;

// From now on an append that attention follows overlaps it, as may be on a GPU of compute capability 9.0: each block of the
// attention finds the caches as they were before, until it waits. Such an attention has to be launched. false: appends end before
// attention begins, as at first.
void SetAppendsOverlap(bool overlap);

// Shared memory that a multiprocessor of the device says it has: kSharedMemory at first.
enum { kSharedMemory = 228 * 1024 };
void SetSharedMemory(int32_t bytes);

} // namespace cgr_emulation
