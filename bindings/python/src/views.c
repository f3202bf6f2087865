/* Whether arrays are as large as what cgr reads and writes in them: caches of layers, and q, k, v and out of attention calls.
 * Numbers that are out of range are cgr's to refuse. */
#include <string.h>

#include "core.h"
#include "generated_help.h"

/* What keeps the array of a view, which is the first that the struct keeps there; NULL: an address, or none. */
static const cgrpy_data *array_of(const cgrpy_struct *info, PyObject *const *keeps, const char *name) {
  for (int i = 0; i < info->num_fields; i++)
    if (strcmp(info->fields[i].name, name) == 0)
      return keeps[info->fields[i].keep] != NULL ? cgrpy_held(keeps[info->fields[i].keep]) : NULL;
  return NULL;
}

static double at_most(int64_t number, int64_t stride) { return number > 0 && stride > 0 ? (double)number * (double)stride : 0; }

/* Elements up to the last one; `last` is how far the last head reaches. */
static bool holds_elements(const cgrpy_data *array, const char *name, double elements, int32_t dtype, const char *what) {
  const int bits = cgr_dtype_bits((cgr_dtype)dtype);
  const double bytes = elements * bits / 8;
  if (array == NULL || bits == 0)
    return true;
  if (!cgrpy_fits(array, dtype, name))
    return false;
  if (array->bytes < 0 || bytes <= (double)array->bytes || bytes > 1e18)
    return true;
  PyErr_Format(PyExc_ValueError, "%s has %zd bytes, expected at least %lld: %s", name, array->bytes, (long long)bytes, what);
  return false;
}

/* ------------------------------------------------------------------------------------------------------------------ caches */

static bool check_cache(const cgrpy_object *layers, int32_t at, const char *name, const cgr_kv_view *view, const cgr_group *group,
                        int32_t head_dim) {
  const cgr_layer *layer = &((const cgr_layer *)layers->data)[at];
  const int page_size = group->page_size != 0 ? group->page_size : 16;
  const cgrpy_data *array = array_of(layers->info, layers->keeps + at * layers->info->num_keeps, name);
  const double elements = at_most(group->num_pages - 1, view->stride_page) + at_most(page_size - 1, view->stride_token) +
                          at_most(layer->num_kv_heads - 1, view->stride_head) + head_dim;
  char full[64], what[96];
  PyOS_snprintf(full, sizeof full, "layers[%d].%s", (int)at, name);
  PyOS_snprintf(what, sizeof what, "%lld pages of %d tokens", (long long)group->num_pages, page_size);
  return holds_elements(array, full, elements, view->dtype, what);
}

bool cgrpy_check_caches(const cgrpy_object *config) {
  const cgr_config *fields = (const cgr_config *)config->data;
  const cgrpy_object *layers = (const cgrpy_object *)cgrpy_kept(config, "layers");
  for (int32_t i = 0; layers != NULL && i < fields->num_layers; i++) {
    const cgr_layer *layer = &((const cgr_layer *)layers->data)[i];
    if (layer->kv_source != 0 || (layer->flags & CGR_LAYER_NO_CACHE) != 0 || layer->group < 0 ||
        layer->group >= fields->num_groups)
      continue;
    const cgr_group *group = &fields->groups[layer->group];
    if (!check_cache(layers, i, "k", &layer->k, group, layer->head_dim) ||
        !check_cache(layers, i, "v", &layer->v, group, layer->head_dim_v != 0 ? layer->head_dim_v : layer->head_dim))
      return false;
  }
  return true;
}

/* -------------------------------------------------------------------------------------------------------------- attention */

static bool check_view(const cgrpy_object *attention, const char *name, const cgr_view *view, int32_t tokens, int32_t heads,
                       int32_t head_dim) {
  char full[64], what[96];
  const double elements = at_most(tokens - 1, view->stride_token) + at_most(heads - 1, view->stride_head) + head_dim;
  PyOS_snprintf(full, sizeof full, "attention.%s", name);
  PyOS_snprintf(what, sizeof what, "%d tokens, padding included, of %d heads", (int)tokens, (int)heads);
  return holds_elements(array_of(attention->info, attention->keeps, name), full, elements, view->dtype, what);
}

bool cgrpy_check_attention(const cgrpy_handle *recorder, cgrpy_object *attention) {
  const cgr_attention *a = (const cgr_attention *)attention->data;
  const cgr_config *config = (const cgr_config *)((cgrpy_object *)recorder->parent->config)->data;
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  if (a->layer < 0 || a->layer >= config->num_layers || cgr_record_get_info(recorder->pointer, &info) != CGR_OK)
    return true;
  const cgr_layer *layer = &config->layers[a->layer];
  const int32_t dim_v = layer->head_dim_v != 0 ? layer->head_dim_v : layer->head_dim;
  return check_view(attention, "q", &a->q, info.num_tokens, layer->num_q_heads, layer->head_dim) &&
         check_view(attention, "k", &a->k, info.num_tokens, layer->num_kv_heads, a->k2.data ? dim_v : layer->head_dim) &&
         check_view(attention, "v", &a->v, info.num_tokens, layer->num_kv_heads, dim_v) &&
         check_view(attention, "out", &a->out, info.num_tokens, layer->num_q_heads, dim_v) &&
         check_view(attention, "lse", &a->lse, info.num_tokens, layer->num_q_heads, 1);
}
