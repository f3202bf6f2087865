/* This process among the ranks that share a model. */
#ifndef LLAMA_RANKS_H
#define LLAMA_RANKS_H

#include <cgr/cgr.h>
#include <cgr/interop/nccl.h>
#include <cgr/ranks.h>
#include <stdbool.h>
#include <stdio.h>

#include "examples/llama/launch.h"
#include "examples/llama/split.h"

/* NULL in a process that is alone, as may be `ranks` below. */
typedef struct llama_ranks {
  llama_split split;
  int32_t timeout_ms; /* of waits for other ranks once all have loaded */
  cgr_board *board;
  cgr_exchange exchange;
  int64_t processes[CGR_MAX_RANKS];
  void *library;                /* NCCL's; NULL on the host device */
  cgr_nccl_functions functions; /* NCCL's, or the host device's */
} llama_ranks;

/* Meets the others. */
int llama_ranks_join(const llama_place *place, int32_t timeout_ms, llama_ranks **ranks);
void llama_ranks_leave(llama_ranks *ranks);
/* Of a rank that fails, before it leaves: the others shall see first why it does, which may be a rank that has ended. */
void llama_ranks_linger(const llama_ranks *ranks);
/* Finds the collectives for a device. `most`: bytes that one of them moves on the host device, as on all ranks. `path`: of NCCL's
 * shared library; NULL: as the loader finds libnccl.so.2. */
int llama_ranks_find(llama_ranks *ranks, cgr_device *device, bool on_host, size_t most, const char *path);

/* "ranks      2, their collectives by NCCL 2.27.3" */
void llama_ranks_introduce(FILE *out, const llama_ranks *ranks);

/* All ranks' blocks, in setup: waits as long as it takes, but not for a rank that has ended. */
int llama_ranks_exchange(const llama_ranks *ranks, const void *mine, size_t bytes, void *all);
/* Waits for all ranks. */
int llama_ranks_barrier(const llama_ranks *ranks);
/* The smallest of all ranks' values. */
int llama_ranks_least(const llama_ranks *ranks, uint64_t *value);

#endif
