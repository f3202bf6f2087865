/* Names of the errors that a device's operations return, for messages. */
#include "devices/device.h"

const char *cgr__device_error_name(int error) {
  switch ((enum cgr__device_error)error) {
  case CGR__DEVICE_OK:
    return "ok";
  case CGR__DEVICE_NOT_READY:
    return "not ready";
  case CGR__DEVICE_NO_MEMORY:
    return "no memory";
  case CGR__DEVICE_INVALID:
    return "invalid handle, size or pointer";
  case CGR__DEVICE_UNSUPPORTED:
    return "unsupported";
  case CGR__DEVICE_CAPTURE_ILLEGAL:
    return "illegal during capture";
  case CGR__DEVICE_CAPTURE_INVALID:
    return "capture invalidated";
  case CGR__DEVICE_FAILED:
    return "failed";
  case CGR__DEVICE_DEAD:
    return "device lost";
  }
  return "unknown device error";
}
