/* Which lines of memory a stretch of the library's code touches: the code is compiled with -fsanitize=thread, which calls a
 * function before each access, and these are the functions. Only the calling thread's accesses are kept. */
#ifndef CGR_TESTS_RUNTIME_LINES_RECORD_H
#define CGR_TESTS_RUNTIME_LINES_RECORD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LINES_BYTES 64
#define LINES_MOST 4096 /* distinct lines; more are not kept */

/* Whether the accesses can be seen: not when the whole program is built for the thread sanitizer. */
int lines_can_record(void);

/* From here on, on this thread. */
void lines_begin(void);
/* Up to here. Returns how many there are; (*lines)[i] is an address divided by LINES_BYTES. */
size_t lines_end(const uintptr_t **lines);

#ifdef __cplusplus
}
#endif
#endif
