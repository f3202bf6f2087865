#include "graphs/audit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define FIRST_ADDRESS 4096 /* nothing is ever mapped below */

/* What is kept by value between two pieces. */
static int add_breaks(cgr__words *words, const cgr__graph_entry *entry) {
  int error = 0;
  for (const cgr__break *b = entry->breaks; b && !error; b = b->next) {
    cgr__node_param param = { .name = b->kernel ? b->kernel->name : "call", .data = b->args, .bytes = b->args_size };
    words->first_node = words->num_nodes;
    error = cgr__words_add(words, &param);
  }
  return error;
}

cgr_status cgr__words_capture(cgr__graphs *graphs, const cgr_key *key, cudaStream_t stream, cgr__capture_body body, void *context,
                              cgr__words *words, int *device_error) {
  cgr__graph_entry scratch = { .key = *key };
  cgr__open_capture c = { .graphs = graphs, .entry = &scratch, .stream = stream, .words = words };
  cgr__words_empty(words);
  cgr_status status = cgr__capture_pieces(&c, body, context, device_error);
  if (status == CGR_OK && add_breaks(words, &scratch) != 0)
    status = cgr__fail(CGR_ERROR_OUT_OF_MEMORY, "cgr_runtime_audit: no memory for what a graph holds");
  words->held = c.held;
  cgr__graph_drop(graphs, &scratch);
  return status;
}

/* -------------------------------------------------------------------------------------------------------------- findings */

void cgr__audit_free(cgr__audit *audit) { free(audit->told); }

/* Whether this is told for the first time. */
static bool is_new(cgr__audit *audit, uint64_t what) {
  for (int64_t i = 0; i < audit->num_told; i++)
    if (audit->told[i] == what)
      return false;
  void *told = audit->told;
  if (!cgr__reserve(&told, &audit->told_capacity, audit->num_told, sizeof *audit->told))
    return true;
  audit->told = told;
  audit->told[audit->num_told++] = what;
  return true;
}

static void tell(cgr__audit *audit, const cgr__words *words, const cgr__word *word, const char *format, ...) CGR__FORMAT(4, 5);

static void tell(cgr__audit *audit, const cgr__words *words, const cgr__word *word, const char *format, ...) {
  char text[128];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  cgr__findings_add(&audit->findings, CGR_ERROR_AUDIT, audit->key, "node %d (%s), parameter %d, byte %d: %s", word->node,
                    words->names[word->node].text, word->param, word->offset, text);
}

/* What a word is. */
typedef enum word_kind { WORD_NUMBER, WORD_HELD, WORD_UNHELD, WORD_OUTSIDE } word_kind;

typedef struct found {
  word_kind kind;
  int32_t region;   /* UNHELD */
  const void *base; /* OUTSIDE: of the allocation */
  size_t bytes;
} found;

/* A region that holds the address and that the graph holds comes before others. */
static int look_up(const cgr__audit *audit, const cgr__held *held, uint64_t value, found *f) {
  const cgr__regions *regions = audit->graphs->regions;
  *f = (found){ WORD_NUMBER, -1, NULL, 0 };
  for (int32_t i = 0; i < regions->count; i++) {
    if (value - (uintptr_t)regions->region[i].base >= regions->region[i].bytes)
      continue;
    f->region = i;
    f->kind = i < regions->first_movable || cgr__holds(held, i) ? WORD_HELD : WORD_UNHELD;
    if (f->kind == WORD_HELD)
      return 0;
  }
  if (f->kind == WORD_UNHELD || value < FIRST_ADDRESS)
    return 0;
  int error = audit->graphs->dev->ops->mem_find(audit->graphs->dev, (const void *)(uintptr_t)value, &f->base, &f->bytes);
  if (!error && f->base)
    f->kind = WORD_OUTSIDE;
  return error;
}

static int64_t index_of(const cgr__audit *audit) { return audit->counts.num_graphs; }

static int check_address(cgr__audit *audit, const cgr__words *words, const cgr__word *word, bool *is_address) {
  found f;
  int error = look_up(audit, &words->held, word->value, &f);
  *is_address = f.kind != WORD_NUMBER;
  if (f.kind == WORD_OUTSIDE && is_new(audit, (uintptr_t)f.base))
    tell(audit, words, word, "%#llx lies in no region, in %zu bytes from %p on", (unsigned long long)word->value, f.bytes,
         f.base);
  if (f.kind == WORD_UNHELD && is_new(audit, ((uint64_t)index_of(audit) << 32 | (uint64_t)f.region) * 8 + 1))
    tell(audit, words, word, "%#llx lies in region %d, which the graph's `record` has not named", (unsigned long long)word->value,
         f.region);
  return error;
}

/* The same parameter of kernels of one name counts once, whatever the graph. */
static uint64_t place_of(const cgr__words *words, const cgr__word *word) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char *c = words->names[word->node].text; *c; c++)
    hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
  return ((hash ^ (uint64_t)(uint32_t)word->param << 20 ^ (uint64_t)(uint32_t)word->offset) * 0x100000001b3u) << 3 | 2;
}

static bool is_same_place(const cgr__words *a, const cgr__word *x, const cgr__words *b, const cgr__word *y) {
  return x->node == y->node && x->param == y->param && x->offset == y->offset &&
         strcmp(a->names[x->node].text, b->names[y->node].text) == 0;
}

/* By halves, for an engine whose struct has a hole there. */
static void tell_difference(cgr__audit *audit, const cgr__words *words, const cgr__word *x, const cgr__word *y) {
  cgr__word half = *x;
  bool second = (uint32_t)x->value == (uint32_t)y->value;
  if (second)
    half.offset += 4;
  tell(audit, words, &half, "%#x in one capture, %#x in the next", (uint32_t)(x->value >> (second ? 32 : 0)),
       (uint32_t)(y->value >> (second ? 32 : 0)));
}

static void tell_other_nodes(cgr__audit *audit, const cgr__words *a, const cgr__words *b) {
  cgr__findings_add(&audit->findings, CGR_ERROR_AUDIT, audit->key,
                    "record enqueued other work the second time: %d nodes with %lld words of parameters, then %d with %lld",
                    a->num_nodes, (long long)a->count, b->num_nodes, (long long)b->count);
}

cgr_status cgr__audit_words(cgr__audit *audit, const cgr__words *first, const cgr__words *second, int *device_error) {
  bool comparable = first->num_nodes == second->num_nodes && first->count == second->count;
  *device_error = 0;
  for (int64_t i = 0; i < first->count && !*device_error; i++) {
    const cgr__word *x = &first->word[i], *y = comparable ? &second->word[i] : x;
    bool was_address = false, is_address = false;
    *device_error = check_address(audit, first, x, &was_address);
    audit->counts.num_addresses += was_address;
    if (*device_error || !comparable || x->value == y->value)
      continue;
    comparable = is_same_place(first, x, second, y);
    if (!comparable)
      continue;
    *device_error = check_address(audit, second, y, &is_address);
    if (!*device_error && !(was_address && is_address) && is_new(audit, place_of(first, x)))
      tell_difference(audit, first, x, y);
  }
  if (!comparable)
    tell_other_nodes(audit, first, second);
  audit->counts.num_graphs++;
  audit->counts.num_nodes += first->num_nodes;
  audit->counts.num_hidden += first->num_hidden;
  return *device_error ? CGR_ERROR_DEVICE : CGR_OK;
}
