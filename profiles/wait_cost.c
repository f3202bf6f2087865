/* What waiting for a step costs, and how soon the thread is back, for each cgr_config.wait_mode.
 *
 *   bazel-bin/profiles/wait_cost [cuda:0|host]
 *
 * Steps of 1.5 and 300 ms are launched and waited for at once. The time of a step's end is taken by a kernel after it, in the
 * device's clock; the difference of the clocks is taken anew after each step, as the least that a spinning thread sees of such a
 * kernel, so that this counts as 0. Reported are the processor time of the waiting thread, the time from the step's end to the
 * return, and the host time of prepare and launch, which waits must not change. The last rows wait by the driver's own event with
 * blocking synchronisation, which has no time-out: one thread less to wake. */
#include <stdlib.h>
#include <time.h>

#include "cgr/names.h"
#include "devices/error.h"
#include "profiles/support/bench.h"
#include "profiles/support/blocking.h"

#define LONG_STEPS 20
#define SHORT_STEPS 200

static const cgr_wait_mode modes[] = { CGR_WAIT_SPIN, CGR_WAIT_YIELD, CGR_WAIT_BLOCK, CGR_WAIT_DEFAULT };
#define NUM_MODES ((int)(sizeof modes / sizeof modes[0]))

typedef struct waits {
  cgr_device *dev;
  cudaStream_t stream;
  uint64_t *marked; /* pinned: when the last mark was made, by the device's clock */
  void *event;      /* for the rows of the driver; else NULL */
} waits;

typedef struct row {
  double processor_us, prepare_us, launch_us, late_us[SHORT_STEPS];
} row;

static void check_device(cgr_device *dev, int error, const char *what) { bench_check(cgr__device_fail(dev, error, what), what); }

static double processor_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static cgr_runtime *open_runtime(const waits *w, cgr_wait_mode mode) {
  cgr_config config = CGR_CONFIG_INIT;
  cgr_group group = CGR_GROUP_INIT;
  cgr_runtime *rt;
  group.num_pages = 8;
  config.device_handle = w->dev;
  config.groups = &group;
  config.num_groups = 1;
  config.max_requests = 1;
  config.max_tokens = 8;
  config.max_seq_len = 64;
  config.wait_mode = (int32_t)mode;
  bench_check(cgr_runtime_create(&config, &rt), "cgr_runtime_create");
  return rt;
}

/* How far the host's clock is ahead, and how long a mark takes to be seen. */
static double clock_difference(const waits *w) {
  const bench_mark mark = { w->marked };
  double least = 0.0;
  for (int i = 0; i < 8; i++) {
    __atomic_store_n(w->marked, 0, __ATOMIC_RELAXED);
    check_device(w->dev, w->dev->ops->launch(w->dev, &bench_kernel_mark, &mark, w->stream), "a mark");
    uint64_t ns;
    while ((ns = __atomic_load_n(w->marked, __ATOMIC_ACQUIRE)) == 0)
      ;
    double difference = bench_now_us() - (double)ns * 1e-3;
    least = i == 0 || difference < least ? difference : least;
  }
  return least;
}

/* A step that ends `ms` after its launch: it is behind a kernel of that length, and a mark is behind it. */
static double step(const waits *w, cgr_runtime *rt, double ms, row *r) {
  const bench_spin spin = { .ns = (uint64_t)(ms * 1e6) };
  const bench_mark mark = { w->marked };
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step s = CGR_STEP_INIT;
  check_device(w->dev, w->dev->ops->launch(w->dev, &bench_kernel_spin, &spin, w->stream), "the long kernel");
  double begin = bench_now_us();
  bench_check(cgr_step_prepare_wait(rt, &batch, &s, -1, w->stream), "cgr_step_prepare_wait");
  double prepared = bench_now_us();
  bench_check(cgr_step_launch(rt, &s, w->stream), "cgr_step_launch");
  double launched = bench_now_us();
  if (w->event)
    check_device(w->dev, bench_blocking_record(w->event, w->stream), "bench_blocking_record");
  check_device(w->dev, w->dev->ops->launch(w->dev, &bench_kernel_mark, &mark, w->stream), "the mark");
  double before = processor_us();
  if (w->event)
    check_device(w->dev, bench_blocking_wait(w->event), "bench_blocking_wait");
  else
    bench_check(cgr_step_wait(rt, s.mark, -1, NULL), "cgr_step_wait");
  double back = bench_now_us();
  r->processor_us += processor_us() - before;
  r->prepare_us += prepared - begin;
  r->launch_us += launched - prepared;
  bench_check(cgr_stream_synchronize(w->dev, w->stream), "cgr_stream_synchronize");
  double ended = (double)__atomic_load_n(w->marked, __ATOMIC_ACQUIRE) * 1e-3;
  return back - ended - clock_difference(w);
}

static void run(const waits *w, cgr_wait_mode mode, double ms, int count) {
  cgr_runtime *rt = open_runtime(w, mode);
  row r = { 0 };
  for (int i = 0; i < 3; i++)
    (void)step(w, rt, 1.0, &r);
  r = (row){ 0 };
  for (int i = 0; i < count; i++)
    r.late_us[i] = step(w, rt, ms, &r);
  double median = bench_quantile(r.late_us, count, 0.5), p99 = bench_quantile(r.late_us, count, 0.99);
  printf("| %s | %.1f | %.2f | %.1f (%.1f) | %.2f | %.2f |\n", w->event ? "driver" : cgr_wait_mode_name(mode), ms,
         100.0 * r.processor_us / (count * ms * 1e3), median, p99, r.prepare_us / count, r.launch_us / count);
  fflush(stdout);
  bench_check(cgr_runtime_destroy(rt), "cgr_runtime_destroy");
}

static void run_driver(waits *w) {
  if (w->dev->kind != CGR_DEVICE_KIND_CUDA)
    return;
  check_device(w->dev, bench_blocking_create(&w->event), "bench_blocking_create");
  run(w, CGR_WAIT_SPIN, 1.5, SHORT_STEPS);
  run(w, CGR_WAIT_SPIN, 300.0, LONG_STEPS);
  check_device(w->dev, bench_blocking_destroy(w->event), "bench_blocking_destroy");
  w->event = NULL;
}

int main(int argc, char **argv) {
  waits w = { 0 };
  void *memory;
  bench_check(cgr_device_open(argc > 1 ? argv[1] : NULL, NULL, &w.dev), "cgr_device_open");
  bench_check(cgr_stream_create(w.dev, &w.stream), "cgr_stream_create");
  bench_check(cgr_memory_alloc_pinned(w.dev, sizeof *w.marked, &memory), "cgr_memory_alloc_pinned");
  w.marked = memory;
  check_device(w.dev, w.dev->ops->preload(w.dev, &bench_kernel_spin), "preload");
  check_device(w.dev, w.dev->ops->preload(w.dev, &bench_kernel_mark), "preload");
  bench_print_head(stdout, w.dev, "profiles/wait_cost");
  printf("# steps: %d of 1.5 ms and %d of 300 ms in each mode\n", SHORT_STEPS, LONG_STEPS);
  printf("\n## Waiting for a step: processor time of the thread, percent of the step; back after its end, microseconds: median "
         "(p99)\n"
         "| mode | step, ms | processor, %% | back after | prepare, us | launch, us |\n|---|---:|---:|---:|---:|---:|\n");
  for (int i = 0; i < NUM_MODES; i++)
    run(&w, modes[i], 1.5, SHORT_STEPS);
  for (int i = 0; i < NUM_MODES; i++)
    run(&w, modes[i], 300.0, LONG_STEPS);
  run_driver(&w);
  bench_check(cgr_memory_free_pinned(w.dev, memory), "cgr_memory_free_pinned");
  bench_check(cgr_stream_destroy(w.dev, w.stream), "cgr_stream_destroy");
  bench_check(cgr_device_close(w.dev), "cgr_device_close");
  return 0;
}
