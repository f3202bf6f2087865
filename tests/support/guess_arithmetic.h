// The arithmetic of guess_kernels.h for a token and for a request, one source for both devices.
#pragma once

#include "tests/support/guess_kernels.h"

#ifdef __CUDACC__
#define CGR_GUESS_FN __host__ __device__ inline
#else
#define CGR_GUESS_FN inline
#endif

namespace cgr_test {
namespace guesses {

CGR_GUESS_FN uint64_t Fold(uint64_t hash, int32_t token) {
  return (hash ^ uint64_t(uint32_t(token))) * 0x9e3779b97f4a7c15u + (hash >> 29);
}
CGR_GUESS_FN int32_t NextOf(uint64_t hash) { return int32_t((hash >> 33) % kVocab); }

CGR_GUESS_FN void AppendToken(const ModelArgs &a, int32_t t) {
  if (a.slots[t] >= 0)
    a.cache[a.slots[t]] = a.input_ids[t];
}

// The hash of the row's tokens up to this position, as the cache has them.
CGR_GUESS_FN uint64_t HashOfRow(const ModelArgs &a, int32_t row, int32_t position) {
  uint64_t hash = 1;
  for (int32_t p = 0; p <= position; p++)
    hash = Fold(hash, a.cache[a.table[row * a.table_stride + p / kPage] * kPage + p % kPage]);
  return hash;
}

// Guesses of what follows, of which a quarter is wrong.
CGR_GUESS_FN void Guess(const ModelArgs &a, int32_t i, uint64_t hash) {
  for (int32_t j = 0; j < a.stride - 1; j++) {
    const int32_t guess = hash % 4 == 0 ? int32_t((hash >> 20) % kVocab) : NextOf(hash);
    a.draft_tokens[i * (a.stride - 1) + j] = guess;
    hash = Fold(hash, guess);
  }
}

CGR_GUESS_FN void Verify(const ModelArgs &a, int32_t i) {
  const int32_t guesses = a.stride > 1 ? a.num_drafts[i] : 0, first = a.starts[i + 1] - 1 - guesses;
  int32_t *next = a.next + i * a.stride, accepted = 0;
  uint64_t hash = HashOfRow(a, a.rows[i], a.positions[first]);
  next[0] = NextOf(hash);
  while (accepted < guesses && a.input_ids[first + 1 + accepted] == next[accepted]) {
    hash = Fold(hash, next[accepted]);
    next[++accepted] = NextOf(hash);
  }
  if (a.stride == 1)
    return;
  a.num_accepted[i] = *a.rubbish == 1 ? 1000 : *a.rubbish == 2 ? -1 : accepted;
  if (*a.rubbish == 3)
    next[0] = kVocab;
  Guess(a, i, Fold(hash, next[accepted]));
  if (*a.rubbish == 4)
    a.draft_tokens[i * (a.stride - 1)] = kVocab;
}

// Once all tokens are in the cache.
CGR_GUESS_FN void Sample(const ModelArgs &a, int32_t i) {
  if (a.seq_lens[i] > 0 && a.starts[i + 1] > a.starts[i])
    Verify(a, i);
  else
    a.next[i * a.stride] = 0;
}

} // namespace guesses
} // namespace cgr_test
