/* What an engine calls in every step: page edits, prepare, launch, wait. Arrays are read where they are; nothing is copied, and
 * nothing allocated but a step or a result that was not given. */
#include "core.h"

static const char *const step_names[] = { "batch", "step", NULL };

/* ---------------------------------------------------------------------------------------------------- data of the engine's */

/* Bytes of one item of a declared buffer, -1 if there is none; *dimension is its own. */
static int64_t declared_bytes(const cgrpy_handle *runtime, int32_t buffer, int32_t *dimension) {
  const cgr_config *config = (cgr_config *)((cgrpy_object *)runtime->config)->data;
  if (buffer < 0 || buffer >= config->num_buffers || config->buffers == NULL)
    return -1;
  const cgr_buffer_decl *decl = &config->buffers[buffer];
  *dimension = decl->dimension;
  return (decl->width > 0 ? decl->width : 1) * (int64_t)cgr_dtype_size((cgr_dtype)decl->dtype);
}

static int64_t count_tokens(const cgr_batch *batch) {
  int64_t tokens = 0;
  for (int32_t i = 0; i < batch->num_requests; i++)
    tokens += batch->query_lens == NULL ? 1 : batch->query_lens[i] > 0 ? batch->query_lens[i] : 0;
  return tokens;
}

/* The lengths of staged data follow from the buffers' declarations. Those of the standing batch are not known here. */
static bool check_staged(const cgrpy_handle *runtime, cgrpy_object *batch) {
  const cgr_batch *fields = (cgr_batch *)batch->data;
  cgrpy_object *array = (cgrpy_object *)cgrpy_kept(batch, "staged");
  for (int32_t i = 0; array != NULL && i < fields->num_staged && fields->num_requests > 0; i++) {
    int32_t dimension = 0;
    const int64_t bytes = declared_bytes(runtime, fields->staged[i].buffer, &dimension);
    PyObject *hold = array->keeps[i * array->info->num_keeps];
    const int64_t items = dimension == CGR_DIMENSION_TOKENS ? count_tokens(fields) : fields->num_requests;
    if (bytes > 0 && hold != NULL && !cgrpy_holds(cgrpy_held(hold), items * bytes, 1, "staged data, in bytes,"))
      return false;
  }
  return true;
}

PyObject *cgrpy_py_set_data(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "row", "buffer", "data", NULL };
  PyObject *a[3], *result = NULL;
  int32_t row, buffer, dimension;
  cgrpy_data data;
  if (!cgrpy_arguments("request_set_data", names, 3, args, nargs, keywords, a) || !cgrpy_i32(a[0], "row", &row) ||
      !cgrpy_i32(a[1], "buffer", &buffer) || !cgrpy_to_data(a[2], CGRPY_ANY, 1, false, "data", &data))
    return NULL;
  cgrpy_handle *runtime = cgrpy_open(self, CGRPY_HANDLE_RUNTIME, "runtime");
  if (runtime != NULL && cgrpy_holds_on_host(&data, declared_bytes(runtime, buffer, &dimension), 1, "data, in bytes,")) {
    const cgr_status status = cgr_request_set_data(runtime->pointer, row, buffer, data.pointer);
    result = status == CGR_OK ? Py_NewRef(Py_None) : cgrpy_raise(status);
  }
  cgrpy_data_end(&data);
  return result;
}

/* ------------------------------------------------------------------------------------------------------ prepare and launch */

static cgrpy_object *take_step(PyObject *given, cgrpy_handle *runtime) {
  cgrpy_object *step;
  if (given == NULL || given == Py_None)
    return (cgrpy_object *)cgrpy_new(cgrpy_type_step, (PyObject *)runtime);
  if (!cgrpy_is(given, cgrpy_type_step, false, "step", &step))
    return NULL;
  if (step->runtime != (PyObject *)runtime) {
    PyObject *before = step->runtime;
    step->runtime = Py_NewRef((PyObject *)runtime);
    Py_XDECREF(before);
  }
  return (cgrpy_object *)Py_NewRef(given);
}

/* Everything that a prepare needs, without any of it having changed. */
static cgrpy_handle *open_for_prepare(PyObject *self, PyObject *batch_object, cgrpy_object **batch) {
  if (!cgrpy_is(batch_object, cgrpy_type_batch, false, "batch", batch) || !cgrpy_check_host(*batch))
    return NULL;
  cgrpy_handle *runtime = cgrpy_open(self, CGRPY_HANDLE_RUNTIME, "runtime");
  const cgr_batch *fields = (cgr_batch *)(*batch)->data;
  return runtime != NULL && fields->num_staged > 0 && !check_staged(runtime, *batch) ? NULL : runtime;
}

/* Plans on the host are Python's, which may change the batch meanwhile. */
static cgr_status prepare_over_copy(cgrpy_handle *runtime, cgrpy_object *batch, cgrpy_object *step) {
  PyObject *copy = cgrpy_copy_whole((PyObject *)batch);
  if (copy == NULL)
    return CGR_ERROR_CALLBACK;
  const cgr_status status = cgr_step_prepare(runtime->pointer, (cgr_batch *)((cgrpy_object *)copy)->data, (cgr_step *)step->data);
  Py_DECREF(copy);
  return status;
}

PyObject *cgrpy_py_prepare(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  PyObject *a[2];
  cgrpy_object *batch;
  if (!cgrpy_arguments("prepare", step_names, 1, args, nargs, keywords, a))
    return NULL;
  cgrpy_handle *runtime = open_for_prepare(self, a[0], &batch);
  cgrpy_object *step = runtime ? take_step(a[1], runtime) : NULL;
  if (step == NULL)
    return NULL;
  cgrpy_forget_pending();
  const cgr_status status = runtime->plans_on_host
                                ? prepare_over_copy(runtime, batch, step)
                                : cgr_step_prepare(runtime->pointer, (cgr_batch *)batch->data, (cgr_step *)step->data);
  if (status == CGR_OK)
    return (PyObject *)step;
  Py_DECREF((PyObject *)step);
  return cgrpy_raise(status);
}

/* Without the GIL, over copies. */
PyObject *cgrpy_py_prepare_wait(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "batch", "stream", "timeout_ms", "step", NULL };
  PyObject *a[4];
  cgrpy_object *batch;
  cgrpy_stream stream;
  int32_t timeout_ms = -1;
  if (!cgrpy_arguments("prepare_wait", names, 2, args, nargs, keywords, a) || !cgrpy_to_stream(a[1], &stream) ||
      (a[2] && !cgrpy_i32(a[2], "timeout_ms", &timeout_ms)))
    return NULL;
  cgrpy_handle *runtime = open_for_prepare(self, a[0], &batch);
  PyObject *copy = runtime ? cgrpy_copy_whole(a[0]) : NULL;
  cgrpy_object *step = copy ? take_step(a[3], runtime) : NULL;
  if (step == NULL) {
    Py_XDECREF(copy);
    return NULL;
  }
  cgr_step fields = *(cgr_step *)step->data;
  cgrpy_call call;
  cgrpy_forget_pending();
  cgrpy_release_gil(&call, runtime, stream.handle);
  const cgr_status status =
      cgr_step_prepare_wait(runtime->pointer, (cgr_batch *)((cgrpy_object *)copy)->data, &fields, timeout_ms, stream.stream);
  cgrpy_take_gil(&call);
  *(cgr_step *)step->data = fields;
  Py_DECREF(copy);
  if (status == CGR_OK)
    return (PyObject *)step;
  Py_DECREF((PyObject *)step);
  return cgrpy_raise(status);
}

static PyObject *launch_step(PyObject *runtime_object, PyObject *step_object, PyObject *stream_object) {
  cgrpy_object *step;
  cgrpy_stream stream;
  if (!cgrpy_to_stream(stream_object, &stream) || !cgrpy_is(step_object, cgrpy_type_step, false, "step", &step) ||
      !cgrpy_may_launch())
    return NULL;
  cgrpy_handle *runtime = cgrpy_open(runtime_object, CGRPY_HANDLE_RUNTIME, "runtime");
  if (runtime == NULL)
    return NULL;
  if (runtime->stream != stream.handle)
    cgrpy_set_stream(runtime, stream.handle);
  runtime->launched = true;
  cgrpy_forget_pending();
  Py_INCREF((PyObject *)runtime); /* the step's own reference may go while Python runs */
  const cgr_status status = cgr_step_launch(runtime->pointer, (cgr_step *)step->data, stream.stream);
  if (((cgr_step *)step->data)->mark.seq > 0)
    runtime->last = ((cgr_step *)step->data)->mark;
  Py_DECREF((PyObject *)runtime);
  if (status != CGR_OK)
    return cgrpy_raise(status);
  Py_RETURN_NONE;
}

PyObject *cgrpy_py_launch(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "step", "stream", NULL };
  PyObject *a[2];
  return cgrpy_arguments("launch", names, 2, args, nargs, keywords, a) ? launch_step(self, a[0], a[1]) : NULL;
}

static PyObject *runtime_of_step(PyObject *self) {
  PyObject *runtime = ((cgrpy_object *)self)->runtime;
  if (runtime == NULL)
    PyErr_SetString(PyExc_ValueError, "the step has not been prepared");
  return runtime;
}

PyObject *cgrpy_step_launch(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "stream", NULL };
  PyObject *a[1], *runtime = runtime_of_step(self);
  return runtime && cgrpy_arguments("launch", names, 1, args, nargs, keywords, a) ? launch_step(runtime, self, a[0]) : NULL;
}

static PyObject *cancel_step(PyObject *runtime_object, PyObject *step_object) {
  cgrpy_object *step;
  cgrpy_handle *runtime;
  if (!cgrpy_is(step_object, cgrpy_type_step, false, "step", &step) ||
      (runtime = cgrpy_open(runtime_object, CGRPY_HANDLE_RUNTIME, "runtime")) == NULL)
    return NULL;
  const cgr_status status = cgr_step_cancel(runtime->pointer, (cgr_step *)step->data);
  return status == CGR_OK ? Py_NewRef(Py_None) : cgrpy_raise(status);
}

PyObject *cgrpy_py_cancel(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "step", NULL };
  PyObject *a[1];
  return cgrpy_arguments("cancel", names, 1, args, nargs, keywords, a) ? cancel_step(self, a[0]) : NULL;
}

PyObject *cgrpy_step_cancel(PyObject *self, PyObject *unused) {
  (void)unused;
  PyObject *runtime = runtime_of_step(self);
  return runtime != NULL ? cancel_step(runtime, self) : NULL;
}

/* ------------------------------------------------------------------------------------------------------------------- wait */

static cgr_status wait_for_mark(cgrpy_handle *runtime, cgr_mark mark, int32_t timeout_ms, cgr_step_result *result) {
  if (timeout_ms == 0)
    return cgr_step_wait(runtime->pointer, mark, 0, result);
  cgrpy_call call;
  cgrpy_release_gil(&call, runtime, NULL);
  const cgr_status status = cgr_step_wait(runtime->pointer, mark, timeout_ms, result);
  cgrpy_take_gil(&call);
  return status;
}

/* A guard's refusal comes with its result. */
static PyObject *raise_with_result(cgr_status status, PyObject *result) {
  PyObject *type, *value, *traceback;
  cgrpy_raise(status);
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (status == CGR_ERROR_STEP && value != NULL && PyObject_SetAttrString(value, "result", result) < 0)
    PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return NULL;
}

static PyObject *wait_for(PyObject *self, PyObject *mark_object, PyObject *timeout, PyObject *given) {
  cgr_mark mark;
  int32_t timeout_ms = -1;
  cgrpy_object *result = NULL;
  if (!cgrpy_mark(mark_object, &mark) || (timeout && !cgrpy_i32(timeout, "timeout_ms", &timeout_ms)) ||
      !cgrpy_is(given, cgrpy_type_step_result, true, "result", &result))
    return NULL;
  cgrpy_handle *runtime = cgrpy_open(self, CGRPY_HANDLE_RUNTIME, "runtime");
  if (runtime == NULL)
    return NULL;
  cgr_step_result fields = CGR_STEP_RESULT_INIT;
  const cgr_status status = wait_for_mark(runtime, mark, timeout_ms, &fields);
  if (status == CGR_NOT_READY && timeout_ms == 0)
    Py_RETURN_NONE;
  if (status != CGR_OK && status != CGR_ERROR_STEP)
    return cgrpy_raise(status);
  if (cgrpy_take_failure_of(runtime))
    return NULL;
  PyObject *object = result ? Py_NewRef(given) : cgrpy_new(cgrpy_type_step_result, self);
  if (object == NULL)
    return NULL;
  result = (cgrpy_object *)object;
  *(cgr_step_result *)result->data = fields;
  cgrpy_replace(&result->runtime, Py_NewRef(self));
  if (status == CGR_OK)
    return object;
  raise_with_result(status, object);
  Py_DECREF(object);
  return NULL;
}

PyObject *cgrpy_py_wait(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "mark", "timeout_ms", "result", NULL };
  PyObject *a[3];
  return cgrpy_arguments("wait", names, 1, args, nargs, keywords, a) ? wait_for(self, a[0], a[1], a[2]) : NULL;
}

PyObject *cgrpy_step_wait(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "timeout_ms", "result", NULL };
  PyObject *a[2], *runtime = runtime_of_step(self);
  return runtime && cgrpy_arguments("wait", names, 0, args, nargs, keywords, a) ? wait_for(runtime, self, a[0], a[1]) : NULL;
}

/* --------------------------------------------------------------------------------------------------- pages of many requests */

typedef struct page_arrays {
  cgrpy_data rows, firsts, counts, pages;
  int32_t num_rows;
} page_arrays;

static bool read_numbers(PyObject *object, const char *name, cgrpy_data *out) {
  return cgrpy_to_data(object, CGRPY_SIGNED, 4, false, name, out) && cgrpy_holds_on_host(out, 0, 4, name);
}

static bool sum_counts(const page_arrays *arrays, int64_t *sum) {
  *sum = arrays->num_rows;
  if (arrays->counts.pointer == NULL)
    return true;
  if (!cgrpy_holds(&arrays->counts, arrays->num_rows, 4, "counts"))
    return false;
  *sum = 0;
  for (int32_t i = 0; i < arrays->num_rows; i++) {
    const int32_t count = ((const int32_t *)arrays->counts.pointer)[i];
    *sum += count > 0 ? count : 0;
  }
  return true;
}

/* How many rows there are follows from `rows`. */
static bool check_arrays(page_arrays *arrays, bool with_pages) {
  int64_t sum;
  if (arrays->rows.bytes < 0 || arrays->rows.bytes / 4 > INT32_MAX) {
    PyErr_SetString(PyExc_TypeError, "rows is at an address, expected an array whose length is known");
    return false;
  }
  arrays->num_rows = (int32_t)(arrays->rows.bytes / 4);
  return cgrpy_holds(&arrays->firsts, arrays->num_rows, 4, "firsts") && sum_counts(arrays, &sum) &&
         (!with_pages || cgrpy_holds(&arrays->pages, sum, 4, "pages"));
}

static void end_arrays(page_arrays *arrays) {
  cgrpy_data_end(&arrays->rows);
  cgrpy_data_end(&arrays->firsts);
  cgrpy_data_end(&arrays->counts);
  cgrpy_data_end(&arrays->pages);
}

static PyObject *edit_pages(PyObject *self, int32_t group, page_arrays *arrays, bool set) {
  cgrpy_handle *runtime = cgrpy_open(self, CGRPY_HANDLE_RUNTIME, "runtime");
  if (runtime == NULL || !check_arrays(arrays, set))
    return NULL;
  const cgr_status status = set ? cgr_requests_set_pages(runtime->pointer, group, arrays->num_rows, arrays->rows.pointer,
                                                         arrays->firsts.pointer, arrays->counts.pointer, arrays->pages.pointer)
                                : cgr_requests_drop_pages(runtime->pointer, group, arrays->num_rows, arrays->rows.pointer,
                                                          arrays->firsts.pointer, arrays->counts.pointer);
  return status == CGR_OK ? Py_NewRef(Py_None) : cgrpy_raise(status);
}

PyObject *cgrpy_py_requests_set_pages(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "group", "rows", "firsts", "pages", "counts", NULL };
  PyObject *a[5], *result = NULL;
  int32_t group;
  page_arrays arrays = { { 0 }, { 0 }, { 0 }, { 0 }, 0 };
  if (cgrpy_arguments("requests_set_pages", names, 4, args, nargs, keywords, a) && cgrpy_i32(a[0], "group", &group) &&
      read_numbers(a[1], "rows", &arrays.rows) && read_numbers(a[2], "firsts", &arrays.firsts) &&
      read_numbers(a[3], "pages", &arrays.pages) && read_numbers(a[4], "counts", &arrays.counts))
    result = edit_pages(self, group, &arrays, true);
  end_arrays(&arrays);
  return result;
}

PyObject *cgrpy_py_requests_drop_pages(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "group", "rows", "firsts", "counts", NULL };
  PyObject *a[4], *result = NULL;
  int32_t group;
  page_arrays arrays = { { 0 }, { 0 }, { 0 }, { 0 }, 0 };
  if (cgrpy_arguments("requests_drop_pages", names, 3, args, nargs, keywords, a) && cgrpy_i32(a[0], "group", &group) &&
      read_numbers(a[1], "rows", &arrays.rows) && read_numbers(a[2], "firsts", &arrays.firsts) &&
      read_numbers(a[3], "counts", &arrays.counts))
    result = edit_pages(self, group, &arrays, false);
  end_arrays(&arrays);
  return result;
}
