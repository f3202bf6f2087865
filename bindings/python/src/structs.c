/* The type of each struct of the headers, made from the generated tables: keywords, copies, lists, comparison, checks. */
#include <string.h>

#include "fields.h"

PyObject *cgrpy_types[128];

static cgrpy_object *allocate_object(int type, PyObject *owner, PyObject *runtime) {
  PyTypeObject *python_type = (PyTypeObject *)cgrpy_types[type];
  cgrpy_object *object = (cgrpy_object *)PyType_GenericAlloc(python_type, 0);
  if (object == NULL)
    return NULL;
  object->info = &cgrpy_structs[type];
  object->owner = Py_XNewRef(owner);
  object->runtime = Py_XNewRef(runtime);
  object->count = 1;
  return object;
}

static int type_index(const cgrpy_struct *info) { return (int)(info - cgrpy_structs); }

/* Zeros, with room for the keeps after the fields. */
static bool allocate_fields(cgrpy_object *object, Py_ssize_t count) {
  const cgrpy_struct *info = object->info;
  const size_t fields = ((size_t)info->size * (size_t)count + 7) / 8 * 8;
  object->data = PyMem_Calloc(1, fields + (size_t)count * (size_t)info->num_keeps * sizeof(PyObject *) + 8);
  if (object->data == NULL) {
    PyErr_NoMemory();
    return false;
  }
  object->keeps = (PyObject **)(object->data + fields);
  object->count = count;
  return true;
}

int cgrpy_init(int type, void *data) {
  const cgrpy_struct *info = &cgrpy_structs[type];
  memset(data, 0, info->size);
  return info->init < 0 ? CGR_OK : (int)cgr_init((cgr_struct)info->init, CGR_HEADER_VERSION, data, info->size);
}

PyObject *cgrpy_new_array(int type, Py_ssize_t count, PyObject *runtime) {
  cgrpy_object *object = allocate_object(type, NULL, runtime);
  if (object == NULL)
    return NULL;
  if (!allocate_fields(object, count)) {
    Py_DECREF(object);
    return NULL;
  }
  for (Py_ssize_t i = 0; i < count; i++)
    cgrpy_init(type, object->data + i * object->info->size);
  return (PyObject *)object;
}

PyObject *cgrpy_new(int type, PyObject *runtime) { return cgrpy_new_array(type, 1, runtime); }

PyObject *cgrpy_part(cgrpy_object *whole, int type, char *data, PyObject **keeps) {
  PyObject *owner = whole->owner != NULL ? whole->owner : (PyObject *)whole;
  cgrpy_object *part = allocate_object(type, owner, whole->runtime);
  if (part != NULL)
    part->data = data, part->keeps = keeps;
  return (PyObject *)part;
}

PyObject *cgrpy_list(PyObject *array) {
  cgrpy_object *whole = (cgrpy_object *)array;
  PyObject *list = PyList_New(whole->count);
  for (Py_ssize_t i = 0; list != NULL && i < whole->count; i++) {
    PyObject *part = cgrpy_part(whole, type_index(whole->info), whole->data + i * whole->info->size,
                                whole->keeps + i * whole->info->num_keeps);
    if (part == NULL || PyList_SetItem(list, i, part) < 0)
      Py_CLEAR(list);
  }
  return list;
}

static void copy_fields(cgrpy_object *to, Py_ssize_t at, const cgrpy_object *from) {
  const cgrpy_struct *info = from->info;
  memcpy(to->data + at * info->size, from->data, info->size);
  for (int k = 0; k < info->num_keeps; k++)
    to->keeps[at * info->num_keeps + k] = Py_XNewRef(from->keeps[k]);
}

PyObject *cgrpy_copy(PyObject *object) {
  cgrpy_object *from = (cgrpy_object *)object;
  cgrpy_object *to = allocate_object(type_index(from->info), NULL, from->runtime);
  if (to == NULL)
    return NULL;
  if (!allocate_fields(to, 1)) {
    Py_DECREF(to);
    return NULL;
  }
  copy_fields(to, 0, from);
  to->lent = from->lent;
  return (PyObject *)to;
}

static PyObject *copy_array(const cgrpy_object *from) {
  cgrpy_object *to = (cgrpy_object *)cgrpy_new_array(type_index(from->info), from->count, NULL);
  if (to == NULL)
    return NULL;
  memcpy(to->data, from->data, (size_t)from->count * from->info->size);
  for (Py_ssize_t k = 0; k < from->count * from->info->num_keeps; k++)
    to->keeps[k] = Py_XNewRef(from->keeps[k]);
  return (PyObject *)to;
}

PyObject *cgrpy_copy_whole(PyObject *object) {
  cgrpy_object *copy = (cgrpy_object *)cgrpy_copy(object);
  for (int i = 0; copy != NULL && i < copy->info->num_fields; i++) {
    const cgrpy_field *field = &copy->info->fields[i];
    if (field->kind != CGRPY_STRUCTS || copy->keeps[field->keep] == NULL)
      continue;
    PyObject *array = copy_array((cgrpy_object *)copy->keeps[field->keep]);
    if (array == NULL) {
      Py_CLEAR(copy);
      break;
    }
    *(void **)(copy->data + field->offset) = ((cgrpy_object *)array)->data;
    cgrpy_replace(&copy->keeps[field->keep], array);
  }
  return (PyObject *)copy;
}

PyObject *cgrpy_sequence(PyObject *object, const char *name, const char *items) {
  PyObject *list = PySequence_List(object);
  if (list == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s is of %R, expected a sequence of %s", name, (PyObject *)Py_TYPE(object), items);
  }
  return list;
}

PyObject *cgrpy_array_of(PyObject *sequence, int type, const char *name) {
  PyObject *list = cgrpy_sequence(sequence, name, cgrpy_structs[type].name);
  if (list == NULL)
    return NULL;
  const Py_ssize_t count = PyList_Size(list);
  cgrpy_object *array = NULL;
  for (Py_ssize_t i = 0; i < count; i++) { /* looks before it copies: nothing of Python runs while it does */
    cgrpy_object *item;
    if (!cgrpy_is(PyList_GetItem(list, i), type, false, name, &item))
      goto end;
  }
  array = (cgrpy_object *)cgrpy_new_array(type, count, NULL);
  for (Py_ssize_t i = 0; array != NULL && i < count; i++)
    copy_fields(array, i, (cgrpy_object *)PyList_GetItem(list, i));
end:
  Py_DECREF(list);
  return (PyObject *)array;
}

bool cgrpy_is(PyObject *object, int type, bool optional, const char *name, cgrpy_object **out) {
  *out = NULL;
  if (optional && (object == NULL || object == Py_None))
    return true;
  if (!PyObject_TypeCheck(object, (PyTypeObject *)cgrpy_types[type])) {
    PyErr_Format(PyExc_TypeError, "%s is of %R, expected %s", name, (PyObject *)Py_TYPE(object), cgrpy_structs[type].name);
    return false;
  }
  *out = (cgrpy_object *)object;
  return true;
}

/* --------------------------------------------------------------------------------------------------------------- checks */

static bool check_held(const cgrpy_field *field, const char *data, PyObject *keep, bool host) {
  const cgrpy_data *held = cgrpy_held(keep);
  const int bytes = field->bytes ? (int)field->bytes : 1;
  if (held->kept != NULL && PyObject_TypeCheck(held->kept, cgrpy_handle_types[CGRPY_HANDLE_MEMORY]) &&
      cgrpy_open(held->kept, CGRPY_HANDLE_MEMORY, field->name) == NULL)
    return false;
  if ((host || field->host) && held->on_device && !field->address)
    return cgrpy_holds_on_host(held, 0, bytes, field->name);
  if (field->length == NULL)
    return true;
  return field->count ? cgrpy_holds(held, field->length(data), bytes, field->name)
                      : cgrpy_holds_all(held, field->length(data), bytes, field->name);
}

static bool check_structs(const cgrpy_field *field, const char *data, cgrpy_object *array) {
  const int64_t wanted = field->count ? *(const int32_t *)(data + field->count - 1) : field->length ? field->length(data) : 1;
  if (wanted > array->count) {
    PyErr_Format(PyExc_ValueError, "%s has %zd items, expected at least %lld", field->name, array->count, (long long)wanted);
    return false;
  }
  return true;
}

static bool check_fields(const cgrpy_struct *info, char *data, PyObject **keeps, bool host);

static bool check_array(cgrpy_object *array, bool host) {
  for (Py_ssize_t i = 0; i < array->count; i++)
    if (!check_fields(array->info, array->data + i * array->info->size, array->keeps + i * array->info->num_keeps, host))
      return false;
  return true;
}

static bool check_device(const cgrpy_field *field, char *data, PyObject *keep) {
  cgrpy_handle *device = cgrpy_open(keep, CGRPY_HANDLE_DEVICE, field->name);
  if (device != NULL)
    *(void **)(data + field->offset) = device->pointer;
  return device != NULL;
}

static bool check_field(const cgrpy_field *field, char *data, PyObject **keeps, bool host) {
  if (field->kind == CGRPY_STRUCT)
    return check_fields(&cgrpy_structs[field->type], data + field->offset, keeps + field->keep, host);
  PyObject *keep = keeps[field->keep];
  if (keep == NULL)
    return true;
  switch (field->kind) {
  case CGRPY_DATA:
    return check_held(field, data, keep, host);
  case CGRPY_STRUCTS:
    return check_structs(field, data, (cgrpy_object *)keep) && check_array((cgrpy_object *)keep, host);
  case CGRPY_DEVICE:
    return check_device(field, data, keep);
  default:
    return true;
  }
}

static bool check_fields(const cgrpy_struct *info, char *data, PyObject **keeps, bool host) {
  for (int i = 0; i < info->num_fields; i++)
    if (info->fields[i].keep >= 0 && !check_field(&info->fields[i], data, keeps, host))
      return false;
  return true;
}

static bool check_object(cgrpy_object *object, bool host) {
  return object == NULL || object->info->num_keeps == 0 || check_fields(object->info, object->data, object->keeps, host);
}

bool cgrpy_check(cgrpy_object *object) { return check_object(object, false); }
bool cgrpy_check_host(cgrpy_object *object) { return check_object(object, true); }
bool cgrpy_check_on(bool host, cgrpy_object *object) { return check_object(object, host); }

/* ---------------------------------------------------------------------------------------------------------------- types */

static int index_of_type(PyTypeObject *type) {
  for (int i = 0; i < cgrpy_num_structs; i++)
    if ((PyObject *)type == cgrpy_types[i] || PyType_IsSubtype(type, (PyTypeObject *)cgrpy_types[i]))
      return i;
  return -1;
}

static PyObject *struct_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  (void)args, (void)keywords;
  cgrpy_object *object = (cgrpy_object *)PyType_GenericAlloc(type, 0);
  if (object == NULL)
    return NULL;
  const int index = index_of_type(type);
  object->info = &cgrpy_structs[index];
  if (!allocate_fields(object, 1)) {
    Py_DECREF(object);
    return NULL;
  }
  cgrpy_init(index, object->data);
  return (PyObject *)object;
}

/* Numbers come last, so that a count that is given wins over one that follows from an array. */
static bool set_keywords(PyObject *self, PyObject *keywords, bool numbers) {
  const cgrpy_struct *info = ((cgrpy_object *)self)->info;
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(keywords, &at, &key, &value)) {
    const cgrpy_field *field = cgrpy_find_field(info, key);
    if (field == NULL) {
      PyErr_Format(PyExc_TypeError, "%s has no field %R", info->name, key);
      return false;
    }
    if ((field->kind <= CGRPY_UINT) == numbers && cgrpy_set(self, value, (void *)field) < 0)
      return false;
  }
  return true;
}

static int struct_init(PyObject *self, PyObject *args, PyObject *keywords) {
  if (PyTuple_Size(args) != 0) {
    PyErr_Format(PyExc_TypeError, "%s takes keywords alone", ((cgrpy_object *)self)->info->name);
    return -1;
  }
  return keywords == NULL || (set_keywords(self, keywords, false) && set_keywords(self, keywords, true)) ? 0 : -1;
}

static int struct_traverse(PyObject *self, visitproc visit, void *arg) {
  cgrpy_object *object = (cgrpy_object *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(object->owner);
  Py_VISIT(object->runtime);
  if (object->owner == NULL && object->data != NULL)
    for (Py_ssize_t k = 0; k < object->count * object->info->num_keeps; k++)
      Py_VISIT(object->keeps[k]);
  return 0;
}

/* Pointers go first: a struct that a finaliser still sees must not point to what is gone. */
static int struct_clear(PyObject *self) {
  cgrpy_object *object = (cgrpy_object *)self;
  const Py_ssize_t num_keeps = object->owner == NULL && object->data != NULL ? object->count * object->info->num_keeps : 0;
  if (num_keeps > 0)
    for (Py_ssize_t i = 0; i < object->count; i++)
      cgrpy_init(type_index(object->info), object->data + i * object->info->size);
  for (Py_ssize_t k = 0; k < num_keeps; k++)
    Py_CLEAR(object->keeps[k]);
  Py_CLEAR(object->runtime);
  return 0;
}

static void struct_dealloc(PyObject *self) {
  cgrpy_object *object = (cgrpy_object *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  struct_clear(self);
  if (object->owner == NULL)
    PyMem_Free(object->data);
  Py_CLEAR(object->owner);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyObject *struct_compare(PyObject *self, PyObject *other, int operation) {
  cgrpy_object *a = (cgrpy_object *)self, *b = (cgrpy_object *)other;
  if ((operation != Py_EQ && operation != Py_NE) || Py_TYPE(self) != Py_TYPE(other) || a->info->num_keeps != 0)
    Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((memcmp(a->data, b->data, a->info->size) == 0) == (operation == Py_EQ));
}

static PyObject *struct_copy(PyObject *self, PyObject *unused) {
  (void)unused;
  return cgrpy_copy(self);
}

static PyMethodDef copy_method[] = {
  { "copy", struct_copy, METH_NOARGS, "copy($self, /)\n--\n\nAn independent struct with the same values, over the same arrays." },
  { NULL, NULL, 0, NULL },
};

/* Methods of all structs, and of this one; they live as long as the type. */
static PyMethodDef *list_methods(const PyMethodDef *own) {
  int count = 0;
  while (own != NULL && own[count].ml_name != NULL)
    count++;
  PyMethodDef *methods = PyMem_Calloc((size_t)count + 2, sizeof *methods);
  if (methods == NULL)
    return NULL;
  if (count > 0)
    memcpy(methods, own, (size_t)count * sizeof *methods);
  methods[count] = copy_method[0];
  return methods;
}

static PyGetSetDef *list_fields(const cgrpy_struct *info) {
  PyGetSetDef *fields = PyMem_Calloc((size_t)info->num_fields + 1, sizeof *fields);
  cgrpy_names[type_index(info)] = PyMem_Calloc((size_t)info->num_fields + 1, sizeof(PyObject *));
  for (int i = 0; fields != NULL && i < info->num_fields; i++)
    fields[i] = (PyGetSetDef){ info->fields[i].name, cgrpy_get, cgrpy_set, info->fields[i].doc, (void *)&info->fields[i] };
  for (int i = 0; cgrpy_names[type_index(info)] != NULL && i < info->num_fields; i++)
    cgrpy_names[type_index(info)][i] = PyUnicode_InternFromString(info->fields[i].name);
  return fields;
}

static PyObject *make_type(PyObject *module, const cgrpy_struct *info) {
  PyMethodDef *methods = list_methods(info->methods);
  PyGetSetDef *fields = list_fields(info);
  if (methods == NULL || fields == NULL)
    return PyErr_NoMemory();
  PyType_Slot slots[] = {
    { Py_tp_doc, (void *)info->doc },
    { Py_tp_new, struct_new },
    { Py_tp_init, struct_init },
    { Py_tp_dealloc, struct_dealloc },
    { Py_tp_traverse, struct_traverse },
    { Py_tp_clear, struct_clear },
    { Py_tp_richcompare, struct_compare },
    { Py_tp_repr, cgrpy_repr },
    { Py_tp_methods, methods },
    { Py_tp_getset, fields },
    { Py_tp_hash, info->num_keeps ? NULL : PyObject_HashNotImplemented },
    { 0, NULL },
  };
  if (info->num_keeps > 0) /* a slot without a value is an error */
    slots[10] = (PyType_Slot){ 0, NULL };
  PyType_Spec spec = { info->name, (int)sizeof(cgrpy_object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots };
  return PyType_FromModuleAndSpec(module, &spec, NULL);
}

int cgrpy_add_structs(PyObject *module) {
  for (int i = 0; i < cgrpy_num_structs; i++) {
    cgrpy_types[i] = make_type(module, &cgrpy_structs[i]);
    if (cgrpy_types[i] == NULL || PyModule_AddObjectRef(module, strchr(cgrpy_structs[i].name, '.') + 1, cgrpy_types[i]) < 0)
      return -1;
  }
  return 0;
}
