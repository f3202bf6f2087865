#include "profiles/support/sides.h"

#include <string.h>

#include "profiles/support/clock.h"
#include "profiles/support/empty.h"
#include "runtime/capture/capture.h"
#include "runtime/runtime.h"

/* In place of the device's operations during a capture; one at a time. */
static struct {
  const cgr__device_ops *device;
  cgr__device_ops ops;
  const bench_side *side;
} in_place;

static bool is_of_engine(const cgr__kernel *kernel) {
  return kernel == &cgr__kernel_append || kernel == &cgr__kernel_attention || kernel == &bench_kernel_empty ||
         kernel == &bench_kernel_spin;
}

static int launch_least(cgr_device *dev, const cgr__kernel *kernel, cudaStream_t stream) {
  bench_least args = *in_place.side->least;
  args.num_loads = kernel == &cgr__kernel_prologue ? 3 : 0;
  args.reads = kernel == &cgr__kernel_fetch;
  args.publishes = kernel == &cgr__kernel_epilogue;
  return in_place.device->launch(dev, &bench_kernel_least, &args, stream);
}

static int launch(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream) {
  const bench_side *side = in_place.side;
  if (is_of_engine(kernel) || kernel == side->kept)
    return in_place.device->launch(dev, kernel, args, stream);
  if (side->bare)
    return 0;
  if (side->least && (kernel == &cgr__kernel_prologue || kernel == &cgr__kernel_fetch || kernel == &cgr__kernel_epilogue))
    return launch_least(dev, kernel, stream);
  return in_place.device->launch(dev, &bench_kernel_empty, NULL, stream);
}

/* The engine here has no branches of its own. */
static int event_record(cgr_device *dev, cgr__event *event, cudaStream_t stream) {
  return in_place.side->bare ? 0 : in_place.device->event_record(dev, event, stream);
}

static int event_wait(cgr_device *dev, cgr__event *event, cudaStream_t stream) {
  return in_place.side->bare ? 0 : in_place.device->event_wait(dev, event, stream);
}

void bench_capture_side(bench_engine *e, const cgr_key *key, const bench_side *side, cgr__graph_entry *entry) {
  struct cgr__capture_context context = { e->rt, key, CGR_OK };
  int device_error = 0;
  memset(entry, 0, sizeof *entry);
  entry->key = *key;
  bench_check(cgr__device_fail(e->dev, e->dev->ops->preload(e->dev, &bench_kernel_empty), "preload"), "an empty kernel");
  bench_check(cgr__device_fail(e->dev, e->dev->ops->preload(e->dev, &bench_kernel_least), "preload"), "the least kernel");
  in_place.device = e->dev->ops;
  in_place.ops = *e->dev->ops;
  in_place.ops.launch = launch;
  in_place.ops.event_record = event_record;
  in_place.ops.event_wait = event_wait;
  in_place.side = side;
  e->dev->ops = &in_place.ops;
  cgr_status status =
      cgr__graphs_capture(&e->rt->graphs, entry, e->rt->own_stream, cgr__capture_body_of, &context, &device_error);
  e->dev->ops = in_place.device;
  if (device_error)
    status = cgr__device_fail(e->dev, device_error, "capture");
  bench_check(status, "capturing a step without cgr");
}
