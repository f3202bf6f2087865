/* CUresults as the table's errors; the sticky ones end the device. */
#ifndef CGR_DEVICES_CUDA_ERRORS_H
#define CGR_DEVICES_CUDA_ERRORS_H

#include "devices/cuda/cuda_device.h"

/* Maps and remembers. `raw` is a CUresult, or a cudaError_t of a kernel's launcher: where both exist the numbers agree. */
int cgr__cuda_error(struct cuda_device *cuda, int raw);

/* DEAD, with the first cause in last_raw. */
static inline int cgr__cuda_dead(struct cuda_device *cuda) {
  __atomic_store_n(&cuda->head.last_raw, __atomic_load_n(&cuda->head.dead, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  return CGR__DEVICE_DEAD;
}

/* INVALID, found without asking CUDA. */
static inline int cgr__cuda_invalid(struct cuda_device *cuda) {
  __atomic_store_n(&cuda->head.last_raw, (int)CUDA_ERROR_INVALID_VALUE, __ATOMIC_RELAXED);
  return CGR__DEVICE_INVALID;
}

#endif
