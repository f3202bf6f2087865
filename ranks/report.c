/* The text of all ranks: which are where, and who waits for whom. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/key.h"
#include "base/status.h"
#include "ranks/board.h"
#include "ranks/ranks.h"

void cgr__report_add(cgr__report_text *t, const char *format, ...) {
  va_list arguments;
  const size_t room = t->length < t->capacity ? t->capacity - t->length : 0;
  va_start(arguments, format);
  const int length = vsnprintf(room > 0 ? t->out + t->length : NULL, room, format, arguments);
  va_end(arguments);
  t->length += length > 0 ? (size_t)length : 0;
}
#define add cgr__report_add

static double seconds_since(uint64_t ns, uint64_t now) { return now > ns ? (double)(now - ns) * 1e-9 : 0.0; }

bool cgr__ranks_read_state(cgr_ranks *k, int32_t rank, cgr__rank_state *state, bool *gone) {
  *gone = false;
  if (rank == k->exchange.rank) {
    cgr__ranks_lock(k);
    *state = k->state;
    cgr__ranks_unlock(k);
    return true;
  }
  if (!k->exchange.look)
    return false;
  const cgr_status status = k->exchange.look(k->exchange.context, rank, state, sizeof *state);
  *gone = status == CGR_ERROR_RANK;
  return (status == CGR_OK || *gone) && state->magic == CGR__RANKS_MAGIC;
}

cgr__step_text cgr__ranks_step_text(const cgr__rank_state *s) {
  cgr__step_text t;
  const uint64_t step = s->completed + 1;
  const cgr_key *key = step > s->launched_before ? &s->key : &s->before;
  if (s->agreement > (step <= s->launched_before))
    (void)snprintf(t.text, sizeof t.text, "step %llu (%s)", (unsigned long long)step, cgr__key_name(key).text);
  else
    (void)snprintf(t.text, sizeof t.text, "step %llu", (unsigned long long)step);
  return t;
}

static void add_state(cgr__report_text *t, const cgr__rank_state *s, uint64_t now) {
  add(t, "in %s for %.3f s", s->call == CGR__RANK_NONE ? "none of these calls" : cgr__rank_call_name(s->call),
      seconds_since(s->since_ns, now));
  if (s->name[0])
    add(t, " (%.31s)", s->name);
  if (s->missing)
    add(t, ", waits for rank%s %s", s->missing & (s->missing - 1) ? "s" : "", cgr__ranks_text_of(s->missing).text);
  add(t, "; agreement %llu", (unsigned long long)s->agreement);
  if (s->agreement > 0)
    add(t, " on %s", cgr__key_name(&s->key).text);
  add(t, "; launched step %llu, completed %llu", (unsigned long long)s->launched, (unsigned long long)s->completed);
  if (s->stalled_ns > 0)
    add(t, "; %s has not completed for %.3f s", cgr__ranks_step_text(s).text, seconds_since(s->stalled_ns, now));
  if (s->stalled_ns > 0 && s->where[0])
    add(t, ", %.79s", s->where);
  if (s->note[0])
    add(t, "; \"%.47s\" for %.3f s", s->note, seconds_since(s->noted_ns, now));
  add(t, "\n");
}

/* Of a rank that shows nothing. */
static void add_proposal(cgr__report_text *t, cgr_ranks *k, int32_t rank) {
  cgr__ranks_lock(k);
  const cgr_rank_proposal brought = k->proposal[rank], *p = &brought;
  const uint64_t agreements = k->agreed.number;
  cgr__ranks_unlock(k);
  if (agreements == 0)
    add(t, "has shown nothing yet\n");
  else
    add(t, "shows nothing; at agreement %llu it had launched %llu step%s, and brought %d request%s and %d token%s\n",
        (unsigned long long)p->agreement, (unsigned long long)p->steps, cgr__plural((int64_t)p->steps), p->counts.num_requests,
        cgr__plural(p->counts.num_requests), p->counts.num_tokens, cgr__plural(p->counts.num_tokens));
}

void cgr__report_add_rank(cgr__report_text *t, cgr_ranks *k, int32_t rank, uint64_t now) {
  cgr__rank_state state;
  bool gone;
  const bool has_state = cgr__ranks_read_state(k, rank, &state, &gone);
  add(t, "rank %d%s: ", rank, rank == k->exchange.rank ? " (this one)" : gone ? " (has left or ended)" : "");
  if (has_state)
    add_state(t, &state, now);
  else
    add_proposal(t, k, rank);
}

cgr_status cgr_ranks_note(cgr_ranks *ranks, const char *text) {
  CGR__REQUIRE(ranks && ranks->magic == CGR__RANKS_MAGIC ? ranks : NULL, "cgr_ranks_note");
  if (text && strnlen(text, CGR__RANKS_NOTE_BYTES) == CGR__RANKS_NOTE_BYTES)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_ranks_note: text is \"%.47s...\", expected at most %d characters", text,
                     CGR__RANKS_NOTE_BYTES - 1);
  cgr__ranks_lock(ranks);
  memset(ranks->state.note, 0, sizeof ranks->state.note);
  if (text)
    memcpy(ranks->state.note, text, strlen(text));
  ranks->state.noted_ns = cgr__now_ns();
  cgr__ranks_unlock(ranks);
  cgr__ranks_show(ranks, (cgr__rank_call)ranks->state.call, ranks->state.missing);
  return CGR_OK;
}

cgr_status cgr_ranks_report(cgr_ranks *ranks, char *out, size_t capacity, size_t *length) {
  CGR__REQUIRE(ranks && ranks->magic == CGR__RANKS_MAGIC ? ranks : NULL, "cgr_ranks_report");
  CGR__REQUIRE(length, "cgr_ranks_report");
  if (!out && capacity > 0)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "cgr_ranks_report: out is NULL, expected %zu bytes", capacity);
  cgr__report_text t = { out, capacity, 0 };
  const uint64_t now = cgr__now_ns();
  (void)cgr__ranks_look_at_runtime(ranks); /* or the text tells what was known before */
  if (ranks->parted)
    add(&t, "The ranks have parted: %s\n", ranks->why);
  for (int32_t r = 0; r < ranks->exchange.num_ranks; r++)
    cgr__report_add_rank(&t, ranks, r, now);
  *length = t.length;
  return CGR_OK;
}
