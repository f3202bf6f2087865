/* What a layer reads and writes of memory that the engine gives with a configuration, as strided sets: points at strides, each a
 * run of bytes. Cache layouts nest: sorted by stride, each dimension steps over all that the smaller ones cover. */
#ifndef CGR_RUNTIME_CONFIG_STRIDED_SET_H
#define CGR_RUNTIME_CONFIG_STRIDED_SET_H

#include <stdbool.h>

#include "cgr/cgr.h"

enum { CGR__STRIDED_SET_DIMS = 4 };

/* In bytes, its dimensions sorted from the largest stride down. */
typedef struct cgr__strided_set {
  int64_t base;
  int64_t stride[CGR__STRIDED_SET_DIMS], count[CGR__STRIDED_SET_DIMS];
  int64_t run;  /* of one point */
  int64_t span; /* from the base to the end of the last point */
} cgr__strided_set;

/* Bytes without a gap. */
cgr__strided_set cgr__strided_set_of_run(const void *base, int64_t bytes);
/* Whether no two of its points overlap, as far as nested dimensions can tell. */
bool cgr__strided_set_nests(const cgr__strided_set *strided);
/* Whether it has a base, and ends within the address space. */
bool cgr__strided_set_is_placed(const cgr__strided_set *strided);
/* Whether two that are placed may have a byte in common: exact where their strides are the same or one is a run; otherwise their
 * ranges must not meet, within all memory or within a page if pages have the same stride. */
bool cgr__strided_sets_meet(const cgr__strided_set *a, const cgr__strided_set *b);

/* Numbers of a layer, or the least where one is not known: heads, elements of a token's run in a view of the layer's own, bits of
 * an element. */
static inline int32_t cgr__or_one(int32_t number) { return number > 0 ? number : 1; }
static inline int32_t cgr__known_dim(const cgr_layer *layer, const cgr_kv_view *view) {
  return cgr__or_one(view == &layer->v ? layer->head_dim_v : layer->head_dim);
}
static inline int64_t cgr__known_bits(const cgr_kv_view *view) {
  return view->dtype != 0 ? (int64_t)cgr_dtype_bits((cgr_dtype)view->dtype) : 8;
}
/* Bytes that so many neighbouring elements touch. */
static inline int64_t cgr__known_bytes(const cgr_kv_view *view, int64_t elements) {
  return (elements * cgr__known_bits(view) + 7) / 8;
}
/* The same memory as elements of whole bytes: two elements of 4 bits are one u8. `dim`: elements of a head. */
static inline cgr_kv_view cgr__in_whole_bytes(const cgr_kv_view *view, int32_t *dim) {
  cgr_kv_view bytes = *view;
  if (cgr_dtype_bits((cgr_dtype)view->dtype) >= 8)
    return bytes;
  bytes.dtype = CGR_DTYPE_U8;
  bytes.stride_page /= 2;
  bytes.stride_token /= 2;
  bytes.stride_head /= 2;
  *dim /= 2;
  return bytes;
}

/* The tensors that a layer names. Those of its cache come first; the arrays are there without one, too. */
typedef enum cgr__layer_tensor {
  CGR__LAYER_TENSOR_K,
  CGR__LAYER_TENSOR_V,
  CGR__LAYER_TENSOR_K_SCALE,
  CGR__LAYER_TENSOR_V_SCALE,
  CGR__LAYER_TENSOR_SLOPES,
  CGR__LAYER_TENSOR_SINKS,
  CGR__NUM_LAYER_TENSORS
} cgr__layer_tensor;
/* The field that gives it: "k.scale". */
const char *cgr__layer_tensor_name(cgr__layer_tensor tensor);
/* False: the layer does not have it, or has it from another (kv_source). A cache without an address is not placed. Numbers that
 * are not known count as the least; of a view without strides, as a check leaves a bad one, only the first point is known. */
bool cgr__layer_strided_set(const cgr_layer *layer, const cgr_group *group, cgr__layer_tensor tensor, cgr__strided_set *strided);

#endif
