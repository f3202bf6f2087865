/* Pools of operations: small ones for most arguments, large ones up to the limit. They grow and never shrink before close. */
#include <stdlib.h>

#include "devices/host/host.h"

static size_t op_bytes(const struct host_pool *pool) { return (sizeof(struct host_op) + pool->args_bytes + 15u) & ~(size_t)15u; }

static bool grow(struct host_pool *pool, uint32_t index) {
  /* The chunk's header takes one aligned unit so that the operations behind it stay aligned. */
  size_t header = 64;
  unsigned char *memory = malloc(header + pool->grow * op_bytes(pool));
  if (memory == NULL)
    return false;
  struct host_chunk *chunk = (struct host_chunk *)(void *)memory;
  chunk->next = pool->chunks;
  pool->chunks = chunk;
  for (size_t i = 0; i < pool->grow; i++) {
    struct host_op *op = (struct host_op *)(void *)(memory + header + i * op_bytes(pool));
    op->pool = index;
    op->next = pool->free;
    pool->free = op;
  }
  return true;
}

int cgr__host_pools_init(struct host_device *host) {
  host->pools[0].args_bytes = CGR__HOST_SMALL_ARGS;
  host->pools[0].grow = 128;
  host->pools[1].args_bytes = CGR__HOST_MAX_ARGS;
  host->pools[1].grow = 8;
  for (uint32_t i = 0; i < 2; i++) {
    if (!grow(&host->pools[i], i))
      return CGR__DEVICE_NO_MEMORY;
  }
  return CGR__DEVICE_OK;
}

void cgr__host_pools_free(struct host_device *host) {
  for (uint32_t i = 0; i < 2; i++) {
    struct host_chunk *chunk = host->pools[i].chunks;
    while (chunk != NULL) {
      struct host_chunk *next = chunk->next;
      free(chunk);
      chunk = next;
    }
  }
}

struct host_op *cgr__host_op_take(struct host_device *host, size_t args_bytes) {
  uint32_t index = args_bytes <= CGR__HOST_SMALL_ARGS ? 0u : 1u;
  struct host_pool *pool = &host->pools[index];
  if (pool->free == NULL && !grow(pool, index)) {
    cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
    return NULL;
  }
  struct host_op *op = pool->free;
  pool->free = op->next;
  op->next = NULL;
  return op;
}

void cgr__host_op_give(struct host_device *host, struct host_op *op) {
  struct host_pool *pool = &host->pools[op->pool];
  op->next = pool->free;
  pool->free = op;
}
