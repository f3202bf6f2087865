/* Reading and writing one field of a struct. */
#ifndef CGR_BINDINGS_PYTHON_FIELDS_H
#define CGR_BINDINGS_PYTHON_FIELDS_H

#include "core.h"

PyObject *cgrpy_get(PyObject *self, void *field);
int cgrpy_set(PyObject *self, PyObject *value, void *field);
extern PyObject **cgrpy_names[]; /* of each struct: its fields' names, interned */
PyObject *cgrpy_repr(PyObject *self);
const cgrpy_field *cgrpy_find_field(const cgrpy_struct *info, PyObject *name);
PyObject *cgrpy_part(cgrpy_object *whole, int type, char *data, PyObject **keeps);

#endif
