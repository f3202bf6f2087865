#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "ranks/board.h"

#define SPINS 20000          /* about 50 us on the processor */
#define SLEEP_NS 20000       /* then asleep, for so long */
#define LONG_SLEEP_NS 200000 /* and when it has waited for a hundredth of a second, so long */
#define LONG_WAIT_NS 10000000

bool cgr__process_runs(int64_t process) { return kill((pid_t)process, 0) == 0 || errno != ESRCH; }

cgr__patience cgr__patience_begin(int32_t timeout_ms) {
  const uint64_t now = cgr__now_ns();
  return (cgr__patience){ now, timeout_ms < 0 ? 0 : now + (uint64_t)timeout_ms * 1000000u, 0 };
}

bool cgr__patience_waits(cgr__patience *p) {
  if (p->spins < SPINS && p->spins++ % 64 != 63)
    return true;
  const uint64_t now = cgr__now_ns();
  if (p->until_ns != 0 && now >= p->until_ns)
    return false;
  if (p->spins >= SPINS) {
    const struct timespec pause = { 0, now - p->began_ns > LONG_WAIT_NS ? LONG_SLEEP_NS : SLEEP_NS };
    (void)nanosleep(&pause, NULL);
  }
  return true;
}

cgr__ranks_text cgr__ranks_text_of(uint64_t ranks) {
  cgr__ranks_text text = { "" };
  size_t length = 0;
  for (int32_t r = 0; r < CGR_MAX_RANKS; r++) {
    const uint64_t rest = r == CGR_MAX_RANKS - 1 ? 0 : ranks >> (r + 1);
    if (!(ranks >> r & 1))
      continue;
    length += (size_t)snprintf(text.text + length, sizeof text.text - length, "%s%d",
                               length == 0 ? ""
                               : rest      ? ", "
                                           : " and ",
                               r);
  }
  return text;
}
