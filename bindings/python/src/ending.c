/* How handles end. A handle keeps its parent: what is closed early is ended when the last thing that needs it has gone, so that
 * no order of closing or of garbage collection does harm. */
#include "handles.h"

/* ----------------------------------------------------------------------------------------------------- the interpreter's exit */

static cgrpy_handle *first_handle; /* of all that there are */
static unsigned long exit_thread;  /* 0: it goes on */

void cgrpy_list_handle(cgrpy_handle *handle, cgrpy_handle_kind kind) {
  handle->kind = kind;
  handle->after = first_handle;
  handle->at = &first_handle;
  if (first_handle != NULL)
    first_handle->at = &handle->after;
  first_handle = handle;
}

static void unlist_handle(cgrpy_handle *handle) {
  if (handle->at == NULL)
    return;
  *handle->at = handle->after;
  if (handle->after != NULL)
    handle->after->at = handle->at;
}

bool cgrpy_may_call(void) {
  const unsigned long thread = __atomic_load_n(&exit_thread, __ATOMIC_ACQUIRE);
  return thread == 0 || thread == PyThread_get_thread_ident();
}

bool cgrpy_may_launch(void) {
  if (exit_thread != 0)
    PyErr_SetString(PyExc_RuntimeError, "the interpreter exits, and nothing is launched any more");
  return exit_thread == 0;
}

static void finish_handle(cgrpy_handle *handle) {
  if (handle->pointer == NULL || handle->users > 0)
    return;
  PyThreadState *state = PyEval_SaveThread();
  if (handle->kind == CGRPY_HANDLE_STREAM)
    cgr_stream_synchronize(handle->parent->pointer, handle->pointer);
  else if (handle->kind == CGRPY_HANDLE_RUNTIME && handle->launched && handle->stream == NULL)
    cgr_step_wait(handle->pointer, handle->last, -1, NULL);
  PyEval_RestoreThread(state);
}

/* Work of streams may call Python on another thread, which would end there once the interpreter does, and the wait for it would
 * not. So it is done before; what comes later finds that it may not call. */
PyObject *cgrpy_finish_work(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  PyObject *list = PyList_New(0);
  for (cgrpy_handle *handle = first_handle; list != NULL && handle != NULL; handle = handle->after)
    if (PyList_Append(list, (PyObject *)handle) < 0)
      Py_CLEAR(list);
  for (Py_ssize_t i = 0; list != NULL && i < PyList_Size(list); i++)
    finish_handle((cgrpy_handle *)PyList_GetItem(list, i));
  cgrpy_report_failure(NULL);
  __atomic_store_n(&exit_thread, PyThread_get_thread_ident(), __ATOMIC_RELEASE);
  Py_XDECREF(list);
  return list != NULL ? Py_NewRef(Py_None) : NULL;
}

/* ------------------------------------------------------------------------------------------------------------- bindings */

cgrpy_binding *cgrpy_bind(cgrpy_handle *handle) {
  cgrpy_binding *binding = PyMem_Calloc(1, sizeof *binding);
  if (binding == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  binding->handle = handle, binding->next = handle->bindings;
  handle->bindings = binding;
  return binding;
}

static void end_binding(cgrpy_binding *binding) {
  cgrpy_drop_states(binding, false);
  while (binding->states != NULL) {
    cgrpy_state *next = binding->states->next;
    PyMem_Free(binding->states);
    binding->states = next;
  }
  for (int i = 0; i < CGRPY_FUNCTIONS; i++)
    Py_CLEAR(binding->functions[i]);
  PyMem_Free(binding);
}

void cgrpy_unbind(cgrpy_handle *handle, cgrpy_binding *binding) {
  cgrpy_binding **at = &handle->bindings;
  while (*at != NULL && *at != binding)
    at = &(*at)->next;
  if (*at == NULL)
    return;
  *at = binding->next;
  end_binding(binding);
}

void cgrpy_bindings_end(cgrpy_handle *handle) {
  while (handle->bindings != NULL)
    cgrpy_unbind(handle, handle->bindings);
  handle->record_binding = NULL;
  Py_CLEAR(handle->record);
  Py_CLEAR(handle->calls);
}

/* The stream stays while the runtime lives, or until it launches on another. */
void cgrpy_set_stream(cgrpy_handle *runtime, cgrpy_handle *stream) {
  cgrpy_handle *before = runtime->stream;
  runtime->stream = stream;
  if (stream != NULL) {
    Py_INCREF((PyObject *)stream);
    cgrpy_pin(stream);
  }
  if (before != NULL) {
    cgrpy_unpin(before);
    Py_DECREF((PyObject *)before);
  }
}

/* --------------------------------------------------------------------------------------------------------------- ending */

static cgr_status end_pointer(const cgrpy_handle *handle, void *pointer) {
  cgr_device *device = cgrpy_pointer(handle->parent);
  if (handle->borrowed)
    return CGR_OK;
  switch (handle->kind) {
  case CGRPY_HANDLE_DEVICE:
    return cgr_device_close(pointer);
  case CGRPY_HANDLE_STREAM:
    return cgr_stream_destroy(device, pointer);
  case CGRPY_HANDLE_EVENT:
    return cgr_event_destroy(device, pointer);
  case CGRPY_HANDLE_MEMORY:
    return handle->pinned_memory ? cgr_memory_free_pinned(device, pointer) : cgr_memory_free(device, pointer);
  case CGRPY_HANDLE_RUNTIME:
    return cgr_runtime_destroy(pointer);
  default:
    return CGR_OK;
  }
}

/* What the handle kept goes after it, its parent last. */
static void drop_kept(cgrpy_handle *handle) {
  cgrpy_bindings_end(handle);
  cgrpy_set_stream(handle, NULL);
  Py_CLEAR(handle->config);
  cgrpy_handle *parent = handle->parent;
  handle->parent = NULL;
  if (parent != NULL) {
    cgrpy_unpin(parent);
    Py_DECREF((PyObject *)parent);
  }
}

/* Without the GIL: destroying waits for the device, whose work may be functions of Python's. */
static cgr_status end_handle(cgrpy_handle *handle) {
  void *pointer = handle->pointer;
  cgr_device *device = handle->kind == CGRPY_HANDLE_DEVICE && !handle->borrowed ? pointer : NULL;
  if (handle->kind == CGRPY_HANDLE_RUNTIME && handle->parent == NULL)
    cgr_runtime_device(pointer, &device); /* which it closes */
  handle->pointer = NULL, handle->closing = true;
  PyThreadState *state = PyEval_SaveThread();
  const cgr_status status = end_pointer(handle, pointer);
  PyEval_RestoreThread(state);
  if (status == CGR_OK && device != NULL)
    cgrpy_report_failure(device);
  if (status == CGR_OK)
    drop_kept(handle);
  else
    handle->pointer = pointer, handle->closing = false;
  return status;
}

/* Where nothing can be raised. What could not be ended stays, with all that it needs. */
static void end_quietly(cgrpy_handle *handle) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const cgr_status status = end_handle(handle);
  if (status != CGR_OK) {
    for (cgrpy_binding *b = handle->bindings; b != NULL; b = b->next)
      b->handle = NULL;
    cgrpy_raise(status);
    PyErr_WriteUnraisable(NULL);
  }
  PyErr_Restore(type, value, traceback);
}

/* Memory that a runtime holds which is closed, but whose views are still in use. */
static bool waits_for_a_runtime(const cgrpy_handle *handle) {
  return handle->kind == CGRPY_HANDLE_MEMORY && handle->parent->deferred > 0;
}

void cgrpy_unpin(cgrpy_handle *handle) {
  if (--handle->pins > 0 || !handle->closing || handle->pointer == NULL || waits_for_a_runtime(handle))
    return;
  if (handle->kind == CGRPY_HANDLE_RUNTIME && handle->parent != NULL)
    handle->parent->deferred--;
  end_quietly(handle);
}

/* A runtime that views still need lets go of its functions, which may be what keeps these views: once nothing runs any more. */
static void defer_runtime(cgrpy_handle *runtime) {
  cgr_device *device = NULL;
  cgr_status status = CGR_OK;
  if (runtime->parent != NULL)
    runtime->parent->deferred++;
  cgrpy_pin(runtime); /* what goes may be the last that needs it, and inside a host function nothing can be waited for */
  if (runtime->launched && cgr_runtime_device(runtime->pointer, &device) == CGR_OK) {
    PyThreadState *state = PyEval_SaveThread();
    if (runtime->stream != NULL)
      status = cgr_stream_synchronize(device, runtime->stream->pointer);
    else /* another library's, which may be gone */
      status = cgr_step_wait(runtime->pointer, runtime->last, -1, NULL);
    PyEval_RestoreThread(state);
  }
  if (status == CGR_OK || status == CGR_ERROR_STEP) {
    for (cgrpy_binding *b = runtime->bindings; b != NULL; b = b->next)
      cgrpy_drop_states(b, true);
    cgrpy_handle_clear((PyObject *)runtime);
  }
  cgrpy_unpin(runtime);
}

PyObject *cgrpy_handle_close(PyObject *self, PyObject *unused) {
  (void)unused;
  cgrpy_handle *handle = (cgrpy_handle *)self;
  if (handle->pointer == NULL || handle->closing)
    Py_RETURN_NONE;
  if (handle->users > 0)
    return PyErr_Format(PyExc_RuntimeError, "the %s is in a call", cgrpy_kind_names[handle->kind]);
  handle->closing = true;
  if (handle->pins > 0) {
    if (handle->kind == CGRPY_HANDLE_RUNTIME)
      defer_runtime(handle);
    Py_RETURN_NONE;
  }
  const cgr_status status = end_handle(handle);
  if (status == CGR_ERROR_STATE && waits_for_a_runtime(handle))
    handle->closing = true; /* its last reference frees it */
  else if (status != CGR_OK)
    return cgrpy_raise(status);
  Py_RETURN_NONE;
}

int cgrpy_handle_traverse(PyObject *self, visitproc visit, void *arg) {
  cgrpy_handle *handle = (cgrpy_handle *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject *)handle->parent);
  Py_VISIT(handle->config);
  Py_VISIT(handle->record);
  Py_VISIT(handle->calls);
  Py_VISIT((PyObject *)handle->stream);
  for (cgrpy_binding *b = handle->bindings; b != NULL; b = b->next) {
    for (int i = 0; i < CGRPY_FUNCTIONS; i++)
      Py_VISIT(b->functions[i]);
    for (cgrpy_state *state = b->states; state != NULL; state = state->next)
      Py_VISIT(state->object);
  }
  return 0;
}

/* Breaks cycles through callbacks. The runtime is not called again but to end it, and that calls none of them. Its graphs still
 * hold the memory that they read, so that stays. */
int cgrpy_handle_clear(PyObject *self) {
  cgrpy_handle *handle = (cgrpy_handle *)self;
  cgrpy_pin(handle);
  for (cgrpy_binding *b = handle->bindings; b != NULL; b = b->next) {
    cgrpy_drop_states(b, false);
    for (int i = 0; i < CGRPY_FUNCTIONS && !b->memory; i++)
      Py_CLEAR(b->functions[i]);
  }
  Py_CLEAR(handle->record);
  Py_CLEAR(handle->calls);
  cgrpy_unpin(handle);
  return 0;
}

static bool has_states(const cgrpy_handle *handle) {
  const cgrpy_binding *b = handle->bindings;
  while (b != NULL && b->states == NULL)
    b = b->next;
  return b != NULL;
}

/* Before its cycle is broken, so that states of backends are ended as they would be by close(). */
void cgrpy_handle_finalize(PyObject *self) {
  cgrpy_handle *handle = (cgrpy_handle *)self;
  if (handle->kind != CGRPY_HANDLE_RUNTIME || handle->users > 0 || !has_states(handle))
    return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *closed = cgrpy_handle_close(self, NULL);
  if (closed == NULL)
    PyErr_WriteUnraisable(NULL);
  Py_XDECREF(closed);
  PyErr_Restore(type, value, traceback);
}

void cgrpy_handle_dealloc(PyObject *self) {
  cgrpy_handle *handle = (cgrpy_handle *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  unlist_handle(handle);
  if (handle->pointer != NULL)
    end_quietly(handle);
  if (handle->pointer == NULL)
    drop_kept(handle);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}
