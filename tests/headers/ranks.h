/* The structs of ranks in other sizes. The rank is alone: what it sends is what it gets. */
#ifndef CGR_TESTS_HEADERS_RANKS_H
#define CGR_TESTS_HEADERS_RANKS_H

#include "cgr/ranks.h"
#include "tests/headers/sized.h"
#include "tests/headers/world.h"

static cgr_status gather_alone(void *unused, const void *mine, size_t bytes, void *all, int32_t timeout_ms, uint64_t *missing) {
  (void)unused;
  CHECK(timeout_ms == 30000 && *missing == 0);
  memcpy(all, mine, bytes);
  return CGR_OK;
}

static cgr_exchange exchange_alone(void) {
  cgr_exchange exchange = CGR_EXCHANGE_INIT;
  exchange.gather = gather_alone;
  return exchange;
}

static cgr_status create_ranks(void *context, void *given) {
  cgr_ranks *ranks = NULL;
  const cgr_status status = cgr_ranks_create(((world *)context)->runtime, (const cgr_ranks_config *)given, &ranks);
  CHECK((status == CGR_OK) == (ranks != NULL));
  CHECK_OK(cgr_ranks_destroy(ranks));
  return status;
}

static cgr_status use_exchange(void *context, void *given) {
  cgr_ranks_config config = CGR_RANKS_CONFIG_INIT;
  config.exchange = (const cgr_exchange *)given;
  return create_ranks(context, &config);
}

/* A rank that has agreed once. */
static cgr_ranks *ranks_alone(const world *w) {
  const cgr_exchange exchange = exchange_alone();
  const cgr_batch batch = world_batch(w);
  cgr_ranks_config config = CGR_RANKS_CONFIG_INIT;
  cgr_agreement own = CGR_AGREEMENT_INIT;
  cgr_ranks *ranks = NULL;
  config.exchange = &exchange;
  CHECK_OK(cgr_ranks_create(w->runtime, &config, &ranks));
  CHECK_OK(cgr_ranks_agree(ranks, &batch, &own));
  return ranks;
}

static cgr_status get_agreement(void *context, void *given) {
  const world *w = (const world *)context;
  cgr_ranks *ranks = ranks_alone(w);
  const cgr_batch batch = world_batch(w);
  const cgr_status status = cgr_ranks_agree(ranks, &batch, (cgr_agreement *)given);
  CHECK_OK(cgr_ranks_destroy(ranks));
  return status;
}

static cgr_status get_proposal(void *context, void *given) {
  cgr_ranks *ranks = ranks_alone((const world *)context);
  const cgr_status status = cgr_ranks_proposal(ranks, 0, (cgr_rank_proposal *)given);
  CHECK_OK(cgr_ranks_destroy(ranks));
  return status;
}

static cgr_status get_exchange(void *context, void *given) {
  cgr_board *board = NULL;
  (void)context;
  CHECK_OK(cgr_board_open("cgr.headers.test", 0, 1, 1000, &board));
  const cgr_status status = cgr_board_exchange(board, (cgr_exchange *)given);
  CHECK_OK(cgr_board_close(board));
  return status;
}

static cgr_status count_batch(void *context, void *given) {
  const world *w = (const world *)context;
  const cgr_batch batch = world_batch(w);
  return cgr_step_count(w->runtime, &batch, (cgr_batch_counts *)given);
}

static cgr_status choose_counts(void *context, void *given) {
  cgr_key key = CGR_KEY_INIT;
  return cgr_step_choose_counts(((world *)context)->runtime, (const cgr_batch_counts *)given, &key, NULL);
}

static cgr_status decide_proposal(void *unused, void *given) {
  cgr_batch_counts counts = CGR_BATCH_COUNTS_INIT;
  (void)unused;
  return cgr_ranks_decide((const cgr_rank_proposal *)given, 1, CGR_RANKS_LARGEST, &counts);
}

static cgr_status decide_counts(void *unused, void *given) {
  cgr_rank_proposal proposal = CGR_RANK_PROPOSAL_INIT;
  (void)unused;
  proposal.counts.num_requests = proposal.counts.num_tokens = 3;
  return cgr_ranks_decide(&proposal, 1, CGR_RANKS_LARGEST, (cgr_batch_counts *)given);
}

static int test_ranks(void) {
  const int before = check_failures;
  world w;
  world_run(&w);
  const cgr_exchange exchange = exchange_alone();
  cgr_ranks_config config = CGR_RANKS_CONFIG_INIT;
  cgr_batch_counts counts = CGR_BATCH_COUNTS_INIT;
  cgr_rank_proposal proposal = CGR_RANK_PROPOSAL_INIT;
  config.exchange = &exchange;
  config.model = 77;
  counts.num_requests = counts.num_tokens = counts.query_len = counts.max_query_len = 1;
  proposal.steps = 5;
  const sized_input inputs[] = {
    { "config", &config, sizeof config, offsetof(cgr_ranks_config, exchange) + sizeof(void *), create_ranks },
    { "config.exchange", &exchange, sizeof exchange, offsetof(cgr_exchange, show), use_exchange },
    { "counts", &counts, sizeof counts, offsetof(cgr_batch_counts, variant), choose_counts },
    { "proposals[0]", &proposal, sizeof proposal, offsetof(cgr_rank_proposal, counts) + sizeof(uint32_t), decide_proposal },
  };
  /* Addresses of the board and of its functions are those of each board. */
  const sized_output outputs[] = {
    { "cgr_ranks_agree: agreement", sizeof(cgr_agreement), 0, 0, get_agreement },
    { "cgr_ranks_proposal: proposal", sizeof(cgr_rank_proposal), 0, 0, get_proposal },
    { "cgr_board_exchange: exchange", sizeof(cgr_exchange), offsetof(cgr_exchange, context), offsetof(cgr_exchange, gather),
      get_exchange },
    { "cgr_step_count: counts", sizeof(cgr_batch_counts), 0, 0, count_batch },
    { "cgr_ranks_decide: counts", sizeof(cgr_batch_counts), 0, 0, decide_counts },
  };
  for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
    check_input(&inputs[i], &w);
  for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++)
    check_output(&outputs[i], &w);
  world_close(&w);
  return check_failures - before;
}

#endif
