/* What the wrappers of planners and of calls that fill arrays have in common. */
#include <string.h>

#include "generated_help.h"

bool cgrpy_succeeded(cgr_status status) {
  if (status != CGR_OK)
    cgrpy_raise(status);
  return status == CGR_OK;
}

PyObject *cgrpy_raise_with(cgr_status status, const cgr_finding *findings, int32_t count) {
  PyObject *list = cgrpy_findings(findings, count < CGRPY_FINDINGS ? count : CGRPY_FINDINGS);
  if (list != NULL)
    cgrpy_raise_findings(status, list);
  Py_XDECREF(list);
  return NULL;
}

PyObject *cgrpy_first(PyObject *array, int32_t count) {
  PyObject *list = cgrpy_list(array);
  PyObject *first = list ? PyList_GetSlice(list, 0, count) : NULL;
  Py_XDECREF(list);
  return first;
}

PyObject *cgrpy_first_keys(PyObject *keys, PyObject *advice) {
  return cgrpy_first(keys, ((cgr_key_advice *)((cgrpy_object *)advice)->data)->num_keys);
}

bool cgrpy_still_open(cgrpy_stream *stream) {
  if (stream->handle == NULL)
    return true;
  return cgrpy_open((PyObject *)stream->handle, CGRPY_HANDLE_STREAM, "stream") != NULL;
}

bool cgrpy_count(PyObject *given, const cgrpy_data *data, int bytes, const char *name, uint64_t *out) {
  if (given != NULL && given != Py_None)
    return cgrpy_u64(given, name, out) && cgrpy_holds(data, *out > INT64_MAX ? INT64_MAX : (int64_t)*out, bytes, name);
  if (data->bytes < 0) {
    PyErr_Format(PyExc_TypeError, "%s is needed for memory at an address", name);
    return false;
  }
  *out = (uint64_t)(data->bytes / bytes);
  return true;
}

PyObject *cgrpy_keep_in(PyObject *const *views, int count, cgrpy_data *memory) {
  PyObject *hold = cgrpy_hold(memory);
  for (int i = 0; hold != NULL && i < count; i++) /* the address is the first pointer of a view, and so its first keep */
    cgrpy_replace(&((cgrpy_object *)views[i])->keeps[0], Py_NewRef(hold));
  Py_XDECREF(hold);
  if (hold == NULL)
    return NULL;
  return count == 1 ? Py_NewRef(views[0]) : PyTuple_Pack(2, views[0], views[1]);
}

/* -------------------------------------------------------------------------------------------------------------- metadata */

static bool check_field(cgrpy_object *array, int32_t at, const char *name, int64_t elements) {
  const cgrpy_struct *info = array->info;
  for (int i = 0; i < info->num_fields; i++) {
    const cgrpy_field *field = &info->fields[i];
    PyObject *hold = field->keep < 0 ? NULL : array->keeps[at * info->num_keeps + field->keep];
    if (strcmp(field->name, name) == 0 && hold != NULL)
      return cgrpy_holds_on_host(cgrpy_held(hold), elements, (int)field->bytes, name);
  }
  return true;
}

static int64_t rows_of(int64_t rows, int64_t stride) { return stride > 0 && stride < ((int64_t)1 << 40) ? rows * stride : 0; }

static bool check_group(cgrpy_object *groups, int32_t at, const cgr_metadata *m) {
  const cgr_metadata_group *group = &((cgr_metadata_group *)groups->data)[at];
  return check_field(groups, at, "page_table", rows_of(m->max_rows, group->page_table_stride)) &&
         check_field(groups, at, "slot_mapping", m->padded_tokens) &&
         check_field(groups, at, "kv_indptr", (int64_t)m->padded_requests + 1) &&
         check_field(groups, at, "kv_last_page_len", m->padded_requests);
}

static bool check_on_demand(cgrpy_object *wanted, int32_t at, const cgr_metadata *m) {
  const cgr_metadata_on_demand *one = &((cgr_metadata_on_demand *)wanted->data)[at];
  return check_field(wanted, at, "block_table", rows_of(m->padded_requests, one->block_table_stride)) &&
         check_field(wanted, at, "prefill_kv_indptr", (int64_t)m->padded_requests + 1) &&
         check_field(wanted, at, "prefill_kv_last_page_len", m->padded_requests);
}

/* Rows of prefills, as long as those of the block table. */
static bool check_prefills(cgrpy_object *metadata, cgrpy_object *wanted, const cgr_metadata *m) {
  PyObject *arrays = cgrpy_kept(metadata, "prefill_block_table");
  const Py_ssize_t count = arrays ? PyTuple_Size(PyTuple_GetItem(arrays, 2)) : 0;
  if (arrays != NULL && count < m->num_groups)
    PyErr_Format(PyExc_ValueError, "prefill_block_table has %zd items, expected at least %d", count, (int)m->num_groups);
  for (int32_t i = 0; !PyErr_Occurred() && wanted != NULL && i < count && i < m->num_groups && i < wanted->count; i++) {
    PyObject *hold = cgrpy_one_of(arrays, i);
    const int64_t elements = rows_of(m->padded_requests, ((cgr_metadata_on_demand *)wanted->data)[i].block_table_stride);
    if (hold != NULL && !cgrpy_holds_on_host(cgrpy_held(hold), elements, 4, "prefill_block_table"))
      return false;
  }
  return !PyErr_Occurred();
}

/* The arrays of a group are as long as the fields around it say. */
bool cgrpy_check_metadata(cgrpy_object *metadata) {
  const cgr_metadata *fields = (cgr_metadata *)metadata->data;
  cgrpy_object *groups = (cgrpy_object *)cgrpy_kept(metadata, "groups");
  cgrpy_object *wanted = (cgrpy_object *)cgrpy_kept(metadata, "on_demand");
  for (int32_t i = 0; groups != NULL && i < fields->num_groups && i < groups->count; i++)
    if (!check_group(groups, i, fields))
      return false;
  for (int32_t i = 0; wanted != NULL && i < fields->num_groups && i < wanted->count; i++)
    if (!check_on_demand(wanted, i, fields))
      return false;
  return check_prefills(metadata, wanted, fields);
}

/* ----------------------------------------------------------------------------------------------------------------- gather */

/* Elements up to the last one that a gather touches. Numbers that are out of range are cgr's to refuse. */
static int64_t extent_of(const cgr_kv_view *view, const cgr_gather *g, int64_t pages, int32_t head_dim) {
  const double last = (double)(pages - 1) * (double)view->stride_page + (double)(g->page_size - 1) * (double)view->stride_token +
                      (double)(g->num_kv_heads - 1) * (double)view->stride_head + (double)head_dim;
  return last < 0 ? 0 : last > 1e15 ? (int64_t)1e15 : (int64_t)last;
}

static bool check_view(cgrpy_object *gather, const char *name, int64_t pages, int32_t head_dim) {
  const cgrpy_struct *info = gather->info;
  for (int i = 0; i < info->num_fields; i++) {
    const cgrpy_field *field = &info->fields[i];
    if (strcmp(field->name, name) != 0)
      continue;
    const cgr_kv_view *view = (cgr_kv_view *)(gather->data + field->offset);
    PyObject *hold = gather->keeps[field->keep]; /* the address is the first pointer of a view */
    const int bytes = (int)cgr_dtype_size((cgr_dtype)view->dtype);
    if (hold != NULL && bytes > 0)
      return cgrpy_holds_on_host(cgrpy_held(hold), extent_of(view, (cgr_gather *)gather->data, pages, head_dim), bytes, name);
  }
  return true;
}

/* Of requests up to the last live one. */
static int64_t count_indices(const cgr_gather *g) {
  const int32_t live = g->live_requests != NULL ? *g->live_requests : g->num_requests;
  int64_t count = 0;
  for (int32_t i = 0; g->kv_indptr != NULL && i <= live && i <= g->num_requests; i++)
    count = g->kv_indptr[i] > count ? g->kv_indptr[i] : count;
  return count;
}

/* What the arrays say and how far the views reach; their other lengths have been checked. */
bool cgrpy_check_gather(cgrpy_object *gather) {
  const cgr_gather *g = (cgr_gather *)gather->data;
  const int32_t v_dim = g->head_dim_v != 0 ? g->head_dim_v : g->head_dim;
  return check_field(gather, 0, "kv_indices", count_indices(g)) && check_view(gather, "k", g->num_pages, g->head_dim) &&
         check_view(gather, "v", g->num_pages, v_dim) && check_view(gather, "out_k", g->capacity, g->head_dim) &&
         check_view(gather, "out_v", g->capacity, v_dim);
}

/* --------------------------------------------------------------------------------------------------------------- cascades */

static bool read_workspaces(PyObject *sequence, cgrpy_data *out) {
  PyObject *list = PySequence_List(sequence);
  bool ok = list != NULL;
  if (ok && PyList_Size(list) != 2) {
    PyErr_SetString(PyExc_ValueError, "int_workspaces are two arrays, of the shared level and of the unique one");
    ok = false;
  }
  for (int i = 0; ok && i < 2; i++)
    ok = cgrpy_to_data(PyList_GetItem(list, i), CGRPY_ANY, 1, true, "int_workspaces", &out[i]) &&
         cgrpy_holds_on_host(&out[i], 0, 1, "int_workspaces");
  Py_XDECREF(list);
  return ok;
}

static PyObject *build_cascade(cgrpy_object *cascade, cgrpy_object *input, const cgrpy_data *data) {
  PyObject *plans = cgrpy_new_array(cgrpy_type_flashinfer_plan, 2, NULL);
  if (plans == NULL)
    return NULL;
  void *const memory[2] = { data[0].pointer, data[1].pointer };
  const size_t bytes[2] = { (size_t)(data[0].bytes > 0 ? data[0].bytes : 0), (size_t)(data[1].bytes > 0 ? data[1].bytes : 0) };
  const cgr_status status = cgr_flashinfer_cascade_build(cgrpy_fields(cascade), cgrpy_fields(input), memory, bytes,
                                                         cgrpy_fields((cgrpy_object *)plans));
  PyObject *list = status == CGR_OK ? cgrpy_list(plans) : cgrpy_raise(status);
  PyObject *tuple = list ? PyList_AsTuple(list) : NULL;
  Py_XDECREF(list);
  Py_DECREF(plans);
  return tuple;
}

PyObject *cgrpy_py_cascade_build(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
  static const char *const names[] = { "cascade", "input", "int_workspaces", NULL };
  PyObject *a[3], *result = NULL;
  cgrpy_object *cascade, *input;
  cgrpy_data data[2] = { { 0 }, { 0 } };
  (void)self;
  if (cgrpy_arguments("flashinfer_cascade_build", names, 3, args, nargs, keywords, a) &&
      cgrpy_is(a[0], cgrpy_type_flashinfer_cascade, false, "cascade", &cascade) &&
      cgrpy_is(a[1], cgrpy_type_flashinfer_prefill_input, false, "input", &input) && read_workspaces(a[2], data) &&
      cgrpy_check_host(cascade) && cgrpy_check(input))
    result = build_cascade(cascade, input, data);
  cgrpy_data_end(&data[0]);
  cgrpy_data_end(&data[1]);
  return result;
}
