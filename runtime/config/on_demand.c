/* The on-demand buffers of a configuration: its own and those of the backends in use. */
#include "base/status.h"
#include "cgr/names.h"
#include "runtime/config/config.h"

static const char *on_demand_name(int64_t bit) {
  int id = CGR__BUFFER_KV_INDICES;
  while (CGR__ON_DEMAND(id) < (uint64_t)bit)
    id++;
  return cgr_buffer_name((cgr_buffer)id);
}

/* Unknown bits become a finding; returns the others. */
static uint64_t known_bits(uint64_t asked, const char *field, cgr__findings *f) {
  static const cgr__choices known = { "CGR_ON_DEMAND", true, CGR__ON_DEMAND(CGR__BUFFER_KV_INDICES),
                                      CGR__ON_DEMAND(CGR__BUFFER_PREFILL_KV_LAST_PAGE_LEN), on_demand_name };
  (void)cgr__is_one(f, field, (int64_t)asked, &known);
  return asked & CGR__ALL_ON_DEMAND;
}

static const char *first_name(uint64_t asked) {
  int id = CGR__BUFFER_KV_INDICES;
  while (!(asked & CGR__ON_DEMAND(id)))
    id++;
  return cgr_buffer_name((cgr_buffer)id);
}

/* What the prefills' buffers need: a batch that is split. */
static void check_split(uint64_t asked, bool split, const char *field, cgr__findings *f) {
  uint64_t prefills = asked & CGR__PREFILL_ON_DEMAND;
  if (prefills != 0 && !split)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field,
                      "asks for %s, expected a backend in use whose reorder_threshold tells prefills from decodes",
                      first_name(prefills));
}

static void check_groups(uint64_t asked, int32_t num_groups, const char *field, cgr__findings *f) {
  uint64_t pages = asked & CGR__PAGE_ON_DEMAND;
  if (pages != 0 && num_groups == 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field, "asks for %s, expected a group that has pages", first_name(pages));
}

/* The length set whose rows may be longest; the first of equals. */
static int32_t longest_set(const cgr_config *c) {
  int32_t longest = 0;
  for (int32_t s = 1; s < c->num_length_sets; s++)
    longest = cgr__max_len(c, s) > cgr__max_len(c, longest) ? s : longest;
  return longest;
}

/* Running sums of tokens have 32 bits; they are of whatever set a step's tokens are. */
static void check_sums(const cgr_config *c, uint64_t asked, const char *field, cgr__findings *f) {
  uint64_t sums = asked & (CGR_ON_DEMAND(CGR_BUFFER_KV_START_LOC) | CGR_ON_DEMAND(CGR_BUFFER_CONTEXT_START_LOC));
  int32_t set = longest_set(c);
  if (sums != 0 && (int64_t)c->max_requests * cgr__max_len(c, set) > INT32_MAX)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field,
                      "asks for %s, a sum of up to %d x %d tokens, expected max_requests x %s below 2^31", first_name(sums),
                      c->max_requests, cgr__max_len(c, set), cgr__max_len_field(set).name);
}

void cgr__setup_on_demand(cgr__setup *setup, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  uint64_t asked[1 + CGR__MAX_BACKENDS] = { known_bits(c->on_demand, "on_demand", f) };
  bool split = false;
  for (int32_t i = 1; i <= c->num_backends; i++) {
    const cgr_backend *b = &setup->backends[i];
    uint64_t bits = b->size == 0 ? 0 : known_bits(b->on_demand, cgr__field_of("backends", i - 1, "on_demand").name, f);
    bool used = b->size != 0 && cgr__setup_uses(setup, i);
    asked[i] = used ? bits : 0;
    split |= used && b->reorder_threshold > 0;
  }
  for (int32_t i = 0; i <= c->num_backends; i++) {
    cgr__field field = cgr__field_of("backends", i - 1, "on_demand");
    const char *name = i == 0 ? "on_demand" : field.name;
    check_split(asked[i], split, name, f);
    check_groups(asked[i], c->num_groups, name, f);
    check_sums(c, asked[i], name, f);
    setup->limits.on_demand |= asked[i];
  }
}
