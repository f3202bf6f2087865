#include "devices/cuda/errors.h"

#include <driver_types.h>

/* Codes below are written by the driver's names; the runtime has the same numbers for them. */
#define SAME(driver, runtime) _Static_assert((int)(driver) == (int)(runtime), #driver)
SAME(CUDA_ERROR_INVALID_VALUE, cudaErrorInvalidValue);
SAME(CUDA_ERROR_OUT_OF_MEMORY, cudaErrorMemoryAllocation);
SAME(CUDA_ERROR_DEINITIALIZED, cudaErrorCudartUnloading);
SAME(CUDA_ERROR_NO_DEVICE, cudaErrorNoDevice);
SAME(CUDA_ERROR_INVALID_DEVICE, cudaErrorInvalidDevice);
SAME(CUDA_ERROR_NO_BINARY_FOR_GPU, cudaErrorNoKernelImageForDevice);
SAME(CUDA_ERROR_ECC_UNCORRECTABLE, cudaErrorECCUncorrectable);
SAME(CUDA_ERROR_NVLINK_UNCORRECTABLE, cudaErrorNvlinkUncorrectable);
SAME(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, cudaErrorUnsupportedPtxVersion);
SAME(CUDA_ERROR_INVALID_HANDLE, cudaErrorInvalidResourceHandle);
SAME(CUDA_ERROR_ILLEGAL_STATE, cudaErrorIllegalState);
SAME(CUDA_ERROR_NOT_READY, cudaErrorNotReady);
SAME(CUDA_ERROR_ILLEGAL_ADDRESS, cudaErrorIllegalAddress);
SAME(CUDA_ERROR_LAUNCH_TIMEOUT, cudaErrorLaunchTimeout);
SAME(CUDA_ERROR_CONTEXT_IS_DESTROYED, cudaErrorContextIsDestroyed);
SAME(CUDA_ERROR_ASSERT, cudaErrorAssert);
SAME(CUDA_ERROR_HARDWARE_STACK_ERROR, cudaErrorHardwareStackError);
SAME(CUDA_ERROR_ILLEGAL_INSTRUCTION, cudaErrorIllegalInstruction);
SAME(CUDA_ERROR_MISALIGNED_ADDRESS, cudaErrorMisalignedAddress);
SAME(CUDA_ERROR_INVALID_ADDRESS_SPACE, cudaErrorInvalidAddressSpace);
SAME(CUDA_ERROR_INVALID_PC, cudaErrorInvalidPc);
SAME(CUDA_ERROR_LAUNCH_FAILED, cudaErrorLaunchFailure);
SAME(CUDA_ERROR_NOT_SUPPORTED, cudaErrorNotSupported);
SAME(CUDA_ERROR_MPS_CLIENT_TERMINATED, cudaErrorMpsClientTerminated);
SAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cudaErrorStreamCaptureUnsupported);
SAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cudaErrorStreamCaptureInvalidated);
SAME(CUDA_ERROR_STREAM_CAPTURE_MERGE, cudaErrorStreamCaptureMerge);
SAME(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cudaErrorStreamCaptureUnmatched);
SAME(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cudaErrorStreamCaptureUnjoined);
SAME(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cudaErrorStreamCaptureIsolation);
SAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cudaErrorStreamCaptureImplicit);
SAME(CUDA_ERROR_CAPTURED_EVENT, cudaErrorCapturedEvent);
SAME(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cudaErrorStreamCaptureWrongThread);
SAME(CUDA_ERROR_EXTERNAL_DEVICE, cudaErrorExternalDevice);
#undef SAME

/* Errors after which the context, or the process, cannot be used: CUDA documents each as "leaves the process in an
 * inconsistent state" or "the context cannot be used". */
static bool is_sticky(int raw) {
  switch (raw) {
  case CUDA_ERROR_ILLEGAL_ADDRESS:
  case CUDA_ERROR_LAUNCH_FAILED:
  case CUDA_ERROR_LAUNCH_TIMEOUT:
  case CUDA_ERROR_HARDWARE_STACK_ERROR:
  case CUDA_ERROR_ILLEGAL_INSTRUCTION:
  case CUDA_ERROR_MISALIGNED_ADDRESS:
  case CUDA_ERROR_INVALID_ADDRESS_SPACE:
  case CUDA_ERROR_INVALID_PC:
  case CUDA_ERROR_ASSERT:
  case CUDA_ERROR_ECC_UNCORRECTABLE:
  case CUDA_ERROR_NVLINK_UNCORRECTABLE:
  case CUDA_ERROR_CONTEXT_IS_DESTROYED:
  case CUDA_ERROR_MPS_CLIENT_TERMINATED:
  case CUDA_ERROR_EXTERNAL_DEVICE:
  case CUDA_ERROR_DEINITIALIZED:
    return true;
  default:
    break;
  }
  /* Newer than CUDA 12.4, thus by number: an error contained to this process (226), tensor memory leaked by a kernel (721). */
  return raw == 226 || raw == 721;
}

static int map_error(int raw) {
  switch (raw) {
  case CUDA_SUCCESS:
    return CGR__DEVICE_OK;
  case CUDA_ERROR_NOT_READY:
    return CGR__DEVICE_NOT_READY;
  case CUDA_ERROR_OUT_OF_MEMORY:
    return CGR__DEVICE_NO_MEMORY;
  case CUDA_ERROR_INVALID_VALUE:
  case CUDA_ERROR_INVALID_HANDLE:
  case CUDA_ERROR_INVALID_DEVICE:
  case cudaErrorInvalidConfiguration: /* the runtime's alone, like the next two */
  case cudaErrorInvalidDevicePointer:
  case cudaErrorInvalidHostPointer:
    return CGR__DEVICE_INVALID;
  case CUDA_ERROR_NO_DEVICE:
  case CUDA_ERROR_NO_BINARY_FOR_GPU:
  case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
  case CUDA_ERROR_NOT_SUPPORTED:
  case cudaErrorInsufficientDriver: /* the runtime's alone, like the next */
  case cudaErrorInvalidDeviceFunction:
    return CGR__DEVICE_UNSUPPORTED;
  case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
  case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
  case CUDA_ERROR_CAPTURED_EVENT:
    return CGR__DEVICE_CAPTURE_ILLEGAL;
  case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
  case CUDA_ERROR_STREAM_CAPTURE_MERGE:
  case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
  case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
  case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
  case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
    return CGR__DEVICE_CAPTURE_INVALID;
  default:
    return CGR__DEVICE_FAILED;
  }
}

int cgr__cuda_error(struct cuda_device *cuda, int raw) {
  if (raw == CUDA_SUCCESS)
    return CGR__DEVICE_OK;
  if (raw == CUDA_ERROR_NOT_READY)
    return CGR__DEVICE_NOT_READY;
  if (is_sticky(raw)) {
    int none = 0;
    (void)__atomic_compare_exchange_n(&cuda->head.dead, &none, raw, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return cgr__cuda_dead(cuda);
  }
  __atomic_store_n(&cuda->head.last_raw, raw, __ATOMIC_RELAXED);
  return map_error(raw);
}
