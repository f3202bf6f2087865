/* Makes the entries and tables of the keys. Cold. */
#include "graphs/graphs.h"

_Static_assert(sizeof(cgr__graph_entry) % CGR__CACHE_LINE_BYTES == 0, "entries are whole cache lines");
_Static_assert(offsetof(cgr__graph_entry, key) == CGR__CACHE_LINE_BYTES, "a replay touches one cache line of its entry");

#define MAX_BLOCKS 4096

/* The sections of the block of memory, by size. */
typedef struct lengths {
  size_t entries, tokens, of_requests, of_block, smallest;
} lengths;

static int32_t field_of(const cgr_bucket *bucket, bool tokens) { return tokens ? bucket->num_tokens : bucket->num_requests; }

/* The numbers of tokens or requests that there are in the pairs, ascending. Returns how many. */
static int32_t make_levels(const cgr__key_lists *lists, bool tokens, int32_t levels[CGR__MAX_BUCKETS]) {
  int32_t count = 0;
  for (int32_t i = 0; i < lists->num_mixed; i++) {
    int32_t value = field_of(&lists->mixed[i], tokens), at = count;
    while (at > 0 && levels[at - 1] > value)
      at--;
    if (at > 0 && levels[at - 1] == value)
      continue;
    for (int32_t k = count++; k > at; k--)
      levels[k] = levels[k - 1];
    levels[at] = value;
  }
  return count;
}

static bool has_uniform(const cgr__key_lists *lists) { return lists->uniform_kind != CGR_KIND_NONE; }
static bool has_mixed(const cgr__key_lists *lists) { return lists->mixed_kind != CGR_KIND_NONE && lists->num_mixed > 0; }

/* The sizes of a query length: those whose tokens a step can have. Returns how many. */
static int32_t make_sizes(const cgr__key_lists *lists, int32_t query_len, int32_t sizes[CGR__MAX_BUCKETS]) {
  int32_t count = 0, most = lists->limits->max_tokens / query_len;
  for (; count < lists->num_decode && lists->decode[count] <= most; count++)
    sizes[count] = lists->decode[count];
  if (lists->decode_complete && count < lists->num_decode && most > (count > 0 ? sizes[count - 1] : 0))
    sizes[count++] = most;
  return count;
}

static int32_t block_shift(int32_t most) {
  int32_t shift = 0;
  while (most >> shift >= MAX_BLOCKS)
    shift++;
  return shift;
}

static size_t rounded_to_16(size_t bytes) { return (bytes + 15) / 16 * 16; }

/* Stretches of entries: of the first program's variants, and of the other programs. */
static int32_t num_captured(const cgr__key_lists *lists) {
  int32_t count = lists->num_programs > 1 ? lists->num_programs - 1 : 0;
  for (int32_t i = 0; i < lists->num_variants; i++)
    count += lists->variants[i].captured != 0;
  return count;
}

static lengths measure_lists(const cgr__key_lists *lists) {
  int32_t levels[CGR__MAX_BUCKETS];
  size_t entries = 0, tables = 0, requests = (size_t)lists->limits->max_requests + 1;
  lengths p = { 0, 0, 0, 0, 0 };
  for (int32_t i = 0; has_uniform(lists) && i < lists->num_query_lens; i++, tables++)
    entries += (size_t)make_sizes(lists, lists->query_lens[i], levels);
  if (has_mixed(lists)) {
    int32_t token_levels = make_levels(lists, true, levels), most = levels[token_levels - 1];
    size_t request_levels = (size_t)make_levels(lists, false, levels);
    entries += (size_t)lists->num_mixed;
    tables++;
    p.tokens = rounded_to_16((size_t)token_levels * sizeof(int32_t));
    p.of_block = rounded_to_16(((size_t)(most >> block_shift(most)) + 1) * sizeof(int16_t));
    p.smallest = rounded_to_16((size_t)token_levels * request_levels * sizeof(int16_t));
  }
  p.entries = rounded_to_16(entries * (size_t)num_captured(lists) * sizeof(cgr__graph_entry));
  p.of_requests = rounded_to_16(tables * requests * sizeof(int16_t));
  return p;
}

size_t cgr__keys_bytes(const cgr__key_lists *lists) {
  lengths p = measure_lists(lists);
  return p.entries + p.tokens + p.of_requests + p.of_block + p.smallest;
}

int32_t cgr__keys_count(const cgr__key_lists *lists) {
  return (int32_t)(measure_lists(lists).entries / sizeof(cgr__graph_entry));
}

/* An entry of the first variant that is captured; the others' follow from it. */
static void add_entry(cgr__graphs *graphs, int32_t kind, int32_t num_tokens, int32_t num_requests, int32_t query_len) {
  cgr_key key = CGR_KEY_INIT;
  key.kind = kind;
  key.num_tokens = num_tokens;
  key.num_requests = num_requests;
  key.query_len = query_len;
  graphs->entry[graphs->count++].key = key;
}

int32_t cgr__keys_find_variant(const cgr__key_lists *lists, uint32_t word) {
  for (int32_t i = 0; i < lists->num_variants; i++)
    if (lists->variants[i].word == word)
      return i;
  return -1;
}

/* The n-th stretch of entries. */
static void make_entries(cgr__graphs *graphs, cgr__step_variant *variant, int32_t each, int32_t n) {
  variant->base = each * n;
  for (int32_t i = 0; i < each; i++) {
    cgr_key key = graphs->entry[i].key;
    key.program = variant->program;
    key.variant = variant->word;
    graphs->entry[variant->base + i].key = key;
  }
}

static void make_variants(cgr__graphs *graphs, const cgr__key_lists *lists) {
  int32_t each = graphs->count, captured = 0;
  graphs->num_variants = lists->num_variants;
  for (int32_t v = 0; v < lists->num_variants; v++) {
    const cgr_variant *given = &lists->variants[v];
    cgr__step_variant *variant = &graphs->variant[v];
    *variant = (cgr__step_variant){ given->word, 0, given->superset == 0 ? -1 : cgr__keys_find_variant(lists, given->superset),
                                    -1, given->length_set };
    if (given->captured)
      make_entries(graphs, variant, each, captured++);
  }
  graphs->num_step_variants = graphs->num_variants;
  for (int32_t p = 1; p < lists->num_programs; p++) {
    cgr__step_variant *variant = &graphs->variant[graphs->num_step_variants++];
    *variant = (cgr__step_variant){ .program = p, .superset = -1 };
    make_entries(graphs, variant, each, captured++);
  }
  graphs->count = each * captured;
  for (int32_t i = 0; i < graphs->count; i++)
    graphs->entry[i].index = i;
}

/* table[n]: the first of the ascending sizes that reaches n. */
static void fill_table(int16_t *table, int32_t max, const int32_t *sizes, int32_t count) {
  int32_t index = 0;
  for (int32_t n = 0; n <= max; n++) {
    while (index < count && sizes[index] < n)
      index++;
    table[n] = (int16_t)(index < count ? index : -1);
  }
}

static void make_uniform(cgr__graphs *graphs, const cgr__key_lists *lists, int32_t query_len, int16_t *of_requests) {
  int32_t sizes[CGR__MAX_BUCKETS], count = make_sizes(lists, query_len, sizes);
  if (count == 0)
    return;
  graphs->uniform[graphs->num_uniform++] = (cgr__uniform_keys){ query_len, graphs->count, count, of_requests };
  for (int32_t i = 0; i < count; i++)
    add_entry(graphs, lists->uniform_kind, sizes[i] * query_len, sizes[i], query_len);
  fill_table(of_requests, lists->limits->max_requests, sizes, count);
}

/* Pairs ascend by tokens, so the first that reaches both levels has the fewest. */
static int16_t first_that_holds(const cgr__key_lists *lists, int32_t tokens, int32_t requests) {
  for (int32_t i = 0; i < lists->num_mixed; i++)
    if (lists->mixed[i].num_tokens >= tokens && lists->mixed[i].num_requests >= requests)
      return (int16_t)i;
  return -1;
}

/* `keys->tokens` and the tables have their memory. */
static void make_mixed(cgr__graphs *graphs, const cgr__key_lists *lists) {
  int32_t requests[CGR__MAX_BUCKETS];
  cgr__mixed_keys *keys = &graphs->mixed;
  keys->first = graphs->count;
  keys->count = lists->num_mixed;
  keys->num_token_levels = make_levels(lists, true, keys->tokens);
  keys->num_request_levels = make_levels(lists, false, requests);
  for (int32_t i = 0; i < keys->count; i++)
    add_entry(graphs, lists->mixed_kind, lists->mixed[i].num_tokens, lists->mixed[i].num_requests, 0);
  fill_table(keys->of_requests, lists->limits->max_requests, requests, keys->num_request_levels);
  int32_t most = keys->tokens[keys->num_token_levels - 1], level = 0;
  keys->shift = block_shift(most);
  for (int32_t block = 0; block <= most >> keys->shift; block++) {
    while (keys->tokens[level] < block << keys->shift)
      level++;
    keys->of_block[block] = (int16_t)level;
  }
  for (int32_t t = 0; t < keys->num_token_levels; t++)
    for (int32_t r = 0; r < keys->num_request_levels; r++)
      keys->smallest[t * keys->num_request_levels + r] = first_that_holds(lists, keys->tokens[t], requests[r]);
}

void cgr__keys_make(cgr__graphs *graphs, const cgr__key_lists *lists, void *memory) {
  lengths p = measure_lists(lists);
  unsigned char *at = memory;
  graphs->limits = lists->limits;
  graphs->entry = (cgr__graph_entry *)(void *)at;
  graphs->mixed.tokens = (int32_t *)(void *)(at += p.entries);
  graphs->mixed.of_block = (int16_t *)(void *)(at += p.tokens);
  graphs->mixed.smallest = (int16_t *)(void *)(at += p.of_block);
  int16_t *of_requests = (int16_t *)(void *)(at + p.smallest);
  for (int32_t i = 0; has_uniform(lists) && i < lists->num_query_lens; i++, of_requests += lists->limits->max_requests + 1)
    make_uniform(graphs, lists, lists->query_lens[i], of_requests);
  graphs->mixed.of_requests = of_requests;
  if (has_mixed(lists))
    make_mixed(graphs, lists);
  make_variants(graphs, lists);
}

cgr__program_keys cgr__graphs_of_program(const cgr__graphs *graphs, int32_t program) {
  const int32_t others = graphs->num_step_variants - graphs->num_variants;
  int32_t stretches = others;
  for (int32_t v = 0; v < graphs->num_variants; v++)
    stretches += graphs->variant[v].base >= 0;
  const int32_t each = stretches > 0 ? graphs->count / stretches : 0, first = each * (stretches - others);
  return program == 0 ? (cgr__program_keys){ 0, first } : (cgr__program_keys){ first + (program - 1) * each, each };
}
