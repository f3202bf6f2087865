/* cgr_gather_build and cgr_gather_enqueue: validation, then the kernel. They need no runtime. */
#include "cgr/gather.h"

#include <stdio.h>

#include "base/range.h"
#include "base/sized.h"
#include "base/status.h"
#include "cgr/names.h"
#include "devices/enqueue.h"
#include "kernels/gather.h"
#include "kernels/quantise.h"
#include "runtime/config/strided_set.h"

#define MAX_SPAN ((int64_t)1 << 56) /* bytes */

/* One of the four views, and the pool that it is in. */
typedef struct tensor {
  const char *function, *name;
  const cgr_kv_view *view;
  int64_t num_pages;
  int32_t page_size, num_kv_heads, head_dim;
} tensor;

/* ------------------------------------------------------------------------------------------------------------- the numbers */

static cgr_status check_sizes(const char *function, const cgr_gather *g) {
  const cgr__field_range ranges[] = {
    { "num_requests", g->num_requests, 1, CGR__MAX_REQUESTS },
    { "num_kv_heads", g->num_kv_heads, 1, CGR__MAX_Q_HEADS },
    { "head_dim", g->head_dim, 1, CGR__MAX_HEAD_DIM },
    { "head_dim_v", g->head_dim_v, 1, CGR__MAX_HEAD_DIM },
    { "page_size", g->page_size, 1, CGR__MAX_PAGE_SIZE },
    { "num_pages", g->num_pages, 1, INT32_MAX },
    { "capacity", g->capacity, 1, INT32_MAX },
    { "table_stride", g->table_stride, 1, CGR__MAX_STRIDE },
  };
  const int32_t widest = g->head_dim > g->head_dim_v ? g->head_dim : g->head_dim_v;
  CGR__TRY(CGR__CHECK_RANGES(function, ranges));
  if (g->read_trash_page < 0 || g->read_trash_page >= g->num_pages)
    return cgr__fail(CGR_ERROR_PAGE_OUT_OF_RANGE, "%s: read_trash_page is %d, expected 0 .. %lld (num_pages - 1)", function,
                     g->read_trash_page, (long long)g->num_pages - 1);
  if ((int64_t)g->page_size * g->num_kv_heads > INT32_MAX / widest)
    return cgr__fail(CGR_ERROR_UNSUPPORTED,
                     "%s: a page has %d tokens of %d heads of %d elements, expected fewer than 2^31 in all", function,
                     g->page_size, g->num_kv_heads, widest);
  return CGR_OK;
}

/* --------------------------------------------------------------------------------------------------------------- the views */

static bool is_half(const cgr_kv_view *view) { return view->dtype == CGR_DTYPE_FP16 || view->dtype == CGR_DTYPE_BF16; }

/* Of a dtype that is not served, or that this library does not know. */
static cgr_status refusal_of(const cgr_kv_view *view) {
  return cgr_dtype_bits((cgr_dtype)view->dtype) ? CGR_ERROR_UNSUPPORTED : CGR_ERROR_INVALID_ENUM;
}

static cgr_status check_source_dtype(const tensor *t) {
  const cgr_kv_view *view = t->view;
  const char *name = cgr_dtype_name((cgr_dtype)view->dtype);
  if (!is_half(view) && !cgr__is_quantised(view->dtype))
    return cgr__fail(refusal_of(view), "%s: %s.dtype is %d (%s), expected fp8_e4m3, fp8_e5m2, i8, fp16 or bf16", t->function,
                     t->name, view->dtype, name);
  if (view->dtype == CGR_DTYPE_I8 && !view->scale)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: %s.scale is NULL, expected factors: %s.dtype is i8", t->function, t->name,
                     t->name);
  if (is_half(view) && view->scale)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: %s.scale is %p, expected NULL: %s.dtype is %s, which has no factors",
                     t->function, t->name, (const void *)view->scale, t->name, name);
  return CGR_OK;
}

static cgr_status check_out_dtype(const tensor *t) {
  if (!is_half(t->view))
    return cgr__fail(refusal_of(t->view), "%s: %s.dtype is %d (%s), expected fp16 or bf16", t->function, t->name, t->view->dtype,
                     cgr_dtype_name((cgr_dtype)t->view->dtype));
  if (t->view->scale)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: %s.scale is %p, expected NULL: the output has values, no factors", t->function,
                     t->name, (const void *)t->view->scale);
  return CGR_OK;
}

/* With `elements` of `size` bytes from `base` on. */
static bool spans_memory(const void *base, int64_t elements, int64_t size) {
  return elements <= MAX_SPAN / size && (uintptr_t)base <= (uintptr_t)(INT64_MAX - elements * size);
}

static cgr_status check_scale(const tensor *t) {
  static const char *const dims[] = { "page", "token", "head", "d" };
  const cgr_kv_view *view = t->view;
  const int64_t strides[] = { view->scale_stride_page, view->scale_stride_token, view->scale_stride_head, view->scale_stride_d };
  const int64_t counts[] = { t->num_pages, t->page_size, t->num_kv_heads, t->head_dim };
  int64_t elements = 1;
  for (int d = 0; d < 4; d++) {
    if (!view->scale && strides[d] != 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s.scale_stride_%s is %lld, expected 0, as scale is NULL", t->function,
                       t->name, dims[d], (long long)strides[d]);
    if (strides[d] < 0 || strides[d] > CGR__MAX_STRIDE)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "%s: %s.scale_stride_%s is %lld, expected 0 (the same for all) .. 2^31 elements", t->function, t->name,
                       dims[d], (long long)strides[d]);
    elements += (counts[d] - 1) * strides[d];
  }
  if ((uintptr_t)view->scale % sizeof *view->scale != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s.scale is %p, expected a multiple of %zu bytes", t->function, t->name,
                     (const void *)view->scale, sizeof *view->scale);
  if (!spans_memory(view->scale, elements, sizeof *view->scale))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s.scale is %p, expected factors of %lld pages within 2^56 bytes of memory",
                     t->function, t->name, (const void *)view->scale, (long long)t->num_pages);
  return CGR_OK;
}

static cgr_status check_places(const tensor *t) {
  const cgr_kv_view *view = t->view;
  const int64_t size = (int64_t)cgr_dtype_size((cgr_dtype)view->dtype);
  const int64_t strides[] = { view->stride_page, view->stride_token, view->stride_head };
  const int64_t counts[] = { t->num_pages, t->page_size, t->num_kv_heads };
  int64_t elements = t->head_dim;
  if (!view->base)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: %s.base is NULL, expected an address", t->function, t->name);
  if ((uintptr_t)view->base % 16 != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s.base is %p, expected a multiple of 16", t->function, t->name,
                     view->base);
  if (t->head_dim % (16 / size) != 0)
    return cgr__fail(CGR_ERROR_UNSUPPORTED, "%s: %s has heads of %d elements, expected a multiple of %d (16 bytes)", t->function,
                     t->name, t->head_dim, (int)(16 / size));
  for (int d = 0; d < 3; d++) {
    if (strides[d] <= 0 || strides[d] > CGR__MAX_STRIDE || strides[d] % (16 / size) != 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                       "%s: %s has strides %lld, %lld, %lld, expected positive multiples of 16 bytes up to 2^31 elements",
                       t->function, t->name, (long long)strides[0], (long long)strides[1], (long long)strides[2]);
    elements += (counts[d] - 1) * strides[d];
  }
  if (!spans_memory(view->base, elements, size))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s.base is %p, expected %lld pages within 2^56 bytes of memory",
                     t->function, t->name, view->base, (long long)t->num_pages);
  return CGR_OK;
}

static cgr_status check_view(const char *function, const char *name, const cgr_gather *g, const cgr_kv_view *view) {
  const bool is_out = view == &g->out_k || view == &g->out_v, is_v = view == &g->v || view == &g->out_v;
  const tensor t = { .function = function,
                     .name = name,
                     .view = view,
                     .num_pages = is_out ? g->capacity : g->num_pages,
                     .page_size = g->page_size,
                     .num_kv_heads = g->num_kv_heads,
                     .head_dim = is_v ? g->head_dim_v : g->head_dim };
  char what[64];
  snprintf(what, sizeof what, "%s: %s.reserved", function, name);
  CGR__TRY(cgr__check_unused(what, view->reserved));
  CGR__TRY(is_out ? check_out_dtype(&t) : check_source_dtype(&t));
  CGR__TRY(check_places(&t));
  return check_scale(&t);
}

/* ------------------------------------------------------------------------------------------------------------ what overlaps */

/* Two layers whose caches are the pool and the output. */
typedef struct caches {
  cgr_layer layer[2];
  cgr_group group[2];
} caches;

static caches caches_of(const cgr_gather *g) {
  caches c = { { CGR_LAYER_INIT, CGR_LAYER_INIT }, { CGR_GROUP_INIT, CGR_GROUP_INIT } };
  for (int i = 0; i < 2; i++) {
    c.layer[i].num_kv_heads = g->num_kv_heads;
    c.layer[i].head_dim = g->head_dim;
    c.layer[i].head_dim_v = g->head_dim_v;
    c.layer[i].k = i == 0 ? g->k : g->out_k;
    c.layer[i].v = i == 0 ? g->v : g->out_v;
    c.group[i].page_size = g->page_size;
    c.group[i].num_pages = i == 0 ? g->num_pages : g->capacity;
  }
  return c;
}

static cgr_status check_overlaps(const char *function, const cgr_gather *g) {
  static const char *const outputs[] = { "out_k", "out_v" };
  const caches c = caches_of(g);
  cgr__strided_set out[2], in;
  for (int o = 0; o < 2; o++) {
    const cgr__layer_tensor which = o == 0 ? CGR__LAYER_TENSOR_K : CGR__LAYER_TENSOR_V;
    if (!cgr__layer_strided_set(&c.layer[1], &c.group[1], which, &out[o]) || !cgr__strided_set_nests(&out[o]))
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s has strides that overlap, expected room for %d tokens of %d heads",
                       function, outputs[o], g->page_size, g->num_kv_heads);
  }
  if (cgr__strided_sets_meet(&out[0], &out[1]))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: out_k and out_v overlap, expected memory of their own", function);
  for (int o = 0; o < 2; o++)
    for (cgr__layer_tensor t = CGR__LAYER_TENSOR_K; t <= CGR__LAYER_TENSOR_V_SCALE; t = (cgr__layer_tensor)(t + 1))
      if (cgr__layer_strided_set(&c.layer[0], &c.group[0], t, &in) && cgr__strided_sets_meet(&in, &out[o]))
        return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s overlaps %s, expected memory of its own", function, outputs[o],
                         cgr__layer_tensor_name(t));
  return CGR_OK;
}

/* -------------------------------------------------------------------------------------------------------------- the arrays */

static cgr_status check_arrays(const char *function, const cgr_gather *g) {
  const struct {
    const char *name;
    const int32_t *array;
    bool required;
  } arrays[] = {
    { "kv_indptr", g->kv_indptr, true },          { "kv_indices", g->kv_indices, true },
    { "first_request", g->first_request, false }, { "live_requests", g->live_requests, false },
    { "block_table", g->block_table, true },      { "overflow", g->overflow, true },
  };
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
    if (!arrays[i].array && arrays[i].required)
      return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: %s is NULL, expected an array", function, arrays[i].name);
    if ((uintptr_t)arrays[i].array % sizeof(int32_t) != 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: %s is %p, expected a multiple of %zu bytes", function, arrays[i].name,
                       (const void *)arrays[i].array, sizeof(int32_t));
  }
  return CGR_OK;
}

static void take_args(const cgr_gather *g, cgr__gather_args *args) {
  *args = (cgr__gather_args){ .k = g->k,
                              .v = g->v,
                              .out_k = g->out_k,
                              .out_v = g->out_v,
                              .num_pages = g->num_pages,
                              .capacity = g->capacity,
                              .table_stride = g->table_stride,
                              .kv_indptr = g->kv_indptr,
                              .kv_indices = g->kv_indices,
                              .first_request = g->first_request,
                              .live_requests = g->live_requests,
                              .block_table = g->block_table,
                              .overflow = g->overflow,
                              .num_requests = g->num_requests,
                              .num_kv_heads = g->num_kv_heads,
                              .head_dim = g->head_dim,
                              .head_dim_v = g->head_dim_v,
                              .page_size = g->page_size,
                              .read_trash_page = g->read_trash_page };
}

/* All that can be checked without reading an array. */
static cgr_status read_gather(const char *function, const cgr_gather *gather, cgr__gather_args *args) {
  cgr_gather g;
  char what[64];
  snprintf(what, sizeof what, "%s: gather", function);
  CGR__TRY(cgr__sized_read(what, "CGR_GATHER_INIT", gather, &g, sizeof g));
  snprintf(what, sizeof what, "%s: reserved", function);
  CGR__TRY(cgr__check_unused(what, g.reserved));
  if (g.head_dim_v == 0)
    g.head_dim_v = g.head_dim;
  CGR__TRY(check_sizes(function, &g));
  CGR__TRY(check_view(function, "k", &g, &g.k));
  CGR__TRY(check_view(function, "v", &g, &g.v));
  CGR__TRY(check_view(function, "out_k", &g, &g.out_k));
  CGR__TRY(check_view(function, "out_v", &g, &g.out_v));
  CGR__TRY(check_overlaps(function, &g));
  CGR__TRY(check_arrays(function, &g));
  take_args(&g, args);
  return CGR_OK;
}

/* ------------------------------------------------------------------------------------------------------- the public calls */

static cgr_status check_row(const char *function, const cgr__gather_args *a, int32_t request) {
  const int32_t begin = a->kv_indptr[request], end = a->kv_indptr[request + 1];
  char name[40];
  snprintf(name, sizeof name, "kv_indptr[%d]", request + 1);
  CGR__TRY(cgr__check_range(function, name, end, begin, INT32_MAX));
  if (end - begin > a->table_stride)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: request %d has %d pages, expected at most %lld (table_stride)", function,
                     request, end - begin, (long long)a->table_stride);
  for (int32_t i = begin; i < end; i++)
    if (a->kv_indices[i] < 0 || a->kv_indices[i] >= a->num_pages)
      return cgr__fail(CGR_ERROR_PAGE_OUT_OF_RANGE, "%s: kv_indices[%d] is %d, expected 0 .. %lld (request %d)", function, i,
                       a->kv_indices[i], (long long)a->num_pages - 1, request);
  return CGR_OK;
}

static cgr_status check_live(const char *function, const cgr__gather_args *a) {
  const int32_t live = a->live_requests ? *a->live_requests : a->num_requests, first = a->first_request ? *a->first_request : 0;
  CGR__TRY(cgr__check_range(function, "live_requests[0]", live, 0, a->num_requests));
  CGR__TRY(cgr__check_range(function, "first_request[0]", first, 0, live));
  char name[40];
  snprintf(name, sizeof name, "kv_indptr[%d]", first);
  CGR__TRY(cgr__check_range(function, name, a->kv_indptr[first], 0, INT32_MAX));
  for (int32_t b = first; b < live; b++)
    CGR__TRY(check_row(function, a, b));
  return CGR_OK;
}

cgr_status cgr_gather_build(const cgr_gather *gather) {
  cgr__gather_args args;
  CGR__TRY(read_gather("cgr_gather_build", gather, &args));
  CGR__TRY(check_live("cgr_gather_build", &args));
  cgr__kernel_gather.host(&args);
  return CGR_OK;
}

cgr_status cgr_gather_enqueue(cgr_device *device, const cgr_gather *gather, cudaStream_t stream) {
  cgr__gather_args args;
  CGR__TRY(cgr__check_enqueue("cgr_gather_enqueue", device, stream));
  CGR__TRY(read_gather("cgr_gather_enqueue", gather, &args));
  return cgr__enqueue_kernel("cgr_gather_enqueue", device, &cgr__kernel_gather, &args, stream);
}
