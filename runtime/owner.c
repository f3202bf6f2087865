/* One thread at a time in a runtime, checked when the device has a layer that does so. The thread that is inside owns the runtime
 * until its call returns; another one is refused before it reads anything that the owner may write. */
#include <pthread.h>

#include "runtime/runtime.h"

static cgr_status refuse(cgr_runtime *rt, const char *function, uintptr_t thread) {
  const char *inside = __atomic_load_n(&rt->owner.function, __ATOMIC_RELAXED);
  (void)cgr__fail(CGR_ERROR_STATE,
                  "%s: called by thread %#llx while thread %#llx is inside %s of this runtime, expected one thread at a time",
                  function, (unsigned long long)(uintptr_t)pthread_self(), (unsigned long long)thread,
                  inside ? inside : "another call");
  return cgr__runtime_report(rt, CGR_ERROR_STATE);
}

cgr_status cgr__owner_enter(cgr_runtime *rt, const char *function, cgr_runtime **owned) {
  uintptr_t self = (uintptr_t)pthread_self(), found = 0;
  if (__atomic_load_n(&rt->owner.thread, __ATOMIC_RELAXED) != self) {
    if (!__atomic_compare_exchange_n(&rt->owner.thread, &found, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      return refuse(rt, function, found);
    __atomic_store_n(&rt->owner.function, function, __ATOMIC_RELAXED);
  }
  rt->owner.depth++;
  *owned = rt;
  return CGR_OK;
}

void cgr__owner_leave(cgr_runtime *rt) {
  if (--rt->owner.depth > 0)
    return;
  __atomic_store_n(&rt->owner.function, NULL, __ATOMIC_RELAXED);
  __atomic_store_n(&rt->owner.thread, 0, __ATOMIC_RELEASE);
}

cgr_status cgr__owner_enter_outside(cgr_runtime *rt, const char *function) {
  cgr_runtime *owned = NULL;
  if (cgr__runtime_checks(rt))
    CGR__TRY(cgr__owner_enter(rt, function, &owned));
  cgr_status status = cgr__runtime_check_outside(rt, function);
  if (status != CGR_OK)
    cgr__owner_end(&owned);
  return status;
}
