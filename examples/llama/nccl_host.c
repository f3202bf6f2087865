/* In each call a rank writes its data to a place of its own, says so, and reads those of all ranks, in their order: so all get
 * the same bits. A place has two halves, used in turn. A half is written again when all ranks have begun the call after the last
 * one that used it, and have therefore read it. A call waits in its stream; when a rank has ended, those under way and all later
 * ones end with whatever the memory holds, and comm_get_async_error tells. */
#include "examples/llama/nccl_host.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "examples/llama/number.h"
#include "examples/llama/process.h"

#define BLOCK 256     /* elements that are summed at once */
#define ALIGNMENT 256 /* bytes */
#define SPINS 1000    /* on the processor, then others may have it */
#define NAP_NS 50000  /* and at last it sleeps */
#define LOOKS 64      /* naps from one look at the others' processes to the next */
#define MEET_S 5      /* the ranks begin to meet together */

/* Of nccl.h. */
enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 };
enum { INT8 = 0, UINT8 = 1, INT32 = 2, FLOAT32 = 7, BFLOAT16 = 9, SUM = 0 };

typedef struct place {
  _Alignas(128) uint64_t calls; /* whose data is there */
  int64_t process;              /* 0: it has not come yet */
  int32_t left;
} place;

struct ncclComm {
  int32_t rank, ranks;
  place *places; /* [ranks], shared; the data [ranks][2][most] follows */
  char *data;
  size_t most, bytes; /* bytes: of all of it */
  uint64_t calls;     /* of this rank's streams, one at a time */
  int32_t broken;     /* a rank has ended, or it is aborted */
  ncclComm_t next;    /* of the aborted ones */
};

/* Of this process: NCCL's functions get a stream alone. */
static struct {
  cgr_device *device;
  size_t most;
  int file;           /* of the last id, until all have its memory */
  ncclComm_t aborted; /* streams may still be in calls of them, and graphs hold their addresses: they stay */
} own;

static char *half_of(ncclComm_t c, int32_t rank) { return c->data + ((size_t)rank * 2 + c->calls % 2) * c->most; }

/* ------------------------------------------------------------------------------------------------------------ waiting */

static bool has_ended(const place *p) {
  return __atomic_load_n(&p->left, __ATOMIC_ACQUIRE) || !llama_process_runs(__atomic_load_n(&p->process, __ATOMIC_ACQUIRE));
}

static bool is_broken(ncclComm_t c) { return __atomic_load_n(&c->broken, __ATOMIC_ACQUIRE) != 0; }

static void break_off(ncclComm_t c) { __atomic_store_n(&c->broken, 1, __ATOMIC_RELEASE); }

static bool has_come(ncclComm_t c, int32_t rank) { return __atomic_load_n(&c->places[rank].calls, __ATOMIC_ACQUIRE) >= c->calls; }

/* False: it will not come. What it gave before it ended counts. */
static bool wait_for(ncclComm_t c, int32_t rank) {
  for (int i = 0; !has_come(c, rank); i++) {
    if (is_broken(c))
      return false;
    if (i < SPINS) {
      if (i % 16 == 15)
        sched_yield();
      continue;
    }
    nanosleep(&(struct timespec){ 0, NAP_NS }, NULL);
    if (i % LOOKS == 0 && has_ended(&c->places[rank]) && !has_come(c, rank))
      break_off(c);
  }
  return true;
}

/* Gives this rank's data and waits for that of all others. */
static bool exchange_data(ncclComm_t c, const void *mine, size_t bytes) {
  if (is_broken(c))
    return false;
  c->calls++;
  memcpy(half_of(c, c->rank), mine, bytes);
  __atomic_store_n(&c->places[c->rank].calls, c->calls, __ATOMIC_RELEASE);
  for (int32_t r = 0; r < c->ranks; r++)
    if (!wait_for(c, r))
      return false;
  return true;
}

/* ------------------------------------------------------------------------------------------------------- what executes */

typedef struct call_args {
  ncclComm_t c;
  const void *from;
  void *to;
  size_t count; /* elements */
  int32_t dtype, reserved;
} call_args;

static size_t element_size(int32_t dtype) { return dtype == BFLOAT16 ? 2 : dtype == INT8 || dtype == UINT8 ? 1 : 4; }

static void add(float *sums, const void *from, size_t first, size_t n, int32_t dtype) {
  const uint16_t *halves = from;
  const float *floats = from;
  for (size_t i = 0; i < n; i++)
    sums[i] += dtype == BFLOAT16 ? llama_from_bf16(halves[first + i]) : floats[first + i];
}

static void put(void *to, size_t first, const float *sums, size_t n, int32_t dtype) {
  uint16_t *halves = to;
  float *floats = to;
  for (size_t i = 0; i < n; i++)
    if (dtype == BFLOAT16)
      halves[first + i] = llama_to_bf16(sums[i]);
    else
      floats[first + i] = sums[i];
}

static void reduce(const void *pointer) {
  const call_args *a = pointer;
  if (!exchange_data(a->c, a->from, a->count * element_size(a->dtype)))
    return;
  for (size_t first = 0; first < a->count; first += BLOCK) {
    size_t n = a->count - first < BLOCK ? a->count - first : BLOCK;
    float sums[BLOCK] = { 0.0f };
    for (int32_t r = 0; r < a->c->ranks; r++)
      add(sums, half_of(a->c, r), first, n, a->dtype);
    put(a->to, first, sums, n, a->dtype);
  }
}

static void gather(const void *pointer) {
  const call_args *a = pointer;
  const size_t bytes = a->count * element_size(a->dtype);
  if (!exchange_data(a->c, a->from, bytes))
    return;
  for (int32_t r = 0; r < a->c->ranks; r++)
    memcpy((char *)a->to + (size_t)r * bytes, half_of(a->c, r), bytes);
}

/* ------------------------------------------------------------------------------------------------------- what enqueues */

static int enqueue(cgr_host_function function, const call_args *args, cudaStream_t stream) {
  if (args->count * element_size(args->dtype) > args->c->most)
    return INVALID_ARGUMENT;
  return cgr_launch_host(own.device, function, args, sizeof(*args), stream) == CGR_OK ? SUCCESS : SYSTEM_ERROR;
}

static int all_reduce(const void *send, void *recv, size_t count, int dtype, int op, ncclComm_t c, cudaStream_t stream) {
  const call_args args = { c, send, recv, count, dtype, 0 };
  return op == SUM && (dtype == FLOAT32 || dtype == BFLOAT16) ? enqueue(reduce, &args, stream) : INVALID_ARGUMENT;
}

static int all_gather(const void *send, void *recv, size_t count, int dtype, ncclComm_t c, cudaStream_t stream) {
  const call_args args = { c, send, recv, count, dtype, 0 };
  return enqueue(gather, &args, stream);
}

/* This engine has no use for the others. */
static int reduce_scatter(const void *send, void *recv, size_t count, int dtype, int op, ncclComm_t c, cudaStream_t stream) {
  (void)send, (void)recv, (void)count, (void)dtype, (void)op, (void)c, (void)stream;
  return INVALID_USAGE;
}

static int broadcast(const void *send, void *recv, size_t count, int dtype, int root, ncclComm_t c, cudaStream_t stream) {
  (void)send, (void)recv, (void)count, (void)dtype, (void)root, (void)c, (void)stream;
  return INVALID_USAGE;
}

static int send_to(const void *send, size_t count, int dtype, int peer, ncclComm_t c, cudaStream_t stream) {
  (void)send, (void)count, (void)dtype, (void)peer, (void)c, (void)stream;
  return INVALID_USAGE;
}

static int receive_from(void *recv, size_t count, int dtype, int peer, ncclComm_t c, cudaStream_t stream) {
  (void)recv, (void)count, (void)dtype, (void)peer, (void)c, (void)stream;
  return INVALID_USAGE;
}

static int group(void) { return SUCCESS; } /* a call may wait for the call of the same number alone */

/* ------------------------------------------------------------------------------------------------------- communicators */

static int get_version(int *version) {
  *version = 22700; /* the functions are those of NCCL 2.27 */
  return SUCCESS;
}

/* Memory without a name that others find through this process, and that no end of a process leaves behind. */
static int get_unique_id(cgr_nccl_id *id) {
  memset(id, 0, sizeof(*id));
  own.file = (int)syscall(SYS_memfd_create, "llama", 1u /* closed in other programs */);
  snprintf(id->internal, sizeof(id->internal), "/proc/%lld/fd/%d", (long long)getpid(), own.file);
  return own.file < 0 ? SYSTEM_ERROR : SUCCESS;
}

static void close_memory(ncclComm_t c) {
  if (c->places) {
    __atomic_store_n(&c->places[c->rank].left, 1, __ATOMIC_RELEASE);
    munmap(c->places, c->bytes);
  }
  free(c);
}

static bool map(ncclComm_t c, int file) {
  void *memory = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED)
    return false;
  c->places = memory;
  c->data = (char *)memory + (sizeof(place) * (size_t)c->ranks + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  __atomic_store_n(&c->places[c->rank].process, getpid(), __ATOMIC_RELEASE);
  return true;
}

/* Rank 0 gives it its pages, all of them, so that no rank is stopped by a signal when it writes. */
static bool open_memory(ncclComm_t c, const char *name, bool *refused) {
  int file = open(name, O_RDWR | O_CLOEXEC);
  struct stat status;
  if (file < 0)
    return false;
  bool whole = c->rank == 0 ? posix_fallocate(file, 0, (off_t)c->bytes) == 0
                            : fstat(file, &status) == 0 && status.st_size >= (off_t)c->bytes;
  bool mapped = whole && map(c, file);
  *refused = c->rank == 0 ? !mapped : whole && !mapped;
  close(file);
  return mapped;
}

static bool all_have_come(ncclComm_t c) {
  for (int32_t r = 0; r < c->ranks; r++)
    if (__atomic_load_n(&c->places[r].process, __ATOMIC_ACQUIRE) == 0)
      return false;
  return true;
}

/* The memory can be found until all have come. */
static int meet(ncclComm_t c, const char *name) {
  const time_t end = time(NULL) + MEET_S;
  bool refused = false;
  while (time(NULL) <= end && !refused) {
    if ((c->places || open_memory(c, name, &refused)) && all_have_come(c))
      break;
    nanosleep(&(struct timespec){ 0, NAP_NS }, NULL);
  }
  if (c->rank == 0)
    close(own.file);
  return c->places && all_have_come(c) ? SUCCESS : SYSTEM_ERROR;
}

static int comm_init_rank(ncclComm_t *comm, int ranks, cgr_nccl_id id, int rank) {
  ncclComm_t c = calloc(1, sizeof(*c));
  if (!c)
    return SYSTEM_ERROR;
  c->rank = rank;
  c->ranks = ranks;
  c->most = (own.most + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  c->bytes = (sizeof(place) + 2 * c->most) * (size_t)ranks + ALIGNMENT;
  int result = meet(c, id.internal);
  if (result != SUCCESS)
    close_memory(c);
  else
    *comm = c;
  return result;
}

static int comm_destroy(ncclComm_t c) {
  close_memory(c);
  return SUCCESS;
}

static int comm_abort(ncclComm_t c) {
  c->next = own.aborted;
  own.aborted = c;
  break_off(c);
  __atomic_store_n(&c->places[c->rank].left, 1, __ATOMIC_RELEASE);
  return SUCCESS;
}

static int comm_get_async_error(ncclComm_t c, int *error) {
  *error = is_broken(c) ? REMOTE_ERROR : SUCCESS;
  return SUCCESS;
}

static int comm_count(const ncclComm_t c, int *count) {
  *count = c->ranks;
  return SUCCESS;
}

static int comm_user_rank(const ncclComm_t c, int *rank) {
  *rank = c->rank;
  return SUCCESS;
}

static const char *get_error_string(int result) {
  return result == SUCCESS            ? "no error"
         : result == SYSTEM_ERROR     ? "no memory to share, or a rank does not come"
         : result == INVALID_ARGUMENT ? "a type, an operation or a size that the host's collectives do not have"
         : result == REMOTE_ERROR     ? "a rank has ended"
                                      : "a collective that the host's do not have";
}

void llama_nccl_host(cgr_device *device, size_t most, cgr_nccl_functions *functions) {
  own.device = device;
  own.most = most;
  *functions = (cgr_nccl_functions){ .size = sizeof(*functions),
                                     .get_version = get_version,
                                     .get_unique_id = get_unique_id,
                                     .comm_init_rank = comm_init_rank,
                                     .comm_destroy = comm_destroy,
                                     .comm_abort = comm_abort,
                                     .comm_get_async_error = comm_get_async_error,
                                     .comm_count = comm_count,
                                     .comm_user_rank = comm_user_rank,
                                     .get_error_string = get_error_string,
                                     .group_start = group,
                                     .group_end = group,
                                     .all_reduce = all_reduce,
                                     .all_gather = all_gather,
                                     .reduce_scatter = reduce_scatter,
                                     .broadcast = broadcast,
                                     .send = send_to,
                                     .recv = receive_from };
}
