/* What cgr calls back: Python functions. An exception in one gives up cgr's call with CGR_ERROR_CALLBACK, and is then raised by
 * the call of Python's that was under way. Where no call waits for them, exceptions are unraisable. */
#include <string.h>

#include "callbacks.h"

/* Of this thread: the exception of a callback that the call around it has not seen yet, and the recorder under way. */
static _Thread_local PyObject *pending[3];
static _Thread_local cgrpy_handle *current_recorder;

void cgrpy_forget_pending(void) {
  if (pending[0] == NULL)
    return;
  for (int i = 0; i < 3; i++)
    Py_CLEAR(pending[i]);
}

bool cgrpy_take_pending(void) {
  if (pending[0] == NULL)
    return false;
  PyErr_Restore(pending[0], pending[1], pending[2]);
  memset(pending, 0, sizeof pending);
  return true;
}

bool cgrpy_callback_begin(cgrpy_callback *callback, cgrpy_handle *handle) {
  if (!cgrpy_may_call())
    return false;
  callback->gil = PyGILState_Ensure();
  memcpy(callback->pending, pending, sizeof pending);
  memset(pending, 0, sizeof pending);
  callback->recorder = current_recorder;
  callback->handle = handle;
  if (handle != NULL)
    handle->users++, handle->thread = PyThread_get_thread_ident();
  return true;
}

/* The first exception of a call is the one that it raises. */
void cgrpy_callback_end(cgrpy_callback *callback) {
  if (PyErr_Occurred() && callback->pending[0] == NULL)
    PyErr_Fetch(&callback->pending[0], &callback->pending[1], &callback->pending[2]);
  PyErr_Clear();
  cgrpy_forget_pending();
  memcpy(pending, callback->pending, sizeof pending);
  current_recorder = callback->recorder;
  if (callback->handle != NULL)
    callback->handle->users--;
  PyGILState_Release(callback->gil);
}

cudaStream_t cgrpy_recorded_stream(int32_t ordinal) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  const cgrpy_handle *recorder = current_recorder;
  if (recorder == NULL || recorder->pointer == NULL || recorder->parent->on_host || recorder->parent->stream_ordinal != ordinal)
    return NULL;
  return cgr_record_get_info(recorder->pointer, &info) == CGR_OK ? info.stream : NULL;
}

static void end_unraisable(cgrpy_callback *callback, PyObject *function) {
  if (PyErr_Occurred())
    PyErr_WriteUnraisable(function);
  cgrpy_callback_end(callback);
}

/* --------------------------------------------------------------------------------------------------------------- recorders */

static PyObject *join_arguments(PyObject *before, PyObject *recorder, PyObject *after) {
  PyObject *one = PyTuple_Pack(1, recorder);
  PyObject *first = one != NULL && before != NULL ? PySequence_Concat(before, one) : Py_XNewRef(one);
  PyObject *all = first != NULL && after != NULL ? PySequence_Concat(first, after) : Py_XNewRef(first);
  Py_XDECREF(one);
  Py_XDECREF(first);
  return all;
}

cgr_status cgrpy_call_with_recorder(cgrpy_handle *runtime, PyObject *function, cgr_recorder *recorder, PyObject *before,
                                    PyObject *after) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgrpy_handle *handle = cgrpy_handle_new(CGRPY_HANDLE_RECORDER, recorder, runtime);
  if (handle == NULL)
    return CGR_ERROR_CALLBACK;
  handle->capturing = cgr_record_get_info(recorder, &info) == CGR_OK && info.capturing;
  current_recorder = handle;
  PyObject *all = join_arguments(before, (PyObject *)handle, after);
  PyObject *result = all ? PyObject_Call(function, all, NULL) : NULL;
  handle->pointer = NULL;
  Py_XDECREF(all);
  Py_DECREF((PyObject *)handle);
  Py_XDECREF(result);
  return result != NULL ? CGR_OK : CGR_ERROR_CALLBACK;
}

static cgr_status run_record(cgr_recorder *recorder, void *engine) {
  cgrpy_binding *binding = engine;
  cgrpy_callback callback;
  if (!cgrpy_callback_begin(&callback, binding->handle))
    return CGR_ERROR_CALLBACK;
  PyObject *function = Py_XNewRef(binding->functions[0]);
  const cgr_status status =
      function ? cgrpy_call_with_recorder(binding->handle, function, recorder, NULL, NULL) : CGR_ERROR_CALLBACK;
  Py_XDECREF(function);
  cgrpy_callback_end(&callback);
  return status;
}

/* One binding for equal functions: a method is another object whenever it is named, and a new one would make graphs stale. */
static cgrpy_binding *bind_record(cgrpy_handle *runtime, PyObject *function) {
  const int same = runtime->record ? PyObject_RichCompareBool(runtime->record, function, Py_EQ) : 0;
  if (same > 0)
    return runtime->record_binding;
  cgrpy_binding *binding = same == 0 ? cgrpy_bind(runtime) : NULL;
  if (binding == NULL)
    return NULL;
  binding->functions[0] = Py_NewRef(function);
  Py_XDECREF(runtime->record);
  runtime->record = Py_NewRef(function);
  runtime->record_binding = binding;
  return binding;
}

typedef struct capture_call {
  cgr_status (*function)(cgr_runtime *runtime, const cgr_capture *capture);
  cgr_capture_estimate *estimate;
} capture_call;

static cgr_status run_capture(const capture_call *what, cgr_runtime *runtime, const cgr_capture *capture) {
  return what->function ? what->function(runtime, capture) : cgr_runtime_estimate_capture(runtime, capture, what->estimate);
}

/* Over a copy of the struct, which another thread may change meanwhile. */
static bool capture_copy(cgrpy_handle *runtime, cgrpy_object *object, const capture_call *what) {
  cgr_capture capture = *(cgr_capture *)object->data;
  PyObject *function = cgrpy_kept(object, "record");
  cgrpy_binding *binding = function ? bind_record(runtime, function) : NULL;
  if (function != NULL && binding == NULL)
    return false;
  if (binding != NULL)
    capture.record = run_record, capture.engine = binding;
  cgrpy_call call;
  cgrpy_forget_pending();
  cgrpy_release_gil(&call, runtime, NULL);
  const cgr_status status = run_capture(what, runtime->pointer, &capture);
  cgrpy_take_gil(&call);
  if (status != CGR_OK)
    cgrpy_raise(status);
  return status == CGR_OK && !cgrpy_take_failure_of(runtime);
}

static bool capture_with(PyObject *self, const char *name, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords,
                         const capture_call *what) {
  static const char *const names[] = { "capture", NULL };
  PyObject *a[1];
  cgrpy_object *object;
  if (!cgrpy_arguments(name, names, 1, args, nargs, keywords, a) ||
      !cgrpy_is(a[0], cgrpy_type_capture, false, "capture", &object) || !cgrpy_check(object))
    return false;
  cgrpy_handle *runtime = cgrpy_open(self, CGRPY_HANDLE_RUNTIME, "runtime");
  PyObject *copy = runtime ? cgrpy_copy((PyObject *)object) : NULL;
  const bool ok = copy != NULL && capture_copy(runtime, (cgrpy_object *)copy, what);
  Py_XDECREF(copy);
  return ok;
}

PyObject *cgrpy_py_capture(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  const capture_call what = { cgr_runtime_capture, NULL };
  return capture_with(self, "capture", args, nargs, keywords, &what) ? Py_NewRef(Py_None) : NULL;
}

PyObject *cgrpy_py_warmup(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  const capture_call what = { cgr_runtime_warmup, NULL };
  return capture_with(self, "warmup", args, nargs, keywords, &what) ? Py_NewRef(Py_None) : NULL;
}

PyObject *cgrpy_py_estimate_capture(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  PyObject *estimate = cgrpy_new(cgrpy_type_capture_estimate, NULL);
  if (estimate == NULL)
    return NULL;
  const capture_call what = { NULL, (cgr_capture_estimate *)((cgrpy_object *)estimate)->data };
  if (!capture_with(self, "estimate_capture", args, nargs, keywords, &what))
    Py_CLEAR(estimate);
  return estimate;
}

/* ------------------------------------------------------------------------------------------ host functions, calls at breaks */

typedef struct host_call {
  PyObject *function, *arguments;
  int64_t kept; /* by a runtime, for its graphs; 0: it runs once and ends itself. No hole follows it, for audits */
  cgrpy_handle *runtime;
  cgr_device *device; /* of a host function */
} host_call;

/* {a device's address: the first exception of its host functions that no call has raised yet} */
static PyObject *failures;

/* What is raised now is kept for the next call that waits, or reported if that has one to raise already. */
static void keep_failure(const cgr_device *device, PyObject *function) {
  PyObject *type, *value, *traceback;
  if (failures == NULL)
    failures = PyDict_New();
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != NULL)
    PyException_SetTraceback(value, traceback);
  PyObject *key = PyLong_FromVoidPtr((void *)device);
  const bool first = failures != NULL && key != NULL && PyDict_GetItemWithError(failures, key) == NULL && !PyErr_Occurred();
  if (first && PyDict_SetItem(failures, key, value) == 0) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  } else {
    PyErr_Restore(type, value, traceback);
    PyErr_WriteUnraisable(function);
  }
  Py_XDECREF(key);
}

bool cgrpy_take_failure(const cgr_device *device) {
  if (failures == NULL || PyDict_Size(failures) == 0)
    return false;
  PyObject *key = PyLong_FromVoidPtr((void *)device);
  PyObject *value = key ? Py_XNewRef(PyDict_GetItemWithError(failures, key)) : NULL;
  if (value != NULL && PyDict_DelItem(failures, key) == 0)
    PyErr_SetObject((PyObject *)Py_TYPE(value), value);
  Py_XDECREF(value);
  Py_XDECREF(key);
  return PyErr_Occurred() != NULL;
}

bool cgrpy_take_failure_of(const cgrpy_handle *runtime) {
  cgr_device *device = NULL;
  if (failures == NULL || PyDict_Size(failures) == 0 || runtime->pointer == NULL)
    return false;
  return cgr_runtime_device(runtime->pointer, &device) == CGR_OK && cgrpy_take_failure(device);
}

void cgrpy_report_failure(const cgr_device *device) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *key, *failure;
  for (Py_ssize_t at = 0; device == NULL && failures != NULL && PyDict_Next(failures, &at, &key, &failure); at = 0) {
    if (!cgrpy_take_failure(PyLong_AsVoidPtr(key)))
      break;
    PyErr_WriteUnraisable(NULL);
  }
  if (device != NULL && cgrpy_take_failure(device))
    PyErr_WriteUnraisable(NULL);
  PyErr_Restore(type, value, traceback);
}

static void run_host(const void *args) {
  const host_call *call = args;
  cgrpy_callback callback;
  if (!cgrpy_callback_begin(&callback, NULL))
    return;
  PyObject *result = PyObject_Call(call->function, call->arguments, NULL);
  Py_XDECREF(result);
  if (PyErr_Occurred())
    keep_failure(call->device, call->function);
  if (!call->kept) {
    Py_DECREF(call->function);
    Py_DECREF(call->arguments);
  }
  cgrpy_callback_end(&callback);
}

static bool read_call(const char *name, const char *const *names, int required, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *keywords, PyObject **a) {
  if (!cgrpy_arguments(name, names, required, args, nargs, keywords, a))
    return false;
  if (!PyCallable_Check(a[0])) {
    PyErr_Format(PyExc_TypeError, "function is of %R, expected a callable", (PyObject *)Py_TYPE(a[0]));
    return false;
  }
  return true;
}

/* A tuple of the arguments that are given to the function. */
static PyObject *pack_arguments(PyObject *arguments) {
  return arguments == NULL || arguments == Py_None ? PyTuple_New(0) : PySequence_Tuple(arguments);
}

/* (function, arguments, their types): equal ones are one, so that a second capture holds the same addresses. */
static PyObject *make_call_key(const host_call *call) {
  const Py_ssize_t count = PyTuple_Size(call->arguments);
  PyObject *types = PyTuple_New(count);
  for (Py_ssize_t i = 0; types != NULL && i < count; i++)
    PyTuple_SetItem(types, i, Py_NewRef((PyObject *)Py_TYPE(PyTuple_GetItem(call->arguments, i))));
  PyObject *key = types ? PyTuple_Pack(3, call->function, call->arguments, types) : NULL;
  Py_XDECREF(types);
  return key;
}

static bool keep_unhashable(host_call *call, cgrpy_handle *runtime) {
  cgrpy_binding *binding = cgrpy_bind(runtime);
  if (binding == NULL)
    return false;
  binding->functions[0] = Py_NewRef(call->function);
  binding->functions[1] = Py_NewRef(call->arguments);
  return true;
}

/* Kept by the runtime if a graph is going to hold it. */
static bool keep_call(host_call *call, cgrpy_handle *recorder) {
  if (recorder == NULL || !recorder->capturing)
    return true;
  cgrpy_handle *runtime = recorder->parent;
  if (runtime->calls == NULL && (runtime->calls = PyDict_New()) == NULL)
    return false;
  call->kept = 1;
  PyObject *key = make_call_key(call);
  PyObject *known = key ? PyDict_GetItemWithError(runtime->calls, key) : NULL;
  if (known == NULL && key != NULL && !PyErr_Occurred() && PyDict_SetItem(runtime->calls, key, key) == 0)
    known = key;
  if (known != NULL) { /* the dictionary keeps both */
    call->function = PyTuple_GetItem(known, 0);
    PyObject *arguments = Py_NewRef(PyTuple_GetItem(known, 1));
    Py_DECREF(call->arguments);
    call->arguments = arguments;
  }
  Py_XDECREF(key);
  if (known != NULL)
    return true;
  if (!PyErr_ExceptionMatches(PyExc_TypeError))
    return false;
  PyErr_Clear();
  return keep_unhashable(call, runtime);
}

PyObject *cgrpy_py_launch_host(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "function", "args", "stream", NULL };
  PyObject *a[3];
  cgrpy_stream stream;
  if (!read_call("launch_host", names, 3, args, nargs, keywords, a) || !cgrpy_to_stream(a[2], &stream) || !cgrpy_may_launch())
    return NULL;
  host_call call = { a[0], pack_arguments(a[1]), 0, NULL, NULL };
  cgrpy_handle *device = call.arguments ? cgrpy_open(self, CGRPY_HANDLE_DEVICE, "device") : NULL;
  if (device == NULL || !keep_call(&call, current_recorder)) {
    Py_XDECREF(call.arguments);
    return NULL;
  }
  call.device = device->pointer;
  Py_INCREF(call.function);
  const cgr_status status = cgr_launch_host(device->pointer, run_host, &call, sizeof call, stream.stream);
  if (call.kept || status != CGR_OK) { /* else they are the call's, which may have run already */
    Py_DECREF(call.function);
    Py_DECREF(call.arguments);
  }
  return status == CGR_OK ? Py_NewRef(Py_None) : cgrpy_raise(status);
}

static cgr_status run_call(cgr_recorder *recorder, const void *args) {
  const host_call *call = args;
  cgrpy_callback callback;
  if (!cgrpy_callback_begin(&callback, call->runtime))
    return CGR_ERROR_CALLBACK;
  const cgr_status status = cgrpy_call_with_recorder(call->runtime, call->function, recorder, NULL, call->arguments);
  cgrpy_callback_end(&callback);
  return status;
}

PyObject *cgrpy_py_record_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "function", "args", NULL };
  PyObject *a[2];
  if (!read_call("call", names, 1, args, nargs, keywords, a))
    return NULL;
  host_call call = { a[0], pack_arguments(a[1]), 0, NULL, NULL };
  cgrpy_handle *recorder = call.arguments ? cgrpy_open(self, CGRPY_HANDLE_RECORDER, "recorder") : NULL;
  PyObject *result = NULL;
  if (recorder != NULL && keep_call(&call, recorder)) {
    call.runtime = recorder->parent;
    const cgr_status status = cgr_record_call(recorder->pointer, run_call, &call, sizeof call);
    result = status == CGR_OK ? Py_NewRef(Py_None) : cgrpy_raise(status);
  }
  Py_XDECREF(call.arguments);
  return result;
}

/* ------------------------------------------------------------------------------------------- what a stream reads later */

static void run_release(const void *args) {
  if (!cgrpy_may_call())
    return;
  const PyGILState_STATE gil = PyGILState_Ensure();
  Py_DECREF(*(PyObject *const *)args);
  PyGILState_Release(gil);
}

/* On the host device a function on the stream lets go of it. CUDA has read memory of the host that is not pinned when the call
 * returns, and a tensor's memory on the GPU is its library's to keep. Takes the object over. */
static PyObject *keep_on_stream(bool on_host, cgr_device *device, cudaStream_t stream, PyObject *kept) {
  if (on_host && cgr_launch_host(device, run_release, &kept, sizeof kept, stream) == CGR_OK)
    Py_RETURN_NONE;
  Py_DECREF(kept);
  Py_RETURN_NONE;
}

static PyObject *keep_captured(cgrpy_handle *runtime, PyObject *kept) {
  cgrpy_binding *binding = cgrpy_bind(runtime);
  if (binding == NULL) {
    Py_DECREF(kept);
    return NULL;
  }
  binding->functions[0] = kept, binding->memory = true;
  Py_RETURN_NONE;
}

PyObject *cgrpy_keep_until(cgrpy_handle *device, cudaStream_t stream, PyObject *const *objects, int count) {
  const bool captured = current_recorder != NULL && current_recorder->capturing;
  PyObject *kept = PyTuple_New(count);
  for (int i = 0; i < count; i++) {
    if (kept == NULL || objects[i] == NULL) {
      Py_XDECREF(objects[i]);
      Py_CLEAR(kept);
    } else {
      if (captured)
        cgrpy_forget_arrays_of(objects[i], current_recorder->parent);
      PyTuple_SetItem(kept, i, objects[i]);
    }
  }
  if (kept == NULL)
    return NULL;
  if (captured)
    return keep_captured(current_recorder->parent, kept);
  return keep_on_stream(device->on_host, device->pointer, stream, kept);
}

PyObject *cgrpy_keep_recorded(cgrpy_handle *recorder, PyObject *object) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_device *device = NULL;
  if (object == NULL)
    return NULL;
  if (recorder->capturing) {
    cgrpy_forget_arrays_of(object, recorder->parent);
    return keep_captured(recorder->parent, object);
  }
  const bool known =
      cgr_record_get_info(recorder->pointer, &info) == CGR_OK && cgr_runtime_device(recorder->parent->pointer, &device) == CGR_OK;
  return keep_on_stream(known && recorder->parent->on_host, device, info.stream, object);
}

/* ------------------------------------------------------------------------------------------------ logs, dumps, violations */

static void call_unraisable(cgrpy_binding *binding, const char *format, int number, const char *text, Py_ssize_t length) {
  cgrpy_callback callback;
  if (!cgrpy_callback_begin(&callback, binding->handle))
    return;
  PyObject *function = Py_XNewRef(binding->functions[0]);
  PyObject *result = function == NULL ? NULL
                     : number         ? PyObject_CallFunction(function, format, number, text)
                                      : PyObject_CallFunction(function, format, text, length);
  Py_XDECREF(result);
  end_unraisable(&callback, function);
  Py_XDECREF(function);
}

static void run_log(void *context, cgr_log_level level, const char *message) {
  call_unraisable(context, "is", (int)level, message, 0);
}

static void run_dump(void *context, const char *json, size_t length) {
  call_unraisable(context, "s#", 0, json, (Py_ssize_t)length);
}

static void run_violation(void *context, const char *message) {
  call_unraisable(context, "s#", 0, message, (Py_ssize_t)strlen(message));
}

static cgrpy_binding *bind_field(cgrpy_handle *handle, cgrpy_object *object, const char *field, bool *ok) {
  PyObject *function = cgrpy_kept(object, field);
  cgrpy_binding *binding = function ? cgrpy_bind(handle) : NULL;
  *ok = *ok && (function == NULL || binding != NULL);
  if (binding != NULL)
    binding->functions[0] = Py_NewRef(function);
  return binding;
}

bool cgrpy_bind_device_config(cgrpy_handle *handle, cgrpy_object *config, cgr_device_config *out) {
  bool ok = true;
  if (config == NULL)
    return true;
  *out = *(cgr_device_config *)config->data;
  out->violation_context = bind_field(handle, config, "on_violation", &ok);
  out->on_violation = out->violation_context ? run_violation : NULL;
  return ok;
}

/* Whether steps of this configuration are computed on the host. */
static bool computes_on_host(const cgrpy_object *config) {
  const cgrpy_handle *device = (cgrpy_handle *)cgrpy_kept(config, "device_handle");
  const char *name = ((cgr_config *)config->data)->device;
  return device != NULL ? device->on_host : name != NULL && strcmp(name, "host") == 0;
}

bool cgrpy_bind_config(cgrpy_handle *handle, cgrpy_object *config, cgr_config *out, cgr_backend *backends) {
  bool ok = cgrpy_check_on(computes_on_host(config), config);
  *out = *(cgr_config *)config->data;
  out->log_context = bind_field(handle, config, "log", &ok);
  out->log = out->log_context ? run_log : NULL;
  out->dump_context = bind_field(handle, config, "dump", &ok);
  out->dump = out->dump_context ? run_dump : NULL;
  PyObject *array = cgrpy_kept(config, "backends");
  return ok && (array == NULL || cgrpy_bind_backends(handle, (cgrpy_object *)array, out, backends));
}
