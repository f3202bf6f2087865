#include "devices/host/pool.h"

#include <stdlib.h>

#include "base/limits.h"
#include "devices/host/handles.h"

#define SMALL_ARGS 256u /* bytes */

static size_t op_bytes(const struct host_pool *pool) { return (sizeof(struct host_op) + pool->args_bytes + 15u) & ~(size_t)15u; }

static bool grow_pool(struct host_pool *pool, uint32_t index) {
  /* The chunk's header takes one aligned unit so that the operations after it stay aligned. */
  size_t header = 64;
  unsigned char *memory = malloc(header + pool->grow * op_bytes(pool));
  if (!memory)
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

bool cgr__host_pools_init(struct host_device *host) {
  host->pools[0].args_bytes = SMALL_ARGS;
  host->pools[0].grow = 128;
  host->pools[1].args_bytes = CGR__MAX_CALL_ARGS;
  host->pools[1].grow = 8;
  return grow_pool(&host->pools[0], 0) && grow_pool(&host->pools[1], 1);
}

void cgr__host_pools_free(struct host_device *host) {
  for (uint32_t i = 0; i < 2; i++) {
    struct host_chunk *chunk = host->pools[i].chunks;
    while (chunk) {
      struct host_chunk *next = chunk->next;
      free(chunk);
      chunk = next;
    }
  }
}

struct host_op *cgr__host_op_take(struct host_device *host, size_t args_bytes) {
  uint32_t index = args_bytes <= SMALL_ARGS ? 0u : 1u;
  struct host_pool *pool = &host->pools[index];
  if (!pool->free && !grow_pool(pool, index)) {
    cgr__host_fail(host, CGR__DEVICE_NO_MEMORY, HOST_RAW_NO_MEMORY);
    return NULL;
  }
  struct host_op *op = pool->free;
  pool->free = op->next;
  op->next = NULL;
  return op;
}

void cgr__host_op_return(struct host_device *host, struct host_op *op) {
  struct host_pool *pool = &host->pools[op->pool];
  op->next = pool->free;
  pool->free = op;
}
