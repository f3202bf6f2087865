/* Fault: makes the n-th call of an operation fail.
 *
 * A loop over n until nothing fires any more puts a fault at every call of a scenario:
 *   for (n = 1;; n++) { set(op, n); run the scenario; check codes, leaks, state; if (!cgr__fault_fired(dev)) break; }
 *
 * A fault keeps to what the table says of its error (enum cgr__device_error):
 * - calls that destroy always take effect, and never get an error that means that nothing was done: such calls are not counted;
 * - capture_end always ends the capture, and gives no graph;
 * - other calls with such an error never take effect;
 * - an operation that makes something and fails after taking effect has its result destroyed again; close never fails.
 *
 * DEAD: work that is pending when the device dies never runs afterwards. On a GPU it never runs at all; here the shim first ends
 * the captures that the failing call's thread began through it and lets the inner device finish every stream made through it, so
 * that nothing is queued when the caller frees its memory. A capture_begin that answers DEAD begins nothing. Other threads must
 * not be enqueuing at that moment. */
#ifndef CGR_DEVICES_SHIMS_FAULT_H
#define CGR_DEVICES_SHIMS_FAULT_H

#include "devices/shims/shim.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cgr__fault_mode {
  CGR__FAULT_ONCE = 0,       /* the n-th call alone */
  CGR__FAULT_FROM_NTH_ON = 1 /* the n-th call and all later ones */
};

#define CGR__FAULT_ANY_OP (-1)

typedef struct cgr__fault_plan {
  int op;          /* enum cgr__shim_op, or CGR__FAULT_ANY_OP: calls of all operations are counted together */
  uint64_t nth;    /* 1: the first call; 0: no fault */
  int mode;        /* enum cgr__fault_mode */
  int take_effect; /* 0: the inner device is not called; 1: it is, and the error is reported all the same */
  int error;       /* enum cgr__device_error. DEAD sticks: everything fails from then on but what destroys, as after a sticky
                      CUDA error. NOT_READY delays: a query's answer */
  int raw;         /* for last_raw */
} cgr__fault_plan;

/* Wraps `inner`; closing the shim closes it. No fault is planned yet. On failure `inner` is untouched. */
int cgr__fault_open(cgr_device *inner, cgr_device **dev);

/* Replaces the plan and starts counting at 0 again; NULL plans no fault. A device that was DEAD works again. */
void cgr__fault_set(cgr_device *dev, const cgr__fault_plan *plan);

/* Faults injected since the plan was set. */
uint64_t cgr__fault_fired(cgr_device *dev);
/* Calls that the plan counted. */
uint64_t cgr__fault_calls(cgr_device *dev);

#ifdef __cplusplus
}
#endif
#endif
