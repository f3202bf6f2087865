#include "requests/guesses.h"

#include "requests/drafts.h"
#include "requests/ledger.h"

static cgr__guess *notes_of(const cgr__rows *rows, uint64_t seq, int32_t **count) {
  const int64_t at = (int64_t)(seq % (uint64_t)rows->limits->ring_depth);
  *count = &rows->guesses.count[at];
  return rows->guesses.note ? rows->guesses.note + at * rows->limits->max_requests : NULL; /* else there are only stops */
}

void cgr__guesses_note(cgr__rows *rows, uint64_t seq, int32_t row, int32_t place, int32_t guesses) {
  cgr__guesses *g = &rows->guesses;
  int32_t *count;
  cgr__guess *notes = notes_of(rows, seq, &count);
  if (!rows->has_notes)
    g->taken = seq - 1;
  notes[(*count)++] = (cgr__guess){ row, place, guesses, g->epoch[row] };
  rows->row[row].slack = (uint16_t)(rows->row[row].slack + guesses);
  g->num_notes++;
  rows->has_notes = true;
}

void cgr__guesses_forget(cgr__rows *rows, int32_t row) {
  rows->row[row].slack = 0;
  if (rows->guesses.epoch)
    rows->guesses.epoch[row]++;
  if (rows->guesses.since)
    rows->guesses.since[row] = rows->row[row].last_seq;
}

/* The row has so many tokens fewer than it might have had. */
static void take_off_rejected(cgr__rows *rows, int32_t row, int32_t count) {
  if (rows->has_ledger && count > 0)
    cgr__ledger_reject(rows, row, count);
  rows->row[row].computed -= count;
}

void cgr__guesses_take(cgr__rows *rows, uint64_t seq, const int32_t *num_tokens, int32_t num_requests) {
  int32_t *count;
  const cgr__guess *notes = notes_of(rows, seq, &count);
  for (int32_t i = 0; i < *count; i++) {
    const cgr__guess *note = &notes[i];
    cgr__row *row = &rows->row[note->row];
    int32_t sampled = note->place < num_requests ? num_tokens[note->place] : 0, accepted = sampled > 0 ? sampled - 1 : 0;
    accepted = accepted < note->guesses ? accepted : note->guesses;
    rows->guesses.verified += sampled > 0 ? (uint64_t)note->guesses : 0; /* else the request has not run */
    rows->guesses.accepted += (uint64_t)accepted;
    if (note->epoch != rows->guesses.epoch[note->row])
      continue;
    take_off_rejected(rows, note->row, note->guesses - accepted);
    row->slack = (uint16_t)(row->slack - note->guesses);
    cgr__drafts_take(rows, seq, note->row, note->guesses, note->guesses - accepted);
  }
  rows->guesses.num_notes -= *count;
  rows->has_notes = rows->guesses.num_notes > 0 || rows->guesses.stops_upto > seq;
  *count = 0;
  rows->guesses.taken = seq;
}

void cgr__guesses_reject(cgr__rows *rows) {
  for (int32_t i = 0; i < rows->limits->ring_depth; i++)
    rows->guesses.count[i] = 0;
  rows->guesses.num_notes = 0;
  rows->has_notes = false;
  for (int32_t row = 0; row < rows->limits->max_rows; row++) {
    take_off_rejected(rows, row, rows->row[row].slack);
    rows->row[row].slack = 0;
    cgr__drafts_reject(rows, row);
  }
}
