/* Who uses memory that the engine may want to free: every live runtime of the process. cgr_memory_free asks them all first,
 * whatever their device, since the engine may have opened one twice.
 *
 * One lock guards the list and whatever its functions read, for they may run on any thread. A runtime takes it for the moments in
 * which it changes that: regions, and which graphs can be replayed. No step takes it, and nothing that waits, or that is the
 * engine's, is called with it held. */
#ifndef CGR_DEVICES_HOLDERS_H
#define CGR_DEVICES_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What memory is used for, as parts of "memory 0x1000 WHAT, expected UNTIL first". */
typedef struct cgr__use {
  char what[128];
  const char *until;
} cgr__use;

typedef struct cgr__holder {
  struct cgr__holder *next;
  /* Whether any of the bytes is in use; then also the use. */
  bool (*uses)(const void *context, const void *base, size_t bytes, cgr__use *use);
  const void *context;
} cgr__holder;

void cgr__holders_add(cgr__holder *holder);
/* Does nothing for one that was never added. */
void cgr__holders_remove(const cgr__holder *holder);
/* Whether any of them uses any of the bytes; then also the use that was found first. */
bool cgr__holders_find(const void *base, size_t bytes, cgr__use *use);

/* Whether there are any. */
bool cgr__holders_any(void);

void cgr__holders_lock(void);
void cgr__holders_unlock(void);

#ifdef __cplusplus
}
#endif

#endif
