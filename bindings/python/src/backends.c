/* Backends whose functions are Python's, and the calls that take a configuration without making a runtime. */
#include <string.h>

#include "callbacks.h"

PyObject *cgrpy_copy_of(int type, const void *data) {
  PyObject *object = cgrpy_new(type, NULL);
  if (object != NULL)
    memcpy(((cgrpy_object *)object)->data, data, cgrpy_structs[type].size);
  return object;
}

/* function(device, group, layer), of copies; NULLs are left out. NULL: there is an exception. */
static PyObject *call_with_copies(PyObject *function, const cgr_device_info *device, const cgr_group *group,
                                  const cgr_layer *layer) {
  const struct {
    int type;
    const void *data;
  } given[] = { { cgrpy_type_device_info, device }, { cgrpy_type_group, group }, { cgrpy_type_layer, layer } };
  PyObject *arguments = PyList_New(0);
  bool ok = arguments != NULL;
  for (size_t i = 0; ok && i < sizeof given / sizeof given[0]; i++) {
    PyObject *copy = given[i].data ? cgrpy_copy_of(given[i].type, given[i].data) : NULL;
    ok = !given[i].data || (copy && PyList_Append(arguments, copy) == 0);
    Py_XDECREF(copy);
  }
  PyObject *tuple = ok ? PyList_AsTuple(arguments) : NULL;
  PyObject *result = tuple ? PyObject_CallObject(function, tuple) : NULL;
  Py_XDECREF(tuple);
  Py_XDECREF(arguments);
  return result;
}

static int32_t write_findings(PyObject *result, cgr_finding *findings, int32_t capacity) {
  PyObject *list = result == Py_None ? PyList_New(0) : PySequence_List(result);
  const Py_ssize_t count = list ? PyList_Size(list) : 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    cgrpy_object *finding;
    if (!cgrpy_is(PyList_GetItem(list, i), cgrpy_type_finding, false, "a finding of check", &finding))
      break;
    if (i < capacity)
      findings[i] = *(cgr_finding *)finding->data;
  }
  Py_XDECREF(list);
  return PyErr_Occurred() ? -1 : (int32_t)count;
}

static int32_t run_check(void *context, const cgr_device_info *device, const cgr_group *group, const cgr_layer *layer,
                         cgr_finding *findings, int32_t capacity) {
  cgrpy_binding *binding = context;
  cgrpy_callback callback;
  if (!cgrpy_callback_begin(&callback, binding->handle))
    return 0;
  PyObject *result = call_with_copies(binding->functions[CGRPY_CHECK], device, group, layer);
  int32_t count = result ? write_findings(result, findings, capacity) : -1;
  if (count < 0 && capacity > 0) { /* the exception is raised by the call that checks */
    memset(findings, 0, sizeof *findings);
    findings->status = CGR_ERROR_CALLBACK, findings->layer = findings->group = -1;
    strcpy(findings->text, "check raised an exception");
  }
  Py_XDECREF(result);
  cgrpy_callback_end(&callback);
  return count < 0 ? 1 : count;
}

/* Of a group, or of one layer of it. */
static cgr_graph_support ask_support(cgrpy_binding *binding, const cgr_device_info *device, const cgr_group *group,
                                     const cgr_layer *layer) {
  const char *const name = layer ? "the result of support_layer" : "the result of support";
  PyObject *const function = binding->functions[layer ? CGRPY_SUPPORT_LAYER : CGRPY_SUPPORT];
  cgrpy_callback callback;
  if (!cgrpy_callback_begin(&callback, binding->handle))
    return CGR_SUPPORT_NEVER;
  PyObject *result = call_with_copies(function, device, group, layer);
  int32_t support = CGR_SUPPORT_NEVER;
  if (result != NULL && !cgrpy_i32(result, name, &support))
    support = CGR_SUPPORT_NEVER;
  Py_XDECREF(result);
  cgrpy_callback_end(&callback);
  return (cgr_graph_support)support;
}

static cgr_graph_support run_support(void *context, const cgr_device_info *device, const cgr_group *group) {
  return ask_support(context, device, group, NULL);
}

static cgr_graph_support run_support_layer(void *context, const cgr_device_info *device, const cgr_group *group,
                                           const cgr_layer *layer) {
  return ask_support(context, device, group, layer);
}

static cgr_status run_describe(void *context, const cgr_device_info *device, const cgr_layer *layer, cgr_backend_needs *needs) {
  cgrpy_binding *binding = context;
  cgrpy_callback callback;
  if (!cgrpy_callback_begin(&callback, binding->handle))
    return CGR_ERROR_CALLBACK;
  PyObject *result = call_with_copies(binding->functions[CGRPY_DESCRIBE], device, NULL, layer);
  cgrpy_object *answer = NULL;
  if (result != NULL && cgrpy_is(result, cgrpy_type_backend_needs, false, "the result of describe", &answer))
    *needs = *(cgr_backend_needs *)answer->data;
  Py_XDECREF(result);
  cgrpy_callback_end(&callback);
  return answer != NULL ? CGR_OK : CGR_ERROR_CALLBACK;
}

/* With a copy of its transform, which is C's during the call alone. */
static PyObject *copy_attention(const cgr_attention *attention) {
  cgrpy_object *copy = (cgrpy_object *)cgrpy_copy_of(cgrpy_type_attention, attention);
  if (copy == NULL || attention->transform == NULL)
    return (PyObject *)copy;
  PyObject *transform = cgrpy_copy_of(cgrpy_type_qkv_transform, attention->transform);
  *cgrpy_keep_of(copy, offsetof(cgr_attention, transform)) = transform;
  if (transform == NULL)
    Py_CLEAR(copy);
  else
    ((cgr_attention *)copy->data)->transform = (cgr_qkv_transform *)((cgrpy_object *)transform)->data;
  return (PyObject *)copy;
}

static cgr_status run_backend(void *context, cgr_recorder *recorder, const cgr_attention *attention) {
  cgrpy_binding *binding = context;
  cgrpy_callback callback;
  if (!cgrpy_callback_begin(&callback, binding->handle))
    return CGR_ERROR_CALLBACK;
  PyObject *function = Py_XNewRef(binding->functions[CGRPY_RECORD]);
  PyObject *copy = function ? copy_attention(attention) : NULL;
  PyObject *after = copy ? PyTuple_Pack(1, copy) : NULL;
  const cgr_status status =
      after ? cgrpy_call_with_recorder(binding->handle, function, recorder, NULL, after) : CGR_ERROR_CALLBACK;
  Py_XDECREF(after);
  Py_XDECREF(copy);
  Py_XDECREF(function);
  cgrpy_callback_end(&callback);
  return status;
}

static bool bind_backend(cgrpy_handle *handle, cgrpy_object *object, cgr_backend *backend) {
  static const char *const names[CGRPY_FUNCTIONS] = { "check",     "support", "record",   "create",       "destroy",
                                                      "plan_host", "plan",    "describe", "support_layer" };
  cgrpy_binding *binding = cgrpy_bind(handle);
  if (binding == NULL)
    return false;
  for (int i = 0; i < CGRPY_FUNCTIONS; i++)
    binding->functions[i] = Py_XNewRef(cgrpy_kept(object, names[i]));
  *backend = *(cgr_backend *)object->data;
  backend->context = binding;
  backend->check = binding->functions[CGRPY_CHECK] ? run_check : NULL;
  backend->support = binding->functions[CGRPY_SUPPORT] ? run_support : NULL;
  backend->record = binding->functions[CGRPY_RECORD] ? run_backend : NULL;
  backend->describe = binding->functions[CGRPY_DESCRIBE] ? run_describe : NULL;
  backend->support_layer = binding->functions[CGRPY_SUPPORT_LAYER] ? run_support_layer : NULL;
  cgrpy_bind_plans(binding, backend);
  return true;
}

bool cgrpy_bind_backends(cgrpy_handle *handle, cgrpy_object *array, cgr_config *out, cgr_backend *backends) {
  const int32_t count = out->num_backends;
  if (count < 0 || count > 8)
    return true; /* cgr refuses it */
  PyObject *list = cgrpy_list((PyObject *)array);
  bool ok = list != NULL;
  for (int32_t i = 0; ok && i < count; i++)
    ok = bind_backend(handle, (cgrpy_object *)PyList_GetItem(list, i), &backends[i]);
  Py_XDECREF(list);
  out->backends = backends;
  return ok;
}

/* --------------------------------------------------------------------------------------------------- without a runtime */

/* A handle of no runtime, which has the bindings during the call. */
static cgrpy_handle *bind_for_call(cgrpy_object *config, cgr_config *fields, cgr_backend *backends, PyObject **copy) {
  *copy = cgrpy_copy((PyObject *)config);
  cgrpy_handle *handle = *copy ? cgrpy_handle_new(CGRPY_HANDLE_RUNTIME, NULL, NULL) : NULL;
  if (handle != NULL && cgrpy_bind_config(handle, (cgrpy_object *)*copy, fields, backends))
    return handle;
  Py_XDECREF((PyObject *)handle);
  Py_CLEAR(*copy);
  return NULL;
}

static PyObject *validate_fields(const cgr_config *fields, cgrpy_handle *device) {
  cgr_finding *findings = PyMem_Calloc(CGRPY_FINDINGS, sizeof *findings);
  if (findings == NULL)
    return PyErr_NoMemory();
  int32_t count = 0;
  cgrpy_call call;
  cgrpy_forget_pending();
  cgrpy_release_gil(&call, device, NULL);
  const cgr_status status = cgr_validate(fields, cgrpy_pointer(device), findings, CGRPY_FINDINGS, &count);
  cgrpy_take_gil(&call);
  PyObject *result = NULL;
  if (!cgrpy_take_pending())
    result = status == CGR_OK || count > 0 ? cgrpy_findings(findings, count < CGRPY_FINDINGS ? count : CGRPY_FINDINGS)
                                           : cgrpy_raise(status);
  PyMem_Free(findings);
  return result;
}

PyObject *cgrpy_py_validate(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "config", "device", NULL };
  PyObject *a[2], *copy;
  cgrpy_object *config;
  cgrpy_handle *device = NULL;
  cgr_config fields;
  cgr_backend backends[8];
  (void)self;
  if (!cgrpy_arguments("validate", names, 1, args, nargs, keywords, a) ||
      !cgrpy_is(a[0], cgrpy_type_config, false, "config", &config))
    return NULL;
  if (a[1] && a[1] != Py_None && (device = cgrpy_open(a[1], CGRPY_HANDLE_DEVICE, "device")) == NULL)
    return NULL;
  cgrpy_handle *handle = bind_for_call(config, &fields, backends, &copy);
  if (handle == NULL)
    return NULL;
  PyObject *result = validate_fields(&fields, device);
  Py_DECREF((PyObject *)handle);
  Py_DECREF(copy);
  return result;
}

PyObject *cgrpy_py_runtime_memory(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "config", NULL };
  PyObject *a[1], *copy;
  cgrpy_object *config;
  cgr_config fields;
  cgr_backend backends[8];
  (void)self;
  if (!cgrpy_arguments("runtime_memory", names, 1, args, nargs, keywords, a) ||
      !cgrpy_is(a[0], cgrpy_type_config, false, "config", &config))
    return NULL;
  cgrpy_handle *handle = bind_for_call(config, &fields, backends, &copy);
  PyObject *sizes = handle ? cgrpy_new(cgrpy_type_memory_sizes, NULL) : NULL;
  if (sizes != NULL) {
    cgrpy_call call;
    cgrpy_forget_pending();
    cgrpy_release_gil(&call, (cgrpy_handle *)cgrpy_kept((cgrpy_object *)copy, "device_handle"), NULL);
    const cgr_status status = cgr_runtime_memory(&fields, (cgr_memory_sizes *)((cgrpy_object *)sizes)->data);
    cgrpy_take_gil(&call);
    if (status != CGR_OK)
      cgrpy_raise(status);
    if (status != CGR_OK || cgrpy_take_pending())
      Py_CLEAR(sizes);
  }
  Py_XDECREF((PyObject *)handle);
  Py_XDECREF(copy);
  return sizes;
}

/* Of copies, which `describe` cannot change. */
static PyObject *ask(cgrpy_object *backend, cgrpy_object *device, cgrpy_object *layer) {
  cgrpy_handle *handle = backend ? cgrpy_handle_new(CGRPY_HANDLE_RUNTIME, NULL, NULL) : NULL;
  cgr_backend fields;
  PyObject *needs = NULL;
  if ((!backend || (handle && bind_backend(handle, backend, &fields))) && (needs = cgrpy_new(cgrpy_type_backend_needs, NULL))) {
    cgrpy_forget_pending();
    const cgr_status status =
        cgr_backend_ask(backend ? &fields : NULL, cgrpy_fields(device), cgrpy_fields(layer), cgrpy_fields((cgrpy_object *)needs));
    if (status != CGR_OK) {
      cgrpy_raise(status);
      Py_CLEAR(needs);
    }
  }
  Py_XDECREF((PyObject *)handle);
  return needs;
}

PyObject *cgrpy_py_backend_ask(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "backend", "device", "layer", NULL };
  static const int types[] = { cgrpy_type_backend, cgrpy_type_device_info, cgrpy_type_layer };
  PyObject *a[3], *copies[3] = { NULL, NULL, NULL };
  (void)self;
  bool ok = cgrpy_arguments("backend_ask", names, 3, args, nargs, keywords, a);
  for (int i = 0; ok && i < 3; i++) {
    cgrpy_object *given;
    ok = cgrpy_is(a[i], types[i], i == 0, names[i], &given) && cgrpy_check(given) &&
         (given == NULL || (copies[i] = cgrpy_copy((PyObject *)given)) != NULL);
  }
  PyObject *result = ok ? ask((cgrpy_object *)copies[0], (cgrpy_object *)copies[1], (cgrpy_object *)copies[2]) : NULL;
  for (int i = 0; i < 3; i++)
    Py_XDECREF(copies[i]);
  return result;
}
