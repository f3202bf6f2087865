/* What the types of handles share. */
#ifndef CGR_BINDINGS_PYTHON_HANDLES_H
#define CGR_BINDINGS_PYTHON_HANDLES_H

#include "core.h"

extern const char *const cgrpy_kind_names[];

void cgrpy_list_handle(cgrpy_handle *handle, cgrpy_handle_kind kind); /* a new one */
PyObject *cgrpy_handle_close(PyObject *self, PyObject *unused);
int cgrpy_handle_traverse(PyObject *self, visitproc visit, void *arg);
int cgrpy_handle_clear(PyObject *self);
void cgrpy_handle_finalize(PyObject *self);
void cgrpy_handle_dealloc(PyObject *self);

#endif
