/* The processes of --tp: made here, a rank each, or by a launcher (torchrun, mpirun, srun) that makes this one. */
#ifndef LLAMA_LAUNCH_H
#define LLAMA_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "examples/llama/options.h"

/* This process among the ranks. */
typedef struct llama_place {
  int32_t rank, ranks; /* ranks 1: it is alone */
  int32_t local;       /* number of its GPU */
  FILE *out;           /* standard output of a rank but the first, which has none else; NULL */
  bool is_parent;      /* it is no rank: they were its children and have ended well */
  uint64_t options;    /* a hash of the command line, but for --rank */
  char name[208];      /* where the ranks meet */
} llama_place;

/* Before any device is opened. With --tp alone, returns once in each of that many new processes, and in this one when they have
 * ended. In ranks but the first, what is printed goes nowhere. */
int llama_launch(int argc, char **argv, const llama_options *options, llama_place *place);

#endif
