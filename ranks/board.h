/* A board: shared memory in which each rank has a place that it alone writes. Words that others wait for are atomic; nothing is
 * ever locked, so that no process leaves a lock behind when it ends. */
#ifndef CGR_RANKS_BOARD_H
#define CGR_RANKS_BOARD_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cgr/ranks.h"

#define CGR__BOARD_MAGIC 0x43475242u /* "CGRB" */

/* Of one rank. A rank writes the block of round n when every rank has come to round n - 1, so when each has read those of n - 2,
 * whose room it takes. */
typedef struct cgr__board_place {
  alignas(128) int64_t owner; /* the process's number; 0: free */
  uint32_t here;              /* 1: the rank has seen the board and waits for the others, or has met them */
  uint32_t left; /* 1: it will come to no further round, unless another process takes the place before all have met */
  alignas(128) uint64_t round; /* whose block is there */
  uint64_t shown;              /* number of the last state, in state[shown % 2]; 0: there is none */
  alignas(128) unsigned char block[2][CGR_EXCHANGE_BYTES];
  uint64_t state[2][CGR_EXCHANGE_BYTES / sizeof(uint64_t)]; /* in turn, so that one is whole whenever the process ends or stops */
} cgr__board_place;

typedef struct cgr__board_memory {
  uint32_t magic; /* written last */
  int32_t num_ranks;
  int64_t first; /* the process of rank 0, which has made it */
  uint32_t over; /* 1: rank 0 has given up or left; no one may join any more */
  uint32_t met;  /* 1: all are here, and the memory has lost its name */
  cgr__board_place place[CGR_MAX_RANKS];
} cgr__board_memory;

struct cgr_board {
  cgr__board_memory *memory;
  int32_t rank, num_ranks;
  uint64_t round;
  bool has_place; /* it is this one's */
  bool waits;     /* the block of `round` is there, but not all others have been seen */
  char path[216]; /* of the memory, while it has a name */
};

/* Whether the process of that number still runs, as far as this one can tell. One that has ended does not, even if its parent has
 * not asked for its end yet. */
bool cgr__process_runs(int64_t process);

/* What a wait in short sleeps has done so far. */
typedef struct cgr__patience {
  uint64_t began_ns, until_ns; /* until 0: for ever */
  uint64_t now_ns;             /* of its last look at the clock */
  int32_t spins;
  bool sleeps; /* no longer on the processor */
} cgr__patience;
cgr__patience cgr__patience_begin(int32_t timeout_ms);
/* Waits a little: on the processor at first, then asleep. False: the time is over. */
bool cgr__patience_waits(cgr__patience *patience);

/* "1 and 3" of the ranks whose bits are set. */
typedef struct cgr__ranks_text {
  char text[200];
} cgr__ranks_text;
cgr__ranks_text cgr__ranks_text_of(uint64_t ranks);

#endif
