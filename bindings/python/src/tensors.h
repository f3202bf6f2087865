/* Memory of other libraries' arrays and tensors, and what reading it shares with buffers.c. */
#ifndef CGR_BINDINGS_PYTHON_TENSORS_H
#define CGR_BINDINGS_PYTHON_TENSORS_H

#include "core.h"

/* What has neither the buffer protocol nor is cgr's own. `strided` as in cgrpy_to_base. */
bool cgrpy_data_of_others(PyObject *object, int numbers, int bytes, bool writable, bool strided, const char *name,
                          cgrpy_data *out);

bool cgrpy_read_address(PyObject *object, const char *name, void **out);
int cgrpy_kind_of_letter(char letter); /* of the struct module */
/* An exception, always: the elements are of this format and so many bytes. */
bool cgrpy_refuse_numbers(const char *name, const char *got, Py_ssize_t got_bytes, int numbers, int bytes);

#endif
