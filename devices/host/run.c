#include "devices/host/run.h"

#include <string.h>

#include "devices/host/handles.h"

static void run_fill(const struct host_work *work) {
  unsigned char *dst = work->dst;
  uint32_t value4 = (uint32_t)work->value;
  uint16_t value2 = (uint16_t)work->value;
  switch (work->width) {
  case 1:
    memset(dst, (unsigned char)work->value, work->count);
    return;
  case 2:
    for (size_t i = 0; i < work->count; i++)
      memcpy(dst + 2 * i, &value2, 2);
    return;
  case 4:
    for (size_t i = 0; i < work->count; i++)
      memcpy(dst + 4 * i, &value4, 4);
    return;
  default:
    for (size_t i = 0; i < work->count; i++)
      memcpy(dst + 8 * i, &work->value, 8);
    return;
  }
}

void cgr__host_run_work(const struct host_work *work) {
  switch (work->kind) {
  case HOST_WORK_COPY:
    memmove(work->dst, work->src, work->count);
    return;
  case HOST_WORK_FILL:
    run_fill(work);
    return;
  case HOST_WORK_CALL:
    work->function(work->args);
    return;
  }
}

static void run_randomly(struct host_device *host, cgr__exec *exec) {
  const cgr__graph *graph = exec->graph;
  uint32_t num_ready = 0;
  for (uint32_t i = 0; i < graph->num_nodes; i++) {
    exec->waiting[i] = graph->nodes[i].num_deps;
    if (exec->waiting[i] == 0)
      exec->ready[num_ready++] = i;
  }
  while (num_ready != 0) {
    uint32_t pick = (uint32_t)(cgr__host_random(host) % num_ready);
    uint32_t id = exec->ready[pick];
    exec->ready[pick] = exec->ready[--num_ready];
    cgr__host_run_work(&graph->nodes[id].work);
    for (uint32_t d = exec->first_dependent[id]; d < exec->first_dependent[id + 1]; d++) {
      uint32_t next = exec->dependents[d];
      if (--exec->waiting[next] == 0)
        exec->ready[num_ready++] = next;
    }
  }
}

void cgr__host_run_exec(struct host_device *host, cgr__exec *exec) {
  const cgr__graph *graph = exec->graph;
  if (host->schedule == CGR_SCHEDULE_RANDOM) {
    run_randomly(host, exec);
    return;
  }
  for (uint32_t i = 0; i < graph->num_nodes; i++) {
    uint32_t id = host->schedule == CGR_SCHEDULE_LATEST ? graph->latest[i] : i;
    cgr__host_run_work(&graph->nodes[id].work);
  }
}
