/* Instead of the CUDA device in a build without a CUDA toolkit. */
#include "devices/device.h"

int cgr__cuda_device_count(void) { return 0; }

int cgr__cuda_device_open(int ordinal, cgr_device **dev) {
  (void)ordinal;
  *dev = NULL;
  return CGR__DEVICE_UNSUPPORTED;
}
