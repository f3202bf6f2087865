/* Backends that plan: their states, the steps that they plan for, what a recorder tells of both. */
#include <string.h>

#include "callbacks.h"

/* ---------------------------------------------------------------------------------------------------------------- states */

/* Takes the object over. */
static cgrpy_state *add_state(cgrpy_binding *binding, PyObject *object) {
  cgrpy_state *state = PyMem_Calloc(1, sizeof *state);
  if (state == NULL) {
    Py_DECREF(object);
    PyErr_NoMemory();
    return NULL;
  }
  state->object = object;
  state->next = binding->states;
  binding->states = state;
  return state;
}

static PyObject *object_of(const cgrpy_state *state) {
  return Py_NewRef(state != NULL && state->object != NULL ? state->object : Py_None);
}

/* Nothing waits for an exception of `destroy`. */
static void let_go(cgrpy_binding *binding, cgrpy_state *state, bool call) {
  PyObject *object = state->object, *function = call ? Py_XNewRef(binding->functions[CGRPY_DESTROY]) : NULL;
  state->object = NULL;
  PyObject *result = object && function ? PyObject_CallFunctionObjArgs(function, object, NULL) : NULL;
  if (object && function && result == NULL)
    PyErr_WriteUnraisable(function);
  Py_XDECREF(result);
  Py_XDECREF(function);
  Py_XDECREF(object);
}

void cgrpy_drop_states(cgrpy_binding *binding, bool call) {
  for (cgrpy_state *state = binding->states; state != NULL; state = state->next)
    let_go(binding, state, call);
}

/* A copy whose memory is arrays of the runtime's. */
static PyObject *copy_key(cgrpy_handle *runtime, const cgr_plan_key *key) {
  cgrpy_object *copy = (cgrpy_object *)cgrpy_copy_of(cgrpy_type_plan_key, key);
  for (int i = 0; copy != NULL && i < copy->info->num_fields; i++) {
    const cgrpy_field *field = &copy->info->fields[i];
    void *pointer = field->keep >= 0 ? *(void **)(copy->data + field->offset) : NULL;
    if (pointer == NULL)
      continue;
    cgrpy_data data = { 0 };
    PyObject *keep;
    if (field->kind == CGRPY_DEVICE) {
      keep = cgrpy_device_of(runtime);
    } else {
      const uint64_t bytes = field->offset == offsetof(cgr_plan_key, plan) ? key->plan_bytes : key->workspace_bytes;
      data.pointer = pointer, data.bytes = (Py_ssize_t)bytes, data.on_device = !runtime->on_host;
      data.kept = cgrpy_bytes_array(runtime, pointer, bytes);
      keep = data.kept ? cgrpy_hold(&data) : NULL;
    }
    copy->keeps[field->keep] = keep;
    if (keep == NULL)
      Py_CLEAR(copy);
  }
  return (PyObject *)copy;
}

static cgr_status run_create(void *context, const cgr_plan_key *key, void **state) {
  cgrpy_binding *binding = context;
  cgrpy_callback callback;
  if (!cgrpy_callback_begin(&callback, binding->handle))
    return CGR_ERROR_CALLBACK;
  PyObject *function = Py_XNewRef(binding->functions[CGRPY_CREATE]);
  PyObject *copy = function ? copy_key(binding->handle, key) : NULL;
  PyObject *object = copy ? PyObject_CallFunctionObjArgs(function, copy, NULL) : NULL;
  *state = object ? add_state(binding, object) : NULL;
  const cgr_status status = *state ? CGR_OK : CGR_ERROR_CALLBACK;
  Py_XDECREF(function);
  Py_XDECREF(copy);
  cgrpy_callback_end(&callback);
  return status;
}

static void run_destroy(void *context, void *ended) {
  cgrpy_binding *binding = context;
  cgrpy_state **at = &binding->states;
  cgrpy_callback callback;
  if (!cgrpy_callback_begin(&callback, binding->handle))
    return;
  while (*at != NULL && *at != ended)
    at = &(*at)->next;
  cgrpy_state *state = *at;
  if (state != NULL) {
    *at = state->next;
    let_go(binding, state, true);
    PyMem_Free(state);
  }
  cgrpy_callback_end(&callback);
}

/* ----------------------------------------------------------------------------------------------------------- on the host */

/* Elements of an array of the step. */
static int64_t count_of(const cgrpy_field *field, const cgr_plan_step *step) {
  return field->offset == offsetof(cgr_plan_step, plan) ? (int64_t)step->plan_bytes : field->length(step);
}

enum { LENT_FIELDS = 4 };

typedef struct lent_step {
  cgrpy_object *object;
  PyObject *arrays[LENT_FIELDS]; /* of fields[], lent; NULL: not yet */
  const cgrpy_field *fields[LENT_FIELDS];
} lent_step;

/* One field, as a memoryview that its hold keeps. */
static bool lend_field(cgrpy_handle *runtime, cgrpy_object *object, const cgrpy_field *field, PyObject **array) {
  const bool is_plan = field->offset == offsetof(cgr_plan_step, plan);
  const int64_t count = count_of(field, (cgr_plan_step *)object->data);
  cgrpy_data data = { 0 };
  data.pointer = *(void **)(object->data + field->offset);
  data.bytes = (Py_ssize_t)(is_plan ? count : 4 * count);
  data.kept = cgrpy_lend(runtime, data.pointer, is_plan ? 'B' : 'i', is_plan ? 1 : 4, count, is_plan, array);
  object->keeps[field->keep] = data.kept ? cgrpy_hold(&data) : NULL;
  return object->keeps[field->keep] != NULL;
}

static bool lend_step(cgrpy_handle *runtime, const cgr_plan_step *step, lent_step *lent) {
  memset(lent, 0, sizeof *lent);
  cgrpy_object *object = lent->object = (cgrpy_object *)cgrpy_copy_of(cgrpy_type_plan_step, step);
  bool ok = object != NULL;
  for (int i = 0, n = 0; ok && i < object->info->num_fields && n < LENT_FIELDS; i++)
    if (object->info->fields[i].keep >= 0) {
      lent->fields[n] = &object->info->fields[i];
      ok = lend_field(runtime, object, lent->fields[n], &lent->arrays[n]);
      n++;
    }
  if (object != NULL)
    object->lent = CGRPY_LENT;
  return ok;
}

/* A view that outlives the call would show later steps, or write into their plans: the step is refused then, unless it failed
 * anyhow, and the traceback may be what keeps the view. */
static void end_step(lent_step *lent) {
  if (lent->object == NULL)
    return;
  lent->object->lent = CGRPY_TAKEN_BACK;
  for (int n = 0; n < LENT_FIELDS && lent->arrays[n] != NULL; n++) {
    const cgrpy_field *field = lent->fields[n];
    PyObject *hold = lent->object->keeps[field->keep], *view = hold ? Py_NewRef(cgrpy_held(hold)->kept) : NULL;
    *(void **)(lent->object->data + field->offset) = NULL;
    lent->object->keeps[field->keep] = NULL;
    Py_XDECREF(hold);
    if (!cgrpy_take_back(lent->arrays[n], view) && !PyErr_Occurred())
      PyErr_Format(PyExc_BufferError, "plan_host has kept a view of %s, expected a copy of what is used later", field->name);
  }
  Py_DECREF((PyObject *)lent->object);
}

static cgr_status run_plan_host(void *context, void *state, const cgr_plan_step *step) {
  cgrpy_binding *binding = context;
  cgrpy_callback callback;
  lent_step lent;
  if (!cgrpy_callback_begin(&callback, binding->handle))
    return CGR_ERROR_CALLBACK;
  PyObject *function = Py_XNewRef(binding->functions[CGRPY_PLAN_HOST]), *own = object_of(state);
  const bool ready = lend_step(binding->handle, step, &lent) && function != NULL;
  PyObject *result = ready ? PyObject_CallFunctionObjArgs(function, own, (PyObject *)lent.object, NULL) : NULL;
  end_step(&lent);
  const cgr_status status = result && !PyErr_Occurred() ? CGR_OK : CGR_ERROR_CALLBACK;
  Py_XDECREF(result);
  Py_XDECREF(function);
  Py_DECREF(own);
  cgrpy_callback_end(&callback);
  return status;
}

/* --------------------------------------------------------------------------------------------------------- on the device */

static cgr_status run_plan(void *context, void *state, cgr_recorder *recorder, uint32_t flags, int32_t draft) {
  cgrpy_binding *binding = context;
  cgrpy_callback callback;
  if (!cgrpy_callback_begin(&callback, binding->handle))
    return CGR_ERROR_CALLBACK;
  PyObject *function = Py_XNewRef(binding->functions[CGRPY_PLAN]);
  PyObject *before = Py_BuildValue("(N)", object_of(state)), *after = Py_BuildValue("(Ii)", (unsigned)flags, (int)draft);
  const cgr_status status = function && before && after
                                ? cgrpy_call_with_recorder(binding->handle, function, recorder, before, after)
                                : CGR_ERROR_CALLBACK;
  Py_XDECREF(function);
  Py_XDECREF(before);
  Py_XDECREF(after);
  cgrpy_callback_end(&callback);
  return status;
}

/* A state is Python's to let go of even if there is no `destroy`. */
void cgrpy_bind_plans(cgrpy_binding *binding, cgr_backend *backend) {
  backend->create = binding->functions[CGRPY_CREATE] ? run_create : NULL;
  backend->destroy = binding->functions[CGRPY_CREATE] ? run_destroy : NULL;
  backend->plan_host = binding->functions[CGRPY_PLAN_HOST] ? run_plan_host : NULL;
  backend->plan = binding->functions[CGRPY_PLAN] ? run_plan : NULL;
  binding->handle->plans_on_host |= backend->plan_host != NULL;
}

/* ------------------------------------------------------------------------------------------------------------ what is told */

PyObject **cgrpy_keep_of(cgrpy_object *object, uint32_t offset) {
  int i = 0;
  while (object->info->fields[i].offset != offset)
    i++;
  return &object->keeps[object->info->fields[i].keep];
}

/* Key and state as objects; the pointers are not cgr's any more. */
static bool add_plan(cgrpy_handle *runtime, cgrpy_object *object) {
  cgr_record_info *info = (cgr_record_info *)object->data;
  PyObject *key = copy_key(runtime, info->plan_key);
  if (key == NULL)
    return false;
  *cgrpy_keep_of(object, offsetof(cgr_record_info, plan_key)) = key;
  *cgrpy_keep_of(object, offsetof(cgr_record_info, plan_state)) = object_of(info->plan_state);
  info->plan_key = (cgr_plan_key *)((cgrpy_object *)key)->data;
  info->plan_state = NULL;
  return true;
}

PyObject *cgrpy_py_record_info(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { NULL };
  PyObject *a[1];
  if (!cgrpy_arguments("info", names, 0, args, nargs, keywords, a))
    return NULL;
  cgrpy_handle *recorder = cgrpy_open(self, CGRPY_HANDLE_RECORDER, "recorder");
  cgrpy_object *object = recorder ? (cgrpy_object *)cgrpy_new(cgrpy_type_record_info, NULL) : NULL;
  if (object == NULL)
    return NULL;
  cgr_record_info *info = (cgr_record_info *)object->data;
  const cgr_status status = cgr_record_get_info(recorder->pointer, info);
  if (status == CGR_OK && (info->plan_key == NULL || add_plan(recorder->parent, object)))
    return (PyObject *)object;
  if (status != CGR_OK)
    cgrpy_raise(status);
  Py_DECREF((PyObject *)object);
  return NULL;
}
