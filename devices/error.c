#include "devices/error.h"

#include <stdbool.h>
#include <string.h>

#include "devices/fork.h"

#define UNJOINED 904 /* CUDA_ERROR_STREAM_CAPTURE_UNJOINED */

const char *cgr__device_error_name(int error) {
  switch ((enum cgr__device_error)error) {
  case CGR__DEVICE_OK:
    return "ok";
  case CGR__DEVICE_NOT_READY:
    return "not ready";
  case CGR__DEVICE_INVALID:
    return "invalid handle, size or pointer";
  case CGR__DEVICE_UNSUPPORTED:
    return "unsupported";
  case CGR__DEVICE_CAPTURE_ILLEGAL:
    return "illegal during capture";
  case CGR__DEVICE_CAPTURE_INVALID:
    return "capture invalidated";
  case CGR__DEVICE_NO_MEMORY:
    return "no memory";
  case CGR__DEVICE_FAILED:
    return "failed";
  case CGR__DEVICE_DEAD:
    return "device lost";
  }
  return "unknown device error";
}

static cgr_status status_of(int error) {
  switch (error) {
  case CGR__DEVICE_NOT_READY:
    return CGR_NOT_READY;
  case CGR__DEVICE_INVALID:
    return CGR_ERROR_INVALID_ARGUMENT;
  case CGR__DEVICE_UNSUPPORTED:
    return CGR_ERROR_UNSUPPORTED;
  case CGR__DEVICE_CAPTURE_ILLEGAL:
  case CGR__DEVICE_CAPTURE_INVALID:
    return CGR_ERROR_CAPTURE;
  case CGR__DEVICE_NO_MEMORY:
    return CGR_ERROR_OUT_OF_MEMORY;
  case CGR__DEVICE_DEAD:
    return CGR_ERROR_DEAD;
  default:
    return CGR_ERROR_DEVICE;
  }
}

/* What would have been right, if that can be told; otherwise "". `raw`: CUDA's number, which the host device gives too. */
static const char *remedy_of(int error, int raw) {
  switch (error) {
  case CGR__DEVICE_CAPTURE_ILLEGAL:
    return ", expected this call before or after the capture";
  case CGR__DEVICE_CAPTURE_INVALID:
    return raw == UNJOINED ? ", expected every stream that was forked to be joined: an event of it for the first one to wait for"
                           : ", expected a capture in which no call has failed";
  case CGR__DEVICE_NO_MEMORY:
    return ", expected enough free memory";
  default:
    return "";
  }
}

/* What a layer says without the name of the function that `what` begins with. */
static const char *past_function(const char *why, const char *what) {
  size_t named = strcspn(why, ":");
  bool same = why[named] && strncmp(why, what, named) == 0 && (what[named] == ':' || what[named] == 0);
  return same ? why + named + 2 : why;
}

cgr_status cgr__device_fail(cgr_device *dev, int error, const char *what) {
  if (error == CGR__DEVICE_OK)
    return CGR_OK;
  /* Atomic: another thread's call may fail at the same time. */
  int raw = dev ? __atomic_load_n(&dev->last_raw, __ATOMIC_RELAXED) : cgr_last_device_code();
  const char *why = dev && dev->explain ? dev->explain(dev) : NULL;
  if (raw == CGR__RAW_FORKED) {
    cgr__set_device_code(0);
    return cgr__fail(status_of(error),
                     "%s: this process is a fork of the one that opened the device, expected one that opens it "
                     "itself: no device is usable after fork()",
                     what);
  }
  cgr__set_device_code(raw);
  if (why)
    return cgr__fail(status_of(error), "%s: refused by the device's layer: %s (code %d)", what, past_function(why, what), raw);
  return cgr__fail(status_of(error), "%s: the device answered \"%s\" (code %d)%s", what, cgr__device_error_name(error), raw,
                   remedy_of(error, raw));
}
