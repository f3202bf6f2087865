#include "graphs/addresses.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define FIRST_CAPACITY 256
#define END_OF_MEMORY ((uint64_t)1 << 57) /* no processor that the library runs on has addresses of more bits */

/* The word's place in the table, or the free one where it belongs. */
static uint64_t *address_place(const cgr__addresses *set, uint64_t word) {
  uint64_t mask = (uint64_t)set->capacity - 1, at = (word * 0x9E3779B97F4A7C15u) >> 20;
  while (set->word[at & mask] != 0 && set->word[at & mask] != word)
    at++;
  return &set->word[at & mask];
}

/* To at most half full. */
static bool grow_table(cgr__addresses *set) {
  cgr__addresses larger = { .capacity = set->capacity > 0 ? 2 * set->capacity : FIRST_CAPACITY, .count = set->count };
  larger.word = calloc((size_t)larger.capacity, sizeof *larger.word);
  if (!larger.word)
    return false;
  for (int64_t i = 0; i < set->capacity; i++)
    if (set->word[i] != 0)
      *address_place(&larger, set->word[i]) = set->word[i];
  free(set->word);
  *set = larger;
  return true;
}

bool cgr__addresses_add(cgr__addresses *set, uint64_t word) {
  if (word < CGR__FIRST_ADDRESS || word >= END_OF_MEMORY)
    return true;
  if (2 * set->count >= set->capacity && !grow_table(set))
    return false;
  uint64_t *place = address_place(set, word);
  set->count += *place == 0;
  *place = word;
  return true;
}

bool cgr__addresses_add_words(cgr__addresses *set, const void *data, size_t bytes) {
  bool added = true;
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes && added; at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, (const unsigned char *)data + at, sizeof word);
    added = cgr__addresses_add(set, word);
  }
  return added;
}

static int compare_addresses(const void *a, const void *b) {
  uint64_t x, y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  return (x > y) - (x < y);
}

void cgr__addresses_sort(cgr__addresses *set) {
  int64_t count = 0;
  if (set->count == 0) {
    cgr__addresses_free(set);
    return;
  }
  for (int64_t i = 0; i < set->capacity; i++)
    if (set->word[i] != 0)
      set->word[count++] = set->word[i];
  qsort(set->word, (size_t)count, sizeof *set->word, compare_addresses);
  uint64_t *smaller = realloc(set->word, (size_t)count * sizeof *smaller);
  if (smaller)
    set->word = smaller;
  set->capacity = 0;
}

bool cgr__addresses_meet(const cgr__addresses *set, const void *base, size_t bytes) {
  int64_t low = 0, high = set->count;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (set->word[middle] < (uintptr_t)base)
      low = middle + 1;
    else
      high = middle;
  }
  return low < set->count && set->word[low] - (uintptr_t)base < bytes;
}

void cgr__addresses_free(cgr__addresses *set) {
  free(set->word);
  *set = (cgr__addresses){ NULL, 0, 0 };
}
