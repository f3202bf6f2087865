// A host device whose kernels are those of CUDA, where they are emulated: it has the host's memory and streams, tells the
// registry of variants that it is a GPU of compute capability 8.0, and runs what is not emulated as the host does. A layer over
// the host device, so that a runtime can be made on it: cgr_device_config.layer.
//
// A test that links this has one more device to run over (tests/support/devices.h). A kernel that breaks a rule fails the test.
#ifndef CGR_TESTS_EMULATION_DEVICE_H
#define CGR_TESTS_EMULATION_DEVICE_H

#include "devices/device.h"

namespace cgr_emulation {

extern const cgr_device_layer kLayer;

} // namespace cgr_emulation

#endif // CGR_TESTS_EMULATION_DEVICE_H
