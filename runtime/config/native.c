/* The library's own kernels as a backend, which layers with backend 0 name. It is called through the same struct as engines'
 * backends and, like most of them, does not append. What it does in a step is in runtime/record/native.c, because cgr_validate
 * has no runtime. */
#include "runtime/config/config.h"

/* `context`: the setup, which keeps what is chosen. `layer` is one of its own. */
static int32_t check_native_layer(void *context, const cgr_device_info *device, const cgr_group *group, const cgr_layer *layer,
                                  cgr_finding *out, int32_t capacity) {
  cgr__setup *setup = context;
  cgr__findings reasons;
  (void)group;
  cgr__findings_init(&reasons, out, capacity);
  setup->kinds[layer - setup->layers] = cgr__kernel_kind_choose(device, layer, setup->config.max_tokens, &reasons);
  return reasons.count;
}

static cgr_graph_support native_support(void *context, const cgr_device_info *device, const cgr_group *group) {
  (void)context;
  (void)device;
  (void)group;
  return CGR_SUPPORT_ALWAYS;
}

cgr_backend cgr__native_backend(cgr__setup *setup) {
  cgr_backend b = CGR_BACKEND_INIT;
  b.name = "cgr";
  b.context = setup;
  b.check = check_native_layer;
  b.support = native_support;
  b.flags = CGR_BACKEND_PLANS_FIRST | CGR__BACKEND_KNOWS_APPEND;
  return b;
}

/* Its plans are in CGR_BUFFER_PLAN rather than in a plan or a workspace of a backend, since engines read them too. Layers of
 * other kinds have other classes of plans, so one backend serves them all. */
void cgr__setup_native(cgr__setup *setup, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  const cgr__plan_options options = { c->num_parts, c->max_requests, c->max_tokens, c->batch_invariant != 0 };
  for (int32_t i = 0; i < c->num_layers; i++) {
    const cgr_layer *l = &setup->layers[i];
    if (l->num_q_heads == 0 || l->num_kv_heads == 0 || l->head_dim == 0)
      setup->kinds[i] = NULL; /* a plan divides by them */
  }
  cgr__kernel_kinds_plan(&setup->device, setup->layers, setup->kinds, c->num_layers, &options, &setup->plans, f);
}
