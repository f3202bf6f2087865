/* Two lists of rows are walked together. Where they part, a few places are tried at which they may meet again: requests were
 * exchanged, have left or have come. A wrong guess costs time and nothing else: who leaves and who comes is decided by rows. */
#include "requests/difference.h"

#include <string.h>

/* Places after the one where two lists part at which they are expected to meet again. */
#define REACH 8
/* Words that are compared at once: a long block while all is equal, then short ones, to come close to where it is not. */
#define LONG_BLOCK 128
#define SHORT_BLOCK 8

/* How many words two arrays have in common from their beginnings on. */
static int32_t common_words(const void *one, const void *other, int32_t count) {
  const int32_t *a = one, *b = other;
  int32_t i = 0;
  while (i + LONG_BLOCK <= count && memcmp(a + i, b + i, LONG_BLOCK * sizeof *a) == 0)
    i += LONG_BLOCK;
  while (i + SHORT_BLOCK <= count && memcmp(a + i, b + i, SHORT_BLOCK * sizeof *a) == 0)
    i += SHORT_BLOCK;
  while (i < count && a[i] == b[i])
    i++;
  return i;
}

/* The same with an array of one word, again and again. */
static int32_t common_word(const void *array, int32_t word, int32_t count) {
  const int32_t *a = array;
  int32_t i = 0;
  for (uint32_t other = 0; i + LONG_BLOCK <= count; i += LONG_BLOCK) {
    for (int32_t j = 0; j < LONG_BLOCK; j++)
      other |= (uint32_t)a[i + j] ^ (uint32_t)word;
    if (other != 0)
      break;
  }
  while (i < count && a[i] == word)
    i++;
  return i;
}

static int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }

/* ------------------------------------------------------------------------------------------------------------------- rows */

typedef struct lists {
  const int32_t *old, *now;
  int32_t num_old, num_now;
} lists;

/* Whether the lists go on alike from these places, or both end there. */
static bool meet(const lists *l, int32_t old, int32_t now) {
  if (old > l->num_old || now > l->num_now)
    return false;
  if (old == l->num_old || now == l->num_now)
    return old == l->num_old && now == l->num_now;
  return l->old[old] == l->now[now];
}

/* From two places at which they part to the next at which they meet, else to their ends. */
static cgr__stretch next_stretch(const lists *l, int32_t old, int32_t now) {
  for (int32_t d = 1; d <= REACH; d++) {
    if (meet(l, old + d, now + d))
      return (cgr__stretch){ old, old + d, now, now + d };
    if (meet(l, old + d, now))
      return (cgr__stretch){ old, old + d, now, now };
    if (meet(l, old, now + d))
      return (cgr__stretch){ old, old, now, now + d };
  }
  return (cgr__stretch){ old, l->num_old, now, l->num_now };
}

static bool find_stretches(const lists *l, cgr__difference *d) {
  int32_t old = 0, now = 0;
  for (;;) {
    int32_t same = common_words(l->old + old, l->now + now, min_of(l->num_old - old, l->num_now - now));
    old += same;
    now += same;
    if (old == l->num_old && now == l->num_now)
      return true;
    cgr__stretch s = next_stretch(l, old, now);
    int64_t more = (int64_t)(s.old_end - s.old_first) + (s.end - s.first);
    if (d->num_stretches == CGR__MAX_STRETCHES || more > d->left)
      return false;
    d->left -= (int32_t)more;
    bool ends = s.old_end == l->num_old && s.end == l->num_now;
    d->moves |= !ends && s.old_end - s.old_first != s.end - s.first;
    d->stretch[d->num_stretches++] = s;
    old = s.old_end;
    now = s.end;
  }
}

/* ------------------------------------------------------------------------------------------------------------------- work */

/* One word for each request, of the old batch and of the new one. `now` NULL: each is `word`. */
typedef struct work {
  const void *old, *now;
  int32_t word;
  bool same; /* it is known to be: all of the old batch is `word`, and so is the new one */
} work;

static int32_t same_work(const work *w, int32_t old, int32_t now, int32_t count) {
  if (w->same)
    return count;
  const int32_t *before = (const int32_t *)w->old + old;
  return w->now ? common_words(before, (const int32_t *)w->now + now, count) : common_word(before, w->word, count);
}

/* In rows that are the same from these places on. */
static bool find_updates(const work *lens, const work *flags, int32_t old, int32_t now, int32_t count, cgr__difference *d) {
  for (int32_t at = 0;;) {
    at += min_of(same_work(lens, old + at, now + at, count - at), same_work(flags, old + at, now + at, count - at));
    if (at == count)
      return true;
    if (d->left-- == 0)
      return false;
    d->update[d->num_updates++] = now + at++;
  }
}

bool cgr__find_difference(const cgr__batch_layout *old, const cgr_batch *batch, cgr__difference *d) {
  const lists l = { old->rows, batch->rows, old->num_requests, batch->num_requests };
  const work lens = { old->query_lens, batch->query_lens, 1, !batch->query_lens && old->query_len == 1 };
  const work flags = { old->flags, batch->flags, 0, !batch->flags && old->num_partial == 0 };
  int32_t before = 0, now = 0;
  d->num_stretches = d->num_updates = 0;
  d->left = cgr__few_of(l.num_now);
  d->moves = false;
  if (!find_stretches(&l, d))
    return false;
  for (int32_t i = 0; !(lens.same && flags.same) && i <= d->num_stretches; i++) {
    const cgr__stretch end = { l.num_old, l.num_old, l.num_now, l.num_now };
    const cgr__stretch *s = i < d->num_stretches ? &d->stretch[i] : &end;
    if (!find_updates(&lens, &flags, before, now, s->first - now, d))
      return false;
    before = s->old_end;
    now = s->end;
  }
  return true;
}
