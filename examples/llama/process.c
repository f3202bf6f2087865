#include "examples/llama/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Whether it has ended, but its parent does not know yet. The state follows the name, which is in brackets and may hold some; 17
 * fields on is the number of threads. A process whose first thread alone has ended looks so, too, but has others. */
static bool is_zombie(int64_t process) {
  char path[40], text[512];
  snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)process);
  FILE *file = fopen(path, "re");
  if (!file)
    return false;
  size_t length = fread(text, 1, sizeof(text) - 1, file);
  fclose(file);
  text[length] = 0;
  const char *state = strrchr(text, ')');
  if (!state || state[1] != ' ' || (state[2] != 'Z' && state[2] != 'X'))
    return false;
  int threads = 0;
  sscanf(state + 3, "%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%d", &threads);
  return threads <= 1;
}

bool llama_process_runs(int64_t process) { return (kill((pid_t)process, 0) == 0 || errno != ESRCH) && !is_zombie(process); }
