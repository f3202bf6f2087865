/* What only the generated wrappers use. */
#ifndef CGR_BINDINGS_PYTHON_GENERATED_HELP_H
#define CGR_BINDINGS_PYTHON_GENERATED_HELP_H

#include "core.h"

bool cgrpy_succeeded(cgr_status status);
PyObject *cgrpy_raise_with(cgr_status status, const cgr_finding *findings, int32_t count);
PyObject *cgrpy_first(PyObject *array, int32_t count); /* a list of the first ones */
PyObject *cgrpy_first_keys(PyObject *keys, PyObject *advice);
bool cgrpy_still_open(cgrpy_stream *stream);
/* How many elements there are: as the array has, or as is said. */
bool cgrpy_count(PyObject *given, const cgrpy_data *data, int bytes, const char *name, uint64_t *out);
/* The views keep their memory, which they take over. Returns the view, or a tuple of two. */
PyObject *cgrpy_keep_in(PyObject *const *views, int count, cgrpy_data *memory);
bool cgrpy_check_metadata(cgrpy_object *metadata);
bool cgrpy_check_gather(cgrpy_object *gather);
bool cgrpy_check_attention(const cgrpy_handle *recorder, cgrpy_object *attention);

#endif
