/* Length sets of a configuration: the sequences themselves, and what rows have next to them. */
#include "runtime/config/config.h"

void cgr__check_length_set(const cgr__setup *setup, cgr_layer *l, int32_t i, cgr__findings *f) {
  cgr__field field = cgr__field_of("layers", i, "length_set");
  const cgr_group *g = cgr__group_of(setup, l->group);
  int32_t given = l->length_set;
  cgr__read_length_set(setup, field.name, &l->length_set, f);
  if (l->length_set != given)
    return;
  if (l->group >= 0 && g->size != 0 && !(l->flags & CGR_LAYER_NO_CACHE) && l->length_set != g->length_set)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is %d, expected %d as in groups[%d], whose pages are its cache",
                      l->length_set, g->length_set, l->group);
}

/* They are data of the rows, as an engine may declare, that only cgr_request_set_other_length sets. */
void cgr__setup_lengths(cgr__setup *setup, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  setup->lengths = -1;
  if (c->num_length_sets == 1)
    return;
  if (setup->num_declared == CGR__MAX_DECLARED) {
    cgr__findings_add(f, CGR_ERROR_UNSUPPORTED, "num_buffers", "is %d, expected one less with num_length_sets %d", c->num_buffers,
                      c->num_length_sets);
    return;
  }
  setup->lengths = setup->num_declared++;
  setup->declared[setup->lengths] = (cgr__declared){ .dimension = CGR_DIMENSION_ROWS,
                                                     .dtype = CGR_DTYPE_I32,
                                                     .source = CGR_SOURCE_STAGED,
                                                     .rows = (int64_t)c->max_rows + 1,
                                                     .width = c->num_length_sets - 1 };
}
