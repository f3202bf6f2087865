/* Reads the backends of a configuration and asks them, and the library's own, what they can do and what they keep for planning.
 * Backend 0 is the library's own; the engine's are counted from 0 in messages, as in cgr_config. */
#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "cgr/names.h"
#include "runtime/config/config.h"

#define MAX_REASONS 32 /* of one backend for one layer */
#define ALIGNMENT ((size_t)CGR__PLAN_ALIGNMENT)

/* The i-th of the engine's. */
static void read_backend_name(cgr__setup *setup, int32_t i, cgr__findings *f) {
  cgr_backend *b = &setup->backends[1 + i];
  char *name = setup->backend_names[1 + i];
  cgr__field field = cgr__field_of("backends", i, "name");
  (void)cgr__check_name(b->name, field.name, f);
  snprintf(name, sizeof setup->backend_names[0], "%.*s", CGR__NAME_BYTES - 1, b->name ? b->name : "");
  b->name = name;
  for (int32_t j = 1; j <= i && name[0]; j++) /* messages tell them apart by it */
    if (strcmp(name, setup->backend_names[j]) == 0)
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is \"%s\", which backends[%d] has already, expected another",
                        name, j - 1);
}

static void read_backend(cgr__setup *setup, int32_t i, cgr__findings *f) {
  cgr_backend *b = &setup->backends[1 + i];
  if (!cgr__read_element("backends", "CGR_BACKEND_INIT", setup->config.backends, i, b, sizeof *b, f))
    return;
  read_backend_name(setup, i, f);
  cgr__in_range(f, cgr__field_of("backends", i, "reorder_threshold").name, b->reorder_threshold, 0, INT32_MAX);
  if (!b->record)
    cgr__findings_add(f, CGR_ERROR_NULL_POINTER, cgr__field_of("backends", i, "record").name, "is NULL, expected a function");
  (void)cgr__is_one(f, cgr__field_of("backends", i, "flags").name, b->flags, &cgr__backend_flags);
  if ((b->flags & CGR_BACKEND_UNIFORM_SPLIT) && b->reorder_threshold == 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("backends", i, "reorder_threshold").name,
                      "is 0, expected 1 or more with CGR_BACKEND_UNIFORM_SPLIT");
  if ((b->flags & CGR_BACKEND_DECODES_DRAFTS) && b->reorder_threshold == 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("backends", i, "reorder_threshold").name,
                      "is 0, expected 1 or more with CGR_BACKEND_DECODES_DRAFTS");
  (void)cgr__is_one(f, cgr__field_of("backends", i, "planned").name, b->planned, &cgr__planned_bits);
}

void cgr__setup_backends(cgr__setup *setup, cgr__findings *f) {
  cgr_config *c = &setup->config;
  setup->backends_known = cgr__check_list(f, "num_backends", "backends", c->num_backends, CGR__MAX_BACKENDS, c->backends);
  if (!setup->backends_known)
    c->num_backends = 0;
  setup->backends[0] = cgr__native_backend(setup);
  snprintf(setup->backend_names[0], sizeof setup->backend_names[0], "%s", setup->backends[0].name);
  for (int32_t i = 0; i < c->num_backends; i++)
    read_backend(setup, i, f);
}

/* ---------------------------------------------------------------------------------------------------------------- layers */

/* Adds what a backend or the append has against layer i: their fields are those of cgr_layer. `end` ends each text. */
static void add_reasons(cgr_finding *reasons, int32_t count, int32_t i, const char *end, cgr__findings *f) {
  for (int32_t r = 0; r < count && r < MAX_REASONS; r++) {
    cgr_finding *reason = &reasons[r];
    bool named = reason->status > CGR_NOT_READY && cgr__status_is_known(reason->status);
    reason->field[sizeof reason->field - 1] = reason->text[sizeof reason->text - 1] = 0;
    cgr__findings_add(f, named ? (cgr_status)reason->status : CGR_ERROR_UNSUPPORTED,
                      cgr__field_of("layers", i, reason->field).name, "%.140s%s",
                      reason->text[0] ? reason->text : "is refused without a reason", end);
  }
}

static void check_append(const cgr__setup *setup, const cgr_layer *l, int32_t i, cgr__findings *f) {
  cgr_finding reasons[MAX_REASONS];
  cgr__findings found;
  cgr__findings_init(&found, reasons, MAX_REASONS);
  cgr__append_check(l, setup->config.max_tokens, &found);
  add_reasons(reasons, found.count, i, ", or a backend with CGR_BACKEND_APPENDS", f);
}

/* " (backend fa3)", for one of the engine's. */
static const char *backend_label(const cgr__setup *setup, int32_t backend, char *text, size_t size) {
  text[0] = 0;
  if (backend != 0)
    snprintf(text, size, " (backend %s)", setup->backend_names[backend]);
  return text;
}

void cgr__check_backend(const cgr__setup *setup, const cgr_layer *l, int32_t i, cgr__findings *f) {
  const cgr_backend *b = &setup->backends[l->backend];
  char by[48];
  cgr_finding reasons[MAX_REASONS];
  if (b->size == 0)
    return; /* it could not be read */
  if (!(b->flags & (CGR_BACKEND_APPENDS | CGR__BACKEND_KNOWS_APPEND)) && cgr__owns_cache(l) && l->head_dim > 0 &&
      l->k.dtype != 0 && l->v.dtype != 0)
    check_append(setup, l, i, f);
  memset(reasons, 0, sizeof reasons);
  backend_label(setup, l->backend, by, sizeof by);
  bool can_ask = b->check && setup->device.kind != 0;
  int32_t count = can_ask ? b->check(b->context, &setup->device, cgr__group_of(setup, l->group), l, reasons, MAX_REASONS) : 0;
  add_reasons(reasons, count, i, by, f);
  if (count < 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("layers", i, "backend").name,
                      "is asked for its reasons and returns %d, expected 0 or more%s", count, by);
  if (count > MAX_REASONS)
    cgr__findings_add(f, CGR_ERROR_UNSUPPORTED, cgr__field_of("layers", i, "backend").name, "has %d more reasons against it%s",
                      count - MAX_REASONS, by);
}

/* --------------------------------------------------------------------------------------------------------------- support */

/* Who has lowered the support, for the reason of the mode. */
typedef struct lowered_by {
  char text[240];
} lowered_by;

/* What a backend has said of a group or a layer, `of`. */
static void take_support(cgr__setup *setup, int32_t backend, const char *of, int32_t number, cgr_graph_support said,
                         lowered_by *who) {
  const char *name = setup->backend_names[backend];
  const bool known = cgr__is_choice(&cgr__graph_supports, (int32_t)said);
  const cgr_graph_support support = !known ? CGR_SUPPORT_NEVER : said == CGR_SUPPORT_DEFAULT ? CGR_SUPPORT_ALWAYS : said;
  setup->exact_lengths |= support < CGR_SUPPORT_ALWAYS && !(setup->backends[backend].flags & CGR_BACKEND_BOUNDS);
  if (support >= setup->support)
    return;
  setup->support = support;
  if (!known)
    snprintf(who->text, sizeof who->text, "backend %s: its support of %s %d %.160s", name, of, number,
             cgr__choices_refusal(&cgr__graph_supports, (int32_t)said).text);
  else
    snprintf(who->text, sizeof who->text, "backend %s says so for %s %d", name, of, number);
}

/* A backend without any function that tells it. */
static void take_no_support(cgr__setup *setup, int32_t backend, lowered_by *who) {
  setup->exact_lengths = true;
  if (setup->support == CGR_SUPPORT_NEVER)
    return;
  setup->support = CGR_SUPPORT_NEVER;
  snprintf(who->text, sizeof who->text, "backend %s has no support function", setup->backend_names[backend]);
}

/* New tokens up to which a request is a decode of the backend's; 0: any order. */
static int32_t threshold_of(const cgr__setup *setup, const cgr_backend *b) {
  const int32_t verifies = setup->limits.token_stride;
  const bool follows = b->reorder_threshold > 0 && (b->flags & CGR_BACKEND_DECODES_DRAFTS);
  return follows && verifies > b->reorder_threshold ? verifies : b->reorder_threshold;
}

static void ask_backend(cgr__setup *setup, int32_t i, uint64_t *asked, lowered_by *who) {
  const cgr_layer *l = &setup->layers[i];
  const cgr_backend *b =
      l->size != 0 && l->backend >= 0 && l->backend <= setup->config.num_backends ? &setup->backends[l->backend] : NULL;
  int32_t group = l->group;
  if (!b || b->size == 0 || group < 0 || group >= CGR__MAX_GROUPS || setup->device.kind == 0)
    return;
  if (b->support_layer)
    take_support(setup, l->backend, "layer", i, b->support_layer(b->context, &setup->device, cgr__group_of(setup, group), l),
                 who);
  const uint64_t bit = (uint64_t)1 << (group * (1 + CGR__MAX_BACKENDS) + l->backend);
  if (*asked & bit)
    return;
  *asked |= bit;
  const int32_t threshold = threshold_of(setup, b);
  if (threshold > 0 && (setup->split.threshold == 0 || threshold < setup->split.threshold))
    setup->split.threshold = threshold;
  setup->split.uniform |= (b->flags & CGR_BACKEND_UNIFORM_SPLIT) != 0;
  if (b->support)
    take_support(setup, l->backend, "group", group, b->support(b->context, &setup->device, cgr__group_of(setup, group)), who);
  else if (!b->support_layer)
    take_no_support(setup, l->backend, who);
}

void cgr__setup_support(cgr__setup *setup) {
  const cgr_config *c = &setup->config;
  uint64_t asked = 0; /* a bit for each backend of each group */
  const char *reason;
  lowered_by who = { "attention_support says so" };
  _Static_assert((1 + CGR__MAX_BACKENDS) * CGR__MAX_GROUPS <= 64, "a bit for each");
  setup->support = c->attention_support >= CGR_SUPPORT_NEVER && c->attention_support <= CGR_SUPPORT_ALWAYS
                       ? (cgr_graph_support)c->attention_support
                       : CGR_SUPPORT_ALWAYS;
  setup->exact_lengths = setup->support < CGR_SUPPORT_ALWAYS;
  setup->split = (cgr__decode_split){ 0, 0 };
  for (int32_t i = 0; i < c->num_layers; i++)
    ask_backend(setup, i, &asked, &who);
  setup->mode = cgr__mode_lower((cgr_graph_mode)c->graph_mode, setup->support, &reason);
  setup->mode_reason[0] = 0;
  if (reason[0])
    snprintf(setup->mode_reason, sizeof setup->mode_reason, "%s: %s", reason, who.text);
}

/* ----------------------------------------------------------------------------------------------------------------- plans */

bool cgr__setup_uses(const cgr__setup *setup, int32_t backend) {
  for (int32_t i = 0; i < setup->config.num_layers; i++)
    if (setup->layers[i].size != 0 && setup->layers[i].backend == backend)
      return true;
  return false;
}

/* After the engine's own buffers; -1 when there is no room. */
static int32_t add_buffer(cgr__setup *setup, cgr_source source, uint64_t bytes) {
  if (bytes == 0 || setup->num_declared == CGR__MAX_DECLARED)
    return -1;
  setup->declared[setup->num_declared] = (cgr__declared){
    .dimension = CGR__DIMENSION_STEP, .dtype = CGR_DTYPE_U8, .source = source, .rows = 1, .width = (int64_t)bytes
  };
  return setup->num_declared++;
}

static bool check_bytes(uint64_t bytes, int64_t most, int32_t i, const char *name, cgr__findings *f) {
  if (bytes <= (uint64_t)most)
    return true;
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("backends", i - 1, name).name, "is %llu, expected 0 .. %lld",
                    (unsigned long long)bytes, (long long)most);
  return false;
}

/* Whether its numbers can be used. */
static bool check_plan_numbers(const cgr_backend *b, int32_t i, cgr__findings *f) {
  bool good = check_bytes(b->workspace_bytes, CGR__MAX_WORKSPACE, i, "workspace_bytes", f);
  good &= check_bytes(b->plan_bytes, CGR__MAX_PLAN, i, "plan_bytes", f);
  if ((b->flags & CGR_BACKEND_PLANS_FIRST) && b->plan && b->plan_bytes > 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("backends", i - 1, "flags").name,
                      "has PLANS_FIRST with plan and plan_bytes %llu, expected 0: what plan_host gives arrives after it",
                      (unsigned long long)b->plan_bytes);
  if ((b->plan_bytes > 0) == (b->plan_host != NULL))
    return good;
  cgr__findings_add(f, b->plan_host ? CGR_ERROR_INVALID_ARGUMENT : CGR_ERROR_NULL_POINTER,
                    cgr__field_of("backends", i - 1, b->plan_host ? "plan_bytes" : "plan_host").name,
                    b->plan_host ? "is 0, expected 1 or more with plan_host" : "is NULL, expected a function with plan_bytes");
  return false;
}

/* In whose steps there is a layer of the backend's, a bit each. */
static uint8_t programs_of(const cgr__setup *setup, int32_t backend) {
  uint32_t programs = 0;
  for (int32_t i = 0; i < setup->config.num_layers; i++)
    if (setup->layers[i].size != 0 && setup->layers[i].backend == backend)
      programs |= 1u << setup->layers[i].program;
  return (uint8_t)programs;
}

void cgr__setup_backend_plans(cgr__setup *setup, cgr__findings *f) {
  setup->num_declared = setup->config.num_buffers;
  for (int32_t i = 0; i <= setup->config.num_backends; i++) {
    const cgr_backend *b = &setup->backends[i];
    cgr__planning *p = &setup->planning[i];
    *p = (cgr__planning){ false, 0, -1, -1 };
    if (b->size == 0 || !check_plan_numbers(b, i, f) || !cgr__setup_uses(setup, i))
      continue;
    p->in_use = true;
    p->programs = programs_of(setup, i);
    p->workspace = add_buffer(setup, CGR_SOURCE_DEVICE, b->workspace_bytes);
    p->plan = add_buffer(setup, CGR_SOURCE_STAGED, b->plan_bytes);
    if ((b->workspace_bytes > 0 && p->workspace < 0) || (b->plan_bytes > 0 && p->plan < 0))
      cgr__findings_add(
          f, CGR_ERROR_UNSUPPORTED, "num_buffers",
          "is %d, expected one less for each workspace and each plan of a backend: at most %d of all in this version",
          setup->config.num_buffers, CGR__MAX_DECLARED);
  }
}

static size_t round_up_plan(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

cgr__backend_plans_layout cgr__setup_backend_plans_layout(const cgr__setup *setup) {
  cgr__backend_plans_layout l = { .num_keys = cgr__keys_count(&setup->keys) };
  const size_t keys = (size_t)l.num_keys + 1;
  size_t plan = 0;
  bool any = false;
  for (int32_t i = 0; i <= setup->config.num_backends; i++) {
    size_t bytes = (size_t)setup->backends[i].plan_bytes;
    any |= setup->planning[i].in_use;
    plan = setup->planning[i].in_use && bytes > plan ? bytes : plan;
  }
  if (!any)
    return l;
  l.states = round_up_plan(plan);
  l.step = l.states + keys * (1 + CGR__MAX_BACKENDS) * sizeof(void *);
  l.made = l.step + (3 * (size_t)setup->config.max_requests + 1) * sizeof(int32_t);
  l.bytes = l.made + keys * sizeof(bool) + ALIGNMENT - 1;
  return l;
}
