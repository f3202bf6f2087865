/* cudaError_t to the table's errors; the sticky ones end the device. */
#include "devices/cuda/cuda_device.h"

/* Errors after which the context, or the process, cannot be used: CUDA documents each as "leaves the process in an
 * inconsistent state" or "the context cannot be used". */
static bool is_sticky(cudaError_t raw) {
  switch (raw) {
  case cudaErrorIllegalAddress:
  case cudaErrorLaunchFailure:
  case cudaErrorLaunchTimeout:
  case cudaErrorHardwareStackError:
  case cudaErrorIllegalInstruction:
  case cudaErrorMisalignedAddress:
  case cudaErrorInvalidAddressSpace:
  case cudaErrorInvalidPc:
  case cudaErrorAssert:
  case cudaErrorECCUncorrectable:
  case cudaErrorNvlinkUncorrectable:
  case cudaErrorContextIsDestroyed:
  case cudaErrorMpsClientTerminated:
  case cudaErrorExternalDevice:
  case cudaErrorCudartUnloading:
    return true;
  default:
    break;
  }
  /* Newer than CUDA 12.4, thus by number: an error contained to this process (226), tensor memory leaked by a kernel (721). */
  return (int)raw == 226 || (int)raw == 721;
}

static int map(cudaError_t raw) {
  switch (raw) {
  case cudaSuccess:
    return CGR__DEVICE_OK;
  case cudaErrorNotReady:
    return CGR__DEVICE_NOT_READY;
  case cudaErrorMemoryAllocation:
    return CGR__DEVICE_NO_MEMORY;
  case cudaErrorInvalidValue:
  case cudaErrorInvalidResourceHandle:
  case cudaErrorInvalidDevice:
  case cudaErrorInvalidConfiguration:
  case cudaErrorInvalidDevicePointer:
  case cudaErrorInvalidHostPointer:
    return CGR__DEVICE_INVALID;
  case cudaErrorNoDevice:
  case cudaErrorInsufficientDriver:
  case cudaErrorNoKernelImageForDevice:
  case cudaErrorInvalidDeviceFunction:
  case cudaErrorUnsupportedPtxVersion:
  case cudaErrorNotSupported:
    return CGR__DEVICE_UNSUPPORTED;
  case cudaErrorStreamCaptureUnsupported:
  case cudaErrorStreamCaptureImplicit:
  case cudaErrorCapturedEvent:
    return CGR__DEVICE_CAPTURE_ILLEGAL;
  case cudaErrorStreamCaptureInvalidated:
  case cudaErrorStreamCaptureMerge:
  case cudaErrorStreamCaptureUnmatched:
  case cudaErrorStreamCaptureUnjoined:
  case cudaErrorStreamCaptureIsolation:
  case cudaErrorStreamCaptureWrongThread:
    return CGR__DEVICE_CAPTURE_INVALID;
  default:
    return CGR__DEVICE_FAILED;
  }
}

int cgr__cuda_dead(struct cuda_device *cuda) {
  __atomic_store_n(&cuda->head.last_raw, __atomic_load_n(&cuda->dead, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  return CGR__DEVICE_DEAD;
}

int cgr__cuda_invalid(struct cuda_device *cuda) {
  __atomic_store_n(&cuda->head.last_raw, (int)cudaErrorInvalidValue, __ATOMIC_RELAXED);
  return CGR__DEVICE_INVALID;
}

int cgr__cuda_error(struct cuda_device *cuda, cudaError_t raw) {
  if (raw == cudaSuccess)
    return CGR__DEVICE_OK;
  (void)cudaGetLastError(); /* else the next launch check of the engine on this thread would find our error */
  if (raw == cudaErrorNotReady)
    return CGR__DEVICE_NOT_READY;
  if (is_sticky(raw)) {
    int none = 0;
    (void)__atomic_compare_exchange_n(&cuda->dead, &none, (int)raw, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return cgr__cuda_dead(cuda);
  }
  __atomic_store_n(&cuda->head.last_raw, (int)raw, __ATOMIC_RELAXED);
  return map(raw);
}

cudaError_t cgr__cuda_enter(const struct cuda_device *cuda, int *previous) {
  int current;
  *previous = -1;
  cudaError_t raw = cudaGetDevice(&current);
  if (raw != cudaSuccess || current == cuda->ordinal)
    return raw;
  raw = cudaSetDevice(cuda->ordinal);
  if (raw == cudaSuccess)
    *previous = current;
  return raw;
}

void cgr__cuda_leave(int previous) {
  if (previous >= 0)
    (void)cudaSetDevice(previous);
}
