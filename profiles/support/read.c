#include "profiles/support/read.h"

#include "devices/error.h"
#include "profiles/support/bench.h"

#define TIMES 10
#define LAUNCHES 8

static void read_all(const void *args) {
  const bench_read *a = args;
  const uint64_t *words = a->data;
  uint64_t sum = 0;
  for (int64_t i = 0; i < a->bytes / 8; i++)
    sum ^= words[i];
  if ((uint32_t)(sum ^ sum >> 32) == 0x9e3779b9u)
    *a->sink = sum;
}

#if defined(CGR_WITH_CUDA) && CGR_WITH_CUDA
const cgr__kernel bench_kernel_read = { "read", sizeof(bench_read), read_all, bench_cuda_read, bench_cuda_read_preload, 0 };
#else
const cgr__kernel bench_kernel_read = { "read", sizeof(bench_read), read_all, NULL, NULL, 0 };
#endif

double bench_read_bandwidth(cgr_device *dev, cudaStream_t stream) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  void *data, *sink;
  double times[TIMES];
  bench_check(cgr_device_get_info(dev, &info), "cgr_device_get_info");
  size_t bytes = info.kind == CGR_DEVICE_KIND_HOST ? (size_t)64 << 20 : (size_t)4 << 30;
  bench_check(cgr_memory_alloc(dev, bytes, &data), "memory");
  bench_check(cgr_memory_alloc(dev, sizeof(uint64_t), &sink), "memory");
  bench_check(cgr_fill(dev, data, 0, bytes, stream), "fill");
  bench_check(cgr__device_fail(dev, dev->ops->preload(dev, &bench_kernel_read), "preload"), "preload");
  const bench_read args = { data, (int64_t)bytes, sink, info.num_multiprocessors };
  for (int t = -1; t < TIMES; t++) {
    bench_check(cgr_stream_synchronize(dev, stream), "synchronize");
    double begin = bench_now_us();
    for (int i = 0; i < LAUNCHES; i++)
      bench_check(cgr__device_fail(dev, dev->ops->launch(dev, &bench_kernel_read, &args, stream), "read"), "read");
    bench_check(cgr_stream_synchronize(dev, stream), "synchronize");
    if (t >= 0) /* the first warms up */
      times[t] = bench_now_us() - begin;
  }
  bench_check(cgr_memory_free(dev, data), "free");
  bench_check(cgr_memory_free(dev, sink), "free");
  return (double)bytes * LAUNCHES / bench_quantile(times, TIMES, 0.5) * 1e6;
}
