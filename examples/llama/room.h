/* Device memory that is left to plan with. */
#ifndef LLAMA_ROOM_H
#define LLAMA_ROOM_H

#include <cgr/cgr.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a GPU has free, or all memory of the host, whose free memory does not count what its file cache can give back; minus a
 * share for graphs, libraries and the runtime's own buffers. */
uint64_t llama_room(const cgr_device_info *info);

/* 0, or a message that begins with `what`, as in "the weights in bf16 take". */
int llama_room_check(const char *what, uint64_t bytes, uint64_t room);

#ifdef __cplusplus
}
#endif
#endif
