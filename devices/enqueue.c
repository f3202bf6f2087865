#include "devices/enqueue.h"

#include "devices/error.h"

cgr_status cgr__check_enqueue(const char *function, const cgr_device *device, cudaStream_t stream) {
  CGR__REQUIRE(device, function);
  if (device->magic != CGR__DEVICE_MAGIC)
    return cgr__fail(CGR_ERROR_INVALID_STRUCT, "%s: device has magic 0x%08x, expected 0x%08x: it is not open", function,
                     (unsigned)device->magic, (unsigned)CGR__DEVICE_MAGIC);
  if (cgr__is_default_stream(stream))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: stream is %s, expected one of cgr_stream_create, or another that is not a default stream", function,
                     stream ? "CUDA's default one" : "NULL");
  return CGR_OK;
}

/* Loads the kernel once on each device; it does no harm if two threads do so together. Not in a capture, where nothing may be
 * loaded. */
static int load_kernel(cgr_device *device, const cgr__kernel *kernel, cudaStream_t stream) {
  const uint32_t bit = 1u << kernel->number;
  int capturing = 0;
  if (kernel->number == 0) /* it would be loaded by every call */
    return CGR__DEVICE_INVALID;
  if (__atomic_load_n(&device->loaded, __ATOMIC_ACQUIRE) & bit)
    return CGR__DEVICE_OK;
  int error = device->ops->capture_status(device, stream, &capturing);
  if (error != CGR__DEVICE_OK || capturing)
    return error;
  error = device->ops->preload(device, kernel);
  if (error == CGR__DEVICE_OK)
    (void)__atomic_or_fetch(&device->loaded, bit, __ATOMIC_RELEASE);
  return error;
}

cgr_status cgr__enqueue_kernel(const char *function, cgr_device *device, const cgr__kernel *kernel, const void *args,
                               cudaStream_t stream) {
  int error = load_kernel(device, kernel, stream);
  if (error == CGR__DEVICE_OK)
    error = device->ops->launch(device, kernel, args, stream);
  return cgr__device_fail(device, error, function);
}
