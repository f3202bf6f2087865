/* The frame of a call from cgr into Python. */
#ifndef CGR_BINDINGS_PYTHON_CALLBACKS_H
#define CGR_BINDINGS_PYTHON_CALLBACKS_H

#include "core.h"

typedef struct cgrpy_callback {
  PyGILState_STATE gil;
  PyObject *pending[3];   /* of the call around it */
  cgrpy_handle *recorder; /* of the callback around it */
  cgrpy_handle *handle;
} cgrpy_callback;

void cgrpy_callback_begin(cgrpy_callback *callback, cgrpy_handle *handle);
void cgrpy_callback_end(cgrpy_callback *callback);
bool cgrpy_bind_backends(cgrpy_handle *handle, cgrpy_object *array, cgr_config *out, cgr_backend *backends);
cgr_status cgrpy_call_backend(cgrpy_binding *binding, cgr_recorder *recorder, PyObject *attention);

#endif
