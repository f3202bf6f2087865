/* splitmix64, for weights and for the requests of --check: the same numbers everywhere from the same seed, on the host and in
 * CUDA code. Sampling draws from noise.h, whose generator is made for counters with several parts (seed, request, position,
 * token). */
#ifndef LLAMA_RANDOM_H
#define LLAMA_RANDOM_H

#include <stdint.h>

#ifdef __CUDACC__
#define LLAMA_ON_BOTH __host__ __device__
#else
#define LLAMA_ON_BOTH
#endif

#define LLAMA_RANDOM_STEP 0x9e3779b97f4a7c15u

typedef struct llama_random {
  uint64_t state;
} llama_random;

static inline LLAMA_ON_BOTH uint64_t llama_random_mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static inline uint64_t llama_random_next(llama_random *random) { return llama_random_mix(random->state += LLAMA_RANDOM_STEP); }

/* Number `index` of the sequence of `seed`, from a distribution that is almost normal, with mean 0 and standard deviation 1: the
 * sum of four uniform numbers of 16 bits. All is integer arithmetic up to one product, so every processor gets the same bits. */
static inline LLAMA_ON_BOTH float llama_random_normal(uint64_t seed, uint64_t index) {
  uint64_t bits = llama_random_mix(seed + (index + 1) * LLAMA_RANDOM_STEP);
  uint32_t sum =
      (uint32_t)(bits & 0xffffu) + (uint32_t)(bits >> 16 & 0xffffu) + (uint32_t)(bits >> 32 & 0xffffu) + (uint32_t)(bits >> 48);
  return (float)((int32_t)sum - 131070) * 2.6428990e-5f; /* sqrt(3) / 65536 */
}

/* low .. high, both included. */
static inline int32_t llama_random_between(llama_random *random, int32_t low, int32_t high) {
  return low + (int32_t)(llama_random_next(random) % (uint64_t)(high - low + 1));
}

#endif
