/* cgr.Array: memory of cgr as other libraries take it, by the buffer protocol, DLPack or __cuda_array_interface__. It pins the
 * runtime or memory that it is a part of: closing that waits until no array of it is left. */
#include "array.h"

/* By cgr_dtype. */
static const struct {
  char format;
  uint8_t bytes, code;
  const char *typestr;
} dtypes[] = {
  { 0, 0, 0, NULL },    { 'f', 4, 2, "<f4" }, { 'e', 2, 2, "<f2" }, { 'H', 2, 4, "<u2" },  { 'B', 1, 10, "|u1" },
  { 'b', 1, 0, "|i1" }, { 'i', 4, 0, "<i4" }, { 'q', 8, 0, "<i8" }, { 'B', 1, 12, "|u1" }, { 'B', 1, 1, "|u1" },
};

PyTypeObject *cgrpy_array_type;

static cgrpy_array *allocate_array(cgrpy_handle *pinned, void *pointer, const int64_t *shape, int dims) {
  cgrpy_array *array = (cgrpy_array *)PyType_GenericAlloc(cgrpy_array_type, 0);
  if (array == NULL)
    return NULL;
  array->pinned = (cgrpy_handle *)Py_NewRef((PyObject *)pinned);
  cgrpy_pin(pinned);
  array->pointer = pointer, array->dims = dims;
  for (int i = 0; i < dims; i++)
    array->shape[i] = shape[i] > 0 ? shape[i] : 0;
  array->on_host = pinned->on_host || pinned->pinned_memory;
  array->device_id = pinned->stream_ordinal;
  return array;
}

static void set_strides(cgrpy_array *array, int64_t row) {
  array->strides[0] = array->dims == 1 ? 1 : row;
  array->strides[1] = 1;
  for (int i = 0; i < 2; i++)
    array->byte_strides[i] = (Py_ssize_t)(array->strides[i] * array->bytes);
}

static PyObject *array_of_dtype(cgrpy_handle *pinned, void *pointer, int32_t dtype, const int64_t *shape, int dims, int64_t row) {
  if (dtype <= 0 || dtype >= (int32_t)(sizeof dtypes / sizeof *dtypes))
    return PyErr_Format(PyExc_ValueError, "dtype is %d, which arrays do not have", (int)dtype);
  cgrpy_array *array = allocate_array(pinned, pointer, shape, dims);
  if (array == NULL)
    return NULL;
  array->format[0] = dtypes[dtype].format, array->bytes = dtypes[dtype].bytes;
  array->code = dtypes[dtype].code, array->typestr = dtypes[dtype].typestr;
  set_strides(array, row);
  return (PyObject *)array;
}

static PyObject *copy_of_memory(const void *pointer, char format, int bytes, int64_t count) {
  PyObject *copy = PyBytes_FromStringAndSize(count > 0 ? pointer : NULL, count > 0 ? (Py_ssize_t)count * bytes : 0);
  PyObject *view = copy ? PyMemoryView_FromObject(copy) : NULL;
  PyObject *typed = view ? PyObject_CallMethod(view, "cast", "C", format) : NULL;
  Py_XDECREF(copy);
  Py_XDECREF(view);
  return typed;
}

PyObject *cgrpy_view(cgrpy_handle *pinned, const void *pointer, char format, int bytes, const int64_t *shape, int dims) {
  if (pinned == NULL)
    return copy_of_memory(pointer, format, bytes, shape[0]);
  cgrpy_array *array = allocate_array(pinned, (void *)(uintptr_t)pointer, shape, dims);
  if (array == NULL)
    return NULL;
  array->format[0] = format, array->bytes = bytes, array->on_host = true;
  set_strides(array, dims == 2 ? shape[1] : 1);
  PyObject *view = PyMemoryView_FromObject((PyObject *)array);
  Py_DECREF(array);
  return view;
}

PyObject *cgrpy_bytes_array(cgrpy_handle *runtime, void *pointer, uint64_t bytes) {
  const int64_t shape[1] = { (int64_t)bytes };
  return array_of_dtype(runtime, pointer, CGR_DTYPE_U8, shape, 1, 1);
}

PyObject *cgrpy_lend(cgrpy_handle *runtime, void *pointer, char format, int bytes, int64_t count, bool writable, PyObject **out) {
  cgrpy_array *array = allocate_array(runtime, pointer, &count, 1);
  *out = (PyObject *)array;
  if (array == NULL)
    return NULL;
  array->format[0] = format, array->bytes = bytes, array->on_host = array->lent = true, array->readonly = !writable;
  set_strides(array, 1);
  return PyMemoryView_FromObject((PyObject *)array);
}

bool cgrpy_take_back(PyObject *array, PyObject *view) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *released = view ? PyObject_CallMethod(view, "release", NULL) : NULL;
  PyErr_Clear();
  Py_XDECREF(released);
  Py_XDECREF(view);
  ((cgrpy_array *)array)->pointer = NULL;
  const bool free = ((cgrpy_array *)array)->exports == 0;
  Py_DECREF(array);
  PyErr_Restore(type, value, traceback);
  return free;
}

/* The array of a cgr.BufferView. */
PyObject *cgrpy_buffer_array(PyObject *self, PyObject *unused) {
  (void)unused;
  const cgrpy_object *object = (cgrpy_object *)self;
  const cgr_buffer_view *view = (cgr_buffer_view *)object->data;
  if (object->runtime == NULL || view->data == NULL)
    return PyErr_Format(PyExc_ValueError, "the view is not one that a runtime gave");
  cgrpy_handle *runtime = cgrpy_open(object->runtime, CGRPY_HANDLE_RUNTIME, "runtime");
  if (runtime == NULL)
    return NULL;
  return array_of_dtype(runtime, view->data, view->dtype, view->shape, view->shape[1] == 1 ? 1 : 2, view->stride);
}

static bool read_shape(PyObject *object, int64_t *shape, int *dims) {
  if (!PyTuple_Check(object)) {
    *dims = 1;
    shape[0] = PyLong_AsLongLong(object);
    return !PyErr_Occurred();
  }
  *dims = (int)PyTuple_Size(object);
  for (int i = 0; i < *dims && i < 2; i++)
    shape[i] = PyLong_AsLongLong(PyTuple_GetItem(object, i));
  if (!PyErr_Occurred() && (*dims < 1 || *dims > 2))
    PyErr_SetString(PyExc_ValueError, "shape has 1 or 2 numbers");
  return !PyErr_Occurred();
}

PyObject *cgrpy_memory_array(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "dtype", "shape", "offset", NULL };
  PyObject *a[3];
  int32_t dtype;
  uint64_t offset = 0;
  int64_t shape[2] = { 0, 1 };
  int dims = 1;
  if (!cgrpy_arguments("array", names, 1, args, nargs, keywords, a) || !cgrpy_i32(a[0], "dtype", &dtype) ||
      (a[2] && !cgrpy_u64(a[2], "offset", &offset)) || (a[1] && a[1] != Py_None && !read_shape(a[1], shape, &dims)))
    return NULL;
  cgrpy_handle *memory = cgrpy_open(self, CGRPY_HANDLE_MEMORY, "memory");
  if (memory == NULL)
    return NULL;
  const size_t bytes = cgr_dtype_size((cgr_dtype)dtype);
  if (bytes == 0 || offset > memory->bytes || offset % bytes != 0)
    return PyErr_Format(PyExc_ValueError, "no elements of dtype %d at byte %llu of %zu", (int)dtype, (unsigned long long)offset,
                        memory->bytes);
  const int64_t room = (int64_t)((memory->bytes - offset) / bytes);
  if (a[1] == NULL || a[1] == Py_None)
    shape[0] = room;
  if (shape[0] < 0 || shape[1] < 0 || (shape[1] > 0 && shape[0] > room / shape[1]))
    return PyErr_Format(PyExc_ValueError, "shape has more elements than the %lld that the memory holds", (long long)room);
  return array_of_dtype(memory, (char *)memory->pointer + offset, dtype, shape, dims, dims == 2 ? shape[1] : 1);
}

bool cgrpy_array_data(PyObject *object, int numbers, int bytes, const char *name, cgrpy_data *out) {
  if (!PyObject_TypeCheck(object, cgrpy_array_type))
    return false;
  const cgrpy_array *array = (cgrpy_array *)object;
  if (array->lent) {
    PyErr_Format(PyExc_TypeError, "%s is good during a call of plan_host alone, expected a copy", name);
    return true;
  }
  if (numbers != CGRPY_ANY && array->bytes != bytes) {
    PyErr_Format(PyExc_TypeError, "%s has elements of %d bytes, expected %d", name, array->bytes, bytes);
    return true;
  }
  out->pointer = array->pointer, out->kept = Py_NewRef(object), out->on_device = !array->on_host;
  out->bytes = (Py_ssize_t)(array->shape[0] * (array->dims == 2 ? array->strides[0] : 1) * array->bytes);
  return true;
}

/* ------------------------------------------------------------------------------------------------------------ protocols */

static int array_getbuffer(PyObject *self, Py_buffer *view, int flags) {
  cgrpy_array *array = (cgrpy_array *)self;
  view->obj = NULL;
  if (array->pointer == NULL || (array->readonly && (flags & PyBUF_WRITABLE))) {
    PyErr_SetString(PyExc_BufferError, array->pointer ? "the array is read-only" : "the array was good during a call alone");
    return -1;
  }
  const bool dense = array->dims == 1 || array->strides[0] == array->shape[1];
  if (!array->on_host || (!dense && (flags & PyBUF_STRIDES) != PyBUF_STRIDES)) {
    PyErr_SetString(PyExc_BufferError, array->on_host ? "rows of the array do not adjoin" : "the array is in a device's memory");
    return -1;
  }
  view->buf = array->pointer, view->obj = Py_NewRef(self), view->readonly = array->readonly, view->itemsize = array->bytes;
  view->format = (flags & PyBUF_FORMAT) ? array->format : NULL;
  view->ndim = array->dims;
  Py_ssize_t *shape = (Py_ssize_t *)array->shape; /* of the same size and signedness */
  view->len = (Py_ssize_t)(array->shape[0] * (array->dims == 2 ? array->shape[1] : 1) * array->bytes);
  view->shape = (flags & PyBUF_ND) ? shape : NULL;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? array->byte_strides : NULL;
  view->suboffsets = NULL, view->internal = NULL;
  array->exports++;
  return 0;
}

static void array_releasebuffer(PyObject *self, Py_buffer *view) {
  (void)view;
  ((cgrpy_array *)self)->exports--;
}

static PyObject *get_interface(PyObject *self, void *unused) {
  (void)unused;
  const cgrpy_array *array = (cgrpy_array *)self;
  if (array->on_host || array->typestr == NULL)
    return PyErr_Format(PyExc_AttributeError, "the array is in the host's memory");
  PyObject *shape = array->dims == 1 ? Py_BuildValue("(L)", (long long)array->shape[0])
                                     : Py_BuildValue("(LL)", (long long)array->shape[0], (long long)array->shape[1]);
  PyObject *strides =
      array->dims == 1 ? Py_NewRef(Py_None) : Py_BuildValue("(nn)", array->byte_strides[0], array->byte_strides[1]);
  if (shape == NULL || strides == NULL) {
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    return NULL;
  }
  return Py_BuildValue("{s:N,s:s,s:(KO),s:N,s:i}", "shape", shape, "typestr", array->typestr, "data",
                       (unsigned long long)(uintptr_t)array->pointer, Py_False, "strides", strides, "version", 3);
}

static PyObject *array_numpy(PyObject *self, PyObject *unused) {
  (void)unused;
  PyObject *numpy = PyImport_ImportModule("numpy");
  PyObject *array = numpy ? PyObject_CallMethod(numpy, "asarray", "O", self) : NULL;
  Py_XDECREF(numpy);
  return array;
}

static PyObject *get_shape(PyObject *self, void *unused) {
  (void)unused;
  const cgrpy_array *array = (cgrpy_array *)self;
  return array->dims == 1 ? Py_BuildValue("(L)", (long long)array->shape[0])
                          : Py_BuildValue("(LL)", (long long)array->shape[0], (long long)array->shape[1]);
}

static PyObject *get_address(PyObject *self, void *unused) {
  (void)unused;
  return cgrpy_address(((cgrpy_array *)self)->pointer);
}

static void array_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  cgrpy_handle *pinned = ((cgrpy_array *)self)->pinned;
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
  if (pinned != NULL) {
    cgrpy_unpin(pinned);
    Py_DECREF((PyObject *)pinned);
  }
}

bool cgrpy_is_array_of(PyObject *object, const cgrpy_handle *runtime) {
  return object != NULL && PyObject_TypeCheck(object, cgrpy_array_type) && ((cgrpy_array *)object)->pinned == runtime;
}

int cgrpy_add_array(PyObject *module) {
  static PyMethodDef methods[] = {
    { "__dlpack__", (PyCFunction)(void (*)(void))cgrpy_array_dlpack, METH_FASTCALL | METH_KEYWORDS,
      "A capsule of DLPack. No stream is ordered after another: synchronise, or use the step's own stream." },
    { "__dlpack_device__", cgrpy_array_dlpack_device, METH_NOARGS, "The device as DLPack names it." },
    { "numpy", array_numpy, METH_NOARGS, "numpy($self, /)\n--\n\nA numpy array of the same memory, of the host alone." },
    { NULL, NULL, 0, NULL },
  };
  static PyGetSetDef fields[] = {
    { "__cuda_array_interface__", get_interface, NULL, "Of an array in a GPU's memory.", NULL },
    { "shape", get_shape, NULL, "Elements in each dimension.", NULL },
    { "address", get_address, NULL, "Of the first element.", NULL },
    { NULL, NULL, NULL, NULL, NULL },
  };
  static PyType_Slot slots[] = {
    { Py_tp_doc, "Memory of a runtime or of cgr.Memory, for numpy, DLPack and __cuda_array_interface__." },
    { Py_tp_dealloc, array_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, fields },
    { Py_bf_getbuffer, array_getbuffer },
    { Py_bf_releasebuffer, array_releasebuffer },
    { 0, NULL },
  };
  static PyType_Spec spec = { "cgr.Array", sizeof(cgrpy_array), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                              slots };
  cgrpy_array_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
  if (cgrpy_array_type == NULL || cgrpy_add_exchange() < 0)
    return -1;
  return PyModule_AddObjectRef(module, "Array", (PyObject *)cgrpy_array_type);
}
