#include "devices/host/queue.h"

#include "devices/host/handles.h"
#include "devices/host/pool.h"
#include "devices/host/run.h"

static bool is_blocked(const struct host_op *op) { return op->kind == HOST_OP_WAIT && op->target->completed < op->number; }

static void execute_op(struct host_device *host, const struct host_op *op) {
  if (op->kind == HOST_OP_WORK)
    cgr__host_run_work(&op->work);
  if (op->kind == HOST_OP_LAUNCH)
    cgr__host_run_exec(host, op->exec);
}

static void finish_head(struct host_device *host, struct host_stream *stream) {
  struct host_op *op = stream->head;
  stream->head = op->next;
  if (!stream->head)
    stream->tail = NULL;
  stream->completed++;
  cgr__host_op_return(host, op);
  if (host->num_waiting != 0)
    pthread_cond_broadcast(&host->done);
}

static void sleep_until_done(struct host_device *host) {
  host->num_waiting++;
  pthread_cond_wait(&host->done, &host->lock);
  host->num_waiting--;
}

bool cgr__host_sleep_until(struct host_device *host, const struct timespec *end) {
  host->num_waiting++;
  bool in_time = pthread_cond_timedwait(&host->done, &host->lock, end) == 0;
  host->num_waiting--;
  return in_time;
}

/* The thread of a stream under ASYNC: executes the head without the lock; only the tail changes meanwhile. */
void *cgr__host_worker(void *arg) {
  struct host_stream *stream = arg;
  struct host_device *host = stream->dev;
  pthread_mutex_lock(&host->lock);
  for (;;) {
    if (!stream->head) {
      if (stream->stop)
        break;
      stream->asleep = true;
      pthread_cond_wait(&stream->wake, &host->lock);
      stream->asleep = false;
      continue;
    }
    if (is_blocked(stream->head)) {
      sleep_until_done(host);
      continue;
    }
    const struct host_op *op = stream->head;
    if (op->kind != HOST_OP_WAIT) {
      pthread_mutex_unlock(&host->lock);
      execute_op(host, op);
      pthread_mutex_lock(&host->lock);
    }
    finish_head(host, stream);
  }
  pthread_mutex_unlock(&host->lock);
  return NULL;
}

void cgr__host_push(struct host_stream *stream, struct host_op *op) {
  op->next = NULL;
  if (stream->tail)
    stream->tail->next = op;
  else
    stream->head = op;
  stream->tail = op;
  stream->enqueued++;
  if (stream->asleep)
    pthread_cond_signal(&stream->wake);
}

int cgr__host_push_wait(struct host_device *host, struct host_stream *stream, struct host_stream *target, uint64_t number) {
  if (target == stream || target->completed >= number)
    return CGR__DEVICE_OK; /* stream order, or already completed */
  struct host_op *op = cgr__host_op_take(host, 0);
  if (!op)
    return CGR__DEVICE_NO_MEMORY;
  op->kind = HOST_OP_WAIT;
  op->target = target;
  op->number = number;
  cgr__host_push(stream, op);
  return CGR__DEVICE_OK;
}

/* The stream whose head must run next for `stream` to progress: itself, or whatever its head waits for. Waits refer to
 * operations enqueued before them, so the chain ends. */
static struct host_stream *runnable_for(struct host_stream *stream) {
  while (is_blocked(stream->head))
    stream = stream->head->target;
  return stream;
}

static void run_head(struct host_device *host, struct host_stream *stream) {
  execute_op(host, stream->head);
  finish_head(host, stream);
}

static void run_until(struct host_device *host, struct host_stream *stream, uint64_t number) {
  while (stream->completed < number)
    run_head(host, runnable_for(stream));
}

/* Waits that are met are not work: they do not count as pending. */
static void pass_met_waits(struct host_device *host, struct host_stream *stream) {
  while (stream->head && stream->head->kind == HOST_OP_WAIT && !is_blocked(stream->head))
    finish_head(host, stream);
}

/* Runs one operation that `stream` waits for. */
static void run_one(struct host_device *host, struct host_stream *stream) {
  bool ran = false;
  while (!ran && stream->head) {
    struct host_stream *next = runnable_for(stream);
    ran = next->head->kind != HOST_OP_WAIT;
    run_head(host, next);
  }
  pass_met_waits(host, stream);
}

/* Runs the head of a randomly chosen stream that can run. */
static bool run_random(struct host_device *host) {
  uint64_t count = 0;
  for (struct host_stream *s = host->streams; s; s = s->next)
    count += s->head && !is_blocked(s->head);
  if (count == 0)
    return false;
  uint64_t pick = cgr__host_random(host) % count;
  for (struct host_stream *s = host->streams; s; s = s->next) {
    if (!s->head || is_blocked(s->head))
      continue;
    if (pick-- != 0)
      continue;
    run_head(host, s);
    return true;
  }
  return false;
}

/* Half of the time nothing, else a few operations or very many: both long delays and full progress must happen. */
static void run_random_number(struct host_device *host) {
  uint64_t dice = cgr__host_random(host);
  if (dice % 2 == 0)
    return;
  uint64_t count = dice % 4 == 1 ? cgr__host_random(host) % 4 + 1 : cgr__host_random(host) % 64;
  while (count-- != 0 && run_random(host))
    continue;
}

void cgr__host_progress(struct host_device *host, struct host_stream *stream) {
  if (host->schedule == CGR_SCHEDULE_EARLIEST)
    run_until(host, stream, stream->enqueued);
  if (host->schedule == CGR_SCHEDULE_RANDOM)
    run_random_number(host);
}

void cgr__host_wait(struct host_device *host, struct host_stream *stream, uint64_t number) {
  while (host->schedule == CGR_SCHEDULE_ASYNC && stream->completed < number)
    sleep_until_done(host);
  while (host->schedule == CGR_SCHEDULE_RANDOM && stream->completed < number && run_random(host))
    continue;
  run_until(host, stream, number);
}

int cgr__host_query(struct host_device *host, struct host_stream *stream, uint64_t number) {
  if (host->schedule == CGR_SCHEDULE_RANDOM) {
    run_random_number(host);
    /* A caller that only ever queries one stream must get there, whatever the random numbers. */
    if (stream->completed < number && cgr__host_random(host) % 2 == 0)
      run_one(host, stream);
  }
  if (host->schedule == CGR_SCHEDULE_LATEST && stream->completed < number)
    run_one(host, stream);
  return stream->completed >= number ? CGR__DEVICE_OK : CGR__DEVICE_NOT_READY;
}
