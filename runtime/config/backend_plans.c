/* What backends keep for planning: workspaces, plans that travel, and states by key. Backend 0 is the library's own; the engine's
 * are counted from 0 in messages, as in cgr_config. */
#include <string.h>

#include "runtime/config/config.h"

#define ALIGNMENT ((size_t)CGR__PLAN_ALIGNMENT)

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

void cgr__setup_backend_plans(cgr__setup *setup, cgr__findings *f) {
  setup->num_declared = setup->config.num_buffers;
  for (int32_t i = 0; i <= setup->config.num_backends; i++) {
    const cgr_backend *b = &setup->backends[i];
    cgr__planning *p = &setup->planning[i];
    *p = (cgr__planning){ false, -1, -1 };
    if (b->size == 0 || !check_plan_numbers(b, i, f) || !cgr__setup_uses(setup, i))
      continue;
    p->in_use = true;
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
