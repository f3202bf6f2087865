/* Which keys pay, by what steps have used. Cold. */
#include "graphs/graphs.h"

/* Whether a graph of `larger` can stand in for one of `key`. */
static bool holds(const cgr_key *larger, const cgr_key *key) {
  return larger->kind == key->kind && larger->program == key->program && larger->lane == key->lane &&
         larger->query_len == key->query_len && larger->variant == key->variant && larger->max_steps == key->max_steps &&
         larger->num_tokens >= key->num_tokens && larger->num_requests >= key->num_requests;
}

/* Whether dispatch would take a graph of so many tokens for the steps of a key: by their average, as their own are not kept. */
static bool may_pad(const cgr__key_use *use, int32_t num_tokens, double max_padding) {
  double tokens = use->steps > 0 ? (double)use->tokens / (double)use->steps : 0.0;
  tokens = tokens > 1.0 ? tokens : 1.0;
  return num_tokens <= tokens * max_padding || num_tokens <= tokens + CGR__FREE_PADDING;
}

/* The smallest key that pays and serves the steps of key i, other than the one that they have; -1: none does. */
static int32_t find_next(const cgr__key_use *uses, int32_t count, int32_t i, double max_padding) {
  int32_t next = -1;
  for (int32_t j = 0; j < count; j++)
    if (j != uses[i].at && uses[j].pays && holds(uses[j].key, uses[i].key) &&
        may_pad(&uses[i], uses[j].key->num_tokens, max_padding) &&
        (next < 0 || uses[j].key->num_tokens < uses[next].key->num_tokens))
      next = j;
  return next;
}

/* What the steps would have in more tokens without each key; UINT64_MAX: some would have none. */
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

static void drop(cgr__key_use *uses, int32_t count, int32_t gone, double max_padding) {
  uses[gone].pays = false;
  for (int32_t i = 0; i < count; i++) {
    if (uses[i].at < 0 || (uses[i].at != gone && uses[i].next != gone))
      continue;
    if (uses[i].at == gone)
      uses[i].at = uses[i].next;
    uses[i].next = find_next(uses, count, i, max_padding);
  }
}

uint64_t cgr__keys_advise(cgr__key_use *uses, int32_t count, double max_padding, double max_growth) {
  uint64_t tokens = 0, growth = 0;
  for (int32_t i = 0; i < count; i++) {
    uses[i].pays = uses[i].steps > 0;
    uses[i].at = uses[i].pays ? i : -1;
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
