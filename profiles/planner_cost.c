/* GPU time of the planner by itself, for four plan classes: the time of a graph of planner nodes in sequence, divided by their
 * number, minus the same for an empty kernel (what a node costs by itself).
 *
 *   bazel-bin/profiles/planner_cost [cuda:0|host] [nodes in a graph] [replays] */
#include <stdlib.h>
#include <string.h>

#include "kernels/planner.h"
#include "kernels/step.h"
#include "kernels/registry.h"
#include "profiles/support/bench.h"
#include "profiles/support/empty.h"
#include "profiles/support/nodes.h"
#include "runtime/runtime.h"

#define CLASSES 4
#define MAX_REQUESTS 4096
#define MAX_TOKENS 16384

typedef struct shape {
  const char *name;
  int32_t empty_before, decodes, prefills, query_len, context, empty_after;
} shape;

static const shape shapes[] = {
  { "no requests", 0, 0, 0, 0, 0, 0 },
  { "1 decode", 0, 1, 0, 0, 0, 0 },
  { "1 decode before 4095 empty requests", 0, 1, 0, 0, 0, 4095 },
  { "1 decode after 4095 empty requests", 4095, 1, 0, 0, 0, 0 },
  { "64 decodes", 0, 64, 0, 0, 0, 0 },
  { "256 decodes", 0, 256, 0, 0, 0, 0 },
  { "1024 decodes", 0, 1024, 0, 0, 0, 0 },
  { "4096 decodes", 0, 4096, 0, 0, 0, 0 },
  { "1 prefill of 512 tokens", 0, 0, 1, 512, 0, 0 },
  { "1 prefill of 8192 tokens", 0, 0, 1, 8192, 0, 0 },
  { "1 chunk of 16 tokens after 32768", 0, 0, 1, 16, 32768, 0 },
  { "16 prefills of 512 tokens", 0, 0, 16, 512, 0, 0 },
  { "256 decodes, 1 prefill of 2048 tokens", 0, 256, 1, 2048, 0, 0 },
};

typedef struct planner {
  cgr_device *dev;
  cudaStream_t stream;
  cgr__planner_args args;
  int32_t *inputs, *device_inputs; /* page-locked and device: counts [16], query_start [MAX_REQUESTS + 1], seq_lens */
  size_t input_bytes;
} planner;

static void check_device(cgr_device *dev, int error, const char *what) { bench_check(cgr__device_fail(dev, error, what), what); }

/* Layers of 8 and of 1 KV heads, at head dims 64 and 128. */
static void make_plans(planner *p, cgr__plans *plans) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  cgr_layer layers[CLASSES];
  const cgr__kernel_kind *kinds[CLASSES];
  cgr__findings findings;
  cgr__findings_init(&findings, NULL, 0);
  bench_check(cgr_device_get_info(p->dev, &info), "cgr_device_get_info");
  for (int32_t i = 0; i < CLASSES; i++) {
    layers[i] = (cgr_layer)CGR_LAYER_INIT;
    layers[i].num_kv_heads = i % 2 ? 8 : 1;
    layers[i].num_q_heads = 4 * layers[i].num_kv_heads;
    layers[i].head_dim = layers[i].head_dim_v = i < 2 ? 64 : 128;
    layers[i].dtype = layers[i].out_dtype = layers[i].k.dtype = layers[i].v.dtype = CGR_DTYPE_BF16;
    kinds[i] = cgr__kernel_kind_choose(&info, &layers[i], MAX_TOKENS, &findings);
  }
  const cgr__plan_options options = { 0, MAX_REQUESTS, MAX_TOKENS, false };
  cgr__kernel_kinds_plan(&info, layers, kinds, CLASSES, &options, plans, &findings);
  if (findings.count > 0 || plans->num_classes != CLASSES)
    bench_check(CGR_ERROR_UNSUPPORTED, "the layers");
}

static void open_planner(planner *p, const char *device) {
  cgr__plans plans;
  memset(p, 0, sizeof *p);
  bench_check(cgr_device_open(device, NULL, &p->dev), "cgr_device_open");
  bench_check(cgr_stream_create(p->dev, &p->stream), "cgr_stream_create");
  make_plans(p, &plans);
  const cgr__device_ops *ops = p->dev->ops;
  void *plan, *counters, *inputs, *device_inputs;
  p->input_bytes = (16 + 2 * MAX_REQUESTS + 1) * sizeof(int32_t);
  check_device(p->dev, ops->mem_alloc(p->dev, (size_t)plans.plan_words * 4, CGR__MEMORY_DEVICE, &plan), "plan");
  check_device(p->dev, ops->mem_alloc(p->dev, (size_t)plans.num_counters * 4, CGR__MEMORY_DEVICE, &counters), "counters");
  check_device(p->dev, ops->mem_alloc(p->dev, p->input_bytes, CGR__MEMORY_PINNED, &inputs), "inputs");
  check_device(p->dev, ops->mem_alloc(p->dev, p->input_bytes, CGR__MEMORY_DEVICE, &device_inputs), "inputs");
  p->inputs = inputs;
  p->device_inputs = device_inputs;
  p->args.counts = p->device_inputs;
  p->args.query_start_loc = p->device_inputs + 16;
  p->args.seq_lens[0] = p->device_inputs + 16 + MAX_REQUESTS + 1;
  p->args.plan = plan;
  p->args.counters = counters;
  p->args.num_counters = (int32_t)plans.num_counters;
  p->args.num_classes = CLASSES;
  memcpy(p->args.offset, plans.offset, sizeof plans.offset);
  memcpy(p->args.classes, plans.classes, sizeof plans.classes);
}

/* Decodes at lengths of 1 to 8192; chunks after `context` tokens. */
static void put_batch(planner *p, const shape *s) {
  int32_t *query_start = p->inputs + 16, *seq_lens = query_start + MAX_REQUESTS + 1, live = s->decodes + s->prefills;
  int32_t n = s->empty_before + live + s->empty_after;
  memset(p->inputs, 0, p->input_bytes);
  for (int32_t i = 0; i < n; i++) {
    int32_t k = i - s->empty_before; /* among the live ones */
    bool is_live = k >= 0 && k < live, decodes = k < s->decodes;
    query_start[i + 1] = query_start[i] + (is_live ? (decodes ? 1 : s->query_len) : 0);
    seq_lens[i] = is_live ? (decodes ? 1 + k * 2663 % 8192 : s->context + s->query_len) : 0;
  }
  p->inputs[CGR_COUNT_REQUESTS] = n;
  p->inputs[CGR_COUNT_TOKENS] = query_start[n];
  p->args.padded_requests = n > 0 ? n : 1;
  check_device(p->dev, p->dev->ops->copy(p->dev, p->device_inputs, p->inputs, p->input_bytes, p->stream), "copy");
  check_device(p->dev, p->dev->ops->stream_sync(p->dev, p->stream), "copy");
}

static void close_planner(planner *p) {
  const cgr__device_ops *ops = p->dev->ops;
  check_device(p->dev, ops->mem_free(p->dev, p->args.plan, CGR__MEMORY_DEVICE), "free");
  check_device(p->dev, ops->mem_free(p->dev, p->args.counters, CGR__MEMORY_DEVICE), "free");
  check_device(p->dev, ops->mem_free(p->dev, p->device_inputs, CGR__MEMORY_DEVICE), "free");
  check_device(p->dev, ops->mem_free(p->dev, p->inputs, CGR__MEMORY_PINNED), "free");
  bench_check(cgr_stream_destroy(p->dev, p->stream), "cgr_stream_destroy");
  bench_check(cgr_device_close(p->dev), "cgr_device_close");
}

/* Targets hold for decodes of 1 to 1024 rows, and for 8192 tokens of prefill. */
static void print_target(const shape *s) {
  if (s->decodes > 0 && s->decodes <= 1024 && s->prefills == 0 && s->empty_before + s->empty_after == 0)
    printf(" 2.5 |\n");
  else if (s->decodes == 0 && s->prefills * s->query_len == 8192)
    printf(" 6.0 |\n");
  else
    printf(" |\n");
}

int main(int argc, char **argv) {
  bench_nodes b = bench_read_nodes(argc, argv);
  planner p;
  open_planner(&p, argc > 1 ? argv[1] : NULL);
  b.dev = p.dev;
  b.stream = p.stream;
  bench_print_head(stdout, p.dev, "profiles/planner_cost");
  double empty = bench_node_us(&b, &bench_kernel_empty, NULL);
  printf("# node: %.2f us of an empty kernel\n\n| batch | us for %d plan classes | target |\n|---|---:|---:|\n", empty, CLASSES);
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    put_batch(&p, &shapes[i]);
    printf("| %s | %.2f |", shapes[i].name, bench_node_us(&b, &cgr__kernel_planner, &p.args) - empty);
    print_target(&shapes[i]);
  }
  close_planner(&p);
  return 0;
}
