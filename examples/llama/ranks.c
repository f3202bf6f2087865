#include "examples/llama/ranks.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "examples/llama/engine.h"
#include "examples/llama/nccl_host.h"

#define MEET_MS 120000 /* for ranks that are still being started */
#define LINGER_S 1     /* more than the others take to look who has ended */

int llama_ranks_exchange(const llama_ranks *k, const void *mine, size_t bytes, void *all) {
  uint64_t missing = 0;
  return llama_cgr(k->exchange.gather(k->exchange.context, mine, bytes, all, -1, &missing), "cgr_board_exchange");
}

int llama_ranks_barrier(const llama_ranks *k) {
  char mine = 1, all[CGR_MAX_RANKS];
  return k ? llama_ranks_exchange(k, &mine, sizeof(mine), all) : 0;
}

int llama_ranks_least(const llama_ranks *k, uint64_t *value) {
  uint64_t all[CGR_MAX_RANKS];
  if (!k)
    return 0;
  TRY(llama_ranks_exchange(k, value, sizeof(*value), all));
  for (int32_t r = 0; r < k->split.ranks; r++)
    *value = all[r] < *value ? all[r] : *value;
  return 0;
}

static int meet(llama_ranks *k, const llama_place *place) {
  uint64_t options[CGR_MAX_RANKS];
  const int64_t process = getpid();
  TRY_CGR(cgr_board_open(place->name, place->rank, place->ranks, MEET_MS, &k->board));
  k->exchange = (cgr_exchange)CGR_EXCHANGE_INIT;
  TRY_CGR(cgr_board_exchange(k->board, &k->exchange));
  TRY(llama_ranks_exchange(k, &process, sizeof(process), k->processes));
  TRY(llama_ranks_exchange(k, &place->options, sizeof(place->options), options));
  for (int32_t r = 0; r < place->ranks; r++)
    if (options[r] != options[0])
      return llama_fail("rank %d has other options than rank 0, expected the same but for --rank", r);
  return 0;
}

int llama_ranks_join(const llama_place *place, int32_t timeout_ms, llama_ranks **ranks) {
  *ranks = NULL;
  if (place->ranks < 2)
    return 0;
  llama_ranks *k = calloc(1, sizeof(*k));
  if (!k)
    return llama_fail("no memory");
  k->split = (llama_split){ place->rank, place->ranks };
  k->timeout_ms = timeout_ms;
  *ranks = k; /* the caller ends it in any case */
  return meet(k, place);
}

void llama_ranks_linger(const llama_ranks *k) {
  const struct timespec pause = { LINGER_S, 0 };
  if (k)
    nanosleep(&pause, NULL);
}

/* The library stays: threads of its own may still be in it. */
void llama_ranks_leave(llama_ranks *k) {
  if (!k)
    return;
  cgr_board_close(k->board);
  free(k);
}

/* Ranks of one machine need no network, and multicast is left to those who ask for it. Graphs and eager steps of a communicator
 * run one after the other here, so NCCL need not order them: what it adds to a graph for that makes launches slow. What is set
 * already stays. */
static void set_environment(void) {
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  setenv("NCCL_NVLS_ENABLE", "0", 0);
}

int llama_ranks_find(llama_ranks *k, cgr_device *device, bool on_host, size_t most, const char *path) {
  k->functions = (cgr_nccl_functions)CGR_NCCL_FUNCTIONS_INIT;
  if (on_host) {
    llama_nccl_host(device, most, &k->functions);
    return 0;
  }
  set_environment();
  k->library = dlopen(path ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!k->library)
    return llama_fail("NCCL cannot be loaded, expected it where the loader looks, or its path as --nccl: %s", dlerror());
  TRY_CGR(cgr_nccl_find(dlsym, k->library, &k->functions));
  return 0;
}

void llama_ranks_introduce(FILE *out, const llama_ranks *k) {
  int version = 0;
  if (!k)
    return;
  fprintf(out, "ranks      %d, their collectives ", k->split.ranks);
  if (k->library && k->functions.get_version(&version) == 0)
    fprintf(out, "by NCCL %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
  else
    fprintf(out, "over shared memory\n");
  fflush(out);
}
