/* Instead of the CUDA device in a build without a CUDA toolkit. */
#include "devices/device.h"

struct cgr__gpus cgr__cuda_probe(void) {
  struct cgr__gpus probe = { .state = CGR__CUDA_NOT_BUILT };
  return probe;
}

int cgr__cuda_device_open(int ordinal, const cgr_device_config *config, cgr_device **dev) {
  (void)ordinal, (void)config;
  *dev = NULL;
  return CGR__DEVICE_UNSUPPORTED;
}
