/* What ranges cost the host: by themselves, and in a step that is prepared and cancelled (no launch, which costs a thousand times
 * as much), in a runtime that was not asked for them and in one that was.
 *
 *   bazel-bin/profiles/nvtx_cost [host|cuda:0] [none|tool]
 *
 * tool: with a tool that takes every range and does nothing. Otherwise there is none, unless the environment names one: under
 * Nsight Systems the second table says what that costs. The sides run in turn, a block each; medians over the blocks.
 *
 * Targets: without a tool, a runtime that was asked is as fast as one that was not, and its test of a byte does not show. */
#include <stdlib.h>
#include <string.h>

#include "profiles/support/bench.h"
#include "runtime/report/ranges.h"

#ifdef CGR_WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

#define BLOCKS 200
#define PAIRS 5000
#define STEPS 2000
#define REQUESTS 8

/* ------------------------------------------------------------------------------------------------------------------ tool */

#ifdef CGR_WITH_NVTX
static nvtxDomainHandle_t NVTX_API create_domain(const char *name) { return (nvtxDomainHandle_t)(uintptr_t)name; }
static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
  (void)domain, (void)event;
  return 0;
}
static int NVTX_API pop(nvtxDomainHandle_t domain) {
  (void)domain;
  return 0;
}

static int NVTX_API inject(NvtxGetExportTableFunc_t get_table) {
  const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table;
  unsigned int size;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create_domain;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}

static void add_tool(void) { InitializeInjectionNvtx2_fnptr = inject; }
#else
static void add_tool(void) { bench_fail("this build has no NVTX"); }
#endif

/* ---------------------------------------------------------------------------------------------------------------- ranges */

/* The compiler must not see that the runtime does not change. */
static void pairs_of_runtime(const cgr_runtime *rt) {
  for (int i = 0; i < PAIRS; i++) {
    cgr__range_begin(rt, CGR__RANGE_PREPARE);
    __asm__ volatile("" ::: "memory");
    cgr__range_end(rt);
    __asm__ volatile("" ::: "memory");
  }
}

static void pairs_of_nothing(const cgr_runtime *rt) {
  (void)rt;
  for (int i = 0; i < PAIRS; i++)
    __asm__ volatile("" ::: "memory");
}

static void plain_pairs(const cgr_runtime *rt) {
  (void)rt;
  for (int i = 0; i < PAIRS; i++) {
    cgr__nvtx_begin(CGR__RANGE_PREPARE);
    cgr__nvtx_end();
  }
}

static void pairs_of_steps(const cgr_runtime *rt) {
  const cgr__nvtx_range_step step = { .seq = 1 };
  (void)rt;
  for (int i = 0; i < PAIRS; i++) {
    cgr__nvtx_begin_step(CGR__RANGE_LAUNCH, &step);
    cgr__nvtx_end();
  }
}

static void run_pairs(const cgr_runtime *rt, const char *tool) {
  const struct {
    const char *name;
    void (*pairs)(const cgr_runtime *rt);
  } sides[] = { { "an empty loop", pairs_of_nothing },
                { "a runtime that was not asked: two tests", pairs_of_runtime },
                { "NVTX called, a name", plain_pairs },
                { "NVTX called, a step", pairs_of_steps } };
  enum { SIDES = sizeof sides / sizeof sides[0] };
  static double ns[SIDES][BLOCKS];
  for (int b = 0; b < BLOCKS; b++)
    for (int s = 0; s < SIDES; s++) {
      double begin = bench_now_us();
      sides[s].pairs(rt);
      ns[s][b] = (bench_now_us() - begin) * 1e3 / PAIRS;
    }
  printf("\n## A range, begin and end, %s; nanoseconds\n| what | median | p90 |\n|---|---:|---:|\n", tool);
  for (int s = 0; s < SIDES; s++)
    printf("| %s | %.2f | %.2f |\n", sides[s].name, bench_quantile(ns[s], BLOCKS, 0.5), bench_quantile(ns[s], BLOCKS, 0.9));
}

/* ----------------------------------------------------------------------------------------------------------------- steps */

static void run_steps(bench_engine *const engines[2], const char *tool) {
  static double ns[2][BLOCKS];
  for (int b = 0; b < BLOCKS; b++)
    for (int s = 0; s < 2; s++) {
      bench_engine *e = engines[s];
      cgr_batch batch = CGR_BATCH_INIT;
      cgr_step step = CGR_STEP_INIT;
      batch.num_requests = REQUESTS;
      batch.rows = e->rows;
      double begin = bench_now_us();
      for (int i = 0; i < STEPS; i++) {
        bench_check(cgr_step_prepare(e->rt, &batch, &step), "cgr_step_prepare");
        bench_check(cgr_step_cancel(e->rt, &step), "cgr_step_cancel");
      }
      ns[s][b] = (bench_now_us() - begin) * 1e3 / STEPS;
    }
  printf("\n## Prepare and cancel of %d requests, %s; nanoseconds\n| config.nvtx | median | p90 |\n|---:|---:|---:|\n", REQUESTS,
         tool);
  for (int s = 0; s < 2; s++)
    printf("| %d | %.1f | %.1f |\n", s, bench_quantile(ns[s], BLOCKS, 0.5), bench_quantile(ns[s], BLOCKS, 0.9));
}

static void open_engine(bench_engine *e, const char *device, int32_t nvtx) {
  bench_options o = { .device = device, .num_layers = 1, .num_q_heads = 1, .num_kv_heads = 1, .head_dim = 64, .nvtx = nvtx };
  static const int32_t bucket = REQUESTS;
  o.page_size = 16;
  o.num_pages = 64;
  o.max_requests = o.max_tokens = REQUESTS;
  o.max_seq_len = 64;
  o.buckets = &bucket;
  o.num_buckets = 1;
  bench_open(e, &o);
  bench_open_rows(e, REQUESTS, 16, 32);
  cgr_batch batch = CGR_BATCH_INIT; /* a first step, so that its rows have a last token */
  cgr_step step = CGR_STEP_INIT;
  const int32_t tokens[REQUESTS] = { 0 };
  batch.num_requests = REQUESTS;
  batch.rows = e->rows;
  batch.tokens = tokens;
  bench_check(cgr_step_prepare(e->rt, &batch, &step), "cgr_step_prepare");
  bench_check(cgr_step_launch(e->rt, &step, e->stream), "cgr_step_launch");
  bench_check(cgr_step_wait(e->rt, step.mark, -1, NULL), "cgr_step_wait");
}

int main(int argc, char **argv) {
  bench_engine without, with;
  bool has_tool = argc > 2 && strcmp(argv[2], "tool") == 0;
  if (argc > 3 || (argc > 2 && !has_tool && strcmp(argv[2], "none") != 0))
    bench_fail("usage: %s [host|cuda:0] [none|tool]", argv[0]);
  if (has_tool)
    add_tool();
  open_engine(&without, argc > 1 ? argv[1] : "host", 0);
  open_engine(&with, argc > 1 ? argv[1] : "host", 1);
  const char *tool = has_tool ? "a tool that does nothing" : cgr__has_ranges(with.rt) ? "a tool" : "no tool";
  bench_print_head(stdout, with.dev, "profiles/nvtx_cost");
  run_pairs(without.rt, tool);
  run_steps((bench_engine *const[2]){ &without, &with }, tool);
  bench_close(&without);
  bench_close(&with);
  return 0;
}
