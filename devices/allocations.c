#include "devices/allocations.h"

#include <stdlib.h>
#include <string.h>

bool cgr__allocations_init(struct cgr__allocations *all) {
  memset(all, 0, sizeof *all);
  return pthread_mutex_init(&all->lock, NULL) == 0;
}

void cgr__allocations_free(struct cgr__allocations *all) {
  free(all->sorted);
  pthread_mutex_destroy(&all->lock);
}

/* The first entry that is not below the address. */
static size_t allocation_position(const struct cgr__allocations *all, uintptr_t address) {
  size_t low = 0, high = all->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (all->sorted[middle].address < address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static struct cgr__allocation *find_allocation(const struct cgr__allocations *all, const void *memory) {
  size_t at = allocation_position(all, (uintptr_t)memory);
  return at < all->count && all->sorted[at].address == (uintptr_t)memory ? &all->sorted[at] : NULL;
}

static bool grow_allocations(struct cgr__allocations *all) {
  size_t capacity = all->capacity ? 2 * all->capacity : 64;
  struct cgr__allocation *sorted = realloc(all->sorted, capacity * sizeof *sorted);
  if (!sorted)
    return false;
  all->sorted = sorted;
  all->capacity = capacity;
  return true;
}

static bool add_allocation(struct cgr__allocations *all, const void *memory, size_t bytes, enum cgr__memory_kind kind) {
  struct cgr__allocation entry = { .address = (uintptr_t)memory, .bytes = bytes, .kind = kind };
  struct cgr__allocation *claimed = find_allocation(all, memory); /* freed, but not ended yet */
  if (claimed) {
    *claimed = entry;
    return true;
  }
  if (all->count == all->capacity && !grow_allocations(all))
    return false;
  size_t at = allocation_position(all, entry.address);
  memmove(&all->sorted[at + 1], &all->sorted[at], (all->count - at) * sizeof entry);
  all->sorted[at] = entry;
  all->count++;
  return true;
}

bool cgr__allocations_add(struct cgr__allocations *all, const void *memory, size_t bytes, enum cgr__memory_kind kind) {
  pthread_mutex_lock(&all->lock);
  bool ok = add_allocation(all, memory, bytes, kind);
  pthread_mutex_unlock(&all->lock);
  return ok;
}

void cgr__allocations_find(struct cgr__allocations *all, const void *address, const void **base, size_t *bytes) {
  *base = NULL;
  *bytes = 0;
  pthread_mutex_lock(&all->lock);
  size_t after = (uintptr_t)address == UINTPTR_MAX ? all->count : allocation_position(all, (uintptr_t)address + 1);
  const struct cgr__allocation *entry = after > 0 ? &all->sorted[after - 1] : NULL;
  if (entry && (uintptr_t)address - entry->address < entry->bytes) {
    *base = (const void *)entry->address;
    *bytes = entry->bytes;
  }
  pthread_mutex_unlock(&all->lock);
}

bool cgr__allocations_is_short(struct cgr__allocations *all, const void *address, uint64_t bytes, size_t *left, size_t *whole) {
  const void *base = NULL;
  if (all)
    cgr__allocations_find(all, address, &base, whole);
  if (!base)
    return false;
  *left = (size_t)((uintptr_t)base + *whole - (uintptr_t)address);
  return bytes > *left;
}

bool cgr__allocations_is_other(struct cgr__allocations *all, const void *memory, enum cgr__memory_kind kind) {
  pthread_mutex_lock(&all->lock);
  const struct cgr__allocation *entry = find_allocation(all, memory);
  bool other = entry && entry->kind != kind;
  pthread_mutex_unlock(&all->lock);
  return other;
}

bool cgr__allocations_claim(struct cgr__allocations *all, const void *memory, enum cgr__memory_kind kind) {
  pthread_mutex_lock(&all->lock);
  struct cgr__allocation *entry = find_allocation(all, memory);
  bool ok = entry && entry->kind == kind && !entry->claimed;
  if (ok)
    entry->claimed = true;
  pthread_mutex_unlock(&all->lock);
  return ok;
}

static void take_out(struct cgr__allocations *all, struct cgr__allocation *entry) {
  size_t after = all->count - (size_t)(entry - all->sorted) - 1;
  memmove(entry, entry + 1, after * sizeof *entry);
  all->count--;
}

void cgr__allocations_end_free(struct cgr__allocations *all, const void *memory, bool freed) {
  pthread_mutex_lock(&all->lock);
  struct cgr__allocation *entry = find_allocation(all, memory);
  bool claimed = entry && entry->claimed; /* else it is a new one at the same address */
  if (claimed && freed)
    take_out(all, entry);
  else if (claimed)
    entry->claimed = false;
  pthread_mutex_unlock(&all->lock);
}
