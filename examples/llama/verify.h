/* Guesses that a step verifies: which tokens' logits a request needs, and how many of its guesses it accepts. One request at a
 * time, for every device. Guess j stands after the token that sampled token j follows: it is right if both are the same. Plain
 * decode would have drawn the sampled token there, whatever the temperature, because its noise (noise.h) depends on the position
 * alone. With a coin no guess is compared: the coin of its position decides, with the rate of the request's row. */
#ifndef LLAMA_VERIFY_H
#define LLAMA_VERIFY_H

#include "examples/llama/noise.h"
#include "examples/llama/ops.h"

LLAMA_INLINE int32_t llama_in_range(int32_t value, int32_t limit) { return value < 0 || value >= limit ? 0 : value; }

/* Word 0: the coin of this position; word 1: what is guessed there. Sampling has other counters. */
LLAMA_INLINE void llama_coin(int32_t seed, int32_t request, int32_t position, uint32_t words[4]) {
  words[0] = words[3] = 0;
  words[1] = (uint32_t)position;
  words[2] = 1;
  llama_philox((uint32_t)seed, (uint32_t)request, words);
}

/* Whether a coin falls on the accepting side. */
LLAMA_INLINE int llama_coin_accepts(uint32_t word, float rate) { return (double)word < (double)rate * 0x1p32; }

/* The places of request `i` in [requests][width]: its last 1 + num_drafts tokens, then the last one again. */
LLAMA_INLINE void llama_place_request(const llama_places_args *a, int64_t i) {
  const int32_t last = a->logits_indices[i], drafts = llama_in_range(a->num_drafts[i], a->width);
  for (int32_t j = 0; j < a->width; j++) {
    a->indices[i * a->width + j] = last - drafts + (j < drafts ? j : drafts);
    a->rows[i * a->width + j] = a->request_rows[i];
  }
}

LLAMA_INLINE int32_t llama_count_accepted(const llama_verify_args *a, int64_t i, int32_t drafts, int32_t data) {
  const int32_t *sampled = a->sampled + i * a->width, *indices = a->indices + i * a->width;
  int32_t accepted = 0;
  for (; accepted < drafts; accepted++) {
    const int32_t guess = llama_in_range(indices[accepted] + 1, a->tokens);
    uint32_t words[4];
    if (sampled[accepted] == LLAMA_NOT_FINITE)
      break;
    if (!a->rates) {
      if (sampled[accepted] != a->input_ids[guess])
        break;
      continue;
    }
    llama_coin(a->noise[2 * data], a->noise[2 * data + 1], a->positions[guess], words);
    if (!llama_coin_accepts(words[0], a->rates[data]))
      break;
  }
  return accepted;
}

/* Its accepted count and next tokens; with a coin also the guesses of the row's next step. */
LLAMA_INLINE void llama_verify_request(const llama_verify_args *a, int64_t i) {
  const int32_t drafts = llama_in_range(a->num_drafts[i], a->width), data = llama_in_range(a->request_rows[i], a->num_data);
  const int32_t accepted = llama_count_accepted(a, i, drafts, data), first = a->indices[i * a->width];
  int32_t *next = a->next_tokens + i * a->stride;
  a->num_accepted[i] = accepted;
  for (int32_t j = 0; j < a->stride; j++)
    next[j] = j < accepted    ? a->input_ids[llama_in_range(first + 1 + j, a->tokens)]
              : j == accepted ? a->sampled[i * a->width + j]
                              : 0;
  if (!a->rates)
    return;
  const int32_t position = a->positions[llama_in_range(first, a->tokens)] + accepted + 2; /* of the next step's first guess */
  for (int32_t j = 0; j + 1 < a->stride; j++) {
    uint32_t words[4];
    llama_coin(a->noise[2 * data], a->noise[2 * data + 1], position + j, words);
    a->draft_tokens[i * (a->stride - 1) + j] = (int32_t)(words[1] % (uint32_t)a->vocab);
  }
}

#endif
