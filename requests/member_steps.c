/* Steps of the members: sent and launched by what has changed. */
#include <string.h>

#include "requests/guesses.h"
#include "requests/standing.h"

_Static_assert(CGR__MAX_REQUESTS <= 1 << 16, "an edit has 16 bits for a place");

/* ------------------------------------------------------------------------------------------------------------------ staging */

static cgr__edit edit_of(const cgr__batch_layout *layout, int32_t place, int32_t first_token) {
  uint32_t word = (uint32_t)place | layout->flags[place] << 16;
  return (cgr__edit){ (int32_t)word, layout->rows[place], layout->query_lens[place], first_token };
}

static bool has_tokens(const cgr__rows *rows, const cgr__members *s, int32_t row) {
  return rows->row[row].irregular && s->irregular[row].first_token >= 0;
}

int32_t cgr__members_edits(const cgr__rows *rows, const cgr__lane_batches *batches, bool whole, cgr__edit *edits, int32_t *tokens,
                           int32_t *num_tokens) {
  const cgr__members *s = &batches->members;
  int32_t count = 0, used = 0;
  for (int32_t row = s->first_irregular; row >= 0; row = s->irregular[row].next) {
    int32_t query_len = rows->row[row].query_len;
    if (s->irregular[row].first_token < 0)
      continue;
    memcpy(tokens + used, s->tokens + s->irregular[row].first_token, (size_t)query_len * sizeof *tokens);
    edits[count++] = edit_of(&s->layout, rows->row[row].place, used);
    used += query_len;
  }
  for (int32_t i = 0; !whole && i < s->num_dirty; i++) {
    int32_t place = s->dirty[i];
    if (place < s->layout.num_requests && !has_tokens(rows, s, s->layout.rows[place]))
      edits[count++] = edit_of(&s->layout, place, -1);
  }
  *num_tokens = used;
  return count;
}

/* ------------------------------------------------------------------------------------------------------------------- launch */

void cgr__members_commit(cgr__rows *rows, cgr__lane_batches *batches, uint64_t seq, uint64_t device_seq) {
  cgr__members *s = &batches->members;
  batches->last = NULL;
  s->steps++;
  s->last_seq = seq;
  for (int32_t row = s->first_irregular, next; row >= 0; row = next) {
    next = s->irregular[row].next;
    s->num_tokens = 0; /* only irregular members have any */
    rows->row[row].shared_prefix &= rows->row[row].query_len == 0;
    if (s->follows) {
      cgr__members_revalidate(rows, row);
    } else {
      const int32_t place = rows->row[row].place, guesses = cgr__flags_guesses(s->layout.flags[place]);
      if (guesses > 0 && !rows->row[row].ended)
        cgr__guesses_note(rows, seq, row, place, guesses);
      cgr__standing_use_up(rows, batches, row);
    }
  }
  cgr__members_told(s, device_seq);
}
