/* Resources that graphs use, a communicator for instance: counted by graph, and told when the graphs are gone. Cold, but for what
 * `record` does in an eager step. */
#include <string.h>

#include "runtime/runtime.h"

#define INDEX_BITS 6 /* of a number: the place among a runtime's; the others count those of the process */
#define MAX_ALLOCATIONS 1024

static_assert(CGR_MAX_RESOURCES == 1 << INDEX_BITS, "a graph has a bit for each");

static uint64_t next_serial(void) {
  static uint64_t serials;
  return __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
}

int32_t cgr__resources_find(const cgr_runtime *rt, const char *function, uint64_t number) {
  const int32_t i = (int32_t)(number & (CGR_MAX_RESOURCES - 1));
  if ((rt->resources.used >> i & 1) && rt->resources.entry[i].number == number)
    return i;
  (void)cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: number is %#llx, expected that of a resource of this runtime", function,
                  (unsigned long long)number);
  return -1;
}

static cgr_status read_resource(const cgr_resource *given, cgr_resource *r) {
  CGR__TRY(cgr__sized_read("cgr_resource_register: resource", "CGR_RESOURCE_INIT", given, r, sizeof *r));
  if (r->allocations < 0 || r->allocations > MAX_ALLOCATIONS)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_resource_register: resource.allocations is %d, expected 0 .. %d",
                     r->allocations, MAX_ALLOCATIONS);
  if (!r->name)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_resource_register: resource.name is NULL, expected a text");
  const size_t most = sizeof((struct cgr__resource_entry *)NULL)->name - 1, length = strnlen(r->name, most + 1);
  if (length < 1 || length > most)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_resource_register: resource.name is \"%.47s\", expected 1 .. %zu characters", r->name, most);
  return CGR_OK;
}

cgr_status cgr_resource_register(cgr_runtime *runtime, const cgr_resource *resource, uint64_t *number) {
  CGR__ONE_THREAD(runtime, "cgr_resource_register");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_resource_register"));
  CGR__REQUIRE(number, "cgr_resource_register");
  cgr_resource given;
  CGR__TRY(read_resource(resource, &given));
  cgr__resources *all = &runtime->resources;
  if (all->used == UINT64_MAX)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_resource_register: the runtime has %d resources, expected fewer",
                     CGR_MAX_RESOURCES);
  const int32_t i = __builtin_ctzll(~all->used);
  struct cgr__resource_entry *entry = &all->entry[i];
  *entry = (struct cgr__resource_entry){ .number = next_serial() << INDEX_BITS | (uint64_t)i,
                                         .order = all->registered++,
                                         .allocations = given.allocations,
                                         .gone = given.gone,
                                         .context = given.context };
  memcpy(entry->name, given.name, strlen(given.name));
  all->used |= (uint64_t)1 << i;
  *number = entry->number;
  return CGR_OK;
}

cgr_status cgr_resource_unregister(cgr_runtime *runtime, uint64_t number) {
  CGR__ONE_THREAD(runtime, "cgr_resource_unregister");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_resource_unregister"));
  CGR__TRY(cgr__runtime_check_unprepared(runtime, "cgr_resource_unregister"));
  const int32_t i = cgr__resources_find(runtime, "cgr_resource_unregister", number);
  if (i < 0)
    return CGR_ERROR_INVALID_ARGUMENT;
  const int32_t graphs = cgr__graphs_count_resource(&runtime->graphs, i);
  const char *name = runtime->resources.entry[i].name;
  if (graphs > 0)
    return cgr__fail(
        CGR_ERROR_STATE,
        "cgr_resource_unregister: %s is held by %d graph%s, expected none: release them (cgr_runtime_release_graphs), "
        "or destroy the runtime first",
        name, graphs, cgr__plural(graphs));
  const uint64_t completed = cgr__ring_completed(&runtime->lane.ring), launched = runtime->lane.launched;
  if (completed != launched)
    return cgr__fail(CGR_ERROR_STATE,
                     "cgr_resource_unregister: %s may be in use by steps in flight (%llu of %llu have completed), expected none: "
                     "wait for the last one",
                     name, (unsigned long long)completed, (unsigned long long)launched);
  runtime->resources.used &= ~((uint64_t)1 << i);
  return CGR_OK;
}

cgr_status cgr_resource_count_graphs(cgr_runtime *runtime, uint64_t number, int32_t *graphs) {
  if (!cgr__runtime_is(runtime)) /* a dead one still has them */
    return cgr__runtime_check(runtime, "cgr_resource_count_graphs");
  CGR__REQUIRE(graphs, "cgr_resource_count_graphs");
  const int32_t i = cgr__resources_find(runtime, "cgr_resource_count_graphs", number);
  if (i < 0)
    return CGR_ERROR_INVALID_ARGUMENT;
  *graphs = cgr__graphs_count_resource(&runtime->graphs, i);
  return CGR_OK;
}

int32_t cgr__resources_allocations(const cgr_runtime *rt) {
  int32_t sum = 0;
  for (int32_t i = 0; i < CGR_MAX_RESOURCES; i++)
    sum += rt->resources.used >> i & 1 ? rt->resources.entry[i].allocations : 0;
  return sum;
}

void cgr__resources_end(cgr_runtime *rt) {
  cgr__resources *all = &rt->resources;
  while (all->used != 0) {
    int32_t last = -1;
    for (int32_t i = 0; i < CGR_MAX_RESOURCES; i++)
      if ((all->used >> i & 1) && (last < 0 || all->entry[i].order > all->entry[last].order))
        last = i;
    all->used &= ~((uint64_t)1 << last);
    if (all->entry[last].gone)
      all->entry[last].gone(all->entry[last].context);
  }
}
