/* Devices, streams, events, memory, runtimes and recorders as objects. */
#include <string.h>

#include "handles.h"

PyTypeObject *cgrpy_handle_types[CGRPY_NUM_HANDLES];

const char *const cgrpy_kind_names[] = { "device", "stream", "event", "memory", "runtime", "recorder" };

cgrpy_handle *cgrpy_open_any(PyObject *object, cgrpy_handle_kind kind, const char *name) {
  if (object == NULL || !PyObject_TypeCheck(object, cgrpy_handle_types[kind])) {
    PyErr_Format(PyExc_TypeError, "%s is of %R, expected a cgr %s", name, object ? (PyObject *)Py_TYPE(object) : Py_None,
                 cgrpy_kind_names[kind]);
    return NULL;
  }
  cgrpy_handle *handle = (cgrpy_handle *)object;
  if (handle->pointer == NULL || handle->closing) {
    PyErr_Format(PyExc_ValueError,
                 kind == CGRPY_HANDLE_RECORDER ? "the recorder is good during its call alone, which has ended"
                                               : "the %s is closed",
                 cgrpy_kind_names[kind]);
    return NULL;
  }
  return handle;
}

cgrpy_handle *cgrpy_open(PyObject *object, cgrpy_handle_kind kind, const char *name) {
  cgrpy_handle *handle = cgrpy_open_any(object, kind, name);
  if (handle == NULL)
    return NULL;
  const cgrpy_handle *used = kind == CGRPY_HANDLE_RECORDER ? handle->parent : handle;
  if (kind >= CGRPY_HANDLE_RUNTIME && used->users > 0 && used->thread != PyThread_get_thread_ident()) {
    PyErr_SetString(PyExc_RuntimeError, "the runtime is in a call of another thread");
    return NULL;
  }
  return handle;
}

void cgrpy_pin(cgrpy_handle *handle) { handle->pins++; }

cgrpy_handle *cgrpy_handle_new(cgrpy_handle_kind kind, void *pointer, cgrpy_handle *parent) {
  cgrpy_handle *handle = (cgrpy_handle *)PyType_GenericAlloc(cgrpy_handle_types[kind], 0);
  if (handle == NULL)
    return NULL;
  cgrpy_list_handle(handle, kind);
  handle->pointer = pointer;
  if (parent != NULL) {
    handle->parent = (cgrpy_handle *)Py_NewRef((PyObject *)parent);
    handle->on_host = parent->on_host, handle->stream_ordinal = parent->stream_ordinal;
    cgrpy_pin(parent);
  }
  return handle;
}

static PyObject *handle_enter(PyObject *self, PyObject *unused) {
  (void)unused;
  return cgrpy_open_any(self, ((cgrpy_handle *)self)->kind, "self") ? Py_NewRef(self) : NULL;
}

static PyObject *handle_exit(PyObject *self, PyObject *args) {
  (void)args;
  return cgrpy_handle_close(self, NULL);
}

static PyObject *get_closed(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(((cgrpy_handle *)self)->pointer == NULL || ((cgrpy_handle *)self)->closing);
}

/* --------------------------------------------------------------------------------------------------------------- devices */

static bool read_place(cgrpy_handle *handle, cgr_device *device) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  const cgr_status status = cgr_device_get_info(device, &info);
  handle->on_host = info.kind == CGR_DEVICE_KIND_HOST, handle->stream_ordinal = info.ordinal;
  return status == CGR_OK;
}

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  static char *names[] = { "name", "config", NULL };
  const char *name = NULL;
  PyObject *config_object = NULL;
  cgrpy_object *config;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|zO:Device", names, &name, &config_object) ||
      !cgrpy_is(config_object, cgrpy_type_device_config, true, "config", &config))
    return NULL;
  cgrpy_handle *handle = (cgrpy_handle *)PyType_GenericAlloc(type, 0);
  cgr_device_config fields = CGR_DEVICE_CONFIG_INIT;
  if (handle != NULL)
    cgrpy_list_handle(handle, CGRPY_HANDLE_DEVICE);
  if (handle == NULL || !cgrpy_bind_device_config(handle, config, &fields)) {
    Py_XDECREF((PyObject *)handle);
    return NULL;
  }
  cgr_device *device = NULL;
  PyThreadState *state = PyEval_SaveThread();
  const cgr_status status = cgr_device_open(name, &fields, &device);
  PyEval_RestoreThread(state);
  handle->pointer = device;
  if (status == CGR_OK && read_place(handle, device))
    return (PyObject *)handle;
  Py_DECREF((PyObject *)handle);
  return cgrpy_raise(status);
}

static PyObject *device_stream(PyObject *self, PyObject *unused) {
  (void)unused;
  cgrpy_handle *device = cgrpy_open(self, CGRPY_HANDLE_DEVICE, "device");
  cudaStream_t stream = NULL;
  if (device == NULL)
    return NULL;
  const cgr_status status = cgr_stream_create(device->pointer, &stream);
  return status == CGR_OK ? (PyObject *)cgrpy_handle_new(CGRPY_HANDLE_STREAM, stream, device) : cgrpy_raise(status);
}

static PyObject *device_event(PyObject *self, PyObject *unused) {
  (void)unused;
  cgrpy_handle *device = cgrpy_open(self, CGRPY_HANDLE_DEVICE, "device");
  cgr_event *event = NULL;
  if (device == NULL)
    return NULL;
  const cgr_status status = cgr_event_create(device->pointer, &event);
  return status == CGR_OK ? (PyObject *)cgrpy_handle_new(CGRPY_HANDLE_EVENT, event, device) : cgrpy_raise(status);
}

static PyObject *allocate_memory(PyObject *self, PyObject *size, bool pinned) {
  uint64_t bytes;
  if (!cgrpy_u64(size, "bytes", &bytes))
    return NULL;
  cgrpy_handle *device = cgrpy_open(self, CGRPY_HANDLE_DEVICE, "device");
  if (device == NULL)
    return NULL;
  void *pointer = NULL;
  cgrpy_call call;
  cgrpy_release_gil(&call, device, NULL);
  const cgr_status status =
      pinned ? cgr_memory_alloc_pinned(device->pointer, bytes, &pointer) : cgr_memory_alloc(device->pointer, bytes, &pointer);
  cgrpy_take_gil(&call);
  cgrpy_handle *memory = status == CGR_OK ? cgrpy_handle_new(CGRPY_HANDLE_MEMORY, pointer, device) : NULL;
  if (memory != NULL)
    memory->bytes = bytes, memory->pinned_memory = pinned;
  return status == CGR_OK ? (PyObject *)memory : cgrpy_raise(status);
}

static PyObject *device_alloc(PyObject *self, PyObject *size) { return allocate_memory(self, size, false); }
static PyObject *device_alloc_pinned(PyObject *self, PyObject *size) { return allocate_memory(self, size, true); }

/* ---------------------------------------------------------------------------------------------------- streams and events */

static PyObject *stream_synchronize(PyObject *self, PyObject *unused) {
  (void)unused;
  cgrpy_handle *stream = cgrpy_open(self, CGRPY_HANDLE_STREAM, "stream");
  if (stream == NULL)
    return NULL;
  cgrpy_call call;
  cgrpy_release_gil(&call, stream, stream->parent);
  const cgr_status status = cgr_stream_synchronize(stream->parent->pointer, stream->pointer);
  cgrpy_take_gil(&call);
  if (status != CGR_OK)
    return cgrpy_raise(status);
  return cgrpy_take_failure(stream->parent->pointer) ? NULL : Py_NewRef(Py_None);
}

typedef cgr_status (*event_function)(cgr_device *device, cgr_event *event, cudaStream_t stream);

static PyObject *call_event(PyObject *self, PyObject *stream_object, event_function function) {
  cgrpy_stream stream;
  if (!cgrpy_to_stream(stream_object, &stream))
    return NULL;
  cgrpy_handle *event = cgrpy_open(self, CGRPY_HANDLE_EVENT, "event");
  if (event == NULL)
    return NULL;
  const cgr_status status = function(event->parent->pointer, event->pointer, stream.stream);
  return status == CGR_OK ? Py_NewRef(Py_None) : cgrpy_raise(status);
}

static PyObject *event_record(PyObject *self, PyObject *stream) { return call_event(self, stream, cgr_event_record); }
static PyObject *event_wait(PyObject *self, PyObject *stream) { return call_event(self, stream, cgr_event_wait); }

static PyObject *get_address(PyObject *self, void *unused) {
  (void)unused;
  return cgrpy_address(((cgrpy_handle *)self)->pointer);
}

static PyObject *get_bytes(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromSize_t(((cgrpy_handle *)self)->bytes);
}

/* -------------------------------------------------------------------------------------------------------------- runtimes */

static cgr_status create_runtime(cgrpy_handle *handle, const cgr_config *config) {
  cgr_runtime *runtime = NULL;
  cgr_device *device = NULL;
  cgrpy_call call;
  cgrpy_release_gil(&call, handle->parent, NULL);
  cgr_status status = cgr_runtime_create(config, &runtime);
  cgrpy_take_gil(&call);
  handle->pointer = runtime;
  if (status == CGR_OK)
    status = cgr_runtime_device(runtime, &device);
  if (status == CGR_OK)
    read_place(handle, device);
  return status;
}

static cgrpy_handle *allocate_runtime(PyTypeObject *type, PyObject *config) {
  cgrpy_handle *handle = (cgrpy_handle *)PyType_GenericAlloc(type, 0);
  if (handle == NULL)
    return NULL;
  cgrpy_list_handle(handle, CGRPY_HANDLE_RUNTIME);
  handle->config = cgrpy_copy(config);
  PyObject *device = handle->config ? cgrpy_kept((cgrpy_object *)config, "device_handle") : NULL;
  if (device != NULL) {
    handle->parent = (cgrpy_handle *)Py_NewRef(device);
    cgrpy_pin(handle->parent);
  }
  if (handle->config == NULL)
    Py_CLEAR(handle);
  return handle;
}

static PyObject *runtime_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  static char *names[] = { "config", NULL };
  PyObject *config_object;
  cgrpy_object *config;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O:Runtime", names, &config_object) ||
      !cgrpy_is(config_object, cgrpy_type_config, false, "config", &config))
    return NULL;
  cgrpy_handle *handle = cgrpy_check_caches(config) ? allocate_runtime(type, config_object) : NULL;
  if (handle == NULL)
    return NULL;
  cgr_config fields;
  cgr_backend backends[8];
  if (!cgrpy_bind_config(handle, (cgrpy_object *)handle->config, &fields, backends)) {
    Py_DECREF((PyObject *)handle);
    return NULL;
  }
  cgrpy_forget_pending();
  const cgr_status status = create_runtime(handle, &fields);
  if (status == CGR_OK && !cgrpy_take_pending())
    return (PyObject *)handle;
  if (status != CGR_OK)
    cgrpy_raise(status);
  Py_DECREF((PyObject *)handle);
  return NULL;
}

PyObject *cgrpy_device_of(cgrpy_handle *runtime) {
  if (runtime->parent != NULL)
    return Py_NewRef((PyObject *)runtime->parent);
  cgr_device *device = NULL;
  const cgr_status status = cgr_runtime_device(runtime->pointer, &device);
  if (status != CGR_OK)
    return cgrpy_raise(status);
  cgrpy_handle *handle = cgrpy_handle_new(CGRPY_HANDLE_DEVICE, device, runtime);
  if (handle != NULL)
    handle->borrowed = true;
  return (PyObject *)handle;
}

static PyObject *get_device(PyObject *self, void *unused) {
  (void)unused;
  cgrpy_handle *runtime = cgrpy_open_any(self, CGRPY_HANDLE_RUNTIME, "runtime");
  return runtime != NULL ? cgrpy_device_of(runtime) : NULL;
}

static PyObject *get_config(PyObject *self, void *unused) {
  (void)unused;
  const cgrpy_handle_kind kind = ((cgrpy_handle *)self)->kind;
  cgrpy_handle *handle = cgrpy_open_any(self, kind, cgrpy_kind_names[kind]);
  cgrpy_handle *runtime = handle != NULL && kind == CGRPY_HANDLE_RECORDER ? handle->parent : handle;
  return runtime != NULL ? cgrpy_copy(runtime->config) : NULL;
}

/* ----------------------------------------------------------------------------------------------------------------- types */

#define CLOSE_METHODS                                                                                                     \
  { "close", cgrpy_handle_close, METH_NOARGS,                                                                             \
    "close($self, /)\n--\n\nEnds it, at once or when the last thing that needs it has gone. Closing twice is allowed." }, \
      { "__enter__", handle_enter, METH_NOARGS, NULL }, { "__exit__", handle_exit, METH_VARARGS, NULL }, {                \
    NULL, NULL, 0, NULL                                                                                                   \
  }

/* As cuda.core has it: a version, and the address. */
static PyObject *stream_protocol(PyObject *self, PyObject *unused) {
  (void)unused;
  const cgrpy_handle *stream = cgrpy_open_any(self, CGRPY_HANDLE_STREAM, "stream");
  return stream ? Py_BuildValue("(iK)", 0, (unsigned long long)(uintptr_t)stream->pointer) : NULL;
}

static PyMethodDef stream_methods[] = {
  { "__cuda_stream__", stream_protocol, METH_NOARGS, "For libraries that take streams of others." },
  { "synchronize", stream_synchronize, METH_NOARGS, CGRPY_DOC_STREAM_SYNCHRONIZE },
  CLOSE_METHODS,
};
static PyMethodDef event_methods[] = {
  { "record", event_record, METH_O, CGRPY_DOC_EVENT_RECORD },
  { "wait", event_wait, METH_O, CGRPY_DOC_EVENT_WAIT },
  CLOSE_METHODS,
};
static PyMethodDef memory_methods[] = {
  { "array", (PyCFunction)(void (*)(void))cgrpy_memory_array, METH_FASTCALL | METH_KEYWORDS,
    "array($self, /, dtype, shape=None, offset=0)\n--\n\nA cgr.Array of this memory, of one or two dimensions, from a byte on." },
  CLOSE_METHODS,
};
static PyMethodDef close_methods[] = { CLOSE_METHODS };
static PyMethodDef device_own_methods[] = {
  { "stream", device_stream, METH_NOARGS, CGRPY_DOC_STREAM_CREATE },
  { "event", device_event, METH_NOARGS, CGRPY_DOC_EVENT_CREATE },
  { "alloc", device_alloc, METH_O, CGRPY_DOC_MEMORY_ALLOC },
  { "alloc_pinned", device_alloc_pinned, METH_O, CGRPY_DOC_MEMORY_ALLOC },
  CLOSE_METHODS,
};
static const char config_doc[] = "A copy of the cgr.Config that the runtime was made from, as it was given.";
static PyGetSetDef close_fields[] = {
  { "closed", get_closed, NULL, "Whether it has been closed.", NULL },
  { NULL, NULL, NULL, NULL, NULL },
};
static PyGetSetDef runtime_fields[] = {
  { "closed", get_closed, NULL, "Whether it has been closed.", NULL },
  { "device", get_device, NULL, CGRPY_DOC_RUNTIME_DEVICE, NULL },
  { "config", get_config, NULL, config_doc, NULL },
  { NULL, NULL, NULL, NULL, NULL },
};
static PyGetSetDef recorder_fields[] = {
  { "closed", get_closed, NULL, "Whether its call has ended.", NULL },
  { "config", get_config, NULL, config_doc, NULL },
  { NULL, NULL, NULL, NULL, NULL },
};
static PyGetSetDef memory_fields[] = {
  { "closed", get_closed, NULL, "Whether it has been closed.", NULL },
  { "address", get_address, NULL, "Of the first byte.", NULL },
  { "bytes", get_bytes, NULL, "How many there are.", NULL },
  { NULL, NULL, NULL, NULL, NULL },
};

/* Its own methods, then the generated ones; for as long as the process lives. */
static PyMethodDef *join_methods(PyMethodDef *own, PyMethodDef *generated) {
  int counts[2] = { 0, 0 };
  while (own[counts[0]].ml_name != NULL)
    counts[0]++;
  while (generated != NULL && generated[counts[1]].ml_name != NULL)
    counts[1]++;
  PyMethodDef *all = PyMem_Calloc((size_t)(counts[0] + counts[1] + 1), sizeof *all);
  if (all == NULL)
    return (PyMethodDef *)PyErr_NoMemory();
  memcpy(all, own, (size_t)counts[0] * sizeof *all);
  if (counts[1] > 0)
    memcpy(all + counts[0], generated, (size_t)counts[1] * sizeof *all);
  return all;
}

static PyTypeObject *add_type(PyObject *module, const char *name, newfunc make, PyMethodDef *methods, PyGetSetDef *fields,
                              const char *doc) {
  PyType_Slot slots[] = {
    { Py_tp_doc, (void *)doc },
    { Py_tp_dealloc, cgrpy_handle_dealloc },
    { Py_tp_finalize, cgrpy_handle_finalize },
    { Py_tp_traverse, cgrpy_handle_traverse },
    { Py_tp_clear, cgrpy_handle_clear },
    { Py_tp_methods, methods },
    { Py_tp_getset, fields },
    { make != NULL ? Py_tp_new : 0, make },
    { 0, NULL },
  };
  const unsigned int flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE;
  PyType_Spec spec = { name, sizeof(cgrpy_handle), 0, make ? flags : flags | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots };
  PyTypeObject *type = methods ? (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL) : NULL;
  if (type != NULL && PyModule_AddObjectRef(module, strchr(name, '.') + 1, (PyObject *)type) < 0)
    return NULL;
  return type;
}

int cgrpy_add_handles(PyObject *module) {
  PyTypeObject **types = cgrpy_handle_types;
  types[CGRPY_HANDLE_DEVICE] =
      add_type(module, "cgr.DeviceHandle", device_new, join_methods(device_own_methods, cgrpy_device_methods), close_fields,
               CGRPY_DOC_DEVICE_OPEN);
  types[CGRPY_HANDLE_STREAM] = add_type(module, "cgr.Stream", NULL, stream_methods, close_fields, CGRPY_DOC_STREAM_CREATE);
  types[CGRPY_HANDLE_EVENT] = add_type(module, "cgr.Event", NULL, event_methods, close_fields, CGRPY_DOC_EVENT_CREATE);
  types[CGRPY_HANDLE_MEMORY] = add_type(module, "cgr.Memory", NULL, memory_methods, memory_fields, CGRPY_DOC_MEMORY_ALLOC);
  types[CGRPY_HANDLE_RUNTIME] =
      add_type(module, "cgr.RuntimeHandle", runtime_new, join_methods(close_methods, cgrpy_runtime_methods), runtime_fields,
               CGRPY_DOC_RUNTIME_CREATE);
  types[CGRPY_HANDLE_RECORDER] = add_type(module, "cgr.Recorder", NULL, cgrpy_recorder_methods, recorder_fields,
                                          "What `record` enqueues a step with; good during its call alone.");
  for (int i = 0; i < CGRPY_NUM_HANDLES; i++)
    if (types[i] == NULL)
      return -1;
  return 0;
}
