/* The table of what graphs are made from, and its hash. Cold. */
#include "runtime/capture/capture.h"
#include "runtime/capture/captured_inputs.h"

#include <string.h>

#include "base/hash.h"

void cgr__captured_inputs_list(const cgr_runtime *rt, cgr__captured_input list[CGR__NUM_CAPTURED_INPUTS]) {
  const cgr__setup *setup = &rt->setup;
  size_t layers = (size_t)setup->config.num_layers;
  const cgr__captured_input all[CGR__NUM_CAPTURED_INPUTS] = {
    { "step", &rt->lane.args, sizeof rt->lane.args },
    { "planner", &rt->lane.planner_args, sizeof rt->lane.planner_args },
    { "staged", &rt->lane.staged_args, sizeof rt->lane.staged_args },
    { "on_demand", &rt->lane.on_demand_args, sizeof rt->lane.on_demand_args },
    { "config", &setup->config, sizeof setup->config },
    { "other_groups", rt->lane.other_groups, sizeof rt->lane.other_groups },
    { "layers", setup->layers, layers * sizeof *setup->layers },
    { "kinds", setup->kinds, layers * sizeof *setup->kinds },
    { "plans", &setup->plans, sizeof setup->plans },
    { "backends", setup->backends, sizeof setup->backends },
    { "layout", &rt->layout, sizeof rt->layout },
  };
  memcpy(list, all, sizeof all);
}

uint64_t cgr__captured_inputs_hash(const cgr_runtime *rt) {
  uint64_t hash = CGR__HASH_BEGIN;
  cgr__captured_input list[CGR__NUM_CAPTURED_INPUTS];
  cgr__captured_inputs_list(rt, list);
  for (int i = 0; i < CGR__NUM_CAPTURED_INPUTS; i++)
    hash = cgr__hash(hash, list[i].data, list[i].bytes);
  return hash;
}

void cgr__captured_inputs_refresh(cgr_runtime *rt) {
  uint64_t hash = cgr__captured_inputs_hash(rt);
  cgr__holders_lock();
  rt->graphs.captured_hash = hash;
  cgr__holders_unlock();
}
