/* Reading and writing one field of a struct: numbers, texts, arrays that are kept alive, structs, functions. */
#include <string.h>

#include "fields.h"

PyObject *cgrpy_members[64];

PyObject **cgrpy_names[128];

/* Keywords of a call are interned as the fields' names are, so that most are found by their address. */
const cgrpy_field *cgrpy_find_field(const cgrpy_struct *info, PyObject *name) {
  PyObject **names = cgrpy_names[info - cgrpy_structs];
  for (int i = 0; names != NULL && i < info->num_fields; i++)
    if (names[i] == name)
      return &info->fields[i];
  for (int i = 0; i < info->num_fields; i++)
    if (PyUnicode_CompareWithASCIIString(name, info->fields[i].name) == 0)
      return &info->fields[i];
  return NULL;
}

PyObject *cgrpy_kept(const cgrpy_object *object, const char *field) {
  for (int i = 0; i < object->info->num_fields; i++)
    if (strcmp(object->info->fields[i].name, field) == 0)
      return object->keeps[object->info->fields[i].keep];
  return NULL;
}

/* -------------------------------------------------------------------------------------------------------------- numbers */

static long long read_signed(const char *from, uint32_t bytes) {
  switch (bytes) {
  case 4:
    return *(const int32_t *)from;
  case 8:
    return *(const int64_t *)from;
  default:
    return *(const signed char *)from;
  }
}

static unsigned long long read_unsigned(const char *from, uint32_t bytes) {
  return bytes == 8 ? *(const uint64_t *)from : bytes == 4 ? *(const uint32_t *)from : *(const unsigned char *)from;
}

PyObject *cgrpy_member(int enumeration, long long value) {
  PyObject *number = PyLong_FromLongLong(value);
  PyObject *members = enumeration >= 0 ? cgrpy_members[enumeration] : NULL;
  if (number == NULL || members == NULL)
    return number;
  PyObject *member = PyDict_GetItemWithError(members, number);
  if (member == NULL)
    return number;
  Py_DECREF(number);
  return Py_NewRef(member);
}

static bool set_signed(const char *name, uint32_t bytes, PyObject *value, char *to) {
  PyObject *number = cgrpy_index(value, name);
  if (number == NULL)
    return false;
  int overflow;
  const long long n = PyLong_AsLongLongAndOverflow(number, &overflow);
  Py_DECREF(number);
  if (overflow || (bytes == 4 && (n < INT32_MIN || n > INT32_MAX))) {
    PyErr_Format(PyExc_OverflowError, "%s is %R, which is no integer of %u bits", name, value, bytes * 8);
    return false;
  }
  if (bytes == 4)
    *(int32_t *)to = (int32_t)n;
  else
    *(int64_t *)to = n;
  return true;
}

static bool set_unsigned(const char *name, uint32_t bytes, PyObject *value, char *to) {
  PyObject *number = cgrpy_index(value, name);
  if (number == NULL)
    return false;
  const unsigned long long n = PyLong_AsUnsignedLongLong(number);
  Py_DECREF(number);
  const bool failed = PyErr_Occurred() != NULL;
  if (failed || (bytes == 4 && n > UINT32_MAX)) {
    PyErr_Clear();
    PyErr_Format(PyExc_OverflowError, "%s is %R, which is no integer of %u bits without a sign", name, value, bytes * 8);
    return false;
  }
  if (bytes == 4)
    *(uint32_t *)to = (uint32_t)n;
  else
    *(uint64_t *)to = n;
  return true;
}

static bool set_real(const cgrpy_field *field, PyObject *value, char *to) {
  double n;
  if (!cgrpy_double(value, field->name, &n))
    return false;
  if (field->bytes == 4)
    *(float *)to = (float)n;
  else
    *(double *)to = n;
  return true;
}

/* --------------------------------------------------------------------------------------------------------- arrays inside */

static PyObject *get_number(const cgrpy_field *field, const char *from) {
  return field->kind == CGRPY_INTS ? PyLong_FromLongLong(read_signed(from, field->bytes))
                                   : PyLong_FromUnsignedLongLong(read_unsigned(from, field->bytes));
}

static PyObject *get_numbers(const cgrpy_field *field, const char *from, int depth) {
  const bool inner = depth == 0 && field->dims[1] > 0;
  const uint32_t step = inner ? field->bytes * (uint32_t)field->dims[1] : field->bytes;
  PyObject *tuple = PyTuple_New(field->dims[depth]);
  for (int i = 0; tuple != NULL && i < field->dims[depth]; i++) {
    PyObject *item = inner ? get_numbers(field, from + (uint32_t)i * step, 1) : get_number(field, from + (uint32_t)i * step);
    if (item == NULL || PyTuple_SetItem(tuple, i, item) < 0)
      Py_CLEAR(tuple);
  }
  return tuple;
}

static bool set_numbers(const cgrpy_field *field, PyObject *value, char *to) {
  char numbers[64 * 8] = { 0 };
  if (field->dims[1] > 0 || field->dims[0] > 64) {
    PyErr_Format(PyExc_AttributeError, "%s is cgr's to set", field->name);
    return false;
  }
  PyObject *list = cgrpy_sequence(value, field->name, "integers");
  bool ok = list != NULL;
  const Py_ssize_t count = ok ? PyList_Size(list) : 0;
  if (ok && count > field->dims[0]) {
    PyErr_Format(PyExc_ValueError, "%s takes at most %d numbers, got %zd", field->name, field->dims[0], count);
    ok = false;
  }
  for (Py_ssize_t i = 0; ok && i < count; i++) {
    char *at = numbers + i * field->bytes;
    PyObject *item = PyList_GetItem(list, i);
    ok = field->kind == CGRPY_INTS ? set_signed(field->name, field->bytes, item, at)
                                   : set_unsigned(field->name, field->bytes, item, at);
  }
  Py_XDECREF(list);
  if (ok)
    memcpy(to, numbers, (size_t)field->dims[0] * field->bytes);
  return ok;
}

static const char *read_text(const cgrpy_field *field, PyObject *value, Py_ssize_t *length) {
  if (PyUnicode_Check(value))
    return PyUnicode_AsUTF8AndSize(value, length);
  const bool device = PyObject_TypeCheck(value, cgrpy_handle_types[CGRPY_HANDLE_DEVICE]);
  PyErr_Format(PyExc_TypeError, "%s is of %R, expected a str%s", field->name, (PyObject *)Py_TYPE(value),
               device ? ": an open device is device_handle" : "");
  return NULL;
}

static bool set_chars(const cgrpy_field *field, PyObject *value, char *to) {
  Py_ssize_t length;
  const char *text = read_text(field, value, &length);
  if (text == NULL)
    return false;
  memset(to, 0, field->bytes);
  memcpy(to, text, (size_t)length < field->bytes - 1 ? (size_t)length : field->bytes - 1);
  return true;
}

/* ------------------------------------------------------------------------------------------------------------- pointers */

/* Replaces what a pointer keeps; takes `kept` over. */
static bool keep_pointer(cgrpy_object *self, const cgrpy_field *field, const void *pointer, PyObject *kept) {
  PyObject *before = self->keeps[field->keep];
  self->keeps[field->keep] = kept;
  *(const void **)(self->data + field->offset) = pointer;
  Py_XDECREF(before);
  return true;
}

static bool set_text(cgrpy_object *self, const cgrpy_field *field, PyObject *value) {
  Py_ssize_t length;
  const char *text = read_text(field, value, &length);
  if (text == NULL)
    return false;
  if (strlen(text) != (size_t)length) {
    PyErr_Format(PyExc_ValueError, "%s contains a zero", field->name);
    return false;
  }
  return keep_pointer(self, field, text, Py_NewRef(value));
}

static void set_count(cgrpy_object *self, const cgrpy_field *field, Py_ssize_t count) {
  if (field->count)
    *(int32_t *)(self->data + field->count - 1) = count > INT32_MAX ? INT32_MAX : (int32_t)count;
}

static bool set_data(cgrpy_object *self, const cgrpy_field *field, PyObject *value) {
  cgrpy_data data;
  if (!(field->strided ? cgrpy_to_base(value, field->writable, field->name, &data)
                       : cgrpy_to_data(value, field->type, (int)field->bytes, field->writable, field->name, &data)))
    return false;
  const void *pointer = data.pointer;
  const Py_ssize_t count = data.bytes >= 0 && field->bytes ? data.bytes / (Py_ssize_t)field->bytes : -1;
  PyObject *hold = cgrpy_hold(&data);
  if (hold == NULL)
    return false;
  if (count >= 0)
    set_count(self, field, count);
  return keep_pointer(self, field, pointer, hold);
}

/* Keeps (the pointers, what keeps their memory, what was given). */
static bool set_arrays(cgrpy_object *self, const cgrpy_field *field, PyObject *value) {
  PyObject *given = PySequence_Tuple(value);
  const Py_ssize_t count = given ? PyTuple_Size(given) : 0;
  PyObject *bytes = given ? PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(void *)) : NULL;
  PyObject *holds = bytes ? PyTuple_New(count) : NULL, *kept = NULL;
  void **const pointers = holds ? (void **)PyBytes_AsString(bytes) : NULL;
  bool ok = holds != NULL;
  for (Py_ssize_t i = 0; ok && i < count; i++) {
    PyObject *item = PyTuple_GetItem(given, i);
    cgrpy_data data = { 0 };
    ok = item == Py_None || cgrpy_to_data(item, field->type, (int)field->bytes, field->writable, field->name, &data);
    pointers[i] = data.pointer;
    PyObject *hold = !ok ? NULL : item == Py_None ? Py_NewRef(Py_None) : cgrpy_hold(&data);
    ok = hold != NULL && PyTuple_SetItem(holds, i, hold) == 0;
  }
  if (ok)
    kept = PyTuple_Pack(3, bytes, holds, given);
  Py_XDECREF(given);
  Py_XDECREF(bytes);
  Py_XDECREF(holds);
  return kept != NULL && keep_pointer(self, field, pointers, kept);
}

PyObject *cgrpy_one_of(PyObject *arrays, Py_ssize_t at) {
  PyObject *hold = PyTuple_GetItem(PyTuple_GetItem(arrays, 1), at);
  return hold != Py_None ? hold : NULL;
}

static bool points_to_one(const cgrpy_field *field) { return field->count == 0 && field->length == NULL; }

static bool set_structs(cgrpy_object *self, const cgrpy_field *field, PyObject *value) {
  cgrpy_object *one;
  PyObject *array;
  if (points_to_one(field))
    array = cgrpy_is(value, field->type, false, field->name, &one) ? cgrpy_copy(value) : NULL;
  else
    array = cgrpy_array_of(value, field->type, field->name);
  if (array == NULL)
    return false;
  set_count(self, field, ((cgrpy_object *)array)->count);
  return keep_pointer(self, field, ((cgrpy_object *)array)->data, array);
}

static bool set_struct(cgrpy_object *self, const cgrpy_field *field, PyObject *value) {
  cgrpy_object *from;
  if (!cgrpy_is(value, field->type, false, field->name, &from))
    return false;
  PyObject *copy = cgrpy_copy(value); /* the value may be a part of this struct */
  if (copy == NULL)
    return false;
  from = (cgrpy_object *)copy;
  memcpy(self->data + field->offset, from->data, from->info->size);
  for (int k = 0; k < from->info->num_keeps; k++) {
    PyObject *before = self->keeps[field->keep + k];
    self->keeps[field->keep + k] = Py_XNewRef(from->keeps[k]);
    Py_XDECREF(before);
  }
  Py_DECREF(copy);
  return true;
}

static bool set_device(cgrpy_object *self, const cgrpy_field *field, PyObject *value) {
  cgrpy_handle *device = cgrpy_open(value, CGRPY_HANDLE_DEVICE, field->name);
  return device != NULL && keep_pointer(self, field, device->pointer, Py_NewRef(value));
}

static bool set_callable(cgrpy_object *self, const cgrpy_field *field, PyObject *value) {
  if (!PyCallable_Check(value)) {
    PyErr_Format(PyExc_TypeError, "%s is of %R, expected a callable", field->name, (PyObject *)Py_TYPE(value));
    return false;
  }
  return keep_pointer(self, field, NULL, Py_NewRef(value));
}

static bool set_pointer(cgrpy_object *self, const cgrpy_field *field, PyObject *value) {
  if (self->lent != CGRPY_OWN || field->kind == CGRPY_OBJECT) {
    PyErr_Format(PyExc_AttributeError, "%s is cgr's to set; what it is an array of can be written, if it is to be", field->name);
    return false;
  }
  if (value == Py_None) {
    set_count(self, field, 0);
    return keep_pointer(self, field, NULL, NULL);
  }
  switch (field->kind) {
  case CGRPY_TEXT:
    return set_text(self, field, value);
  case CGRPY_DATA:
    return set_data(self, field, value);
  case CGRPY_ARRAYS:
    return set_arrays(self, field, value);
  case CGRPY_STRUCTS:
    return set_structs(self, field, value);
  case CGRPY_DEVICE:
    return set_device(self, field, value);
  case CGRPY_CALLABLE:
    return set_callable(self, field, value);
  default:
    PyErr_Format(PyExc_AttributeError, "%s cannot be set", field->name);
    return false;
  }
}

static bool set_validate(cgrpy_object *self, const cgrpy_field *field, PyObject *value) {
  const int wanted = PyObject_IsTrue(value);
  if (wanted >= 0)
    *(const void **)(self->data + field->offset) = wanted ? cgr_validation_layer() : NULL;
  return wanted >= 0;
}

int cgrpy_set(PyObject *object, PyObject *value, void *closure) {
  cgrpy_object *self = (cgrpy_object *)object;
  const cgrpy_field *field = closure;
  char *to = self->data + field->offset;
  if (value == NULL) {
    PyErr_Format(PyExc_AttributeError, "%s cannot be deleted", field->name);
    return -1;
  }
  switch (field->kind) {
  case CGRPY_INT:
    return set_signed(field->name, field->bytes, value, to) ? 0 : -1;
  case CGRPY_UINT:
    return set_unsigned(field->name, field->bytes, value, to) ? 0 : -1;
  case CGRPY_FLOAT:
    return set_real(field, value, to) ? 0 : -1;
  case CGRPY_INTS:
  case CGRPY_UINTS:
    return set_numbers(field, value, to) ? 0 : -1;
  case CGRPY_CHARS:
    return set_chars(field, value, to) ? 0 : -1;
  case CGRPY_STRUCT:
    return set_struct(self, field, value) ? 0 : -1;
  case CGRPY_VALIDATE:
    return set_validate(self, field, value) ? 0 : -1;
  default:
    return set_pointer(self, field, value) ? 0 : -1;
  }
}

/* -------------------------------------------------------------------------------------------------------------- reading */

/* Whether a result is still in the ring, as far as launches tell. */
static bool has_not_expired(const cgrpy_object *self, const char *name) {
  const cgrpy_handle *runtime = (cgrpy_handle *)self->runtime;
  if (self->info != &cgrpy_structs[cgrpy_type_step_result] || runtime->config == NULL)
    return true;
  const uint64_t seq = ((const cgr_step_result *)self->data)->mark.seq;
  const int32_t given = ((const cgr_config *)((cgrpy_object *)runtime->config)->data)->ring_depth, depth = given ? given : 4;
  if (runtime->last.seq < seq + (uint64_t)depth)
    return true;
  PyErr_Format(PyExc_ValueError, "%s of step %llu have been overwritten: %llu was launched since, and ring_depth is %d", name,
               (unsigned long long)seq, (unsigned long long)runtime->last.seq, (int)depth);
  return false;
}

/* Memory that cgr points to: an array of the host's if its length is known, else an address. */
static PyObject *get_memory(cgrpy_object *self, const cgrpy_field *field, const void *pointer) {
  if (!field->host || field->length == NULL || self->runtime == NULL)
    return cgrpy_address(pointer);
  if (((cgrpy_handle *)self->runtime)->pointer == NULL) {
    PyErr_SetString(PyExc_ValueError, "the runtime is closed");
    return NULL;
  }
  if (!has_not_expired(self, field->name))
    return NULL;
  const int64_t shape[1] = { field->length(self->data) };
  const char format = field->type == CGRPY_REAL ? 'f'
                      : field->bytes == 8       ? (field->type == CGRPY_SIGNED ? 'q' : 'Q')
                                                : (field->type == CGRPY_SIGNED ? 'i' : 'I');
  return cgrpy_view((cgrpy_handle *)self->runtime, pointer, format, (int)field->bytes, shape, 1);
}

static PyObject *get_structs(const cgrpy_field *field, PyObject *keep) {
  if (keep == NULL)
    Py_RETURN_NONE;
  return points_to_one(field) ? Py_NewRef(keep) : cgrpy_list(keep);
}

static PyObject *get_pointer(cgrpy_object *self, const cgrpy_field *field) {
  if (self->lent == CGRPY_TAKEN_BACK)
    return PyErr_Format(PyExc_ValueError, "%s was good during its call alone, which has ended", field->name);
  PyObject *keep = field->keep >= 0 ? self->keeps[field->keep] : NULL;
  const void *pointer = *(const void **)(self->data + field->offset);
  if (field->kind == CGRPY_STRUCTS)
    return get_structs(field, keep);
  if (field->kind == CGRPY_OBJECT)
    return Py_NewRef(keep != NULL ? keep : Py_None);
  if (field->kind == CGRPY_ARRAYS)
    return Py_NewRef(keep != NULL ? PyTuple_GetItem(keep, 2) : Py_None);
  if (keep != NULL)
    return Py_NewRef(field->kind == CGRPY_DATA ? cgrpy_held(keep)->kept : keep);
  if (pointer == NULL)
    Py_RETURN_NONE;
  if (field->kind == CGRPY_TEXT)
    return PyUnicode_FromString(pointer);
  return field->kind == CGRPY_DATA ? get_memory(self, field, pointer) : cgrpy_address(pointer);
}

PyObject *cgrpy_get(PyObject *object, void *closure) {
  cgrpy_object *self = (cgrpy_object *)object;
  const cgrpy_field *field = closure;
  char *from = self->data + field->offset;
  switch (field->kind) {
  case CGRPY_INT:
    return cgrpy_member(field->enumeration, read_signed(from, field->bytes));
  case CGRPY_UINT:
    return field->enumeration >= 0 ? cgrpy_member(field->enumeration, (long long)read_unsigned(from, field->bytes))
                                   : PyLong_FromUnsignedLongLong(read_unsigned(from, field->bytes));
  case CGRPY_FLOAT:
    return PyFloat_FromDouble(field->bytes == 4 ? (double)*(float *)from : *(double *)from);
  case CGRPY_INTS:
  case CGRPY_UINTS:
    return get_numbers(field, from, 0);
  case CGRPY_CHARS:
    return PyUnicode_DecodeUTF8(from, (Py_ssize_t)strnlen(from, field->bytes), "replace");
  case CGRPY_STRUCT:
    return cgrpy_part(self, field->type, from, self->keeps + (field->keep >= 0 ? field->keep : 0));
  case CGRPY_VALIDATE:
    return PyBool_FromLong(*(void **)from != NULL);
  default:
    return get_pointer(self, field);
  }
}

/* "cgr.Key(kind=<GraphKind.FULL: 2>, num_tokens=8)": the fields that are not zero. */
PyObject *cgrpy_repr(PyObject *self) {
  const cgrpy_struct *info = ((cgrpy_object *)self)->info;
  PyObject *parts = PyList_New(0);
  for (int i = 0; parts != NULL && i < info->num_fields; i++) {
    PyObject *value = cgrpy_get(self, (void *)&info->fields[i]);
    const int shown = value == NULL ? -1 : PyObject_IsTrue(value);
    PyObject *text = shown > 0 ? PyUnicode_FromFormat("%s=%R", info->fields[i].name, value) : NULL;
    if (shown < 0 || (shown > 0 && (text == NULL || PyList_Append(parts, text) < 0)))
      PyErr_Clear(); /* an array of several numbers has no truth */
    Py_XDECREF(text);
    Py_XDECREF(value);
  }
  PyObject *comma = parts ? PyUnicode_FromString(", ") : NULL;
  PyObject *joined = comma ? PyUnicode_Join(comma, parts) : NULL;
  PyObject *repr = joined ? PyUnicode_FromFormat("%s(%U)", info->name, joined) : NULL;
  Py_XDECREF(comma);
  Py_XDECREF(parts);
  Py_XDECREF(joined);
  return repr;
}
