#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "ranks/board.h"

#define SPIN_NS 50000        /* so long on the processor */
#define SPINS 64             /* looks at the clock once in so many */
#define SLEEP_NS 20000       /* then asleep, for so long */
#define LONG_SLEEP_NS 200000 /* and when it has waited for a hundredth of a second, so long */
#define LONG_WAIT_NS 10000000

#define FIELDS_TO_THREADS 17 /* of the number of threads, after the state */

/* Whether it has ended, but its parent does not know yet. The state follows the name, which is in brackets and may hold some. A
 * process whose first thread alone has ended looks so, too, but has others. */
static bool is_zombie(int64_t process) {
  char path[40], text[512];
  (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)process);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return false;
  const ssize_t length = read(file, text, sizeof text - 1);
  (void)close(file);
  text[length > 0 ? length : 0] = '\0';
  const char *state = strrchr(text, ')');
  if (!state || state[1] != ' ' || (state[2] != 'Z' && state[2] != 'X'))
    return false;
  const char *field = state + 2;
  for (int i = 0; i < FIELDS_TO_THREADS && field; i++) {
    field = strchr(field, ' ');
    field = field ? field + 1 : NULL;
  }
  return !field || strtol(field, NULL, 10) <= 1;
}

bool cgr__process_runs(int64_t process) {
  if (process <= 0)
    return false;
  if (process == getpid())
    return true;
  return (kill((pid_t)process, 0) == 0 || errno != ESRCH) && !is_zombie(process);
}

cgr__patience cgr__patience_begin(int32_t timeout_ms) {
  const uint64_t now = cgr__now_ns();
  return (cgr__patience){ now, timeout_ms < 0 ? 0 : now + (uint64_t)timeout_ms * 1000000u, now, 0, false };
}

bool cgr__patience_waits(cgr__patience *p) {
  if (!p->sleeps && ++p->spins % SPINS != 0)
    return true;
  const uint64_t now = p->now_ns = cgr__now_ns();
  if (p->until_ns != 0 && now >= p->until_ns)
    return false;
  p->sleeps = now - p->began_ns > SPIN_NS;
  if (p->sleeps) {
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
