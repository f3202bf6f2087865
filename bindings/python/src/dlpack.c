/* A cgr.Array as DLPack's tensor: in a capsule, and through the functions in C that others find at its type. */
#include "dlpack.h"

#include <stdlib.h>

#include "array.h"

static void end_tensor(void *array) {
  if (!cgrpy_may_call())
    return;
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF((PyObject *)array);
  PyGILState_Release(state);
}

static void end_managed(dl_managed *managed) {
  end_tensor(managed->context);
  free(managed);
}

static void end_versioned(dl_versioned *managed) {
  end_tensor(managed->context);
  free(managed);
}

static bool fill_tensor(cgrpy_array *array, dl_tensor *tensor) {
  if (array->lent) {
    PyErr_SetString(PyExc_BufferError, "the array is good during a call alone");
    return false;
  }
  *tensor = (dl_tensor){ array->pointer,
                         array->on_host ? DL_CPU : DL_CUDA,
                         array->on_host ? 0 : array->device_id,
                         array->dims,
                         array->code,
                         (uint8_t)(array->bytes * 8),
                         1,
                         array->shape,
                         array->strides,
                         0 };
  return true;
}

/* Zeros of `size` bytes with the array's tensor at `offset`; NULL with an exception. */
static void *make_around_tensor(cgrpy_array *array, size_t size, size_t offset) {
  char *made = calloc(1, size);
  if (made == NULL) {
    PyErr_NoMemory();
  } else if (!fill_tensor(array, (dl_tensor *)(void *)(made + offset))) {
    free(made);
    made = NULL;
  }
  return made;
}

static dl_versioned *make_versioned(cgrpy_array *array) {
  dl_versioned *managed = make_around_tensor(array, sizeof *managed, offsetof(dl_versioned, tensor));
  if (managed != NULL)
    managed->major = DL_MAJOR, managed->context = Py_NewRef((PyObject *)array), managed->deleter = end_versioned;
  return managed;
}

static dl_managed *make_managed(cgrpy_array *array) {
  dl_managed *managed = make_around_tensor(array, sizeof *managed, offsetof(dl_managed, tensor));
  if (managed != NULL)
    managed->context = Py_NewRef((PyObject *)array), managed->deleter = end_managed;
  return managed;
}

/* ---------------------------------------------------------------------------------------------------------------- capsules */

/* Of a capsule that was not used: a consumer renames it. */
static void end_capsule(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor"))
    end_managed(PyCapsule_GetPointer(capsule, "dltensor"));
  else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
    end_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

PyObject *cgrpy_array_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "stream", "max_version", "dl_device", "copy", NULL };
  PyObject *a[4];
  if (!cgrpy_arguments("__dlpack__", names, 0, args, nargs, keywords, a))
    return NULL;
  if (a[3] != NULL && a[3] != Py_None && PyObject_IsTrue(a[3]))
    return PyErr_Format(PyExc_BufferError, "the array is not copied");
  const bool versioned =
      a[1] != NULL && PyTuple_Check(a[1]) && PyTuple_Size(a[1]) == 2 && PyLong_AsLong(PyTuple_GetItem(a[1], 0)) >= 1;
  if (PyErr_Occurred())
    return NULL;
  cgrpy_array *array = (cgrpy_array *)self;
  void *managed = versioned ? (void *)make_versioned(array) : (void *)make_managed(array);
  PyObject *capsule = managed ? PyCapsule_New(managed, versioned ? "dltensor_versioned" : "dltensor", end_capsule) : NULL;
  if (capsule == NULL && managed != NULL) {
    Py_DECREF(self);
    free(managed);
  }
  return capsule;
}

PyObject *cgrpy_array_dlpack_device(PyObject *self, PyObject *unused) {
  (void)unused;
  const cgrpy_array *array = (cgrpy_array *)self;
  return Py_BuildValue("(ii)", array->on_host ? DL_CPU : DL_CUDA, array->on_host ? 0 : array->device_id);
}

/* ---------------------------------------------------------------------------------------------------------- functions in C */

static int refuse_allocation(dl_tensor *like, dl_versioned **out, void *context,
                             void (*fail)(void *, const char *, const char *)) {
  (void)like;
  *out = NULL;
  fail(context, "RuntimeError", "cgr allocates no tensors for kernels: give the kernel the memory of its result");
  return -1;
}

static int give_array(void *object, dl_versioned **out) {
  *out = make_versioned(object);
  return *out != NULL ? 0 : -1;
}

static int view_array(void *object, dl_tensor *out) { return fill_tensor(object, out) ? 0 : -1; }

/* What asks then keeps the tensor as its own library has it. */
static int refuse_tensor(dl_versioned *tensor, void **out) {
  (void)tensor;
  *out = NULL;
  PyErr_SetString(PyExc_BufferError, "a cgr.Array is of cgr's memory, and no other");
  return -1;
}

/* So a kernel that is called inside `record` is a part of the step. */
static int tell_stream(int32_t device_type, int32_t device_id, void **out) {
  *out = device_type == DL_CUDA ? (void *)cgrpy_recorded_stream(device_id) : NULL;
  return 0;
}

int cgrpy_add_exchange(void) {
  static dl_exchange exchange = {
    DL_MAJOR, DL_MINOR, NULL, refuse_allocation, give_array, refuse_tensor, view_array, tell_stream,
  };
  PyObject *capsule = PyCapsule_New(&exchange, "dlpack_exchange_api", NULL);
  const int set =
      capsule != NULL ? PyObject_SetAttrString((PyObject *)cgrpy_array_type, "__dlpack_c_exchange_api__", capsule) : -1;
  Py_XDECREF(capsule);
  return set;
}
