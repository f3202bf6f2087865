/* The parts of a cgr.Array, for the protocols that give it to other libraries. */
#ifndef CGR_BINDINGS_PYTHON_ARRAY_H
#define CGR_BINDINGS_PYTHON_ARRAY_H

#include "core.h"
#include "dlpack.h"

typedef struct cgrpy_array {
  PyObject_HEAD cgrpy_handle *pinned;
  void *pointer;
  int64_t shape[2], strides[2]; /* strides in elements */
  Py_ssize_t byte_strides[2];
  int dims, bytes;
  uint8_t code; /* of DLPack */
  bool on_host, readonly, lent;
  int32_t device_id, exports; /* how many buffers of it there are */
  char format[2];
  const char *typestr;
} cgrpy_array;

PyObject *cgrpy_array_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords);
PyObject *cgrpy_array_dlpack_device(PyObject *self, PyObject *unused);
int cgrpy_add_exchange(void); /* to the type of arrays */

#endif
