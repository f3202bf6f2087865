#include "examples/llama/launch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "examples/llama/error.h"

#define GRACE_S 20 /* that others have to end by themselves after one has failed */
#define MOST_RANKS 64

/* ------------------------------------------------------------------------------------------------------ a place given */

static uint64_t hash_text(uint64_t hash, const char *text) {
  for (; *text; text++)
    hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
  return (hash ^ 0xffu) * 0x100000001b3u;
}

static uint64_t hash_options(int argc, char **argv) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--rank") == 0)
      i++;
    else if (strncmp(argv[i], "--rank=", 7) != 0)
      hash = hash_text(hash, argv[i]);
  return hash;
}

/* A number from the environment, or `otherwise`. */
static int read_environment(const char *name, int32_t low, int32_t high, int32_t otherwise, int32_t *value) {
  const char *text = getenv(name);
  char *end;
  *value = otherwise;
  if (!text)
    return 0;
  long number = strtol(text, &end, 10);
  if (end == text || *end || number < low || number > high)
    return llama_fail("%s is %s in the environment, expected a whole number from %d to %d", name, *text ? text : "empty", low,
                      high);
  *value = (int32_t)number;
  return 0;
}

/* As --join, --tp and --rank say, or torchrun's variables. */
static int join(const llama_options *o, llama_place *place) {
  int32_t ranks = o->tp, rank = o->rank, local;
  if (ranks == 0)
    TRY(read_environment("WORLD_SIZE", 1, MOST_RANKS, 0, &ranks));
  if (ranks == 0)
    return llama_fail("--join is %s, expected --tp with it, or WORLD_SIZE in the environment", o->join);
  if (rank < 0)
    TRY(read_environment("RANK", 0, ranks - 1, -1, &rank));
  if (rank < 0)
    return llama_fail("--join is %s, expected --rank with it, or RANK in the environment", o->join);
  if (rank >= ranks)
    return llama_fail("--rank is %d, expected 0 to %d", rank, ranks - 1);
  TRY(read_environment("LOCAL_RANK", 0, 1023, rank, &local));
  place->ranks = ranks, place->rank = rank, place->local = local;
  snprintf(place->name, sizeof(place->name), "%s", o->join);
  return 0;
}

/* -------------------------------------------------------------------------------------------------------- the parent's */

typedef struct children {
  pid_t process[MOST_RANKS]; /* 0: it has ended */
  int32_t count, left;
} children;

static void end_all(const children *c) {
  for (int32_t r = 0; r < c->count; r++)
    if (c->process[r] > 0)
      kill(c->process[r], SIGKILL);
}

/* The next one that ends; -1: none within the time. seconds < 0: no limit. */
static int32_t wait_for_end(children *c, double seconds, int *status) {
  const struct timespec nap = { 0, 20000000 };
  for (double waited = 0.0;; waited += 0.02) {
    pid_t process = waitpid(-1, status, seconds < 0.0 ? 0 : WNOHANG);
    for (int32_t r = 0; process > 0 && r < c->count; r++)
      if (c->process[r] == process) {
        c->process[r] = 0;
        c->left--;
        return r;
      }
    if (seconds >= 0.0 && waited > seconds)
      return -1;
    if (process <= 0)
      nanosleep(&nap, NULL);
  }
}

/* The first that fails says why. */
static int wait_for_all(children *c) {
  int result = 0, status;
  while (c->left > 0) {
    int32_t rank = wait_for_end(c, result == 0 ? -1.0 : GRACE_S, &status);
    if (rank < 0) {
      end_all(c);
      continue;
    }
    if (result != 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
      continue;
    result = WIFSIGNALED(status) ? llama_fail("rank %d was ended by signal %d", rank, WTERMSIG(status))
                                 : llama_fail("rank %d has failed", rank);
  }
  return result;
}

/* A child ends with its parent. */
static void begin_child(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent)
    _exit(1);
}

/* Returns in each of them, and at last in this process. */
static int make_ranks(int32_t ranks, llama_place *place) {
  children c = { .count = ranks };
  const pid_t parent = getpid();
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(place->name, sizeof(place->name), "llama.%lld.%lld.%ld", (long long)parent, (long long)now.tv_sec, now.tv_nsec);
  place->ranks = ranks;
  fflush(NULL);
  for (int32_t r = 0; r < ranks; r++) {
    c.process[r] = fork();
    if (c.process[r] == 0) {
      begin_child(parent);
      place->rank = place->local = r;
      return 0;
    }
    if (c.process[r] < 0) {
      end_all(&c);
      return llama_fail("--tp is %d, but process %d of them cannot be made", ranks, r);
    }
    c.left++;
  }
  place->is_parent = true;
  return wait_for_all(&c);
}

/* Only the first talks. */
static int silence(FILE **out) {
  int copy = dup(STDOUT_FILENO);
  *out = copy < 0 ? NULL : fdopen(copy, "a");
  return *out && freopen("/dev/null", "w", stdout) ? 0 : llama_fail("standard output or /dev/null cannot be opened");
}

/* Each rank has a GPU of its own. */
static int check_device(const char *device) {
  if (!device || strcmp(device, "host") == 0 || strcmp(device, "cuda") == 0)
    return 0;
  return llama_fail("--device is %s, expected host or cuda with --tp: each rank has a GPU of its own", device);
}

int llama_launch(int argc, char **argv, const llama_options *o, llama_place *place) {
  *place = (llama_place){ .ranks = 1 };
  if (!o->join && o->rank >= 0)
    return llama_fail("--rank is %d, expected --join with it", o->rank);
  if (o->join || o->tp > 1)
    TRY(check_device(o->device));
  if (o->join)
    TRY(join(o, place));
  else if (o->tp > 1)
    TRY(make_ranks(o->tp, place));
  place->options = hash_options(argc, argv);
  return place->rank > 0 ? silence(&place->out) : 0;
}
