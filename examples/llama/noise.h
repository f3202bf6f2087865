/* Random numbers for sampling, from counters: the noise of a token depends on the seed, the request, the position and the token
 * alone, not on rows, batches or what was drawn before.
 *
 * argmax(logits / T + g), with independent Gumbel noise g, draws each token with its probability in softmax(logits / T) (the
 * Gumbel-max trick: C. J. Maddison, D. Tarlow, T. Minka, "A* Sampling", NIPS 2014, section 2). The generator is Philox4x32-10
 * (J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011). */
#ifndef LLAMA_NOISE_H
#define LLAMA_NOISE_H

#include <math.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define LLAMA_INLINE static __host__ __device__ __forceinline__
#else
#define LLAMA_INLINE static inline
#endif

/* The counter becomes four random words. */
LLAMA_INLINE void llama_philox(uint32_t key0, uint32_t key1, uint32_t words[4]) {
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xd2511f53u * words[0], b = (uint64_t)0xcd9e8d57u * words[2];
    words[0] = (uint32_t)(b >> 32) ^ words[1] ^ key0;
    words[2] = (uint32_t)(a >> 32) ^ words[3] ^ key1;
    words[1] = (uint32_t)b;
    words[3] = (uint32_t)a;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
}

/* Words for the tokens 4 * block .. 4 * block + 3. */
LLAMA_INLINE void llama_noise(int32_t seed, int32_t request, int32_t position, int32_t block, uint32_t words[4]) {
  words[0] = (uint32_t)block;
  words[1] = (uint32_t)position;
  words[2] = words[3] = 0;
  llama_philox((uint32_t)seed, (uint32_t)request, words);
}

/* A standard Gumbel variable, -2.9 .. 22.9. Its large values decide; they come from small v, which a float resolves finely. */
LLAMA_INLINE float llama_gumbel(uint32_t word) {
  float v = fminf(((float)word + 0.5f) * 0x1p-32f, 0x1.fffffep-1f);
  return -logf(-log1pf(-v));
}

#endif
