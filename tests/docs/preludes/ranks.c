/* In an engine of several ranks. */
#include <dlfcn.h>

#include "cgr/interop/nccl.h"
#include "cgr/ranks.h"
#include "tests/docs/preludes/common.h"

extern cgr_step step;
extern cudaStream_t stream;
extern cgr_ranks *ranks;
extern cgr_board *board;
extern cgr_nccl *nccl;
extern cgr_watchdog *watchdog;
extern void *fingerprints;
extern int32_t rank, num_ranks;
extern const char *name;
extern uint64_t hash_of_weights;

void show(const char *text);
int send_and_get_all(const void *mine, size_t bytes, void *all, int32_t timeout_ms, uint64_t *missing);

@BLOCK@
