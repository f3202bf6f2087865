/* What ranks agree on, from what each of them brings: the same on all of them. */
#include <string.h>

#include "base/choices.h"
#include "base/key.h"
#include "base/sized.h"
#include "base/status.h"
#include "cgr/names.h"
#include "ranks/ranks.h"

#define FUNCTION "cgr_ranks_decide"

static bool is_idle(const cgr_rank_proposal *p) { return p->counts.num_requests == 0; }

/* ------------------------------------------------------------------------------------------------------------ differences */

/* The numbers that must be equal, in the order in which they are looked at: ranks that have skipped an agreement differ in most
 * of the others, too. */
enum { AGREEMENT, KEYS, STEPS, HISTORY, NUM_NUMBERS };

static uint64_t number_of(const cgr_rank_proposal *p, int which) {
  return which == AGREEMENT ? p->agreement : which == KEYS ? p->keys : which == STEPS ? p->steps : p->history;
}

static int32_t count_alike(const cgr_rank_proposal *p, int32_t num_ranks, int which, int32_t rank) {
  int32_t alike = 0;
  for (int32_t r = 0; r < num_ranks; r++)
    alike += number_of(&p[r], which) == number_of(&p[rank], which);
  return alike;
}

/* The rank that has company the least: it is the one that has gone astray. Of two it is the second. -1: all are alike. */
static int32_t find_odd(const cgr_rank_proposal *p, int32_t num_ranks, int which) {
  int32_t odd = -1, fewest = num_ranks;
  for (int32_t r = num_ranks - 1; r >= 0; r--) {
    const int32_t alike = count_alike(p, num_ranks, which, r);
    if (alike < fewest)
      odd = r, fewest = alike;
  }
  return odd;
}

/* The first that is among the most alike. */
static int32_t find_usual(const cgr_rank_proposal *p, int32_t num_ranks, int which) {
  int32_t usual = 0;
  for (int32_t r = 1; r < num_ranks; r++)
    if (count_alike(p, num_ranks, which, r) > count_alike(p, num_ranks, which, usual))
      usual = r;
  return usual;
}

static cgr_status refuse_difference(const char *function, const cgr_rank_proposal *p, int which, int32_t odd, int32_t usual) {
  const unsigned long long his = number_of(&p[odd], which), theirs = number_of(&p[usual], which);
  switch (which) {
  case AGREEMENT:
    return cgr__fail(CGR_ERROR_RANK, "%s: rank %d is at agreement %llu, rank %d at %llu: expected calls in step", function, odd,
                     his, usual, theirs);
  case KEYS:
    return cgr__fail(CGR_ERROR_RANK,
                     "%s: rank %d has keys, rules of dispatch or a model with the hash %016llx, rank %d %016llx: expected "
                     "equal configurations",
                     function, odd, his, usual, theirs);
  case STEPS:
    return cgr__fail(CGR_ERROR_RANK,
                     "%s: rank %d has launched %llu step%s, rank %d %llu: expected every rank to launch what was agreed",
                     function, odd, his, cgr__plural((int64_t)his), usual, theirs);
  default:
    return cgr__fail(CGR_ERROR_RANK,
                     "%s: rank %d has launched other keys than rank %d in %llu step%s, the last as %s and %s: expected the "
                     "agreed key on all ranks",
                     function, odd, usual, (unsigned long long)p[odd].steps, cgr__plural((int64_t)p[odd].steps),
                     cgr__key_name(&p[odd].last).text, cgr__key_name(&p[usual].last).text);
  }
}

bool cgr__ranks_lack_history(const cgr_rank_proposal *p, int32_t num_ranks) {
  bool lack = false;
  for (int32_t r = 0; r < num_ranks; r++)
    lack = lack || p[r].history == 0;
  return lack;
}

cgr_status cgr__ranks_compare(const char *function, const cgr_rank_proposal *p, int32_t num_ranks) {
  bool compares_steps = !cgr__ranks_lack_history(p, num_ranks);
  for (int32_t r = 0; r < num_ranks; r++)
    compares_steps = compares_steps && p[r].status == CGR_OK;
  for (int which = 0; which < (compares_steps ? NUM_NUMBERS : STEPS); which++) {
    const int32_t odd = find_odd(p, num_ranks, which);
    if (odd >= 0)
      return refuse_difference(function, p, which, odd, find_usual(p, num_ranks, which));
  }
  return CGR_OK;
}

/* The first rank that cannot go on. */
static cgr_status check_statuses(const cgr_rank_proposal *p, int32_t num_ranks) {
  for (int32_t r = 0; r < num_ranks; r++)
    if (p[r].status != CGR_OK)
      return cgr__fail(CGR_ERROR_RANK, FUNCTION ": rank %d cannot run its batch: %s (%s)", r,
                       cgr_status_name((cgr_status)p[r].status), cgr_status_text((cgr_status)p[r].status));
  return CGR_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ counts */

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static cgr_status check_same(const cgr_rank_proposal *p, int32_t r) {
  const cgr_batch_counts *a = &p[0].counts, *b = &p[r].counts;
  if (a->num_requests == b->num_requests && a->num_tokens == b->num_tokens && a->query_len == b->query_len &&
      a->max_query_len == b->max_query_len && a->variant == b->variant)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_RANK,
                   FUNCTION ": rank %d has a batch of %d request%s and %d token%s, rank 0 of %d and %d: expected the same "
                            "(CGR_RANKS_SAME)",
                   r, b->num_requests, cgr__plural(b->num_requests), b->num_tokens, cgr__plural(b->num_tokens), a->num_requests,
                   a->num_tokens);
}

static cgr_status add_counts(const cgr_rank_proposal *p, int32_t r, int32_t *first, cgr_batch_counts *sum) {
  const cgr_batch_counts *c = &p[r].counts;
  if (is_idle(&p[r]))
    return CGR_OK;
  if (*first < 0) {
    *first = r;
    *sum = *c;
    sum->size = sizeof *sum;
    return CGR_OK;
  }
  if (c->variant != sum->variant)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     FUNCTION ": rank %d has a batch of variant %u, rank %d of variant %u: expected one", r, c->variant, *first,
                     sum->variant);
  sum->query_len = c->query_len == sum->query_len ? c->query_len : 0;
  sum->num_requests = larger(sum->num_requests, c->num_requests);
  sum->num_tokens = larger(sum->num_tokens, c->num_tokens);
  sum->max_query_len = larger(sum->max_query_len, c->max_query_len);
  return CGR_OK;
}

static cgr_status read_arguments(const cgr_rank_proposal *given, int32_t num_ranks, int32_t rule, cgr_rank_proposal *p) {
  if (num_ranks < 1 || num_ranks > CGR_MAX_RANKS)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": num_ranks is %d, expected 1 .. %d", num_ranks, CGR_MAX_RANKS);
  CGR__TRY(cgr__check_choice(FUNCTION, "rule", &cgr__ranks_rules, rule));
  for (int32_t r = 0; r < num_ranks; r++) {
    CGR__TRY(cgr__sized_read_at(FUNCTION ": proposals", "CGR_RANK_PROPOSAL_INIT", given, r, &p[r], sizeof p[r]));
    if (p[r].counts.size != 0 && p[r].counts.size != sizeof p[r].counts)
      return cgr__fail(CGR_ERROR_INVALID_STRUCT, FUNCTION ": proposals[%d].counts.size is %u, expected 0 or %zu", r,
                       p[r].counts.size, sizeof p[r].counts);
  }
  return CGR_OK;
}

cgr_status cgr_ranks_decide(const cgr_rank_proposal *proposals, int32_t num_ranks, int32_t rule, cgr_batch_counts *counts) {
  cgr_rank_proposal p[CGR_MAX_RANKS];
  cgr_batch_counts sum = CGR_BATCH_COUNTS_INIT;
  int32_t first = -1;
  CGR__TRY(read_arguments(proposals, num_ranks, rule, p));
  CGR__TRY(cgr__sized_check(FUNCTION ": counts", "CGR_BATCH_COUNTS_INIT", counts));
  CGR__TRY(cgr__ranks_compare(FUNCTION, p, num_ranks));
  CGR__TRY(check_statuses(p, num_ranks));
  for (int32_t r = 0; r < num_ranks; r++) {
    if (rule == CGR_RANKS_SAME)
      CGR__TRY(check_same(p, r));
    CGR__TRY(add_counts(p, r, &first, &sum));
  }
  cgr__sized_write(counts, &sum, sizeof sum);
  return CGR_OK;
}
