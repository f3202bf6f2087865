/* The exchange of a board. */
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "ranks/board.h"

#define FUNCTION "cgr_board_exchange: gather"
#define LOOKS_AT_PROCESSES_NS 2000000 /* how often a wait looks whether the others still run */
#define TRIES 1000                    /* of reading a state while it is written */

static uint64_t ranks_before(const cgr_board *b, uint64_t round) {
  uint64_t missing = 0;
  for (int32_t r = 0; r < b->num_ranks; r++)
    missing |= (uint64_t)(__atomic_load_n(&b->memory->place[r].round, __ATOMIC_ACQUIRE) < round) << r;
  return missing;
}

/* Whether one of those who are missing cannot come any more. What it gave before it left is there: it is looked for again. */
static cgr_status check_missing(const cgr_board *b) {
  for (int32_t r = 0; r < b->num_ranks; r++) {
    const cgr__board_place *place = &b->memory->place[r];
    if (__atomic_load_n(&place->round, __ATOMIC_ACQUIRE) >= b->round)
      continue;
    const bool left = __atomic_load_n(&place->left, __ATOMIC_ACQUIRE);
    const int64_t process = __atomic_load_n(&place->owner, __ATOMIC_ACQUIRE);
    if ((!left && cgr__process_runs(process)) || __atomic_load_n(&place->round, __ATOMIC_ACQUIRE) >= b->round)
      continue;
    return cgr__fail(CGR_ERROR_RANK, FUNCTION ": rank %d (process %lld) has %s", r, (long long)process, left ? "left" : "ended");
  }
  return CGR_OK;
}

static cgr_status wait_for_others(cgr_board *b, int32_t timeout_ms, uint64_t *missing) {
  cgr__patience patience = cgr__patience_begin(timeout_ms);
  uint64_t looked = patience.began_ns;
  while ((*missing = ranks_before(b, b->round)) != 0) {
    if (patience.now_ns - looked > LOOKS_AT_PROCESSES_NS) {
      CGR__TRY(check_missing(b));
      looked = patience.now_ns;
    }
    if (!cgr__patience_waits(&patience)) {
      CGR__TRY(check_missing(b));
      return cgr__fail(CGR_NOT_READY, FUNCTION ": not here within %d ms: %s, expected all", timeout_ms,
                       cgr__ranks_text_of(*missing).text);
    }
  }
  return CGR_OK;
}

static cgr_status gather(void *context, const void *mine, size_t bytes, void *all, int32_t timeout_ms, uint64_t *missing) {
  cgr_board *b = context;
  cgr__board_place *own = &b->memory->place[b->rank];
  if (bytes < 1 || bytes > CGR_EXCHANGE_BYTES)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": bytes is %zu, expected 1 .. %d", bytes, CGR_EXCHANGE_BYTES);
  if (!b->waits) {
    memcpy(own->block[++b->round % 2], mine, bytes);
    __atomic_store_n(&own->round, b->round, __ATOMIC_RELEASE);
    b->waits = true;
  }
  CGR__TRY(wait_for_others(b, timeout_ms, missing));
  b->waits = false;
  for (int32_t r = 0; r < b->num_ranks; r++)
    memcpy((char *)all + (size_t)r * bytes, b->memory->place[r].block[b->round % 2], bytes);
  return CGR_OK;
}

static void show(void *context, const void *state, size_t bytes) {
  cgr_board *b = context;
  cgr__board_place *own = &b->memory->place[b->rank];
  const uint64_t number = own->shown + 1;
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) { /* others may read it meanwhile, and then read it again */
    uint64_t word = 0;
    memcpy(&word, (const char *)state + at, bytes - at < sizeof word ? bytes - at : sizeof word);
    __atomic_store_n(&own->state[number % 2][at / sizeof word], word, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&own->shown, number, __ATOMIC_RELEASE);
  __atomic_thread_fence(__ATOMIC_RELEASE); /* before the words of the next one, which take the room of the last */
}

static bool is_gone(const cgr__board_place *place) {
  return __atomic_load_n(&place->left, __ATOMIC_ACQUIRE) || !cgr__process_runs(__atomic_load_n(&place->owner, __ATOMIC_ACQUIRE));
}

static cgr_status look(void *context, int32_t rank, void *state, size_t bytes) {
  cgr_board *b = context;
  const cgr__board_place *place = &b->memory->place[rank];
  for (int i = 0; i < TRIES; i++) {
    const uint64_t before = __atomic_load_n(&place->shown, __ATOMIC_ACQUIRE);
    if (before == 0)
      return CGR_NOT_READY;
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
      const uint64_t word = __atomic_load_n(&place->state[before % 2][at / sizeof word], __ATOMIC_RELAXED);
      memcpy((char *)state + at, &word, bytes - at < sizeof word ? bytes - at : sizeof word);
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (__atomic_load_n(&place->shown, __ATOMIC_RELAXED) == before)
      return is_gone(place) ? CGR_ERROR_RANK : CGR_OK;
  }
  return CGR_NOT_READY; /* it shows faster than this one reads */
}

cgr_status cgr_board_exchange(cgr_board *board, cgr_exchange *exchange) {
  CGR__REQUIRE(board, "cgr_board_exchange");
  CGR__TRY(cgr__sized_check("cgr_board_exchange: exchange", "CGR_EXCHANGE_INIT", exchange));
  cgr_exchange given = CGR_EXCHANGE_INIT;
  given.rank = board->rank;
  given.num_ranks = board->num_ranks;
  given.context = board;
  given.gather = gather;
  given.show = show;
  given.look = look;
  cgr__sized_write(exchange, &given, sizeof given);
  return CGR_OK;
}
