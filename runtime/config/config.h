/* A configuration after checking: defaults filled in, arrays of known size, everything that sizes the runtime.
 *
 *   read.c      all of it; the limits and the modes   validate.c      cgr_validate, cgr_runtime_memory
 *   groups.c    groups                                layers.c        layers
 *   views.c     KV views, one by one                  overlaps.c      what layers are given, in pairs
 *   backends.c  backends, and what each can do        native.c        the library's own backend
 *   needs.c     what backends can do and want
 *   planned.c   what layers of a backend share        buffers.c       buffers of the engine, of other lengths, on demand
 *   keys.c      the mode and the captured sizes       memory.c        the caller's memory
 *   fields.c    what readers of all structs use       strided_set.c   memory at strides */
#ifndef CGR_RUNTIME_CONFIG_CONFIG_H
#define CGR_RUNTIME_CONFIG_CONFIG_H

#include <stdbool.h>

#include "base/choices.h"
#include "base/findings.h"
#include "base/limits.h"
#include "buffers/layout.h"
#include "cgr/cgr.h"
#include "devices/device.h"
#include "graphs/graphs.h"
#include "kernels/registry.h"
#include "planners/metadata/decode_split.h"
#include "requests/batch.h"
#include "requests/rows.h"

/* How a backend plans. */
typedef struct cgr__planning {
  bool in_use;             /* some layer names it */
  uint8_t programs;        /* in whose steps there is such a layer: a bit each */
  int32_t workspace, plan; /* index of the declared buffer; -1: it has none */
} cgr__planning;

typedef struct cgr__setup {
  cgr_config config;
  cgr_device_info device;
  bool checks;                          /* it has a layer that checks */
  struct cgr__allocations *allocations; /* memory that the device gave; NULL: it is not known */
  cgr_group groups[CGR__MAX_GROUPS];
  int64_t pool_tokens[CGR__MAX_GROUPS]; /* that a group's pages hold, at most */
  cgr_layer *layers;                    /* [config.num_layers]; malloc */
  cgr__declared declared[CGR__MAX_DECLARED];
  int32_t num_declared;                        /* those of the engine first, then those of backends, then `lengths`, `stops` */
  int32_t lengths;                             /* index of the buffer with the rows' lengths in sets 1 and up; -1: only set 0 */
  int32_t stops;                               /* the same of the rows' stops; -1: they have none */
  cgr_backend backends[1 + CGR__MAX_BACKENDS]; /* as layers name them: the library's own, then the engine's */
  bool backends_known;                         /* how many there are, and where */
  cgr__planning planning[1 + CGR__MAX_BACKENDS];
  char backend_names[1 + CGR__MAX_BACKENDS][32];
  cgr__decode_split split;   /* of the backends in use: the smallest threshold, uniform if one of them wants that */
  cgr_graph_support support; /* the least of all attention in use */
  bool exact_lengths;        /* some of it is below ALWAYS and has no bounds: uniform graphs serve only their own query length */
  cgr_graph_mode mode;       /* after lowering */
  char mode_reason[384];
  cgr__key_lists keys;
  cgr__limits limits;
  const cgr__kernel_kind *kinds[CGR__MAX_LAYERS]; /* the kernel that serves each layer of the library's own backend; NULL: the
                                                    layer is another backend's, or bad, or there is no device */
  cgr__plans plans;                               /* of those layers */
} cgr__setup;

/* Reads and checks all of a configuration and lays its buffers out; what is wrong goes to the findings. Only a configuration that
 * cannot be read at all is a failure, with a message of its own.
 *
 * `*dev`: the device to use instead of the configuration's, or NULL; becomes the device in use, or NULL if there is none.
 * `*owns`: it has been opened here, and is to be closed in any case. `setup` and `layout` come as zeros; `setup->layers` is to be
 * freed in any case. Both are whole when nothing was found. Otherwise `setup` is partial: size is 0 in groups and layers that
 * could not be read. */
cgr_status cgr__setup_read(const cgr_config *config, cgr_device **dev, bool *owns, cgr__setup *setup, cgr__layout *layout,
                           cgr__findings *findings);

/* What the rows are made for, and what a runtime keeps in ordinary memory besides itself. */
cgr__rows_config cgr__setup_rows(const cgr__setup *setup);
size_t cgr__setup_host_bytes(const cgr__setup *setup);
/* Of that, what flight recorder, statistics and timing take, whole cache lines; timing alone, the last of them; the text
 * that cgr_config.dump gets. */
size_t cgr__setup_flight_bytes(const cgr__setup *setup);
size_t cgr__setup_timing_bytes(const cgr__setup *setup);
int32_t cgr__setup_max_spans(const cgr__setup *setup); /* of a timed step */
size_t cgr__setup_dump_bytes(const cgr__setup *setup);

/* One function for each public struct. */
void cgr__setup_groups(cgr__setup *setup, cgr__findings *findings);
void cgr__setup_layers(cgr__setup *setup, cgr__findings *findings);
/* groups.c, once the layers are known: how far those of a group see, and whether its pages hold what they do. */
cgr__window_spans cgr__group_window_spans(const cgr__setup *setup, int32_t group);
void cgr__check_pools(const cgr__setup *setup, cgr__findings *findings);
/* buffers.c: the engine's own; where the rows' lengths in other sets and their stops are kept, after all others; those on demand
 * that are asked for, once the limits are known. */
void cgr__setup_buffers(cgr__setup *setup, cgr__findings *findings);
void cgr__setup_lengths(cgr__setup *setup, cgr__findings *findings);
void cgr__setup_stops(cgr__setup *setup, cgr__findings *findings);
void cgr__setup_on_demand(cgr__setup *setup, cgr__findings *findings);
/* backends.c: before the layers; one layer of a backend; what all that are in use allow. */
void cgr__setup_backends(cgr__setup *setup, cgr__findings *findings);
void cgr__check_backend(const cgr__setup *setup, const cgr_layer *layer, int32_t index, cgr__findings *findings);
void cgr__setup_support(cgr__setup *setup);
/* The same: what those that are in use keep for planning, after the engine's buffers. */
void cgr__setup_backend_plans(cgr__setup *setup, cgr__findings *findings);
bool cgr__setup_uses(const cgr__setup *setup, int32_t backend);
/* needs.c: whether the layer is what its backend describes, and its cache what that wants. */
void cgr__check_needs(const cgr__setup *setup, const cgr_layer *layer, int32_t index, cgr__findings *findings);
/* planned.c: what the layers of a backend must have in common. */
void cgr__check_planned(const cgr__setup *setup, cgr__findings *findings);
/* A flag of cgr_backend that an engine's cannot have in this version, next to CGR_BACKEND_*: it knows the library's append. Its
 * `check` also tells what the append cannot do, and its `record` enqueues one kernel, which may begin while the append runs. */
enum { CGR__BACKEND_KNOWS_APPEND = 1 << 16 };
/* native.c: what is asked of the library's own backend, which a runtime completes (cgr__native_complete); the plans of its
 * layers. */
cgr_backend cgr__native_backend(cgr__setup *setup);
void cgr__setup_native(cgr__setup *setup, cgr__findings *findings);

/* Where things are in the host's memory, from the first aligned address on. Without a backend in use there is nothing. */
typedef struct cgr__backend_plans_layout {
  int32_t num_keys;          /* with a graph; eager steps come after them */
  size_t states, step, made; /* of cgr__backend_plans; a scratch plan, which no step uses, is at offset 0 */
  size_t bytes;              /* 0: nothing */
} cgr__backend_plans_layout;
cgr__backend_plans_layout cgr__setup_backend_plans_layout(const cgr__setup *setup);
/* keys.c: the mode and the captured sizes. `max_requests`: the bound, whatever the configuration says. */
void cgr__setup_keys(cgr__setup *setup, int32_t max_requests, cgr__findings *findings);

/* The groups of other programs, a bit each. */
static inline uint32_t cgr__setup_other_groups(const cgr__setup *setup, int32_t program) {
  uint32_t others = 0;
  for (int32_t g = 0; g < setup->config.num_groups; g++)
    others |= setup->groups[g].program != program ? 1u << g : 0u;
  return others;
}

/* Whether the layer has cache views of its own: not those of kv_source, and not none (NO_CACHE). */
static inline bool cgr__owns_cache(const cgr_layer *layer) {
  return layer->kv_source == 0 && !(layer->flags & CGR_LAYER_NO_CACHE);
}

/* The group of a layer. If it is not known: a stand-in with the smallest page size and number of pages. */
const cgr_group *cgr__group_of(const cgr__setup *setup, int32_t i);

/* memory.c: the caller's memory; and whether what layers are given ends in the allocations that it begins in (false: not all). */
void cgr__check_memory(const cgr__setup *setup, const cgr__layout *layout, cgr__findings *findings);
bool cgr__check_layer_ends(const cgr__setup *setup, cgr__findings *findings);

/* views.c: a KV view and its scale. The first zeroes the strides of a bad view; the second returns false if the scale must be
 * ignored. */
void cgr__check_kv_view(const cgr__setup *setup, const cgr_layer *layer, int32_t index, cgr_kv_view *view, const char *name,
                        cgr__findings *findings);
bool cgr__check_kv_scale(const cgr__setup *setup, const cgr_layer *layer, int32_t index, const cgr_kv_view *view,
                         const char *name, cgr__findings *findings);
/* Whether pages of kernel_page_size are pages of the views, for layers whose backend reads what cgr's append writes. */
void cgr__check_kernel_pages(const cgr__setup *setup, const cgr_layer *layer, int32_t index, cgr__findings *findings);
bool cgr__check_no_scale_strides(const cgr_kv_view *view, int32_t index, const char *name, cgr__findings *findings);
/* overlaps.c: all that layers are given, against each other. */
void cgr__check_overlaps(const cgr__setup *setup, cgr__findings *findings);
/* Whether the layer's backend writes k and v itself. */
bool cgr__layer_appends_itself(const cgr__setup *setup, const cgr_layer *layer);
/* Whether v is a part of k and no more, as in MLA. */
bool cgr__v_is_part_of_k(const cgr__setup *setup, const cgr_layer *layer);
/* Bytes of an engine's page table; 0 if the group has none. */
static inline size_t cgr__page_table_bytes(const cgr__setup *setup, int32_t group) {
  const cgr_group *g = &setup->groups[group];
  size_t rows = (size_t)setup->config.max_rows + 1;
  return g->page_table ? rows * (size_t)g->page_table_stride * sizeof *g->page_table : 0;
}

/* fields.c. Whether value is in low .. high; a finding if it is not. */
bool cgr__in_range(cgr__findings *findings, const char *field, int64_t value, int64_t low, int64_t high);
/* The same; `why` tells what the bounds are, if not "". */
bool cgr__in_range_why(cgr__findings *findings, const char *field, int64_t value, int64_t low, int64_t high, const char *why);
/* Whether an enum's value, or a word of flags, is one of these; a finding that names them if not. */
bool cgr__is_one(cgr__findings *findings, const char *field, int64_t value, const cgr__choices *choices);
/* Whether it is a dtype whose elements are whole bytes; a finding if not. */
bool cgr__is_whole(cgr__findings *findings, const char *field, int32_t dtype);
/* Whether an array of the configuration can be read: a finding if its number is out of range, or if it is NULL and counted. With
 * a number of 0 it may be any address: that of an emptied vector, say. */
bool cgr__check_list(cgr__findings *findings, const char *count_name, const char *name, int32_t count, int32_t most,
                     const void *list);
/* Reads element i of such an array of structs (cgr__sized_read_at): a finding if it cannot be read, one for all if none after the
 * first can be found. */
bool cgr__read_element(const char *array, const char *init, const void *first, int32_t i, void *copy, size_t size,
                       cgr__findings *findings);
/* A finding if a reserved field is set. */
void cgr__findings_add_used(cgr__findings *findings, const char *field, int64_t value);
/* Formats a field's name: "groups[1].page_size". */
typedef struct cgr__field {
  char name[48];
} cgr__field;
cgr__field cgr__field_of(const char *array, int32_t i, const char *field);
/* A finding unless the name has 1 to 31 characters. No more than 32 bytes of it are read. */
bool cgr__check_name(const char *name, const char *field, cgr__findings *findings);
/* A length set; 0 after a finding if there is no such set. */
void cgr__read_length_set(const cgr__setup *setup, const char *field, int32_t *set, cgr__findings *findings);
/* The most tokens of a row in a length set, once the limits have been read, and the field that says so. */
int32_t cgr__max_len(const cgr_config *config, int32_t set);
cgr__field cgr__max_len_field(int32_t set);

#endif
