/* Numbers as people read them. */
#ifndef LLAMA_UNITS_H
#define LLAMA_UNITS_H

#include <stdint.h>

typedef struct llama_words {
  char text[32];
} llama_words;

llama_words llama_count(uint64_t count); /* "1,820,352" */
llama_words llama_scale(double value);   /* "1.8M": of K, M, B, T the largest that leaves at least 1 */
llama_words llama_bytes(double bytes);   /* "14.2 MB": of KB, MB, GB, TB, in the same way, in powers of 1000 */

#endif
