/* Memory of other libraries' arrays and tensors: by DLPack's functions in C, by __cuda_array_interface__, by data_ptr() as
 * PyTorch's tensors have it, or by __dlpack__. None of them orders streams. */
#include "tensors.h"

#include <stdlib.h>
#include <string.h>

#include "dlpack.h"

/* ---------------------------------------------------------------------------------------- interfaces of arrays and tensors */

static Py_ssize_t product_of(PyObject *shape) {
  Py_ssize_t product = 1;
  const Py_ssize_t dims = PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
  for (Py_ssize_t i = 0; i < dims; i++)
    product *= PyLong_AsSsize_t(PyTuple_GetItem(shape, i));
  return dims < 0 || PyErr_Occurred() ? -1 : product;
}

/* {"shape": (..), "typestr": "<i4", "data": (address, read-only), "strides": None} */
static bool data_of_interface(PyObject *interface, int numbers, int bytes, bool strided, const char *name, cgrpy_data *out) {
  PyObject *shape = PyDict_Check(interface) ? PyDict_GetItemString(interface, "shape") : NULL;
  PyObject *typestr = shape ? PyDict_GetItemString(interface, "typestr") : NULL;
  PyObject *data = typestr ? PyDict_GetItemString(interface, "data") : NULL;
  PyObject *strides = data ? PyDict_GetItemString(interface, "strides") : NULL;
  const char *type = data && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8AndSize(typestr, NULL) : NULL;
  const bool dense = strides == NULL || strides == Py_None;
  if (type == NULL || strlen(type) < 3 || !PyTuple_Check(data) || PyTuple_Size(data) < 1 || (!dense && !strided)) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s has no __cuda_array_interface__ of contiguous elements", name);
    return false;
  }
  const int size = atoi(type + 2);
  if (numbers != CGRPY_ANY && (size != bytes || cgrpy_kind_of_letter(type[1] == 'u'   ? 'B'
                                                                     : type[1] == 'f' ? 'f'
                                                                                      : 'b') != numbers))
    return cgrpy_refuse_numbers(name, type, size, numbers, bytes);
  const Py_ssize_t count = product_of(shape);
  out->bytes = count < 0 || !dense ? -1 : count * size, out->on_device = true, out->item = size;
  return count >= 0 && cgrpy_read_address(PyTuple_GetItem(data, 0), name, &out->pointer);
}

/* A tensor of PyTorch that has no interface, such as one of bfloat16: what data_ptr(), nbytes and itemsize say. */
static bool data_of_tensor(PyObject *object, int numbers, int bytes, bool strided, const char *name, cgrpy_data *out) {
  PyObject *address = PyObject_CallMethod(object, "data_ptr", NULL);
  PyObject *dense = address ? PyObject_CallMethod(object, "is_contiguous", NULL) : NULL;
  PyObject *nbytes = dense ? PyObject_GetAttrString(object, "nbytes") : NULL;
  PyObject *itemsize = nbytes ? PyObject_GetAttrString(object, "itemsize") : NULL;
  bool ok = itemsize != NULL && cgrpy_read_address(address, name, &out->pointer);
  if (ok) {
    out->bytes = PyLong_AsSsize_t(nbytes);
    const long size = PyLong_AsLong(itemsize);
    out->item = size;
    PyObject *is_cuda = PyObject_GetAttrString(object, "is_cuda");
    out->on_device = is_cuda != NULL && PyObject_IsTrue(is_cuda) == 1;
    Py_XDECREF(is_cuda);
    ok = !PyErr_Occurred();
    if (ok && !PyObject_IsTrue(dense)) {
      out->bytes = -1;
      ok = strided;
      if (!ok)
        PyErr_Format(PyExc_ValueError, "%s has strides, expected a tensor that is contiguous", name);
    } else if (ok && numbers != CGRPY_ANY && size != bytes) {
      ok = cgrpy_refuse_numbers(name, "tensor", size, numbers, bytes);
    }
  }
  Py_XDECREF(address);
  Py_XDECREF(dense);
  Py_XDECREF(nbytes);
  Py_XDECREF(itemsize);
  return ok;
}

/* ---------------------------------------------------------------------------------------------------------------- DLPack */

/* Whether the elements adjoin; how many there are. */
static bool is_dense(const dl_tensor *tensor, int64_t *count) {
  bool dense = true;
  *count = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
    dense = dense && (tensor->strides == NULL || tensor->shape[i] == 1 || tensor->strides[i] == *count);
    *count *= tensor->shape[i];
  }
  return dense || *count == 0;
}

static bool refuse_code(const dl_tensor *tensor, Py_ssize_t size, int numbers, int bytes, const char *name) {
  static const char *const codes[] = { "int", "uint", "float", "handle", "bfloat", "complex", "bool" };
  const char *code = tensor->code < sizeof codes / sizeof *codes ? codes[tensor->code] : "float of 8 bits or fewer";
  return cgrpy_refuse_numbers(name, code, size, numbers, bytes);
}

/* In elements: how many there are, or with strides how far they reach. */
static bool find_reach(const dl_tensor *tensor, bool strided, const char *name, int64_t *out) {
  if (is_dense(tensor, out))
    return true;
  *out = 1;
  for (int32_t i = 0; i < tensor->ndim && strided; i++) {
    if (tensor->strides[i] < 0 && tensor->shape[i] > 1) {
      PyErr_Format(PyExc_ValueError, "%s has a negative stride, expected its first element at the lowest address", name);
      return false;
    }
    *out += (tensor->shape[i] - 1) * tensor->strides[i];
  }
  if (!strided)
    PyErr_Format(PyExc_ValueError, "%s has strides, expected a tensor that is contiguous", name);
  return strided;
}

static bool data_of_dl_tensor(const dl_tensor *tensor, int numbers, int bytes, bool strided, const char *name, cgrpy_data *out) {
  static const int kinds[] = { [DL_INT] = CGRPY_SIGNED, [DL_UINT] = CGRPY_UNSIGNED, [DL_FLOAT] = CGRPY_REAL };
  const bool host = tensor->device_type == DL_CPU || tensor->device_type == DL_CUDA_HOST;
  const int bits = tensor->bits * tensor->lanes, kind = tensor->code <= DL_FLOAT ? kinds[tensor->code] : CGRPY_ANY;
  int64_t reach;
  if (!host && tensor->device_type != DL_CUDA && tensor->device_type != DL_CUDA_MANAGED) {
    PyErr_Format(PyExc_TypeError, "%s is on a device of DLPack's type %d, expected the host or CUDA", name,
                 (int)tensor->device_type);
    return false;
  }
  if (bits % 8 != 0 || (numbers != CGRPY_ANY && (kind != numbers || tensor->lanes != 1 || bits / 8 != bytes)))
    return refuse_code(tensor, bits / 8, numbers, bytes, name);
  if (!find_reach(tensor, strided, name, &reach))
    return false;
  out->pointer = (char *)tensor->data + tensor->byte_offset, out->bytes = (Py_ssize_t)(reach * (bits / 8)), out->item = bits / 8,
  out->on_device = !host;
  if (numbers == CGRPY_ANY || (uintptr_t)out->pointer % (uintptr_t)bytes == 0)
    return true;
  PyErr_Format(PyExc_ValueError, "%s is not aligned to its elements of %d bytes", name, bytes);
  return false;
}

static bool data_of_versioned(const dl_versioned *managed, int numbers, int bytes, bool writable, bool strided, const char *name,
                              cgrpy_data *out) {
  if (managed->major == DL_MAJOR && (!writable || !(managed->flags & DL_READ_ONLY)))
    return data_of_dl_tensor(&managed->tensor, numbers, bytes, strided, name, out);
  if (managed->major == DL_MAJOR)
    PyErr_Format(PyExc_ValueError, "%s is read-only", name);
  else
    PyErr_Format(PyExc_ValueError, "%s is of DLPack %u.%u, expected %d", name, managed->major, managed->minor, DL_MAJOR);
  return false;
}

/* The functions of the object's type; NULL: it has none of this version. */
static const dl_exchange *find_exchange(PyObject *object) {
  PyObject *capsule = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__dlpack_c_exchange_api__");
  const dl_exchange *exchange = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
  Py_XDECREF(capsule); /* the functions live as long as the process */
  PyErr_Clear();
  while (exchange != NULL && exchange->major > DL_MAJOR)
    exchange = exchange->older;
  return exchange != NULL && exchange->major == DL_MAJOR ? exchange : NULL;
}

/* 1: *out is its memory; 0: its library did not give it, such as PyTorch a tensor with gradients; -1: an exception. */
static int data_by_exchange(PyObject *object, int numbers, int bytes, bool writable, bool strided, const char *name,
                            cgrpy_data *out) {
  const dl_exchange *exchange = find_exchange(object);
  dl_tensor tensor;
  dl_versioned *managed = NULL;
  if (exchange == NULL)
    return 0;
  if (!writable && exchange->view != NULL) { /* only the other call says whether it is read-only */
    if (exchange->view(object, &tensor) == 0)
      return data_of_dl_tensor(&tensor, numbers, bytes, strided, name, out) ? 1 : -1;
  } else if (exchange->give(object, &managed) == 0) {
    const bool ok = data_of_versioned(managed, numbers, bytes, writable, strided, name, out);
    if (managed->deleter != NULL)
      managed->deleter(managed); /* the object keeps the memory */
    return ok ? 1 : -1;
  }
  PyErr_Clear();
  return 0;
}

/* A capsule. A stream of -1 tells a library of a GPU not to wait, which a capture would not allow. */
static PyObject *call_dlpack(PyObject *object) {
  PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
  PyObject *function = device ? PyObject_GetAttrString(object, "__dlpack__") : NULL;
  const bool host = device && PyTuple_Check(device) && PyTuple_Size(device) == 2 &&
                    PyLong_AsLong(PyTuple_GetItem(device, 0)) != DL_CUDA && !PyErr_Occurred();
  PyObject *none = PyTuple_New(0), *keywords = host ? PyDict_New() : Py_BuildValue("{s:i}", "stream", -1);
  PyObject *version = Py_BuildValue("(ii)", DL_MAJOR, DL_MINOR), *capsule = NULL;
  if (function != NULL && none != NULL && keywords != NULL && version != NULL &&
      PyDict_SetItemString(keywords, "max_version", version) == 0) {
    capsule = PyObject_Call(function, none, keywords);
    if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) { /* before DLPack 1.0 there was no version */
      PyErr_Clear();
      capsule = PyDict_DelItemString(keywords, "max_version") == 0 ? PyObject_Call(function, none, keywords) : NULL;
    }
  }
  PyObject *const used[] = { device, function, none, keywords, version };
  for (int i = 0; i < 5; i++)
    Py_XDECREF(used[i]);
  return capsule;
}

/* The capsule is kept, not taken: it ends the tensor when it goes. */
static bool data_of_dlpack(PyObject *object, int numbers, int bytes, bool writable, bool strided, const char *name,
                           cgrpy_data *out) {
  PyObject *capsule = call_dlpack(object);
  bool ok = false;
  if (capsule == NULL)
    return false;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const dl_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    ok = data_of_versioned(managed, numbers, bytes, writable, strided, name, out);
  } else {
    const dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    ok = managed != NULL && data_of_dl_tensor(&managed->tensor, numbers, bytes, strided, name, out);
  }
  if (ok)
    out->capsule = capsule;
  else
    Py_DECREF(capsule);
  return ok;
}

/* ---------------------------------------------------------------------------------------------------------------- all of it */

/* 1: there is such an attribute, and it is now *out; 0: there is none; -1: an exception. */
static int find_attribute(PyObject *object, const char *name, PyObject **out) {
  *out = PyObject_GetAttrString(object, name);
  if (*out != NULL)
    return 1;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError))
    return -1;
  PyErr_Clear();
  return 0;
}

/* As find_attribute. PyTorch's raises KeyError for a dtype that the interface has no name for, and RuntimeError for a tensor with
 * gradients: their data_ptr() is as good. */
static int find_interface(PyObject *object, PyObject **out) {
  const int there = find_attribute(object, "__cuda_array_interface__", out);
  if (there >= 0 || (!PyErr_ExceptionMatches(PyExc_KeyError) && !PyErr_ExceptionMatches(PyExc_RuntimeError)))
    return there;
  PyErr_Clear();
  return 0;
}

/* By what the object has, if that is an attribute; 1, 0 and -1 as before. */
static int data_by_attribute(PyObject *object, int numbers, int bytes, bool writable, bool strided, const char *name,
                             cgrpy_data *out) {
  PyObject *found;
  int there = find_interface(object, &found);
  bool ok = there > 0 && data_of_interface(found, numbers, bytes, strided, name, out);
  if (there == 0 &&
      (there = find_attribute(object, "nbytes", &found)) > 0) { /* others' data_ptr() does not say how much there is */
    Py_DECREF(found);
    there = find_attribute(object, "data_ptr", &found);
    ok = there > 0 && data_of_tensor(object, numbers, bytes, strided, name, out);
  }
  if (there == 0) {
    there = find_attribute(object, "__dlpack__", &found);
    ok = there > 0 && data_of_dlpack(object, numbers, bytes, writable, strided, name, out);
  }
  Py_XDECREF(found);
  return there == 0 ? 0 : ok ? 1 : -1;
}

bool cgrpy_data_of_others(PyObject *object, int numbers, int bytes, bool writable, bool strided, const char *name,
                          cgrpy_data *out) {
  int there = data_by_exchange(object, numbers, bytes, writable, strided, name, out);
  if (there == 0)
    there = data_by_attribute(object, numbers, bytes, writable, strided, name, out);
  if (there == 0)
    PyErr_Format(PyExc_TypeError, "%s is of %R, expected an array, cgr.Memory, cgr.Address or None", name,
                 (PyObject *)Py_TYPE(object));
  if (there > 0)
    out->kept = Py_NewRef(object);
  return there > 0;
}
