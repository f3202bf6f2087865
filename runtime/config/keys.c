/* Reads what is captured: the mode, query lengths, and sizes of uniform and mixed steps. */
#include <stdio.h>
#include <string.h>

#include "runtime/config/config.h"

/* A list that was given and can be used. */
static bool has_list(cgr__findings *f, const char *count_name, const char *name, int32_t count, int32_t most, const void *list) {
  return cgr__check_list(f, count_name, name, count, most, list) && count > 0;
}

/* Numbers that ascend from 1 to `largest`, which `why` names. */
static void read_ascending(cgr__findings *f, const char *name, const int32_t *values, int32_t count, int32_t largest,
                           const char *why, int32_t *copy) {
  for (int32_t i = 0; i < count; i++) {
    cgr__field field = cgr__field_of(name, i, "");
    if (cgr__in_range_why(f, field.name, values[i], 1, largest, why) && i > 0 && values[i] <= values[i - 1])
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is %d, expected more than the one before, %d", values[i],
                        values[i - 1]);
    copy[i] = values[i];
  }
}

static void read_decode(cgr__setup *setup, int32_t max_requests, cgr__findings *f) {
  cgr_config *c = &setup->config;
  cgr__key_lists *keys = &setup->keys;
  if (has_list(f, "num_decode_buckets", "decode_buckets", c->num_decode_buckets, CGR__MAX_BUCKETS, c->decode_buckets)) {
    read_ascending(f, "decode_buckets", c->decode_buckets, c->num_decode_buckets, max_requests, "at most max_requests",
                   keys->decode);
    keys->num_decode = c->num_decode_buckets;
  }
  if (c->num_decode_buckets != 0)
    return;
  if (c->max_decode_bucket == 0)
    c->max_decode_bucket = max_requests;
  if (cgr__in_range_why(f, "max_decode_bucket", c->max_decode_bucket, 1, max_requests, "at most max_requests"))
    keys->num_decode = cgr__buckets_default(c->max_decode_bucket, keys->decode);
  keys->decode_complete = true;
}

static void read_query_lens(cgr__setup *setup, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  cgr__key_lists *keys = &setup->keys;
  keys->num_query_lens = keys->query_lens[0] = 1;
  if (setup->limits.token_stride > 1 && setup->limits.token_stride <= c->max_tokens)
    keys->query_lens[keys->num_query_lens++] = setup->limits.token_stride;
  if (!has_list(f, "num_query_lens", "query_lens", c->num_query_lens, CGR__MAX_QUERY_LENS, c->query_lens))
    return;
  read_ascending(f, "query_lens", c->query_lens, c->num_query_lens, c->max_tokens, "at most max_tokens", keys->query_lens);
  keys->num_query_lens = c->num_query_lens;
}

/* FULL graphs of attention that can do single tokens alone have that length; longer queries are mixed steps. */
static void drop_lengths(cgr__setup *setup) {
  cgr__key_lists *keys = &setup->keys;
  if (setup->support != CGR_SUPPORT_UNIFORM_SINGLE_TOKEN_DECODE || keys->uniform_kind != CGR_KIND_FULL ||
      (keys->num_query_lens == 1 && keys->query_lens[0] == 1))
    return;
  size_t told = strlen(setup->mode_reason);
  snprintf(setup->mode_reason + told, sizeof setup->mode_reason - told,
           "%squery lengths above 1 have no FULL graphs, 1 has: the attention can do single tokens alone "
           "(CGR_SUPPORT_UNIFORM_SINGLE_TOKEN_DECODE)",
           told ? "; " : "");
  keys->num_query_lens = keys->query_lens[0] = 1;
}

static bool bucket_ascends(const cgr_bucket *b) {
  return b[0].num_tokens < b[1].num_tokens || (b[0].num_tokens == b[1].num_tokens && b[0].num_requests < b[1].num_requests);
}

static void read_pair(cgr__setup *setup, int32_t i, int32_t max_requests, cgr__findings *f) {
  const cgr_bucket *bucket = &setup->config.mixed_buckets[i];
  cgr__field tokens = cgr__field_of("mixed_buckets", i, "num_tokens"),
             requests = cgr__field_of("mixed_buckets", i, "num_requests");
  bool good = cgr__in_range_why(f, tokens.name, bucket->num_tokens, 1, setup->config.max_tokens, "at most max_tokens");
  good &= cgr__in_range_why(f, requests.name, bucket->num_requests, 1, max_requests, "at most max_requests");
  if (good && i > 0 && !bucket_ascends(bucket - 1))
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("mixed_buckets", i, "").name,
                      "is %d token%s and %d request%s, expected more than the one before, %d and %d", bucket->num_tokens,
                      cgr__plural(bucket->num_tokens), bucket->num_requests, cgr__plural(bucket->num_requests),
                      bucket[-1].num_tokens, bucket[-1].num_requests);
  setup->keys.mixed[i] = *bucket;
}

static void read_mixed(cgr__setup *setup, int32_t max_requests, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  cgr__key_lists *keys = &setup->keys;
  if (has_list(f, "num_mixed_buckets", "mixed_buckets", c->num_mixed_buckets, CGR__MAX_BUCKETS, c->mixed_buckets)) {
    for (int32_t i = 0; i < c->num_mixed_buckets; i++)
      read_pair(setup, i, max_requests, f);
    keys->num_mixed = c->num_mixed_buckets;
  }
  if (c->num_mixed_buckets == 0)
    keys->num_mixed = cgr__buckets_default_mixed(c->max_tokens, c->max_requests, keys->mixed);
}

static void check_supersets(const cgr_config *c, const cgr__key_lists *keys, cgr__findings *f) {
  for (int32_t i = 0; i < c->num_variants; i++) {
    cgr__field field = cgr__field_of("variants", i, "superset");
    const cgr_variant *at = &c->variants[i];
    int32_t steps = 0;
    if (at->superset != 0 && cgr__keys_find_variant(keys, at->superset) < 0) {
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is %u, expected 0 or the word of another variant",
                        at->superset);
      continue;
    }
    bool captured = at->captured != 0;
    int32_t superset = at->superset != 0 ? cgr__keys_find_variant(keys, at->superset) : -1;
    if (superset >= 0 && keys->variants[superset].length_set != at->length_set)
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is %u, of length set %d, expected one of %d as here",
                        at->superset, keys->variants[superset].length_set, at->length_set);
    while (at && at->superset != 0 && steps++ <= keys->num_variants) {
      int32_t next = cgr__keys_find_variant(keys, at->superset);
      at = next < 0 ? NULL : &keys->variants[next];
      captured |= !at || at->captured != 0;
    }
    if (steps > keys->num_variants)
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is %u, which leads back to %u, expected no circle",
                        c->variants[i].superset, c->variants[i].word);
    else if (!captured)
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("variants", i, "captured").name,
                        "is 0 for %u and for all that serve it, expected one of them to have graphs", c->variants[i].word);
  }
}

static void check_set_of_variant(const cgr__setup *setup, const cgr_variant *given, int32_t i, cgr__findings *f) {
  const cgr__field field = cgr__field_of("variants", i, "length_set");
  int32_t set = given->length_set;
  if (given->word == 0 && set != 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is %d, expected 0: steps of variant 0 are the sequences'", set);
  else
    cgr__read_length_set(setup, field.name, &set, f);
}

/* Variant 0 comes first. */
static void read_variants(cgr__setup *setup, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  cgr__key_lists *keys = &setup->keys;
  keys->num_variants = 1;
  keys->variants[0] = (cgr_variant){ 0, 0, 1, 0 };
  if (!has_list(f, "num_variants", "variants", c->num_variants, CGR__MAX_VARIANTS, c->variants)) {
    setup->config.num_variants = 0;
    return;
  }
  bool fits = true;
  for (int32_t i = 0; i < c->num_variants; i++) {
    const cgr_variant *given = &c->variants[i];
    check_set_of_variant(setup, given, i, f);
    cgr__in_range(f, cgr__field_of("variants", i, "captured").name, given->captured, 0, 1);
    for (int32_t j = 0; j < i; j++)
      if (c->variants[j].word == given->word)
        cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("variants", i, "word").name,
                          "is %u, which variants[%d] has already, expected each word once", given->word, j);
    if (given->word == 0)
      keys->variants[0] = *given;
    else if (keys->num_variants < CGR__MAX_VARIANTS)
      keys->variants[keys->num_variants++] = *given;
    else
      fits = false;
  }
  if (fits)
    check_supersets(c, keys, f);
  else
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, "num_variants", "is %d without variant 0, expected at most %d",
                      c->num_variants, CGR__MAX_VARIANTS - 1);
}

static void read_max_padding(cgr_config *c, cgr__findings *f) {
  if (c->max_padding == 0)
    c->max_padding = 2;
  if (!(c->max_padding >= 1 && c->max_padding <= CGR__MAX_TOKENS))
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, "max_padding", "is %g, expected 1 .. %d, or 0 for 2", (double)c->max_padding,
                      CGR__MAX_TOKENS);
}

void cgr__setup_keys(cgr__setup *setup, int32_t max_requests, cgr__findings *f) {
  cgr_config *c = &setup->config;
  cgr__setup_support(setup);
  setup->keys.limits = &setup->limits;
  setup->keys.uniform_kind = cgr__mode_uniform_kind(setup->mode);
  setup->keys.mixed_kind = cgr__mode_mixed_kind(setup->mode);
  read_max_padding(c, f);
  read_decode(setup, max_requests, f);
  read_query_lens(setup, f);
  drop_lengths(setup);
  read_mixed(setup, max_requests, f);
  read_variants(setup, f);
  setup->keys.num_programs = c->num_programs;
}
