/* How public functions begin and end. One thread at a time in a runtime, checked when the device has a layer that does so. The
 * thread that is inside owns the runtime until its call returns; another one is refused before it reads anything that the owner
 * may write. */
#include <pthread.h>

#include "runtime/runtime.h"

static cgr_status refuse_thread(cgr_runtime *rt, const char *function, uintptr_t thread) {
  const char *inside = __atomic_load_n(&rt->owner.function, __ATOMIC_RELAXED);
  (void)cgr__fail(CGR_ERROR_STATE,
                  "%s: called by thread %#llx while thread %#llx is inside %s of this runtime, expected one thread at a time",
                  function, (unsigned long long)(uintptr_t)pthread_self(), (unsigned long long)thread,
                  inside ? inside : "another call");
  return cgr__runtime_report(rt, CGR_ERROR_STATE);
}

cgr_status cgr__owner_enter(cgr_runtime *rt, const char *function) {
  uintptr_t self = (uintptr_t)pthread_self(), found = 0;
  if (__atomic_load_n(&rt->owner.thread, __ATOMIC_RELAXED) != self) {
    if (!__atomic_compare_exchange_n(&rt->owner.thread, &found, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      return refuse_thread(rt, function, found);
    __atomic_store_n(&rt->owner.function, function, __ATOMIC_RELAXED);
  }
  rt->owner.depth++;
  return CGR_OK;
}

static void leave_runtime(cgr_runtime *rt) {
  if (--rt->owner.depth > 0)
    return;
  __atomic_store_n(&rt->owner.function, NULL, __ATOMIC_RELAXED);
  __atomic_store_n(&rt->owner.thread, 0, __ATOMIC_RELEASE);
}

/* What `record` calls leaves the dump to the function that runs `record`, which has yet to write down what became of the step. */
void cgr__runtime_tell(cgr_runtime *rt) {
  if ((rt->at_return & CGR__RETURN_DUMPS) && !rt->recording)
    rt->tell_dump(rt);
}

void cgr__runtime_end(cgr_runtime *rt) {
  cgr__runtime_tell(rt);
  if (rt->at_return & CGR__RETURN_LEAVES)
    leave_runtime(rt);
}

cgr_status cgr__owner_enter_outside(cgr_runtime *rt, const char *function) {
  cgr_runtime *inside = NULL;
  CGR__TRY(cgr__runtime_begin(rt, function, &inside));
  cgr_status status = cgr__runtime_check_outside(rt, function);
  if (status != CGR_OK)
    cgr__runtime_leave_if(&inside);
  return status;
}
