/* Meetings: every rank sends a block and gets those of all. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "ranks/board.h"
#include "ranks/ranks.h"

const char *cgr__rank_call_name(int32_t call) {
  static const char *const names[] = { "no call",
                                       "cgr_ranks_create",
                                       "cgr_ranks_agree",
                                       "the second part of cgr_ranks_agree",
                                       "cgr_ranks_barrier",
                                       "cgr_ranks_capture",
                                       "the end of cgr_ranks_capture" };
  return call >= 0 && call < (int32_t)(sizeof names / sizeof names[0]) ? names[call] : "an unknown call";
}

void cgr__ranks_lock(cgr_ranks *k) {
  while (__atomic_exchange_n(&k->locked, 1, __ATOMIC_ACQUIRE))
    sched_yield();
}

void cgr__ranks_unlock(cgr_ranks *k) { __atomic_store_n(&k->locked, 0, __ATOMIC_RELEASE); }

void cgr__ranks_send_state(const cgr_ranks *k) {
  if (k->exchange.show)
    k->exchange.show(k->exchange.context, &k->state, sizeof k->state);
}

void cgr__ranks_show(cgr_ranks *k, cgr__rank_call call, uint64_t missing) {
  cgr__ranks_lock(k);
  if (k->state.call != (int32_t)call)
    k->state.since_ns = cgr__now_ns();
  k->state.call = (int32_t)call;
  k->state.missing = missing;
  if (k->state.agreement != k->agreed.number) {
    k->state.before = k->state.key;
    k->state.launched_before = k->state.launched;
  }
  k->state.agreement = k->agreed.number;
  k->state.key = k->agreed.key;
  memcpy(k->state.name, k->mine.name, sizeof k->state.name);
  cgr__ranks_send_state(k);
  cgr__ranks_unlock(k);
}

cgr_status cgr__ranks_check(const cgr_ranks *k, const char *function) {
  CGR__REQUIRE(k && k->magic == CGR__RANKS_MAGIC ? k : NULL, function);
  if (k->parted)
    return cgr__fail(CGR_ERROR_RANK, "%s: the ranks have parted: %s", function, k->why);
  return CGR_OK;
}

void cgr__ranks_keep_message(cgr_ranks *k) { (void)snprintf(k->why, sizeof k->why, "%s", cgr_last_message()); }

cgr_status cgr__ranks_part(cgr_ranks *k) {
  k->parted = true;
  cgr__ranks_keep_message(k);
  return CGR_ERROR_RANK;
}

/* Of ranks that have not come. */
static cgr_status tell_missing(cgr_ranks *k, const char *function, uint64_t missing) {
  const cgr__ranks_text names = cgr__ranks_text_of(missing);
  cgr__ranks_show(k, (cgr__rank_call)k->mine.call, missing);
  return cgr__fail(CGR_NOT_READY, "%s: not here within %d ms: rank%s %s (cgr_ranks_report tells more), expected all", function,
                   k->timeout_ms, strchr(names.text, ' ') ? "s" : "", names.text[0] ? names.text : "unknown");
}

/* Whether all have come to the same call. */
static cgr_status check_blocks(const cgr_ranks *k, const char *function) {
  const cgr__rank_block *mine = &k->mine;
  for (int32_t r = 0; r < k->exchange.num_ranks; r++) {
    const cgr__rank_block *b = &k->all[r];
    if (b->magic != CGR__RANKS_MAGIC || b->version != CGR_VERSION)
      return cgr__fail(CGR_ERROR_RANK, "%s: rank %d has sent a block of another kind: expected the same library on all ranks",
                       function, r);
    if (b->call != mine->call || strncmp(b->name, mine->name, sizeof b->name) != 0)
      return cgr__fail(CGR_ERROR_RANK, "%s: rank %d is in %s%s%.31s, rank %d in %s%s%.31s: expected the same call", function, r,
                       cgr__rank_call_name(b->call), b->name[0] ? " " : "", b->name, k->exchange.rank,
                       cgr__rank_call_name(mine->call), mine->name[0] ? " " : "", mine->name);
    if (b->rule != mine->rule)
      return cgr__fail(CGR_ERROR_RANK, "%s: rank %d has rule %d, rank %d %d: expected the same on all ranks", function, r,
                       b->rule, k->exchange.rank, mine->rule);
  }
  return CGR_OK;
}

/* `before`: as for cgr__fail_returned. */
static cgr_status tell_failure(cgr_ranks *k, const char *function, cgr_status status, uint64_t before) {
  char who[64];
  (void)snprintf(who, sizeof who, "%s: exchange.gather", function);
  if (status != CGR_ERROR_RANK)
    return cgr__fail_returned(CGR_ERROR_CALLBACK, who, status, before);
  (void)cgr__fail_returned(status, who, status, before);
  return cgr__ranks_part(k);
}

cgr_status cgr__ranks_meet(cgr_ranks *k, const char *function, cgr__rank_call call) {
  uint64_t missing = 0;
  const uint64_t before = cgr__failures();
  if (!k->waits) {
    k->mine.magic = CGR__RANKS_MAGIC;
    k->mine.version = CGR_VERSION;
    k->mine.call = (int32_t)call;
    k->mine.rule = k->rule;
  }
  if (k->waits && k->mine.call != (int32_t)call)
    return cgr__fail(CGR_ERROR_STATE, "%s: %s waits for other ranks, expected that call again", function,
                     cgr__rank_call_name(k->mine.call));
  k->waits = true;
  cgr__ranks_show(k, call, 0);
  const cgr_status status = k->exchange.gather(k->exchange.context, &k->mine, sizeof k->mine, k->all, k->timeout_ms, &missing);
  if (status == CGR_NOT_READY)
    return tell_missing(k, function, missing);
  k->waits = false;
  cgr__ranks_show(k, CGR__RANK_NONE, 0);
  if (status != CGR_OK)
    return tell_failure(k, function, status, before);
  if (memcmp(&k->all[k->exchange.rank], &k->mine, sizeof k->mine) != 0)
    return cgr__fail(
        CGR_ERROR_CALLBACK,
        "%s: exchange.gather has not given rank %d's own block in its place, expected the blocks of this call in the "
        "order of ranks",
        function, k->exchange.rank);
  return check_blocks(k, function) == CGR_OK ? CGR_OK : cgr__ranks_part(k);
}
