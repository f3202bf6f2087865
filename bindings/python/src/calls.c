/* Arguments, results and exceptions of calls. */
#include <string.h>

#include "core.h"

PyObject *cgrpy_error;

/* ------------------------------------------------------------------------------------------------------------- arguments */

static int find_name(const char *const *names, PyObject *keyword) {
  for (int i = 0; names[i] != NULL; i++)
    if (PyUnicode_CompareWithASCIIString(keyword, names[i]) == 0)
      return i;
  return -1;
}

bool cgrpy_arguments(const char *name, const char *const *names, int required, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *keywords, PyObject **out) {
  const Py_ssize_t num_keywords = keywords != NULL ? PyTuple_Size(keywords) : 0;
  int count = 0;
  for (; names[count] != NULL; count++)
    out[count] = count < nargs ? args[count] : NULL;
  if (nargs > count) {
    PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments, got %zd", name, count, nargs);
    return false;
  }
  for (Py_ssize_t k = 0; k < num_keywords; k++) {
    PyObject *keyword = PyTuple_GetItem(keywords, k);
    const int at = find_name(names, keyword);
    if (at < 0 || out[at] != NULL) {
      PyErr_Format(PyExc_TypeError, at < 0 ? "%s() has no argument %R" : "%s() got its argument %R twice", name, keyword);
      return false;
    }
    out[at] = args[nargs + k];
  }
  for (int i = 0; i < required; i++)
    if (out[i] == NULL) {
      PyErr_Format(PyExc_TypeError, "%s() lacks its argument '%s'", name, names[i]);
      return false;
    }
  return true;
}

PyObject *cgrpy_index(PyObject *object, const char *name) {
  PyObject *number = PyLong_Check(object) ? Py_NewRef(object) : PyNumber_Index(object);
  if (number == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s is of %R, expected an integer", name, (PyObject *)Py_TYPE(object));
  }
  return number;
}

static bool to_integer(PyObject *object, const char *name, long long low, long long high, long long *out) {
  int overflow = 0;
  PyObject *number = cgrpy_index(object, name);
  *out = number != NULL ? PyLong_AsLongLongAndOverflow(number, &overflow) : 0;
  Py_XDECREF(number);
  if (number != NULL && (overflow || *out < low || *out > high))
    PyErr_Format(PyExc_OverflowError, "%s is %R, expected %lld .. %lld", name, object, low, high);
  return PyErr_Occurred() == NULL;
}

bool cgrpy_i32(PyObject *object, const char *name, int32_t *out) {
  long long n;
  if (!to_integer(object, name, INT32_MIN, INT32_MAX, &n))
    return false;
  *out = (int32_t)n;
  return true;
}

bool cgrpy_u32(PyObject *object, const char *name, uint32_t *out) {
  long long n;
  if (!to_integer(object, name, 0, UINT32_MAX, &n))
    return false;
  *out = (uint32_t)n;
  return true;
}

bool cgrpy_u64(PyObject *object, const char *name, uint64_t *out) {
  PyObject *number = cgrpy_index(object, name);
  *out = number != NULL ? PyLong_AsUnsignedLongLong(number) : 0;
  Py_XDECREF(number);
  if (number != NULL && PyErr_Occurred()) {
    PyErr_Clear();
    PyErr_Format(PyExc_OverflowError, "%s is %R, expected 0 .. 2^64 - 1", name, object);
  }
  return PyErr_Occurred() == NULL;
}

bool cgrpy_double(PyObject *object, const char *name, double *out) {
  *out = PyFloat_AsDouble(object);
  if (*out != -1.0 || PyErr_Occurred() == NULL)
    return true;
  if (PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s is of %R, expected a number", name, (PyObject *)Py_TYPE(object));
  }
  return false;
}

static bool stream_of_address(PyObject *object, cgrpy_stream *out) {
  uint64_t address;
  if (!cgrpy_u64(object, "stream", &address))
    return false;
  out->stream = (cudaStream_t)(uintptr_t)address;
  return true;
}

/* A stream of PyTorch has `cuda_stream`; others follow __cuda_stream__, which gives a version and the address. */
static bool stream_of_others(PyObject *object, cgrpy_stream *out) {
  PyObject *address = PyObject_GetAttrString(object, "cuda_stream");
  if (address == NULL) {
    PyErr_Clear();
    PyObject *pair = PyObject_CallMethod(object, "__cuda_stream__", NULL);
    if (pair != NULL && PyTuple_Check(pair) && PyTuple_Size(pair) == 2)
      address = Py_NewRef(PyTuple_GetItem(pair, 1));
    Py_XDECREF(pair);
  }
  if (address == NULL) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "stream is of %R, expected a cgr.Stream, a stream of PyTorch or a cgr.Address",
                 (PyObject *)Py_TYPE(object));
    return false;
  }
  const bool ok = stream_of_address(address, out);
  Py_DECREF(address);
  return ok;
}

bool cgrpy_to_stream(PyObject *object, cgrpy_stream *out) {
  out->handle = NULL;
  if (PyObject_TypeCheck(object, cgrpy_handle_types[CGRPY_HANDLE_STREAM])) {
    out->handle = cgrpy_open(object, CGRPY_HANDLE_STREAM, "stream");
    out->stream = cgrpy_pointer(out->handle);
    return out->handle != NULL;
  }
  if (PyLong_Check(object) && PyObject_IsInstance(object, cgrpy_address_type) == 1)
    return stream_of_address(object, out);
  return stream_of_others(object, out);
}

bool cgrpy_mark(PyObject *object, cgr_mark *out) {
  cgrpy_object *fields;
  if (PyObject_TypeCheck(object, (PyTypeObject *)cgrpy_types[cgrpy_type_step])) {
    *out = ((cgr_step *)((cgrpy_object *)object)->data)->mark;
    return true;
  }
  if (PyObject_TypeCheck(object, (PyTypeObject *)cgrpy_types[cgrpy_type_step_result])) {
    *out = ((cgr_step_result *)((cgrpy_object *)object)->data)->mark;
    return true;
  }
  if (!cgrpy_is(object, cgrpy_type_mark, false, "mark", &fields))
    return false;
  *out = *(cgr_mark *)fields->data;
  return true;
}

/* --------------------------------------------------------------------------------------------------------------- the GIL */

static void use_handle(cgrpy_handle *handle, unsigned long thread) {
  if (handle != NULL)
    handle->users++, handle->thread = thread;
}

void cgrpy_release_gil(cgrpy_call *call, cgrpy_handle *a, cgrpy_handle *b) {
  const unsigned long thread = PyThread_get_thread_ident();
  call->used[0] = a, call->used[1] = b;
  use_handle(a, thread);
  use_handle(b, thread);
  call->state = PyEval_SaveThread();
}

void cgrpy_take_gil(cgrpy_call *call) {
  PyEval_RestoreThread(call->state);
  for (int i = 0; i < 2; i++)
    if (call->used[i] != NULL)
      call->used[i]->users--;
}

/* ------------------------------------------------------------------------------------------------------------- exceptions */

PyObject *cgrpy_raise_findings(cgr_status status, PyObject *findings) {
  if (cgrpy_take_pending() || cgrpy_error == NULL)
    return NULL;
  PyObject *error = PyObject_CallFunction(cgrpy_error, "isiO", (int)status, cgr_last_message(), cgr_last_device_code(),
                                          findings ? findings : Py_None);
  if (error != NULL)
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  return NULL;
}

PyObject *cgrpy_raise(cgr_status status) { return cgrpy_raise_findings(status, NULL); }

PyObject *cgrpy_findings(const cgr_finding *findings, int32_t count) {
  PyObject *array = cgrpy_new_array(cgrpy_type_finding, count, NULL);
  if (array == NULL)
    return NULL;
  if (count > 0)
    memcpy(((cgrpy_object *)array)->data, findings, (size_t)count * sizeof *findings);
  PyObject *list = cgrpy_list(array);
  Py_DECREF(array);
  return list;
}

/* Asks for the length, then again while the text grows. */
PyObject *cgrpy_text(cgr_status (*write)(void *context, char *out, size_t capacity, size_t *length), void *context) {
  size_t length = 0;
  cgr_status status = write(context, NULL, 0, &length);
  char *text = NULL;
  for (size_t capacity = 0; status == CGR_OK && length >= capacity;) {
    capacity = length + length / 8 + 64;
    char *larger = PyMem_Realloc(text, capacity);
    if (larger == NULL) {
      PyMem_Free(text);
      return PyErr_NoMemory();
    }
    text = larger;
    status = write(context, text, capacity, &length);
  }
  PyObject *result = status == CGR_OK ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace") : cgrpy_raise(status);
  PyMem_Free(text);
  return result;
}
