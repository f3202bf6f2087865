/* A runtime among those of the other ranks: how they agree on each step, add up what each has computed, and tell who is missing.
 * Every rank runs the same scheduler on the same requests; as their tokens are equal, so are their batches, and nothing of these
 * is sent. */
#ifndef LLAMA_TEAM_H
#define LLAMA_TEAM_H

#include "examples/llama/ranks.h"

/* NULL in a process that is alone, as may be the `team` of open, leave and close. */
typedef struct llama_team {
  const llama_ranks *ranks;
  cgr_runtime *runtime;
  cgr_ranks *steps;
  cgr_nccl *nccl;
  cgr_watchdog *watchdog; /* of the steps after the capture */
} llama_team;

/* Of all ranks together, as capture is: warm-up and capture. After it what hangs for half of the timeout is told on standard
 * error. *team is left to the caller even after a failure. */
int llama_team_open(const llama_ranks *ranks, cgr_runtime *runtime, llama_team **team);
int llama_team_capture(llama_team *team, const cgr_capture *capture);
/* The key for a step of this batch, which is the same on all ranks. */
int llama_team_agree(const llama_team *team, const cgr_batch *batch, cgr_key *key);
/* cgr_step_wait, which ends when a rank has ended or does not come. */
int llama_team_wait(const llama_team *team, cgr_mark mark, cgr_step_result *result);
/* Before the runtime's end, and after it. */
void llama_team_leave(llama_team *team);
void llama_team_close(llama_team *team);

/* In `record`: data [count] of the type becomes the sum of all ranks', the same bits on each. `what` is for reports. */
cgr_status llama_team_sum(const llama_team *team, cgr_recorder *recorder, const char *what, void *data, uint64_t count,
                          int32_t dtype);
/* all [ranks][bytes] gets every rank's `mine`. */
cgr_status llama_team_gather(const llama_team *team, cgr_recorder *recorder, const void *mine, void *all, uint64_t bytes);

#endif
