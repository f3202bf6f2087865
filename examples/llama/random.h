/* splitmix64: the same numbers everywhere from the same seed. */
#ifndef LLAMA_RANDOM_H
#define LLAMA_RANDOM_H

#include <stdint.h>

typedef struct llama_random {
  uint64_t state;
} llama_random;

static inline uint64_t llama_random_next(llama_random *random) {
  uint64_t z = random->state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* low .. high, both included. */
static inline int32_t llama_random_between(llama_random *random, int32_t low, int32_t high) {
  return low + (int32_t)(llama_random_next(random) % (uint64_t)(high - low + 1));
}

#endif
