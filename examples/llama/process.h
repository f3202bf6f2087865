/* Other processes of this machine. */
#ifndef LLAMA_PROCESS_H
#define LLAMA_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* False when it has ended, even if its parent does not know yet. */
bool llama_process_runs(int64_t process);

#endif
