#include "devices/holders.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cgr__holder *holders;

void cgr__holders_lock(void) { pthread_mutex_lock(&lock); }

void cgr__holders_unlock(void) { pthread_mutex_unlock(&lock); }

void cgr__holders_add(cgr__holder *holder) {
  cgr__holders_lock();
  holder->next = holders;
  holders = holder;
  cgr__holders_unlock();
}

void cgr__holders_remove(const cgr__holder *holder) {
  cgr__holders_lock();
  for (cgr__holder **link = &holders; *link; link = &(*link)->next)
    if (*link == holder) {
      *link = holder->next;
      break;
    }
  cgr__holders_unlock();
}

bool cgr__holders_any(void) {
  cgr__holders_lock();
  bool any = holders != NULL;
  cgr__holders_unlock();
  return any;
}

bool cgr__holders_find(const void *base, size_t bytes, cgr__use *use) {
  bool found = false;
  cgr__holders_lock();
  for (const cgr__holder *h = holders; h && !found; h = h->next)
    found = h->uses(h->context, base, bytes, use);
  cgr__holders_unlock();
  return found;
}
