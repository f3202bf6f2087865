#include "examples/llama/team.h"

#include <stdio.h>
#include <stdlib.h>

#include "examples/llama/engine.h"
#include "examples/llama/process.h"

#define CAPTURE_MS 600000
#define SLICE_MS 100 /* of a wait for a step */
#define END_TRIES 2  /* of the end of an abort */

/* ------------------------------------------------------------------------------------------------------------ making, ending */

/* A rank whose process has ended; -1: all are there. */
static int32_t find_ended(const llama_ranks *k) {
  for (int32_t r = 0; r < k->split.ranks; r++)
    if (r != k->split.rank && !llama_process_runs(k->processes[r]))
      return r;
  return -1;
}

static int open_team(llama_team *t) {
  cgr_ranks_config ranks = CGR_RANKS_CONFIG_INIT;
  cgr_nccl_config nccl = CGR_NCCL_CONFIG_INIT;
  ranks.rule = CGR_RANKS_SAME;
  ranks.exchange = nccl.exchange = &t->ranks->exchange;
  ranks.timeout_ms = nccl.timeout_ms = t->ranks->timeout_ms;
  nccl.functions = &t->ranks->functions;
  nccl.name = "tp";
  TRY(llama_ranks_barrier(t->ranks)); /* some load longer than others */
  TRY_CGR(cgr_ranks_create(t->runtime, &ranks, &t->steps));
  TRY_CGR(cgr_nccl_create(t->runtime, &nccl, &t->nccl));
  return 0;
}

int llama_team_open(const llama_ranks *ranks, cgr_runtime *runtime, llama_team **team) {
  *team = NULL;
  if (!ranks)
    return 0;
  llama_team *t = calloc(1, sizeof(*t));
  if (!t)
    return llama_fail("no memory");
  t->ranks = ranks;
  t->runtime = runtime;
  *team = t;
  if (open_team(t) == 0)
    return 0;
  const int32_t ended = find_ended(ranks);
  return ended < 0 ? -1 : llama_fail("rank %d has ended, and the others cannot begin without it", ended);
}

void llama_team_leave(llama_team *t) {
  if (!t)
    return;
  cgr_watchdog_stop(t->watchdog);
  cgr_ranks_destroy(t->steps);
  t->steps = NULL;
  t->runtime = NULL;
}

void llama_team_close(llama_team *t) {
  if (!t)
    return;
  cgr_status status = CGR_NOT_READY;
  for (int i = 0; i < END_TRIES && status == CGR_NOT_READY; i++)
    status = cgr_nccl_destroy(t->nccl);
  free(t);
}

/* ------------------------------------------------------------------------------------------------------------------- steps */

/* Keeps the message, and lets go what waits for other ranks on the device. */
static int give_up(const llama_team *t, int failed) {
  cgr_nccl_abort(t->nccl, llama_message());
  return failed;
}

static void tell(void *context, const char *report) {
  (void)context;
  fputs(report, stderr);
}

static int watch(llama_team *t) {
  cgr_rank_watch config = CGR_RANK_WATCH_INIT;
  config.timeout_ms = t->ranks->timeout_ms / 2;
  config.where = cgr_nccl_where;
  config.where_context = t->nccl;
  config.hangs = tell;
  TRY_CGR(cgr_ranks_watch(t->steps, &config, &t->watchdog));
  return 0;
}

int llama_team_capture(llama_team *t, const cgr_capture *capture) {
  cgr_status status = CGR_NOT_READY;
  TRY(llama_ranks_barrier(t->ranks));
  TRY_CGR(cgr_runtime_warmup(t->runtime, capture));
  for (int64_t waited = 0; status == CGR_NOT_READY && waited <= CAPTURE_MS; waited += t->ranks->timeout_ms)
    status = cgr_ranks_capture(t->steps, capture);
  TRY(llama_cgr(status, "cgr_ranks_capture"));
  return watch(t);
}

int llama_team_agree(const llama_team *t, const cgr_batch *batch, cgr_key *key) {
  cgr_agreement agreed = CGR_AGREEMENT_INIT;
  cgr_status status = cgr_ranks_agree(t->steps, batch, &agreed);
  if (status != CGR_OK)
    return give_up(t, llama_cgr(status, "cgr_ranks_agree"));
  *key = agreed.key;
  return 0;
}

static int check(const llama_team *t, cgr_mark mark, int32_t waited_ms) {
  const unsigned long long seq = mark.seq;
  const cgr_status status = cgr_nccl_check(t->nccl);
  const int32_t ended = status != CGR_OK || waited_ms > 0 ? find_ended(t->ranks) : -1;
  if (ended >= 0)
    return give_up(t, llama_fail("step %llu waits for rank %d, which has ended", seq, ended));
  if (status != CGR_OK)
    return give_up(t, llama_cgr(status, "cgr_nccl_check"));
  if (waited_ms > t->ranks->timeout_ms)
    return give_up(t, llama_fail("step %llu has not completed within %d ms: a rank does not come", seq, t->ranks->timeout_ms));
  return 0;
}

/* NCCL does not see that the process of a rank has ended: the wait looks for it. */
int llama_team_wait(const llama_team *t, cgr_mark mark, cgr_step_result *result) {
  cgr_status status = CGR_NOT_READY;
  for (int32_t waited = 0; status == CGR_NOT_READY; waited += SLICE_MS) {
    status = cgr_step_wait(t->runtime, mark, SLICE_MS, result);
    TRY(check(t, mark, status == CGR_NOT_READY ? waited + SLICE_MS : 0));
  }
  return llama_cgr(status, "cgr_step_wait");
}

/* ------------------------------------------------------------------------------------------------------------- collectives */

cgr_status llama_team_sum(const llama_team *t, cgr_recorder *recorder, const char *what, void *data, uint64_t count,
                          int32_t dtype) {
  cgr_nccl_call call = CGR_NCCL_CALL_INIT;
  call.kind = CGR_NCCL_ALL_REDUCE;
  call.op = CGR_NCCL_SUM;
  call.label = what;
  call.send = call.recv = data;
  call.count = count;
  call.dtype = dtype;
  return cgr_nccl_record(recorder, t->nccl, &call, 1);
}

cgr_status llama_team_gather(const llama_team *t, cgr_recorder *recorder, const void *mine, void *all, uint64_t bytes) {
  cgr_nccl_call call = CGR_NCCL_CALL_INIT;
  call.kind = CGR_NCCL_ALL_GATHER;
  call.label = "tokens";
  call.send = mine;
  call.recv = all;
  call.count = bytes / sizeof(int32_t);
  call.dtype = CGR_DTYPE_I32;
  return cgr_nccl_record(recorder, t->nccl, &call, 1);
}
