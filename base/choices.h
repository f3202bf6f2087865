/* The values that an enum's argument may have, and the bits of a word of flags: a refusal lists them by name. */
#ifndef CGR_BASE_CHOICES_H
#define CGR_BASE_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

#include "cgr/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cgr__choices {
  const char *type; /* "cgr_dtype"; of flags their prefix: "CGR_REQUEST_*" */
  bool flags;
  int64_t first, last; /* of flags the lowest and the highest bit: all between are known, too */
  const char *(*name)(int64_t value);
} cgr__choices;

/* Of the enums of base/names.c that functions take. */
extern const cgr__choices cgr__dtypes, cgr__kv_layouts, cgr__graph_kinds, cgr__graph_modes, cgr__graph_supports, cgr__wait_modes,
    cgr__ranks_rules, cgr__timing_modes, cgr__host_schedules, cgr__dimensions, cgr__dimensions_of_steps, cgr__sources,
    cgr__fa3_layouts, cgr__flashmla_layouts, cgr__flashinfer_layouts;
extern const cgr__choices cgr__attention_flags, cgr__layer_flags, cgr__value_flags, cgr__backend_flags, cgr__abilities,
    cgr__planned_bits, cgr__request_flags, cgr__capture_flags, cgr__transform_flags;

static inline bool cgr__is_choice(const cgr__choices *choices, int64_t value) {
  return choices->flags ? ((uint64_t)value & ~(2 * (uint64_t)choices->last - (uint64_t)choices->first)) == 0
                        : value >= choices->first && value <= choices->last;
}

/* "is 7, expected 0 .. 2, a cgr_graph_kind (0 none, 1 piecewise, 2 full)". */
typedef struct cgr__choices_text {
  char text[448];
} cgr__choices_text;
cgr__choices_text cgr__choices_refusal(const cgr__choices *choices, int64_t value);

/* The value is none of them. `what` names the argument: "capture.flags". */
cgr_status cgr__refuse_choice(const char *function, const char *what, const cgr__choices *choices, int64_t value);
/* CGR_ERROR_INVALID_ENUM unless it is one. */
static inline cgr_status cgr__check_choice(const char *function, const char *what, const cgr__choices *choices, int64_t value) {
  return cgr__is_choice(choices, value) ? CGR_OK : cgr__refuse_choice(function, what, choices, value);
}

#ifdef __cplusplus
}
#endif
#endif
