#include "devices/shims/freed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ADDRESS 4096 /* nothing is ever mapped below */

/* ------------------------------------------------------------------------------------------------------------------ blocks */

static void forget_block(struct cgr__freed *freed, int32_t i) {
  freed->kept_bytes -= freed->block[i].kept ? freed->block[i].bytes : 0;
  freed->count--;
  memmove(&freed->block[i], &freed->block[i + 1], (size_t)(freed->count - i) * sizeof freed->block[0]);
}

static bool take_oldest(struct cgr__freed *freed, struct cgr__freed_block *oldest) {
  if (freed->count == 0)
    return false;
  *oldest = freed->block[0];
  forget_block(freed, 0);
  return true;
}

/* False: there is no room, and the oldest one has been forgotten instead. */
static bool add_block(struct cgr__freed *freed, const struct cgr__freed_block *block, struct cgr__freed_block *oldest) {
  size_t bytes = block->kept ? block->bytes : 0;
  if (freed->count == CGR__MAX_FREED || bytes > CGR__MAX_KEPT_BYTES - freed->kept_bytes) {
    *oldest = freed->block[0];
    forget_block(freed, 0);
    return false;
  }
  freed->block[freed->count] = *block;
  freed->block[freed->count++].when = ++freed->frees;
  freed->kept_bytes += bytes;
  return true;
}

static void remove_block(struct cgr__freed *freed, const void *base) {
  for (int32_t i = freed->count - 1; i >= 0; i--)
    if (freed->block[i].base == (uintptr_t)base)
      forget_block(freed, i);
}

static bool block_meets(const struct cgr__freed_block *block, uint64_t address, size_t bytes) {
  return address < block->base ? block->base - address < bytes : address - block->base < block->bytes;
}

void cgr__freed_hand_out(struct cgr__freed *freed, const void *base, size_t bytes) {
  for (int32_t i = freed->count - 1; i >= 0; i--)
    if (block_meets(&freed->block[i], (uintptr_t)base, bytes))
      forget_block(freed, i);
}

const struct cgr__freed_block *cgr__freed_find(const struct cgr__freed *freed, uint64_t address, size_t bytes, uint64_t since) {
  for (int32_t i = freed->count - 1; i >= 0; i--) {
    const struct cgr__freed_block *block = &freed->block[i];
    if (block_meets(block, address, bytes) && (block->kept || block->when > since))
      return block;
  }
  return NULL;
}

/* ----------------------------------------------------------------------------------------------------------------- freeing */

static int give_back(cgr_device *inner, const struct cgr__freed_block *block) {
  return inner->ops->mem_free(inner, (void *)block->base, block->kind);
}

/* Failures are ignored: the device is closing. */
void cgr__freed_give_back_all(struct cgr__freed *freed, cgr_device *inner) {
  struct cgr__freed_block oldest;
  while (take_oldest(freed, &oldest))
    if (oldest.kept)
      (void)give_back(inner, &oldest);
}

/* Waits for all streams of the device as a free does. */
static int wait_as_a_free(cgr_device *inner) {
  void *memory;
  int error = inner->ops->mem_alloc(inner, 1, CGR__MEMORY_DEVICE, &memory);
  return error != CGR__DEVICE_OK ? error : inner->ops->mem_free(inner, memory, CGR__MEMORY_DEVICE);
}

/* The block takes the place of the oldest ones, which the device gets back: that waits, too. */
static int remember_block(struct cgr__freed *freed, struct cgr__shim *shim, const struct cgr__freed_block *block) {
  struct cgr__freed_block oldest;
  bool added = false, waited = !block->kept;
  int error = CGR__DEVICE_OK;
  while (!added && error == CGR__DEVICE_OK) {
    pthread_mutex_lock(&shim->lock);
    added = add_block(freed, block, &oldest);
    pthread_mutex_unlock(&shim->lock);
    if (added || !oldest.kept)
      continue;
    error = give_back(shim->inner, &oldest);
    waited = true;
  }
  return error != CGR__DEVICE_OK || waited ? error : wait_as_a_free(shim->inner);
}

/* What is not kept is remembered first: once it is free, another thread may get it. */
int cgr__freed_free(struct cgr__freed *freed, struct cgr__shim *shim, void *memory, size_t bytes, enum cgr__memory_kind kind) {
  const struct cgr__freed_block block = { (uintptr_t)memory, bytes, kind, bytes <= CGR__MAX_KEPT_BYTES, 0 };
  int remembered = remember_block(freed, shim, &block);
  if (block.kept && remembered == CGR__DEVICE_OK)
    return remembered;
  int error = give_back(shim->inner, &block);
  pthread_mutex_lock(&shim->lock);
  if (block.kept || cgr__device_did_nothing(error))
    remove_block(freed, memory);
  pthread_mutex_unlock(&shim->lock);
  return error;
}

/* ------------------------------------------------------------------------------------------------------------------ graphs */

static bool reserve_blocks(void **array, int64_t *capacity, int64_t count, size_t size) {
  int64_t wanted = *capacity > 0 ? 2 * *capacity : 64;
  if (count < *capacity)
    return true;
  void *grown = realloc(*array, (size_t)wanted * size);
  if (!grown)
    return false;
  *array = grown;
  *capacity = wanted;
  return true;
}

static bool add_name(struct cgr__walked *walked, const char *text) {
  void *names = walked->name;
  if (!reserve_blocks(&names, &walked->name_capacity, walked->num_nodes, sizeof *walked->name))
    return false;
  walked->name = names;
  snprintf(walked->name[walked->num_nodes++].text, sizeof walked->name[0].text, "%s", text);
  return true;
}

static bool add_word(struct cgr__walked *walked, uint64_t value, int64_t node) {
  void *words = walked->word;
  if (!reserve_blocks(&words, &walked->capacity, walked->count, sizeof *walked->word))
    return false;
  walked->word = words;
  walked->word[walked->count++] = (struct cgr__walked_word){ value, node };
  return true;
}

static int visit_param(void *context, const cgr__node_param *param) {
  struct cgr__walked *walked = context;
  bool good = true;
  while (walked->num_nodes <= param->node && good)
    good = add_name(walked, param->name);
  for (size_t at = 0; at + sizeof(uint64_t) <= param->bytes && param->index >= 0 && good; at += sizeof(uint64_t)) {
    uint64_t value;
    memcpy(&value, (const unsigned char *)param->data + at, sizeof value);
    good = value < FIRST_ADDRESS || add_word(walked, value, param->node);
  }
  return good ? CGR__DEVICE_OK : CGR__DEVICE_NO_MEMORY;
}

struct cgr__walked *cgr__walked_make(cgr_device *inner, cgr__graph *graph, int *error) {
  struct cgr__walked *walked = calloc(1, sizeof *walked);
  *error = walked ? inner->ops->graph_walk(inner, graph, visit_param, walked) : CGR__DEVICE_NO_MEMORY;
  if (*error == CGR__DEVICE_OK)
    return walked;
  cgr__walked_free(walked);
  return NULL;
}

void cgr__walked_free(struct cgr__walked *walked) {
  if (!walked)
    return;
  free(walked->word);
  free(walked->name);
  free(walked);
}

const struct cgr__walked_word *cgr__walked_find_freed(struct cgr__walked *walked, const struct cgr__freed *freed,
                                                      const struct cgr__freed_block **block) {
  *block = NULL;
  for (int64_t i = 0; i < walked->count && walked->checked != freed->frees; i++) {
    *block = cgr__freed_find(freed, walked->word[i].value, 1, walked->made);
    if (*block)
      return &walked->word[i];
  }
  walked->checked = freed->frees;
  return NULL;
}
