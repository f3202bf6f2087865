/* Meeting and leaving. Rank 0 makes the memory, the others look for it; when all are there it loses its name. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "ranks/board.h"

#define FUNCTION "cgr_board_open"
#define PREFIX "/cgr."
#define LONGEST_NAME 200
#define MAKING_MS 200 /* how long memory that is not complete may still be under way: then its maker has ended */

/* ---------------------------------------------------------------------------------------------------------------- checks */

static bool is_name(const char *name) {
  const size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
  return length >= 1 && length <= LONGEST_NAME && name[length] == '\0';
}

static cgr_status check_arguments(const char *name, int32_t rank, int32_t num_ranks, int32_t timeout_ms) {
  if (!is_name(name))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     FUNCTION ": name is \"%.40s\", expected 1 .. %d letters, digits, '.', '_' and '-'", name, LONGEST_NAME);
  if (num_ranks < 1 || num_ranks > CGR_MAX_RANKS)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": num_ranks is %d, expected 1 .. %d", num_ranks, CGR_MAX_RANKS);
  if (rank < 0 || rank >= num_ranks)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": rank is %d, expected 0 .. %d", rank, num_ranks - 1);
  if (timeout_ms < -1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": timeout_ms is %d, expected -1 or more", timeout_ms);
  return CGR_OK;
}

/* ---------------------------------------------------------------------------------------------------------------- memory */

static cgr_status refuse_memory(const char *path, const char *what) {
  return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, FUNCTION ": shared memory %s: %s: %s", path, what, strerror(errno));
}

static cgr__board_memory *map(int file) {
  void *memory = mmap(NULL, sizeof(cgr__board_memory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static void unmap(cgr_board *b) {
  if (b->memory)
    (void)munmap(b->memory, sizeof *b->memory);
  b->memory = NULL;
}

/* Memory that has the name already. */
typedef enum board_use {
  UNDER_WAY,    /* its run's ranks meet */
  NOT_MADE_YET, /* or never: its maker may have ended. Or its maker is about to take the name away */
  LEFT_BEHIND   /* by a process that has ended; this one alone has found it first, and takes the name away */
} board_use;

/* Only one of those who find it so is told that it is left behind. */
static board_use use_of(cgr__board_memory *memory, bool has_waited) {
  uint32_t before = 0;
  const bool made = __atomic_load_n(&memory->magic, __ATOMIC_ACQUIRE) == CGR__BOARD_MAGIC;
  if (made && cgr__process_runs(memory->first))
    return __atomic_load_n(&memory->over, __ATOMIC_ACQUIRE) ? NOT_MADE_YET : UNDER_WAY;
  if (!made && !has_waited)
    return NOT_MADE_YET;
  return __atomic_compare_exchange_n(&memory->over, &before, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || has_waited
             ? LEFT_BEHIND
             : NOT_MADE_YET;
}

static board_use look_at_memory(const char *path, bool has_waited) {
  const int file = shm_open(path, O_RDWR, 0600);
  struct stat status;
  board_use use = NOT_MADE_YET;
  if (file < 0)
    return use;
  if (fstat(file, &status) == 0 && status.st_size >= (off_t)sizeof(cgr__board_memory)) {
    cgr__board_memory *memory = map(file);
    use = memory ? use_of(memory, has_waited) : use;
    if (memory)
      (void)munmap(memory, sizeof *memory);
  } else if (has_waited) {
    use = LEFT_BEHIND;
  }
  (void)close(file);
  return use;
}

/* A file of the name that is this run's alone. -1: `*used` says whether another run has it; or see errno. */
static int make_file(const char *path, bool *used) {
  cgr__patience patience = cgr__patience_begin(MAKING_MS);
  bool waits = true;
  *used = false;
  for (;;) {
    const int file = shm_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file >= 0 || errno != EEXIST)
      return file;
    const board_use use = look_at_memory(path, !waits);
    *used = use == UNDER_WAY || (use == NOT_MADE_YET && !waits);
    if (*used)
      return -1;
    if (use == LEFT_BEHIND)
      (void)shm_unlink(path);
    waits = cgr__patience_waits(&patience);
  }
}

/* Of rank 0. All of the memory is there, so that no rank is stopped by a signal when it writes. */
static cgr_status make_memory(cgr_board *b) {
  bool used = false;
  const int file = make_file(b->path, &used);
  if (used)
    return cgr__fail(CGR_ERROR_STATE, FUNCTION ": a run of the name %s is under way, expected a name of this run alone",
                     b->path + strlen(PREFIX));
  if (file < 0)
    return refuse_memory(b->path, "cannot be made");
  int error = EINTR;
  while (error == EINTR)
    error = posix_fallocate(file, 0, (off_t)sizeof *b->memory);
  if (error == 0) {
    b->memory = map(file);
    error = errno;
  }
  (void)close(file);
  if (!b->memory) {
    (void)shm_unlink(b->path);
    errno = error;
    return refuse_memory(b->path, "cannot be mapped");
  }
  b->memory->num_ranks = b->num_ranks;
  b->memory->first = getpid();
  __atomic_store_n(&b->memory->magic, CGR__BOARD_MAGIC, __ATOMIC_RELEASE);
  return CGR_OK;
}

/* Whether the memory's ranks can still meet. */
static bool is_alive(const cgr__board_memory *memory) {
  return __atomic_load_n(&memory->magic, __ATOMIC_ACQUIRE) == CGR__BOARD_MAGIC &&
         !__atomic_load_n(&memory->over, __ATOMIC_ACQUIRE) && cgr__process_runs(memory->first);
}

/* Of the others: false if it is not there yet, or of a run that is over. */
static bool find_memory(cgr_board *b) {
  const int file = shm_open(b->path, O_RDWR, 0600);
  struct stat status;
  if (file < 0)
    return false;
  if (fstat(file, &status) == 0 && status.st_size >= (off_t)sizeof *b->memory)
    b->memory = map(file);
  (void)close(file);
  if (b->memory && is_alive(b->memory))
    return true;
  unmap(b);
  return false;
}

/* ------------------------------------------------------------------------------------------------------------ meet, leave */

/* Whether the place's owner has ended before all have met. */
static bool is_left_behind(const cgr_board *b, int64_t owner) {
  return owner != 0 && !cgr__process_runs(owner) && !__atomic_load_n(&b->memory->met, __ATOMIC_ACQUIRE);
}

static cgr_status take_place(cgr_board *b) {
  cgr__board_place *place = &b->memory->place[b->rank];
  if (b->memory->num_ranks != b->num_ranks)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": num_ranks is %d, expected %d as on rank 0", b->num_ranks,
                     b->memory->num_ranks);
  int64_t owner = __atomic_load_n(&place->owner, __ATOMIC_ACQUIRE);
  owner = is_left_behind(b, owner) ? owner : 0;
  if (!__atomic_compare_exchange_n(&place->owner, &owner, (int64_t)getpid(), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return cgr__fail(CGR_ERROR_STATE, FUNCTION ": rank is %d, which process %lld has, expected one of its own for each", b->rank,
                     (long long)owner);
  b->has_place = true;
  __atomic_store_n(&place->left, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&place->here, 1, __ATOMIC_RELEASE);
  return CGR_OK;
}

static uint64_t missing_ranks(const cgr_board *b) {
  uint64_t missing = 0;
  for (int32_t r = 0; r < b->num_ranks; r++)
    missing |= (uint64_t)!__atomic_load_n(&b->memory->place[r].here, __ATOMIC_ACQUIRE) << r;
  return missing;
}

/* Rank 0 sees it, and tells the others when the name is gone. */
static bool have_met(cgr_board *b) {
  if (b->rank == 0 && missing_ranks(b) == 0) {
    (void)shm_unlink(b->path);
    __atomic_store_n(&b->memory->met, 1, __ATOMIC_RELEASE);
  }
  return __atomic_load_n(&b->memory->met, __ATOMIC_ACQUIRE);
}

static void leave(cgr_board *b) {
  if (!b->memory)
    return;
  __atomic_store_n(&b->memory->place[b->rank].left, 1, __ATOMIC_RELEASE);
  if (b->rank == 0)
    __atomic_store_n(&b->memory->over, 1, __ATOMIC_RELEASE);
  if (b->rank == 0 && b->path[0])
    (void)shm_unlink(b->path);
  unmap(b);
}

/* Gives the place back before the others have met; another process may take it. If rank 0 has just seen all of them, this one
 * has left, which their first exchange tells. */
static void give_up(cgr_board *b) {
  if (b->memory && b->has_place) {
    cgr__board_place *place = &b->memory->place[b->rank];
    __atomic_store_n(&place->left, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&place->here, 0, __ATOMIC_RELEASE);
    if (b->rank == 0)
      leave(b);
    else
      __atomic_store_n(&place->owner, 0, __ATOMIC_RELEASE);
  }
  b->has_place = false;
  unmap(b);
}

static cgr_status refuse_absence(const cgr_board *b, int32_t timeout_ms) {
  if (!b->memory)
    return cgr__fail(CGR_NOT_READY, FUNCTION ": rank 0 has not come within %d ms, expected it to", timeout_ms);
  const cgr__ranks_text missing = cgr__ranks_text_of(missing_ranks(b));
  return cgr__fail(CGR_NOT_READY, FUNCTION ": not here within %d ms: rank%s %s, expected all", timeout_ms,
                   strchr(missing.text, ' ') ? "s" : "", missing.text[0] ? missing.text : "0");
}

/* Once more from the beginning if rank 0 gives up or ends meanwhile. */
static cgr_status meet(cgr_board *b, int32_t timeout_ms) {
  cgr__patience patience = cgr__patience_begin(timeout_ms);
  if (b->rank == 0) {
    CGR__TRY(make_memory(b));
    CGR__TRY(take_place(b));
  }
  for (;;) {
    if (!b->memory && find_memory(b))
      CGR__TRY(take_place(b));
    if (b->memory && have_met(b))
      return CGR_OK;
    if (b->memory && b->rank != 0 && !is_alive(b->memory) && !have_met(b))
      give_up(b);
    if (!cgr__patience_waits(&patience))
      return refuse_absence(b, timeout_ms);
  }
}

cgr_status cgr_board_open(const char *name, int32_t rank, int32_t num_ranks, int32_t timeout_ms, cgr_board **board) {
  CGR__REQUIRE(name, FUNCTION);
  CGR__REQUIRE(board, FUNCTION);
  CGR__TRY(check_arguments(name, rank, num_ranks, timeout_ms));
  cgr_board *b = calloc(1, sizeof *b);
  if (!b)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, FUNCTION ": no host memory for %zu bytes", sizeof *b);
  b->rank = rank;
  b->num_ranks = num_ranks;
  (void)snprintf(b->path, sizeof b->path, PREFIX "%s", name);
  const cgr_status status = meet(b, timeout_ms);
  if (status != CGR_OK) {
    give_up(b);
    free(b);
    return status;
  }
  b->path[0] = '\0'; /* it has none any more */
  *board = b;
  return CGR_OK;
}

cgr_status cgr_board_close(cgr_board *board) {
  if (!board)
    return CGR_OK;
  leave(board);
  free(board);
  return CGR_OK;
}
