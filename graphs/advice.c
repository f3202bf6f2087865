/* Which keys pay, by what steps have used. Cold. */
#include "graphs/graphs.h"

static bool same_list(const cgr_key *a, const cgr_key *b) {
  return a->kind == b->kind && a->program == b->program && a->lane == b->lane && a->query_len == b->query_len &&
         a->variant == b->variant && a->max_steps == b->max_steps;
}

/* Whether a graph of `larger` can stand in for one of `key`. */
static bool holds(const cgr_key *larger, const cgr_key *key) {
  return same_list(larger, key) && larger->num_tokens >= key->num_tokens && larger->num_requests >= key->num_requests;
}

/* The fewest tokens that a step of key i can have had: no smaller key held it, and dispatch did not find it padded too much. */
static int32_t fewest_tokens(const cgr__key_use *uses, int32_t count, int32_t i, float max_padding) {
  const cgr_key *key = uses[i].key;
  bool is_uniform = key->query_len > 0; /* chosen by requests, which may have few tokens each */
  int32_t fewest = 1;
  for (int32_t j = 0; j < count; j++) {
    const cgr_key *other = uses[j].key;
    bool is_smaller = is_uniform ? other->num_requests < key->num_requests
                                 : other->num_tokens < key->num_tokens && other->num_requests >= key->num_requests;
    int32_t most = is_uniform ? other->num_requests : other->num_tokens;
    if (same_list(other, key) && is_smaller && most >= fewest)
      fewest = most + 1;
  }
  while (key->num_tokens > cgr__most_tokens(fewest, max_padding))
    fewest++;
  return fewest;
}

/* The smallest key that pays and serves the steps of key i, other than the one that they have; -1: none does. */
static int32_t find_next(const cgr__key_use *uses, int32_t count, int32_t i, float max_padding) {
  int32_t next = -1;
  for (int32_t j = 0; j < count; j++)
    if (j != uses[i].at && uses[j].pays && holds(uses[j].key, uses[i].key) &&
        uses[j].key->num_tokens <= cgr__most_tokens(uses[i].fewest, max_padding) &&
        (next < 0 || uses[j].key->num_tokens < uses[next].key->num_tokens))
      next = j;
  return next;
}

/* By how many padded tokens the steps would grow without each key; UINT64_MAX: some would have no key. */
static void sum_growths(cgr__key_use *uses, int32_t count) {
  for (int32_t i = 0; i < count; i++)
    uses[i].growth = 0;
  for (int32_t i = 0; i < count; i++) {
    if (uses[i].at < 0)
      continue;
    cgr__key_use *at = &uses[uses[i].at];
    if (uses[i].next < 0)
      at->growth = UINT64_MAX;
    else if (at->growth != UINT64_MAX)
      at->growth += uses[i].steps * (uint64_t)(uses[uses[i].next].key->num_tokens - at->key->num_tokens);
  }
}

/* The key whose going costs least, at most `most`; -1: none may go. */
static int32_t find_least(const cgr__key_use *uses, int32_t count, uint64_t most) {
  int32_t least = -1;
  for (int32_t i = 0; i < count; i++)
    if (uses[i].pays && uses[i].growth <= most && (least < 0 || uses[i].growth < uses[least].growth))
      least = i;
  return least;
}

static void drop(cgr__key_use *uses, int32_t count, int32_t gone, float max_padding) {
  uses[gone].pays = false;
  for (int32_t i = 0; i < count; i++) {
    if (uses[i].at < 0 || (uses[i].at != gone && uses[i].next != gone))
      continue;
    if (uses[i].at == gone)
      uses[i].at = uses[i].next;
    uses[i].next = find_next(uses, count, i, max_padding);
  }
}

uint64_t cgr__keys_advise(cgr__key_use *uses, int32_t count, float max_padding, double max_growth) {
  uint64_t tokens = 0, growth = 0;
  for (int32_t i = 0; i < count; i++) {
    uses[i].pays = uses[i].steps > 0;
    uses[i].at = uses[i].pays ? i : -1;
    uses[i].fewest = fewest_tokens(uses, count, i, max_padding);
    tokens += uses[i].steps * (uint64_t)uses[i].key->num_tokens;
  }
  for (int32_t i = 0; i < count; i++)
    uses[i].next = uses[i].pays ? find_next(uses, count, i, max_padding) : -1;
  const uint64_t most = (uint64_t)((double)tokens * max_growth);
  for (int32_t least;; growth += uses[least].growth) {
    sum_growths(uses, count);
    least = find_least(uses, count, most - growth);
    if (least < 0)
      return tokens + growth;
    drop(uses, count, least, max_padding);
  }
}
