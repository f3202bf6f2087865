/* Guesses: where they come from (--draft), and what became of them. */
#ifndef LLAMA_DRAFT_H
#define LLAMA_DRAFT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LLAMA_MAX_DRAFTS 16

typedef enum llama_draft_kind {
  LLAMA_DRAFT_NONE,
  LLAMA_DRAFT_LOOKUP, /* what followed the request's last tokens where they stood before: found by the host, compared on the
                         device */
  LLAMA_DRAFT_COIN    /* rubbish, of which a seeded coin accepts a share: for measurements, a draft without a cost of its own */
} llama_draft_kind;

typedef struct llama_draft {
  int32_t kind;  /* llama_draft_kind */
  int32_t count; /* k: guesses of a request in a step; 0 without guesses */
  float rate;    /* of a coin, 0 .. 1 */
  bool waits;    /* a step is composed only when the results of the one before are known */
} llama_draft;

/* "lookup", "lookup:wait", "coin" (which accepts 0.7) or "coin:RATE"; NULL: none. */
int llama_draft_parse(const char *text, int32_t count, llama_draft *draft);

/* Known tokens of a sequence: a prompt and what followed it. */
typedef struct llama_known {
  const int32_t *prompt, *generated;
  int32_t num_prompt, num_generated;
} llama_known;

/* Continues the sequence as it went on after the last place where its end stood before: the longest end of 2 to
 * LLAMA_LOOKUP_LENGTH tokens that is found among the last LLAMA_LOOKUP_REACH. Returns `count`, or 0: it did not. What is
 * continued counts as known, so that a text that repeats itself goes on to do so. */
#define LLAMA_LOOKUP_LENGTH 4
#define LLAMA_LOOKUP_REACH 8192
int32_t llama_lookup(const llama_known *known, int32_t count, int32_t *tokens);

/* Guesses for the step after one that is under way and whose result is not known: that had `num_sent` guesses `sent`. It is taken
 * to accept those that the lookup still expects, and to sample what the lookup has next. -1 instead of a number: no step is
 * under way. */
int32_t llama_lookup_ahead(const llama_known *known, const int32_t *sent, int32_t num_sent, int32_t count, int32_t *guesses);

typedef struct llama_draft_counts {
  uint64_t samples;  /* requests in steps that sampled for them */
  uint64_t tokens;   /* that they got */
  uint64_t verified; /* of the samples, those with guesses */
  uint64_t guesses, accepted;
  uint64_t preempted;      /* requests that gave their pages back, and began again */
  uint64_t short_of_pages; /* requests that had fewer guesses, or no step, because no page was free */
} llama_draft_counts;

/* Tokens of a request in a step, if each guess is right with probability `rate`. */
double llama_expected_tokens(double rate, int32_t count);

/* Steps without tokens of prompts, by their number of requests. */
typedef struct llama_pace {
  uint64_t steps, samples, tokens;
  double seconds;
} llama_pace;
#define LLAMA_NUM_PACES 129

/* The place for steps of `requests`: exact below 64. */
int32_t llama_pace_index(int32_t requests);
llama_pace llama_pace_sum(const llama_pace *paces);

/* How many times as fast steps with guesses are: over all numbers of requests that both runs had, what the tokens of `guessing`
 * would take at the pace of `plain`, over what they took. 0: there are none. */
double llama_predicted_gain(const llama_pace *plain, const llama_pace *guessing);

#ifdef __cplusplus
}
#endif
#endif
