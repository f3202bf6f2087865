#include "examples/llama/room.h"

#include "examples/llama/error.h"

#define KEPT_SHARE 32 /* of the device's memory, one part in this many stays free */

uint64_t llama_room(const cgr_device_info *info) {
  uint64_t all = info->kind == CGR_DEVICE_KIND_CUDA ? info->memory_free : info->memory_total;
  uint64_t kept = info->memory_total / KEPT_SHARE;
  return all > kept ? all - kept : 0;
}

int llama_room_check(const char *what, uint64_t bytes, uint64_t room) {
  if (bytes <= room)
    return 0;
  return llama_fail("%s %.1f GB, expected at most the %.1f GB that the device has room for", what, 1e-9 * (double)bytes,
                    1e-9 * (double)room);
}
