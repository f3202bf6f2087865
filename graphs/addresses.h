/* What a graph may hold an address in, whether or not it is in a region: the words of its nodes' parameters that can be
 * addresses, and what its attention calls name. Collected by a capture, kept with the graph, looked up when memory is freed.
 * Cold. */
#ifndef CGR_GRAPHS_ADDRESSES_H
#define CGR_GRAPHS_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A set of words, each once. All zeros: an empty one. */
typedef struct cgr__addresses {
  uint64_t *word;   /* a hash table while the set grows, in which 0 is no word; [count], ascending, once it has been sorted */
  int64_t capacity; /* of the hash table, a power of two, or 0 */
  int64_t count;
} cgr__addresses;

/* Adds the word if it can be an address; false: there is no memory. */
bool cgr__addresses_add(cgr__addresses *set, uint64_t word);
/* The same for the words of a parameter that are at multiples of 8 bytes in it. */
bool cgr__addresses_add_words(cgr__addresses *set, const void *data, size_t bytes);
/* Nothing is added any more. Gives back what memory it can. */
void cgr__addresses_sort(cgr__addresses *set);
/* Whether a sorted set has a word that is the address of one of the bytes. */
bool cgr__addresses_meet(const cgr__addresses *set, const void *base, size_t bytes);
/* Empties the set. */
void cgr__addresses_free(cgr__addresses *set);

#ifdef __cplusplus
}
#endif

#endif
