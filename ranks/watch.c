/* Looks for what hangs, from another thread than that of the steps: it reads what ranks have shown, and of this one's runtime two
 * numbers that any thread may read. No device is asked. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/sized.h"
#include "cgr/collectives.h"
#include "ranks/board.h"
#include "ranks/ranks.h"

#define MAX_INTERVAL_MS 1000
#define REPORT_BYTES 16384

/* All ranks as they are seen in one look. */
typedef struct sight {
  uint64_t now, timeout_ns;
  uint64_t seen, gone;     /* ranks that have shown something; that have left or ended */
  uint64_t silent;         /* ranks whose own looks have ceased: a process that is stopped, say. What they show is old */
  uint64_t stalled, waits; /* ranks whose device has hung for the timeout; that have waited in a call for it */
  uint64_t agreement;      /* the latest */
  cgr__rank_state state[CGR_MAX_RANKS];
} sight;

static cgr_status read_watch(const cgr_ranks *k, const char *function, const cgr_rank_watch *given, cgr_rank_watch *w) {
  char what[64];
  (void)snprintf(what, sizeof what, "%s: watch", function);
  CGR__TRY(cgr__sized_read(what, "CGR_RANK_WATCH_INIT", given, w, sizeof *w));
  if (w->reserved != 0)
    return cgr__fail_in(function, cgr__refuse_used("watch.reserved", w->reserved));
  if (w->timeout_ms < 0 || w->interval_ms < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: watch.%s is %d, expected 0 or more", function,
                     w->timeout_ms < 0 ? "timeout_ms" : "interval_ms", w->timeout_ms < 0 ? w->timeout_ms : w->interval_ms);
  if (w->timeout_ms == 0 && k->timeout_ms < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: watch.timeout_ms is 0, expected 1 or more: that of the ranks is -1",
                     function);
  w->timeout_ms = w->timeout_ms == 0 ? k->timeout_ms : w->timeout_ms;
  if (w->interval_ms == 0)
    w->interval_ms = w->timeout_ms / 4 < MAX_INTERVAL_MS ? w->timeout_ms / 4 : MAX_INTERVAL_MS;
  w->interval_ms = w->interval_ms < 1 ? 1 : w->interval_ms;
  return CGR_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ a look */

/* Shows how far this rank's own device is. */
static cgr_status show_progress(cgr_ranks *k, const cgr_rank_watch *w, uint64_t now) {
  cgr_progress p = CGR_PROGRESS_INIT;
  char where[CGR__RANKS_WHERE_BYTES] = "";
  CGR__TRY(cgr__fail_as("cgr_ranks_look", "cgr_runtime_progress", cgr_runtime_progress(k->runtime, &p)));
  const bool is_idle = p.launched == p.completed;
  if (is_idle || p.completed != k->seen_completed || k->seen_ns == 0) {
    k->seen_completed = p.completed;
    k->seen_ns = now;
  }
  const uint64_t patience_ns =
      (uint64_t)(w->timeout_ms / 2 > 4 * (int64_t)w->interval_ms ? w->timeout_ms / 2 : 4 * (int64_t)w->interval_ms) * 1000000u;
  if (!is_idle && w->where && w->where(w->where_context, where, sizeof where) != CGR_OK)
    where[0] = '\0';
  where[sizeof where - 1] = '\0';
  cgr__ranks_lock(k);
  k->state.launched = p.launched > k->state.launched ? p.launched : k->state.launched;
  k->state.completed = p.completed > k->state.completed ? p.completed : k->state.completed;
  k->state.stalled_ns = is_idle || k->state.completed != p.completed ? 0 : k->seen_ns; /* the rank itself may know more */
  k->state.due_ns = now + patience_ns;
  memcpy(k->state.where, where, sizeof where);
  cgr__ranks_send_state(k);
  cgr__ranks_unlock(k);
  return CGR_OK;
}

/* Shows whom it has found: if it leaves because of them, the others do not take it for the cause. */
static void show_blame(cgr_ranks *k, uint64_t ranks) {
  cgr__ranks_lock(k);
  const bool is_new = k->state.blames != ranks;
  k->state.blames = ranks;
  if (is_new)
    cgr__ranks_send_state(k);
  cgr__ranks_unlock(k);
}

/* This rank looks no more. */
static void show_end(cgr_ranks *k) {
  cgr__ranks_lock(k);
  k->state.due_ns = 0;
  cgr__ranks_send_state(k);
  cgr__ranks_unlock(k);
}

static bool is_older(uint64_t ns, const sight *s) { return ns > 0 && s->now > ns && s->now - ns >= s->timeout_ns; }

static void see_ranks(cgr_ranks *k, sight *s) {
  for (int32_t r = 0; r < k->exchange.num_ranks; r++) {
    const uint64_t bit = (uint64_t)1 << r;
    bool gone;
    const bool has_shown = cgr__ranks_read_state(k, r, &s->state[r], &gone);
    s->gone |= gone ? bit : 0;
    if (!has_shown) {
      s->state[r] = (cgr__rank_state){ 0 };
      continue;
    }
    const cgr__rank_state *state = &s->state[r];
    s->seen |= bit;
    const bool silent = r != k->exchange.rank && state->due_ns > 0 && s->now > state->due_ns;
    s->silent |= !gone && silent ? bit : 0;
    s->stalled |= !gone && !silent && is_older(state->stalled_ns, s) ? bit : 0;
    s->waits |= !gone && !silent && state->call != CGR__RANK_NONE && is_older(state->since_ns, s) ? bit : 0;
    s->agreement = state->agreement > s->agreement ? state->agreement : s->agreement;
  }
}

/* Ranks that are gone, but for those that left because of others. */
static uint64_t ranks_that_left_first(const cgr_ranks *k, const sight *s) {
  uint64_t first = s->gone;
  for (int32_t r = 0; r < k->exchange.num_ranks; r++) {
    const uint64_t bit = (uint64_t)1 << r;
    if (s->gone & bit && s->state[r].blames && !(s->state[r].blames & bit))
      first &= ~bit;
  }
  return first;
}

/* The ranks for which the others wait, as far as the shown states tell. First those that are gone. Then those that have not come
 * to the agreement, have not launched a step in which another rank's device waits, show nothing new, or wait for no rank. Then
 * those that have been blamed by ranks that are gone. */
static uint64_t ranks_behind(const cgr_ranks *k, const sight *s) {
  uint64_t late = 0, unlaunched = 0, free = 0, blamed = 0, waiting = 0;
  const uint64_t first = ranks_that_left_first(k, s);
  if (first)
    return first;
  for (int32_t r = 0; r < k->exchange.num_ranks; r++) {
    const uint64_t bit = (uint64_t)1 << r;
    const cgr__rank_state *state = &s->state[r];
    blamed |= s->seen & bit ? state->blames : 0;
    if (!(s->seen & bit) || s->gone & bit)
      continue;
    late |= state->agreement < s->agreement ? bit : 0;
    unlaunched |= state->launched <= state->launched_before ? bit : 0;
    waiting |= !(s->silent & bit) && state->stalled_ns > 0 && state->launched > state->launched_before ? bit : 0;
    free |= (s->stalled | s->waits) & bit ? 0 : bit;
  }
  if (late)
    return late;
  if (waiting && unlaunched)
    return unlaunched & ~waiting & ~s->stalled ? unlaunched & ~waiting & ~s->stalled : unlaunched;
  if (s->silent)
    return s->silent;
  return free ? free : blamed;
}

static bool is_one(uint64_t ranks) { return (ranks & (ranks - 1)) == 0; }

static void add_ranks(cgr__report_text *t, uint64_t ranks, const char *says) {
  const cgr__ranks_text names = cgr__ranks_text_of(ranks);
  cgr__report_add(t, "rank%s %s %s", strchr(names.text, ' ') ? "s" : "", names.text, says);
}

static void add_verdict(cgr__report_text *t, const sight *s, uint64_t behind) {
  const uint64_t hang = s->stalled ? s->stalled : s->waits;
  const int32_t first = __builtin_ctzll(hang);
  const cgr__rank_state *state = &s->state[first];
  if (s->stalled) {
    add_ranks(t, s->stalled, is_one(s->stalled) ? "hangs" : "hang");
    cgr__report_add(t, ": %s of rank %d has not completed for %.3f s", cgr__ranks_step_text(state).text, first,
                    (double)(s->now - state->stalled_ns) * 1e-9);
    if (state->where[0])
      cgr__report_add(t, ", %.79s", state->where);
  } else {
    add_ranks(t, s->waits, is_one(s->waits) ? "waits" : "wait");
    cgr__report_add(t, ": rank %d in %s%s%.31s for %.3f s", first, cgr__rank_call_name(state->call), state->name[0] ? " " : "",
                    state->name, (double)(s->now - state->since_ns) * 1e-9);
  }
  if (behind) {
    cgr__report_add(t, "; ");
    if (behind & s->gone)
      add_ranks(t, behind, is_one(behind) ? "has left or ended" : "have left or ended");
    else
      add_ranks(t, behind, is_one(behind) ? "is behind" : "are behind");
  }
  cgr__report_add(t, "\n");
}

cgr_status cgr_ranks_look(cgr_ranks *ranks, const cgr_rank_watch *watch, char *out, size_t capacity, size_t *length) {
  static const char function[] = "cgr_ranks_look";
  CGR__REQUIRE(ranks && ranks->magic == CGR__RANKS_MAGIC ? ranks : NULL, "cgr_ranks_look");
  CGR__REQUIRE(length, "cgr_ranks_look");
  if (!out && capacity > 0)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: out is NULL, expected %zu bytes", function, capacity);
  cgr_rank_watch w;
  CGR__TRY(read_watch(ranks, function, watch, &w));
  sight s = { .now = cgr__now_ns(), .timeout_ns = (uint64_t)w.timeout_ms * 1000000u };
  *length = 0;
  CGR__TRY(show_progress(ranks, &w, s.now));
  see_ranks(ranks, &s);
  const bool hangs = (s.stalled | s.waits) != 0;
  const uint64_t behind = hangs ? ranks_behind(ranks, &s) : 0;
  show_blame(ranks, behind);
  if (!hangs)
    return CGR_OK;
  char verdict[400];
  cgr__report_text first = { verdict, sizeof verdict, 0 }, t = { out, capacity, 0 };
  add_verdict(&first, &s, behind);
  cgr__report_add(&t, "%s", verdict);
  for (int32_t r = 0; r < ranks->exchange.num_ranks; r++)
    cgr__report_add_rank(&t, ranks, r, s.now);
  *length = t.length;
  verdict[strcspn(verdict, "\n")] = '\0';
  return cgr__fail(CGR_NOT_READY, "%s: %s", function, verdict);
}

/* ---------------------------------------------------------------------------------------------------------------- watchdog */

struct cgr_watchdog {
  cgr_ranks *ranks;
  cgr_rank_watch watch;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wakes;
  bool stops; /* under the lock */
  char report[REPORT_BYTES];
};

/* False: it is to stop. */
static bool sleep_until_next(cgr_watchdog *d) {
  const struct timespec until = cgr__timespec_of(cgr__now_ns() + (uint64_t)d->watch.interval_ms * 1000000u);
  pthread_mutex_lock(&d->lock);
  int error = 0;
  while (!d->stops && error == 0)
    error = pthread_cond_timedwait(&d->wakes, &d->lock, &until);
  const bool stops = d->stops;
  pthread_mutex_unlock(&d->lock);
  return !stops;
}

static void *watch_on_thread(void *context) {
  cgr_watchdog *d = context;
  bool told = false;
  do {
    size_t length = 0;
    const bool hangs = cgr_ranks_look(d->ranks, &d->watch, d->report, sizeof d->report, &length) == CGR_NOT_READY;
    if (hangs && !told)
      d->watch.hangs(d->watch.hangs_context, d->report);
    told = hangs;
  } while (sleep_until_next(d));
  return NULL;
}

static bool make_lock(cgr_watchdog *d) {
  pthread_condattr_t attributes;
  pthread_mutex_init(&d->lock, NULL);
  const bool made = pthread_condattr_init(&attributes) == 0 && pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                    pthread_cond_init(&d->wakes, &attributes) == 0;
  pthread_condattr_destroy(&attributes);
  return made;
}

cgr_status cgr_ranks_watch(cgr_ranks *ranks, const cgr_rank_watch *watch, cgr_watchdog **watchdog) {
  CGR__REQUIRE(ranks && ranks->magic == CGR__RANKS_MAGIC ? ranks : NULL, "cgr_ranks_watch");
  CGR__REQUIRE(watchdog, "cgr_ranks_watch");
  cgr_rank_watch w;
  CGR__TRY(read_watch(ranks, "cgr_ranks_watch", watch, &w));
  if (!w.hangs)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_ranks_watch: watch.hangs is NULL, expected a function");
  cgr_watchdog *d = calloc(1, sizeof *d);
  if (!d)
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_ranks_watch: no host memory for %zu bytes", sizeof *d);
  d->ranks = ranks;
  d->watch = w;
  if (!make_lock(d) || pthread_create(&d->thread, NULL, watch_on_thread, d) != 0) {
    free(d);
    return cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_ranks_watch: no thread to watch on");
  }
  *watchdog = d;
  return CGR_OK;
}

cgr_status cgr_watchdog_stop(cgr_watchdog *watchdog) {
  if (!watchdog)
    return CGR_OK;
  if (pthread_equal(pthread_self(), watchdog->thread))
    return cgr__fail(CGR_ERROR_STATE, "cgr_watchdog_stop: called from the watchdog's own thread, expected another's");
  pthread_mutex_lock(&watchdog->lock);
  watchdog->stops = true;
  pthread_cond_signal(&watchdog->wakes);
  pthread_mutex_unlock(&watchdog->lock);
  pthread_join(watchdog->thread, NULL);
  show_end(watchdog->ranks);
  pthread_cond_destroy(&watchdog->wakes);
  pthread_mutex_destroy(&watchdog->lock);
  free(watchdog);
  return CGR_OK;
}
