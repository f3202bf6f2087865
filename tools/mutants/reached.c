// Part of the library that tools/mutants/run.py makes to find which tests reach which functions: at each call of a function,
// which gcc's -finstrument-functions reports, the byte for its address becomes 1 in the file that CGR_REACHED names.
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_BYTES ((size_t)1 << 20) /* for 16 MiB of code: a function begins at a multiple of 16 */

extern const char __ehdr_start[] __attribute__((visibility("hidden"))); /* where the linker puts address 0 of the library */

void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller);

static char *marks;

__attribute__((constructor)) static void open_marks(void) {
  const char *path = getenv("CGR_REACHED");
  int file = path ? open(path, O_RDWR | O_CREAT, 0644) : -1;
  if (file < 0)
    return;
  if (ftruncate(file, (off_t)FILE_BYTES) == 0)
    marks = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (marks == MAP_FAILED)
    marks = NULL;
  close(file);
}

void __cyg_profile_func_enter(void *function, void *caller) {
  (void)caller;
  size_t place = (size_t)((const char *)function - __ehdr_start) / 16;
  if (marks && place < FILE_BYTES && !marks[place])
    marks[place] = 1;
}

void __cyg_profile_func_exit(void *function, void *caller) {
  (void)function;
  (void)caller;
}
