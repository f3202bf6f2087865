/* FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv), for comparing within a process. */
#ifndef CGR_BASE_HASH_H
#define CGR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define CGR__HASH_BEGIN 0xcbf29ce484222325u

/* Continues `hash`, which is CGR__HASH_BEGIN at first. */
static inline uint64_t cgr__hash(uint64_t hash, const void *data, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
  return hash;
}

#endif
