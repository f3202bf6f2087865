#include "tracing/statistics.h"

#include <string.h>

#include "tracing/histogram.h"

_Static_assert(sizeof(cgr__flight_entry) == CGR__CACHE_LINE_BYTES, "a record is a cache line");
_Static_assert(sizeof(cgr__flight) == CGR__CACHE_LINE_BYTES / 2, "the recorder shares the runtime's first line");
_Static_assert(CGR__MIN_FLIGHT_DEPTH % CGR__FOLD_EVERY == 0, "records are folded before they are overwritten");
_Static_assert((int)CGR_REASON_COUNT_ <= 16, "reasons have room");
_Static_assert(CGR__MAX_REQUESTS <= UINT16_MAX, "counts of requests have room");
_Static_assert((int)CGR_REASON_COUNT_ <= CGR__NO_REASON, "a record's byte has room for every reason");
_Static_assert((int)CGR_KIND_FULL <= UINT8_MAX && (int)CGR_FLIGHT_INTERNAL <= UINT8_MAX, "and for every kind and outcome");
#define FITS(name, number, text) _Static_assert((number) >= 0 && (number) <= UINT8_MAX, "and for " #name);
CGR_STATUS_LIST(FITS)
#undef FITS

size_t cgr__statistics_bytes(int32_t num_keys) {
  size_t bytes = ((size_t)num_keys + 1) * sizeof(cgr__key_sums);
  return (bytes + CGR__CACHE_LINE_BYTES - 1) / CGR__CACHE_LINE_BYTES * CGR__CACHE_LINE_BYTES;
}

/* The sums are written here, so that no step is the first to touch their pages. */
void cgr__statistics_init(cgr__statistics *statistics, int32_t num_keys, void *memory) {
  memset(memory, 0, cgr__statistics_bytes(num_keys));
  statistics->key = memory;
  cgr__tick_clock_begin(&statistics->clock);
}

static void add_launched(cgr__statistics *s, const cgr__flight_entry *e) {
  cgr__key_sums *key = &s->key[e->kind == CGR_KIND_NONE ? 0 : 1 + e->key];
  s->sums.steps++;
  s->sums.by_reason[e->kind][e->reason]++;
  s->sums.bytes_staged += e->bytes_staged;
  key->reasons[e->reason]++;
  key->bytes_staged += e->bytes_staged;
  if (e->outcome == CGR_FLIGHT_INTERNAL)
    return;
  if (e->prepare_ticks > 0) {
    cgr__histogram_add(&key->prepare, cgr__tick_clock_ns(&s->clock, e->prepare_ticks));
    cgr__histogram_add(&key->launch, cgr__tick_clock_ns(&s->clock, e->launch_ticks));
  }
  if (e->num_requests == 0)
    return;
  s->sums.real_tokens += (uint64_t)e->num_tokens;
  s->sums.padded_tokens += (uint64_t)e->padded_tokens;
  key->real_requests += e->num_requests;
  key->padded_requests += e->padded_requests;
  key->real_tokens += (uint64_t)e->num_tokens;
  key->padded_tokens += (uint64_t)e->padded_tokens;
}

static void add_record(cgr__statistics *s, const cgr__flight_entry *e) {
  switch (e->outcome) {
  case CGR_FLIGHT_CANCELLED:
    s->sums.cancelled++;
    break;
  case CGR_FLIGHT_ABANDONED:
    s->sums.abandoned += e->reason != CGR_REASON_INTERNAL;
    break;
  case CGR_FLIGHT_REFUSED:
    s->sums.refused += 1 + e->repeats;
    break;
  default:
    add_launched(s, e);
  }
}

void cgr__statistics_fold_some(cgr__statistics *statistics, const cgr__flight *flight, uint64_t most) {
  uint64_t left = flight->count - statistics->folded, end = statistics->folded + (left < most ? left : most);
  cgr__tick_clock_sync(&statistics->clock);
  for (; statistics->folded < end; statistics->folded++)
    add_record(statistics, cgr__flight_at(flight, statistics->folded));
}

void cgr__statistics_fold(cgr__statistics *statistics, const cgr__flight *flight) {
  cgr__statistics_fold_some(statistics, flight, UINT64_MAX);
}

void cgr__statistics_of_key(const cgr__statistics *statistics, int32_t key, bool with_times, cgr_key_stats *stats) {
  const cgr__key_sums *sums = &statistics->key[1 + key];
  for (int i = 0; i < CGR_REASON_COUNT_; i++)
    stats->steps += sums->reasons[i];
  memcpy(stats->reasons, sums->reasons, sizeof stats->reasons);
  stats->real_requests = sums->real_requests;
  stats->padded_requests = sums->padded_requests;
  stats->real_tokens = sums->real_tokens;
  stats->padded_tokens = sums->padded_tokens;
  stats->bytes_staged = sums->bytes_staged;
  if (!with_times)
    return;
  stats->prepare = sums->prepare;
  stats->launch = sums->launch;
}
