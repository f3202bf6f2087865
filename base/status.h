/* Statuses and the thread's last message. */
#ifndef CGR_BASE_STATUS_H
#define CGR_BASE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "cgr/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CGR__FORMAT(string, first) __attribute__((format(printf, string, first)))
#else
#define CGR__FORMAT(string, first)
#endif

/* Keeps the formatted message for cgr_last_message and returns `status`. Bounded, allocates nothing. */
cgr_status cgr__fail(cgr_status status, const char *format, ...) CGR__FORMAT(2, 3);

/* For a call of the public function: if it failed, its name comes first in the thread's message, unless it does already. Returns
 * `status`. */
cgr_status cgr__fail_in(const char *function, cgr_status status);

/* For a failure that `inner`, a public function which `function` calls, has left: its name becomes that of `function`. Returns
 * `status`. */
cgr_status cgr__fail_as(const char *function, const char *inner, cgr_status status);

/* The ending of a noun that is counted in a message: "1 token", "2 tokens". */
static inline const char *cgr__plural(int64_t count) { return count == 1 ? "" : "s"; }

/* Failures of this thread so far: tells whether a call of the engine's has left a message. */
uint64_t cgr__failures(void);

/* The engine's function `who` has returned `returned`; `before` is what cgr__failures told before the call. Fails as `status`,
 * with the message that the function has left, if any. */
cgr_status cgr__fail_returned(cgr_status status, const char *who, cgr_status returned, uint64_t before);

/* Whether it is one of CGR_STATUS_LIST. */
bool cgr__status_is_known(int32_t status);

/* Remembers a raw code of the device's API for cgr_last_device_code. */
void cgr__set_device_code(int code);

/* Returns from the calling function with the status unless it is CGR_OK. */
#define CGR__TRY(expression)                   \
  do {                                         \
    cgr_status cgr__try_status = (expression); \
    if (cgr__try_status != CGR_OK)             \
      return cgr__try_status;                  \
  } while (0)

/* The check that nearly every entry point starts with. */
#define CGR__REQUIRE(pointer, function)                                                                    \
  do {                                                                                                     \
    if (!(pointer))                                                                                        \
      return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: " #pointer " is NULL, expected an address", function); \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
