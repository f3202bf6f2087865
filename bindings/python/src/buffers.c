/* Memory of arguments: by the buffer protocol, at a cgr.Address, in a list, or as other libraries give it (tensors.c). */
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

PyObject *cgrpy_address_type;
static PyTypeObject *hold_type;

/* --------------------------------------------------------------------------------------------------------------- holding */

typedef struct hold_object {
  PyObject_HEAD cgrpy_data data;
} hold_object;

void cgrpy_data_end(cgrpy_data *data) {
  if (data->view.obj != NULL)
    PyBuffer_Release(&data->view);
  data->view.obj = NULL;
  Py_CLEAR(data->kept);
  Py_CLEAR(data->capsule);
}

PyObject *cgrpy_hold(cgrpy_data *data) {
  hold_object *hold = (hold_object *)PyType_GenericAlloc(hold_type, 0);
  if (hold == NULL) {
    cgrpy_data_end(data);
    return NULL;
  }
  hold->data = *data;
  if (hold->data.kept == NULL)
    hold->data.kept = Py_XNewRef(data->view.obj);
  data->view.obj = NULL, data->kept = data->capsule = NULL;
  return (PyObject *)hold;
}

const cgrpy_data *cgrpy_held(PyObject *hold) { return &((hold_object *)hold)->data; }

static void hold_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  cgrpy_data_end(&((hold_object *)self)->data);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static bool holds_array_of(PyObject *object, const cgrpy_handle *runtime) {
  return object != NULL && PyObject_TypeCheck(object, hold_type) && cgrpy_is_array_of(cgrpy_held(object)->kept, runtime);
}

/* `kept` is a hold, or a copy of a struct that has no other user, and neither have the structs that it points to. */
void cgrpy_forget_arrays_of(PyObject *kept, const cgrpy_handle *runtime) {
  if (PyObject_TypeCheck(kept, hold_type)) {
    if (holds_array_of(kept, runtime))
      cgrpy_data_end(&((hold_object *)kept)->data);
    return;
  }
  cgrpy_object *copy = (cgrpy_object *)kept;
  for (Py_ssize_t k = 0; k < copy->count * copy->info->num_keeps; k++)
    if (holds_array_of(copy->keeps[k], runtime))
      cgrpy_replace(&copy->keeps[k], NULL);
  for (Py_ssize_t i = 0; i < copy->count * copy->info->num_fields; i++) {
    const cgrpy_field *field = &copy->info->fields[i % copy->info->num_fields];
    PyObject **keeps = copy->keeps + i / copy->info->num_fields * copy->info->num_keeps;
    if (field->kind == CGRPY_STRUCTS && keeps[field->keep] != NULL)
      cgrpy_forget_arrays_of(keeps[field->keep], runtime);
  }
}

bool cgrpy_holds(const cgrpy_data *data, int64_t elements, int bytes, const char *name) {
  if (data->bytes < 0 || elements <= data->bytes / bytes)
    return true;
  PyErr_Format(PyExc_ValueError, "%s has %zd elements, expected at least %lld", name, data->bytes / bytes, (long long)elements);
  return false;
}

bool cgrpy_fits(const cgrpy_data *data, int32_t dtype, const char *name) {
  const Py_ssize_t expected = (Py_ssize_t)cgr_dtype_size((cgr_dtype)dtype);
  if (data->item <= 1 || expected == 0 || data->item == expected)
    return true;
  PyErr_Format(PyExc_TypeError, "%s has elements of %zd bytes, expected %zd, those of %s", name, data->item, expected,
               cgr_dtype_name((cgr_dtype)dtype));
  return false;
}

bool cgrpy_holds_all(const cgrpy_data *data, int64_t elements, int bytes, const char *name) {
  if (!data->listed || elements < 0 || data->bytes / bytes <= elements)
    return cgrpy_holds(data, elements, bytes, name);
  PyErr_Format(PyExc_ValueError, "%s has %zd elements, expected %lld in a list%s", name, data->bytes / bytes, (long long)elements,
               strcmp(name, "tokens") == 0 ? ", one for each new token (query_lens; 1 for each request without it)" : "");
  return false;
}

bool cgrpy_holds_on_host(const cgrpy_data *data, int64_t elements, int bytes, const char *name) {
  if (!data->on_device)
    return cgrpy_holds(data, elements, bytes, name);
  PyErr_Format(PyExc_TypeError, "%s is in a GPU's memory, expected memory of the host", name);
  return false;
}

PyObject *cgrpy_address(const void *pointer) {
  return PyObject_CallFunction(cgrpy_address_type, "K", (unsigned long long)(uintptr_t)pointer);
}

/* --------------------------------------------------------------------------------------------------------------- numbers */

static const char *const kind_names[] = { "anything", "integers", "unsigned integers", "floating-point numbers" };

int cgrpy_kind_of_letter(char letter) {
  if (strchr("bhilqn", letter))
    return CGRPY_SIGNED;
  if (strchr("BHILQN", letter))
    return CGRPY_UNSIGNED;
  return strchr("efd", letter) ? CGRPY_REAL : CGRPY_ANY;
}

bool cgrpy_refuse_numbers(const char *name, const char *got, Py_ssize_t got_bytes, int numbers, int bytes) {
  PyErr_Format(PyExc_TypeError, "%s has elements of format '%s' and %zd bytes, expected %s of %d bytes", name, got, got_bytes,
               kind_names[numbers], bytes);
  return false;
}

static bool check_view(const Py_buffer *view, int numbers, int bytes, const char *name) {
  const char *format = view->format != NULL ? view->format : "B";
  const char *letter = format + (strchr("@=<", *format) != NULL && *format != 0);
  if (numbers == CGRPY_ANY) {
    if (strchr(format, 'O') == NULL)
      return true;
    PyErr_Format(PyExc_TypeError, "%s has Python objects as elements, expected numbers", name);
    return false;
  }
  if (*letter == 0 || letter[1] != 0 || view->itemsize != bytes || cgrpy_kind_of_letter(*letter) != numbers)
    return cgrpy_refuse_numbers(name, format, view->itemsize, numbers, bytes);
  if ((uintptr_t)view->buf % (uintptr_t)bytes == 0)
    return true;
  PyErr_Format(PyExc_ValueError, "%s is not aligned to its elements of %d bytes", name, bytes);
  return false;
}

/* With strides, how far they reach; -1: below the first element. */
static Py_ssize_t reach_of(const Py_buffer *view) {
  Py_ssize_t reach = view->len > 0 ? view->itemsize : 0;
  for (int i = 0; i < view->ndim && view->strides != NULL && reach > 0; i++)
    reach = view->strides[i] < 0 && view->shape[i] > 1 ? -1 : reach + (view->shape[i] - 1) * view->strides[i];
  return view->strides != NULL ? reach : view->len;
}

static bool check_order(const Py_buffer *view, bool strided, const char *name) {
  if (strided && reach_of(view) < 0) {
    PyErr_Format(PyExc_ValueError, "%s has a negative stride, expected its first element at the lowest address", name);
    return false;
  }
  if (strided || PyBuffer_IsContiguous(view, 'C'))
    return true;
  PyErr_Format(PyExc_ValueError, "%s has strides, expected an array that is contiguous", name);
  return false;
}

static bool data_of_buffer(PyObject *object, int numbers, int bytes, bool writable, bool strided, const char *name,
                           cgrpy_data *out) {
  if (PyObject_GetBuffer(object, &out->view, PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) < 0) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_Format(PyExc_ValueError, "%s cannot be used: %S", name, value ? value : Py_None);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    out->view.obj = NULL;
    return false;
  }
  out->pointer = out->view.buf, out->bytes = reach_of(&out->view), out->item = out->view.itemsize;
  if (check_order(&out->view, strided, name) && check_view(&out->view, numbers, bytes, name))
    return true;
  cgrpy_data_end(out);
  return false;
}

bool cgrpy_read_address(PyObject *object, const char *name, void **out) {
  PyObject *number = PyNumber_Index(object);
  const unsigned long long address = number ? PyLong_AsUnsignedLongLong(number) : 0;
  Py_XDECREF(number);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s has no address", name);
    return false;
  }
  *out = (void *)(uintptr_t)address;
  return true;
}

/* ------------------------------------------------------------------------------------------------------------------ lists */

static void write_number(char *to, int numbers, int bytes, long long n, double real) {
  if (numbers == CGRPY_REAL) {
    if (bytes == 4)
      *(float *)to = (float)real;
    else
      *(double *)to = real;
  } else if (bytes == 8) {
    *(int64_t *)to = n;
  } else {
    *(int32_t *)to = (int32_t)n;
  }
}

/* A memoryview of these numbers. Takes the bytes over. */
static PyObject *typed_view(PyObject *kept, int numbers, int bytes) {
  const char format = numbers == CGRPY_REAL ? (bytes == 4 ? 'f' : 'd')
                      : bytes == 8          ? (numbers == CGRPY_SIGNED ? 'q' : 'Q')
                                            : (numbers == CGRPY_SIGNED ? 'i' : 'I');
  PyObject *view = PyMemoryView_FromObject(kept);
  PyObject *typed = view ? PyObject_CallMethod(view, "cast", "C", format) : NULL;
  Py_XDECREF(view);
  Py_DECREF(kept);
  return typed;
}

static PyObject *index_of_item(PyObject *item, const char *name, Py_ssize_t at) {
  PyObject *number = PyNumber_Index(item);
  if (number == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s[%zd] is of %R, expected an integer", name, at, (PyObject *)Py_TYPE(item));
  }
  return number;
}

static bool data_of_list(PyObject *object, int numbers, int bytes, const char *name, cgrpy_data *out) {
  PyObject *list = PySequence_List(object);
  const Py_ssize_t count = list ? PyList_Size(list) : 0;
  PyObject *kept = list ? PyBytes_FromStringAndSize(NULL, count * bytes) : NULL;
  const long long low = numbers == CGRPY_UNSIGNED ? 0 : bytes == 4 ? INT32_MIN : INT64_MIN;
  const long long high = bytes != 4 ? INT64_MAX : numbers == CGRPY_UNSIGNED ? UINT32_MAX : INT32_MAX;
  bool ok = kept != NULL;
  for (Py_ssize_t i = 0; ok && i < count; i++) {
    PyObject *item = Py_NewRef(PyList_GetItem(list, i));
    const double real = numbers == CGRPY_REAL ? PyFloat_AsDouble(item) : 0;
    PyObject *number = numbers == CGRPY_REAL ? NULL : index_of_item(item, name, i);
    const long long n = number ? PyLong_AsLongLong(number) : 0;
    Py_XDECREF(number);
    Py_DECREF(item);
    if (!PyErr_Occurred() && (n < low || n > high))
      PyErr_Format(PyExc_OverflowError, "%s[%zd] is %lld, which does not fit in %d bytes", name, i, n, bytes);
    ok = !PyErr_Occurred();
    if (ok)
      write_number(PyBytes_AsString(kept) + i * bytes, numbers, bytes, n, real);
  }
  Py_XDECREF(list);
  if (!ok) {
    Py_XDECREF(kept);
    return false;
  }
  out->pointer = PyBytes_AsString(kept), out->bytes = count * bytes, out->kept = typed_view(kept, numbers, bytes);
  out->listed = true;
  return out->kept != NULL;
}

/* ---------------------------------------------------------------------------------------------------------------- all of it */

static bool data_of_memory(PyObject *object, const char *name, cgrpy_data *out) {
  const cgrpy_handle *memory = cgrpy_open(object, CGRPY_HANDLE_MEMORY, name);
  if (memory == NULL)
    return false;
  out->pointer = memory->pointer, out->bytes = (Py_ssize_t)memory->bytes, out->kept = Py_NewRef(object);
  out->on_device = !memory->on_host && !memory->pinned_memory;
  return true;
}

static bool to_data(PyObject *object, int numbers, int bytes, bool writable, bool strided, const char *name, cgrpy_data *out) {
  memset(out, 0, sizeof *out);
  if (object == NULL || object == Py_None)
    return true;
  if (PyObject_TypeCheck(object, cgrpy_handle_types[CGRPY_HANDLE_MEMORY]))
    return data_of_memory(object, name, out);
  if (cgrpy_array_data(object, numbers, bytes, name, out))
    return !PyErr_Occurred();
  if (PyObject_CheckBuffer(object))
    return data_of_buffer(object, numbers, bytes, writable, strided, name, out);
  if (PyLong_Check(object) && cgrpy_address_type && PyObject_IsInstance(object, cgrpy_address_type) == 1) {
    out->bytes = -1, out->kept = Py_NewRef(object);
    return cgrpy_read_address(object, name, &out->pointer);
  }
  if (!writable && numbers != CGRPY_ANY && (PyList_Check(object) || PyTuple_Check(object)))
    return data_of_list(object, numbers, bytes, name, out);
  return cgrpy_data_of_others(object, numbers, bytes, writable, strided, name, out);
}

bool cgrpy_to_data(PyObject *object, int numbers, int bytes, bool writable, const char *name, cgrpy_data *out) {
  return to_data(object, numbers, bytes, writable, false, name, out);
}

bool cgrpy_to_base(PyObject *object, bool writable, const char *name, cgrpy_data *out) {
  return to_data(object, CGRPY_ANY, 1, writable, true, name, out);
}

int cgrpy_add_buffers(PyObject *module) {
  static PyType_Slot slots[] = { { Py_tp_dealloc, hold_dealloc }, { 0, NULL } };
  static PyType_Spec spec = { "cgr.Hold", sizeof(hold_object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots };
  hold_type = (PyTypeObject *)PyType_FromSpec(&spec);
  return hold_type == NULL ? -1 : cgrpy_add_array(module);
}
