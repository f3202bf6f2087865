/* Creation, and the agreement before a step. */
#include <stdlib.h>
#include <string.h>

#include "base/choices.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/sized.h"
#include "base/status.h"
#include "ranks/ranks.h"

#define DEFAULT_TIMEOUT_MS 30000

/* ---------------------------------------------------------------------------------------------------------------- creation */

static cgr_status read_exchange(const cgr_exchange *given, cgr_exchange *e) {
  CGR__TRY(cgr__sized_read("cgr_ranks_create: config.exchange", "CGR_EXCHANGE_INIT", given, e, sizeof *e));
  CGR__TRY(cgr__check_unused("cgr_ranks_create: config.exchange.reserved", e->reserved));
  e->num_ranks = e->num_ranks == 0 ? 1 : e->num_ranks;
  if (e->num_ranks < 1 || e->num_ranks > CGR_MAX_RANKS)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_ranks_create: config.exchange.num_ranks is %d, expected 1 .. %d",
                     e->num_ranks, CGR_MAX_RANKS);
  if (e->rank < 0 || e->rank >= e->num_ranks)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_ranks_create: config.exchange.rank is %d, expected 0 .. %d", e->rank,
                     e->num_ranks - 1);
  if (!e->gather)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_ranks_create: config.exchange.gather is NULL, expected a function");
  if (!e->show != !e->look)
    return cgr__fail(
        CGR_ERROR_NULL_POINTER,
        "cgr_ranks_create: config.exchange.%s is NULL and the other of show and look is not, expected both or neither",
        e->show ? "look" : "show");
  return CGR_OK;
}

static cgr_status read_config(const cgr_ranks_config *config, cgr_ranks *k) {
  cgr_ranks_config c;
  CGR__TRY(cgr__sized_read("cgr_ranks_create: config", "CGR_RANKS_CONFIG_INIT", config, &c, sizeof c));
  CGR__TRY(cgr__check_choice("cgr_ranks_create", "config.rule", &cgr__ranks_rules, c.rule));
  CGR__TRY(cgr__check_unused("cgr_ranks_create: config.reserved", c.reserved));
  if (c.timeout_ms < -1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_ranks_create: config.timeout_ms is %d, expected -1 or more", c.timeout_ms);
  CGR__TRY(read_exchange(c.exchange, &k->exchange));
  k->rule = c.rule;
  k->timeout_ms = c.timeout_ms == 0 ? DEFAULT_TIMEOUT_MS : c.timeout_ms;
  uint64_t usable;
  CGR__TRY(cgr__fail_as("cgr_ranks_create", "cgr_runtime_hash_keys", cgr_runtime_hash_keys(k->runtime, &k->keys, &usable)));
  k->keys = cgr__hash(k->keys, &c.model, sizeof c.model);
  return CGR_OK;
}

static cgr_status join(cgr_ranks *k) {
  cgr_rank_proposal proposals[CGR_MAX_RANKS];
  CGR__TRY(cgr__fail_as("cgr_ranks_create", "cgr_runtime_flight", cgr__ranks_follow(k, false)));
  k->mine.proposal = (cgr_rank_proposal)CGR_RANK_PROPOSAL_INIT;
  k->mine.proposal.keys = k->keys;
  cgr__ranks_begin_history(k);
  CGR__TRY(cgr__ranks_meet(k, "cgr_ranks_create", CGR__RANK_CREATE));
  for (int32_t r = 0; r < k->exchange.num_ranks; r++)
    proposals[r] = k->all[r].proposal;
  return cgr__ranks_compare("cgr_ranks_create", proposals, k->exchange.num_ranks);
}

cgr_status cgr_ranks_create(cgr_runtime *runtime, const cgr_ranks_config *config, cgr_ranks **ranks) {
  CGR__REQUIRE(runtime, "cgr_ranks_create");
  CGR__REQUIRE(ranks, "cgr_ranks_create");
  cgr_ranks *k = calloc(1, sizeof *k);
  if (!k)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_ranks_create: no host memory for %zu bytes", sizeof *k);
  k->magic = CGR__RANKS_MAGIC;
  k->runtime = runtime;
  k->agreed = (cgr_agreement)CGR_AGREEMENT_INIT;
  k->state.magic = CGR__RANKS_MAGIC;
  k->state.since_ns = cgr__now_ns();
  cgr_status status = read_config(config, k);
  status = status == CGR_OK ? join(k) : status;
  if (status != CGR_OK) {
    free(k);
    return status;
  }
  *ranks = k;
  return CGR_OK;
}

cgr_status cgr_ranks_destroy(cgr_ranks *ranks) {
  if (!ranks)
    return CGR_OK;
  CGR__REQUIRE(ranks->magic == CGR__RANKS_MAGIC ? ranks : NULL, "cgr_ranks_destroy");
  ranks->magic = 0;
  free(ranks);
  return CGR_OK;
}

/* --------------------------------------------------------------------------------------------------------------- agreement */

/* What the runtime tells of itself and of the batch. Steps count from the first agreement. */
static cgr_status ask_runtime(cgr_ranks *k, const cgr_batch *batch) {
  static const cgr_batch nothing = CGR_BATCH_INIT;
  cgr_rank_proposal *p = &k->mine.proposal;
  CGR__TRY(cgr__fail_as("cgr_ranks_agree", "cgr_runtime_flight", cgr__ranks_follow(k, k->agreed.number > 0)));
  CGR__TRY(cgr__fail_as("cgr_ranks_agree", "cgr_runtime_hash_keys", cgr_runtime_hash_keys(k->runtime, NULL, &p->usable)));
  return cgr__fail_as("cgr_ranks_agree", "cgr_step_count", cgr_step_count(k->runtime, batch ? batch : &nothing, &p->counts));
}

/* This rank's part. What its runtime refuses is told to the others, too: they do not wait for a rank that is dead. */
static void propose(cgr_ranks *k, const cgr_batch *batch) {
  cgr_rank_proposal *p = &k->mine.proposal;
  p->counts = (cgr_batch_counts)CGR_BATCH_COUNTS_INIT;
  p->agreement = k->agreed.number + 1;
  p->status = (int32_t)ask_runtime(k, batch);
  if (p->status != CGR_OK)
    cgr__ranks_keep_message(k);
  k->next = (cgr_agreement)CGR_AGREEMENT_INIT;
  k->next.number = p->agreement;
  k->next.counts.size = sizeof k->next.counts;
  k->next.eager_rank = -1;
}

static bool all_can_replay_the_same(const cgr_ranks *k) {
  bool same = true;
  for (int32_t r = 1; r < k->exchange.num_ranks; r++)
    same = same && k->proposal[r].usable == k->proposal[0].usable;
  return same;
}

static void agree_on_eager(cgr_agreement *a) {
  a->key = (cgr_key)CGR_KEY_INIT;
  a->key.num_tokens = a->counts.num_tokens > 0 ? a->counts.num_tokens : 1;
  a->key.num_requests = a->counts.num_requests > 0 ? a->counts.num_requests : 1;
  a->key.variant = a->counts.variant;
}

/* Whether the rank's choice is what keeps all from replaying: it is eager, or where all have graphs another one than rank 0's. */
static bool is_in_the_way(const cgr_ranks *k, int32_t rank, int32_t graphs) {
  const cgr_key *choice = &k->all[rank].choice;
  return graphs < k->exchange.num_ranks ? choice->kind == CGR_KIND_NONE : memcmp(choice, &k->all[0].choice, sizeof *choice) != 0;
}

/* Ranks that have other graphs than others compare what they would choose. If that differs, all run eagerly. */
static cgr_status compare_choices(cgr_ranks *k, cgr_agreement *a) {
  int32_t graphs = 0;
  bool same = true;
  k->mine.choice = a->key;
  CGR__TRY(cgr__ranks_meet(k, "cgr_ranks_agree", CGR__RANK_CHOOSE));
  for (int32_t r = 0; r < k->exchange.num_ranks; r++) {
    graphs += k->all[r].choice.kind != CGR_KIND_NONE;
    same = same && memcmp(&k->all[r].choice, &k->all[0].choice, sizeof(cgr_key)) == 0;
  }
  if (same)
    return CGR_OK;
  for (int32_t r = 0; r < k->exchange.num_ranks && a->eager_rank < 0; r++)
    a->eager_rank = is_in_the_way(k, r, graphs) ? r : -1;
  agree_on_eager(a);
  a->reason = CGR_REASON_NOT_CAPTURED;
  return CGR_OK;
}

/* What all have brought is there. */
static cgr_status decide(cgr_ranks *k, cgr_agreement *a) {
  const int32_t own = k->all[k->exchange.rank].proposal.status;
  cgr__ranks_lock(k); /* a look reads them */
  for (int32_t r = 0; r < k->exchange.num_ranks; r++) {
    k->proposal[r] = k->all[r].proposal;
    a->idle += k->proposal[r].counts.num_requests == 0;
  }
  cgr__ranks_unlock(k);
  if (cgr__ranks_compare("cgr_ranks_agree", k->proposal, k->exchange.num_ranks) != CGR_OK)
    return cgr__ranks_part(k);
  if (cgr__ranks_lack_history(k->proposal, k->exchange.num_ranks))
    cgr__ranks_begin_history(k);
  if (own != CGR_OK)
    return cgr__fail((cgr_status)own, "%s", k->why);
  CGR__TRY(cgr__fail_as("cgr_ranks_agree", "cgr_ranks_decide",
                        cgr_ranks_decide(k->proposal, k->exchange.num_ranks, k->rule, &a->counts)));
  const cgr_status chosen = cgr__fail_as("cgr_ranks_agree", "cgr_step_choose_counts",
                                         cgr_step_choose_counts(k->runtime, &a->counts, &a->key, &a->reason));
  if (all_can_replay_the_same(k))
    return chosen; /* the same on all ranks */
  if (chosen != CGR_OK)
    agree_on_eager(a);
  return compare_choices(k, a);
}

static cgr_status agree(cgr_ranks *k, const cgr_batch *batch) {
  if (k->waits && k->mine.call == CGR__RANK_CHOOSE)
    return compare_choices(k, &k->next);
  if (!k->waits)
    propose(k, batch);
  CGR__TRY(cgr__ranks_meet(k, "cgr_ranks_agree", CGR__RANK_AGREE));
  return decide(k, &k->next);
}

cgr_status cgr_ranks_agree(cgr_ranks *ranks, const cgr_batch *batch, cgr_agreement *agreement) {
  CGR__TRY(cgr__ranks_check(ranks, "cgr_ranks_agree"));
  CGR__TRY(cgr__sized_check("cgr_ranks_agree: agreement", "CGR_AGREEMENT_INIT", agreement));
  CGR__TRY(agree(ranks, batch));
  cgr__ranks_lock(ranks);
  ranks->agreed = ranks->next;
  cgr__ranks_unlock(ranks);
  cgr__ranks_show(ranks, CGR__RANK_NONE, 0);
  cgr__sized_write(agreement, &ranks->agreed, sizeof ranks->agreed);
  return CGR_OK;
}

cgr_status cgr_ranks_proposal(const cgr_ranks *ranks, int32_t rank, cgr_rank_proposal *proposal) {
  CGR__REQUIRE(ranks && ranks->magic == CGR__RANKS_MAGIC ? ranks : NULL, "cgr_ranks_proposal");
  CGR__TRY(cgr__sized_check("cgr_ranks_proposal: proposal", "CGR_RANK_PROPOSAL_INIT", proposal));
  if (rank < 0 || rank >= ranks->exchange.num_ranks)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_ranks_proposal: rank is %d, expected 0 .. %d", rank,
                     ranks->exchange.num_ranks - 1);
  if (ranks->agreed.number == 0)
    return cgr__fail(CGR_ERROR_STATE, "cgr_ranks_proposal: the ranks have not agreed yet, expected it after cgr_ranks_agree");
  cgr__sized_write(proposal, &ranks->proposal[rank], sizeof ranks->proposal[rank]);
  return CGR_OK;
}
