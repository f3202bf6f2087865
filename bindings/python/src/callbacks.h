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

/* False: the interpreter exits, and this thread cannot call it. Then there is nothing to end. */
bool cgrpy_callback_begin(cgrpy_callback *callback, cgrpy_handle *handle);
void cgrpy_callback_end(cgrpy_callback *callback);
bool cgrpy_bind_backends(cgrpy_handle *handle, cgrpy_object *array, cgr_config *out, cgr_backend *backends);
/* Calls function(*before, recorder, *after); tuples or NULL. The recorder is good until it returns. */
cgr_status cgrpy_call_with_recorder(cgrpy_handle *runtime, PyObject *function, cgr_recorder *recorder, PyObject *before,
                                    PyObject *after);
/* A struct of Python's with a copy of what cgr gave; what it points to stays cgr's. */
PyObject *cgrpy_copy_of(int type, const void *data);
/* Where what the pointer at this offset points to is kept. */
PyObject **cgrpy_keep_of(cgrpy_object *object, uint32_t offset);

/* Places of a backend's functions in its binding. */
enum {
  CGRPY_CHECK,
  CGRPY_SUPPORT,
  CGRPY_RECORD,
  CGRPY_CREATE,
  CGRPY_DESTROY,
  CGRPY_PLAN_HOST,
  CGRPY_PLAN,
  CGRPY_DESCRIBE,
  CGRPY_SUPPORT_LAYER
};
void cgrpy_bind_plans(cgrpy_binding *binding, cgr_backend *backend);

#endif
