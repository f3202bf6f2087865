#include "examples/llama/draft.h"

#include <stdlib.h>
#include <string.h>

#include "examples/llama/error.h"

#define DEFAULT_RATE 0.7f
#define SHORTEST 2 /* end of a sequence that is looked up */

int llama_draft_parse(const char *text, int32_t count, llama_draft *draft) {
  char *end = NULL;
  *draft = (llama_draft){ .kind = LLAMA_DRAFT_NONE };
  if (!text)
    return 0;
  draft->count = count;
  if (strcmp(text, "lookup") == 0 || strcmp(text, "lookup:wait") == 0) {
    draft->kind = LLAMA_DRAFT_LOOKUP;
    draft->waits = text[6] != 0;
    return 0;
  }
  draft->kind = LLAMA_DRAFT_COIN;
  draft->rate = DEFAULT_RATE;
  if (strcmp(text, "coin") == 0)
    return 0;
  if (strncmp(text, "coin:", 5) == 0 && text[5]) {
    double rate = strtod(text + 5, &end);
    draft->rate = (float)rate;
    if (!*end && rate >= 0.0 && rate <= 1.0)
      return 0;
  }
  return llama_fail("--draft is %s, expected lookup, lookup:wait, coin or coin:RATE with a rate from 0 to 1",
                    *text ? text : "empty");
}

/* -------------------------------------------------------------------------------------------------------------- lookup */

static int32_t token_at(const llama_known *k, int32_t i) {
  return i < k->num_prompt ? k->prompt[i] : k->generated[i - k->num_prompt];
}

/* How many tokens before `end` are those before `last`, up to LLAMA_LOOKUP_LENGTH. */
static int32_t common_end(const llama_known *k, int32_t end, int32_t last) {
  int32_t n = 0;
  while (n < LLAMA_LOOKUP_LENGTH && n < end && token_at(k, end - 1 - n) == token_at(k, last - 1 - n))
    n++;
  return n;
}

int32_t llama_lookup(const llama_known *k, int32_t count, int32_t *tokens) {
  const int32_t last = k->num_prompt + k->num_generated, low = last > LLAMA_LOOKUP_REACH ? last - LLAMA_LOOKUP_REACH : 0;
  int32_t best = SHORTEST - 1, place = 0;
  for (int32_t end = last - 1; end > low && best < LLAMA_LOOKUP_LENGTH; end--) {
    int32_t length = common_end(k, end, last);
    if (length > best) {
      best = length;
      place = end;
    }
  }
  if (best < SHORTEST)
    return 0;
  for (int32_t i = 0; i < count; i++)
    tokens[i] = place + i < last ? token_at(k, place + i) : tokens[place + i - last];
  return count;
}

int32_t llama_lookup_ahead(const llama_known *known, const int32_t *sent, int32_t num_sent, int32_t count, int32_t *guesses) {
  int32_t expected[2 * LLAMA_MAX_DRAFTS + 1], skipped = 0;
  if (num_sent < 0)
    return llama_lookup(known, count, guesses);
  if (!llama_lookup(known, num_sent + 1 + count, expected))
    return 0;
  while (skipped < num_sent && sent[skipped] == expected[skipped])
    skipped++;
  memcpy(guesses, expected + skipped + 1, (size_t)count * sizeof(*guesses));
  return count;
}

/* ---------------------------------------------------------------------------------------------------------------- gain */

double llama_expected_tokens(double rate, int32_t count) {
  double all = 1.0, power = 1.0;
  for (int32_t j = 0; j < count; j++) {
    power *= rate;
    all += power;
  }
  return all;
}

int32_t llama_pace_index(int32_t requests) {
  int32_t index = requests < 64 ? requests : 63 + requests / 64;
  return index < LLAMA_NUM_PACES ? index : LLAMA_NUM_PACES - 1;
}

llama_pace llama_pace_sum(const llama_pace *paces) {
  llama_pace sum = { 0, 0, 0, 0.0 };
  for (int32_t i = 0; i < LLAMA_NUM_PACES; i++) {
    sum.steps += paces[i].steps;
    sum.samples += paces[i].samples;
    sum.tokens += paces[i].tokens;
    sum.seconds += paces[i].seconds;
  }
  return sum;
}

double llama_predicted_gain(const llama_pace *plain, const llama_pace *guessing) {
  double expected = 0.0, taken = 0.0;
  for (int32_t i = 0; i < LLAMA_NUM_PACES; i++) {
    if (!plain[i].tokens || !guessing[i].tokens)
      continue;
    expected += (double)guessing[i].tokens * plain[i].seconds / (double)plain[i].tokens;
    taken += guessing[i].seconds;
  }
  return taken > 0.0 ? expected / taken : 0.0;
}
