/* What ranks compare of a step on their devices: its fingerprint, and the comparison of those of all ranks. */
#ifndef CGR_KERNELS_FINGERPRINT_H
#define CGR_KERNELS_FINGERPRINT_H

#include <stdint.h>

#include "base/host_device.h"
#include "cgr/collectives.h"
#include "cgr/ranks.h"
#include "devices/device.h"
#include "kernels/step.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGR__FINGERPRINT_PARTS 4

/* Of one rank's step: a word for each cgr_fingerprint_part. */
typedef struct cgr__fingerprint_words {
  uint64_t part[CGR__FINGERPRINT_PARTS];
} cgr__fingerprint_words;

/* Writes one. The key's and the configuration's words come with the arguments, the others from the device. */
typedef struct cgr__fingerprint_args {
  uint64_t key, config;
  cgr__fingerprint_words *out;
  const int32_t *sequence;  /* NULL: its word is 0 */
  const int32_t *counts;    /* by cgr_count */
  const int32_t *input_ids; /* [counts[TOKENS]] */
  const int32_t *positions; /* the same */
  int32_t inputs;           /* 1: of the inputs, too; 0: their word is 0 */
  int32_t reserved;
} cgr__fingerprint_args;
extern const cgr__kernel cgr__kernel_fingerprint; /* cgr__fingerprint_args */

/* Compares all [num_ranks] with that of `rank`. The first rank that differs is the step's guard, with bits of all that do. */
typedef struct cgr__compare_fingerprints_args {
  const cgr__fingerprint_words *all;
  cgr__step_state *state;
  int32_t num_ranks, rank;
} cgr__compare_fingerprints_args;
extern const cgr__kernel cgr__kernel_compare_fingerprints; /* cgr__compare_fingerprints_args */

/* Of 64 bits that differ in any of them, 64 that differ in many (the finaliser of SplitMix64). */
CGR__HOST_DEVICE uint64_t cgr__fingerprint_mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}
/* Token i adds this to the word of the inputs, in whatever order. */
CGR__HOST_DEVICE uint64_t cgr__fingerprint_of_token(int32_t i, int32_t id, int32_t position) {
  const uint64_t place = cgr__fingerprint_mix((uint64_t)(uint32_t)i + 1);
  return cgr__fingerprint_mix(place ^ ((uint64_t)(uint32_t)id << 32 | (uint32_t)position));
}
CGR__HOST_DEVICE uint64_t cgr__fingerprint_of_counts(int32_t num_requests, int32_t num_tokens) {
  return cgr__fingerprint_mix((uint64_t)(uint32_t)num_requests << 32 | (uint32_t)num_tokens);
}
/* The first part in which they differ; CGR__FINGERPRINT_PARTS: none. */
CGR__HOST_DEVICE int32_t cgr__fingerprint_difference(const cgr__fingerprint_words *a, const cgr__fingerprint_words *b) {
  for (int32_t i = 0; i < CGR__FINGERPRINT_PARTS; i++)
    if (a->part[i] != b->part[i])
      return i;
  return CGR__FINGERPRINT_PARTS;
}

#ifdef __cplusplus
}
#endif
#endif
