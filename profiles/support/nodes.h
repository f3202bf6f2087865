/* Time of a kernel as a node of a graph of many such nodes, one after the other. */
#ifndef CGR_PROFILES_SUPPORT_NODES_H
#define CGR_PROFILES_SUPPORT_NODES_H

#include "devices/device.h"
#include "profiles/support/bench.h"

typedef struct bench_nodes {
  cgr_device *dev;
  cudaStream_t stream;
  int32_t nodes, replays; /* of a graph; of which the median counts */
} bench_nodes;

/* Microseconds of a node, what a node costs by itself included (that of bench_kernel_empty). */
double bench_node_us(const bench_nodes *b, const cgr__kernel *kernel, const void *args);

/* "[device] [nodes in a graph] [replays]" of a program's arguments, whose device is still to be opened; exits after telling how
 * it is used. */
bench_nodes bench_read_nodes(int argc, char **argv);

#endif
