/* Words become findings. Cold. */
#include "graphs/audit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"

void cgr__audit_free(cgr__audit *audit) { free(audit->reported); }

/* --------------------------------------------------------------------------------------------------------------- telling */

/* What a finding is about. */
typedef struct subject {
  enum { ALLOCATION, REGION, PLACE } kind;
  uint64_t what, where;
} subject;

static subject of_allocation(const void *base) { return (subject){ ALLOCATION, (uintptr_t)base, 0 }; }

static subject of_region(const cgr__audit *audit, int32_t region) {
  return (subject){ REGION, (uint64_t)region, (uint64_t)audit->counts.num_graphs };
}

static subject of_place(const cgr__node_args *args, const cgr__node_arg *arg) {
  return (subject){ PLACE, args->node[arg->node].id, (uint64_t)arg->param << 32 | (uint32_t)arg->offset };
}

/* Whether it is reported for the first time. */
static bool is_new(cgr__audit *audit, subject s) {
  const uint64_t fields[] = { (uint64_t)s.kind, s.what, s.where };
  uint64_t hash = cgr__hash(CGR__HASH_BEGIN, fields, sizeof fields);
  for (int64_t i = 0; i < audit->num_reported; i++)
    if (audit->reported[i] == hash)
      return false;
  void *reported = audit->reported;
  if (!cgr__reserve(&reported, &audit->reported_capacity, audit->num_reported, sizeof *audit->reported))
    return true;
  audit->reported = reported;
  audit->reported[audit->num_reported++] = hash;
  return true;
}

static void report_arg(cgr__audit *audit, const cgr__node_args *args, const cgr__node_arg *arg, const char *format, ...)
    CGR__FORMAT(4, 5);

static void report_arg(cgr__audit *audit, const cgr__node_args *args, const cgr__node_arg *arg, const char *format, ...) {
  char place[32], text[128];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (arg->param < 0)
    snprintf(place, sizeof place, "its launch");
  else
    snprintf(place, sizeof place, "parameter %d", arg->param);
  cgr__findings_add(&audit->findings, CGR_ERROR_AUDIT, audit->key, "node %d (%.60s), %s, byte %d: %s", arg->node,
                    args->node[arg->node].name, place, arg->offset, text);
}

/* ------------------------------------------------------------------------------------------------------------- addresses */

/* What a word is. */
typedef enum word_kind { WORD_NUMBER, WORD_HELD, WORD_UNHELD, WORD_OUTSIDE } word_kind;

typedef struct found {
  word_kind kind;
  int32_t region;   /* HELD, UNHELD */
  const void *base; /* OUTSIDE: of the allocation */
  size_t bytes;
} found;

/* A region that contains the address and that the graph holds is preferred to others. */
static int look_up_address(const cgr__audit *audit, const cgr__held *held, uint64_t value, found *f) {
  const cgr__regions *regions = audit->graphs->regions;
  *f = (found){ WORD_NUMBER, -1, NULL, 0 };
  if (value < CGR__FIRST_ADDRESS)
    return 0;
  for (int32_t i = 0; i < regions->count; i++) {
    if (value - (uintptr_t)regions->region[i].base >= regions->region[i].bytes)
      continue;
    f->region = i;
    f->kind = i < regions->first_movable || cgr__holds(held, i) ? WORD_HELD : WORD_UNHELD;
    if (f->kind == WORD_HELD)
      return 0;
  }
  if (f->kind == WORD_UNHELD)
    return 0;
  int error = audit->graphs->dev->ops->mem_find(audit->graphs->dev, (const void *)(uintptr_t)value, &f->base, &f->bytes);
  if (!error && f->base)
    f->kind = WORD_OUTSIDE;
  return error;
}

static int check_address(cgr__audit *audit, const cgr__node_args *args, const cgr__node_arg *arg, found *f) {
  int error = look_up_address(audit, &args->held, arg->value, f);
  if (f->kind == WORD_OUTSIDE && is_new(audit, of_allocation(f->base)))
    report_arg(audit, args, arg, "%#llx is in no region (cgr_region_register), in %zu bytes from %p on",
               (unsigned long long)arg->value, f->bytes, f->base);
  if (f->kind == WORD_UNHELD && is_new(audit, of_region(audit, f->region)))
    report_arg(audit, args, arg, "%#llx is in region %d, which the graph's `record` has not named",
               (unsigned long long)arg->value, f->region);
  return error;
}

/* ----------------------------------------------------------------------------------------------------------- differences */

static void tell_half(cgr__audit *audit, const cgr__node_args *args, const cgr__node_arg *x, const cgr__node_arg *y, int shift) {
  cgr__node_arg half = *x;
  uint32_t was = (uint32_t)(x->value >> shift), is = (uint32_t)(y->value >> shift);
  half.offset += shift / 8;
  if (was != is && is_new(audit, of_place(args, &half)))
    report_arg(audit, args, &half, "%#x in one capture, %#x in the next: a value of the host's, or a hole in a struct", was, is);
}

/* Numbers are compared by halves; addresses may differ within one region, because a pool may give others. */
static void tell_difference(cgr__audit *audit, const cgr__node_args *args, const cgr__node_arg *x, const found *was,
                            const cgr__node_arg *y, const found *is) {
  if (was->kind == WORD_NUMBER && is->kind == WORD_NUMBER) {
    tell_half(audit, args, x, y, 0);
    tell_half(audit, args, x, y, 32);
  } else if ((was->kind == WORD_NUMBER || is->kind == WORD_NUMBER || was->region != is->region) &&
             is_new(audit, of_place(args, x))) {
    report_arg(audit, args, x, "%#llx in one capture, %#llx in the next, which is elsewhere", (unsigned long long)x->value,
               (unsigned long long)y->value);
  }
}

static void tell_other_nodes(cgr__audit *audit, const cgr__node_args *a, const cgr__node_args *b) {
  cgr__findings_add(&audit->findings, CGR_ERROR_AUDIT, audit->key,
                    "record enqueued other work the second time: %d node%s with %lld word%s of parameters, then %d with %lld",
                    a->num_nodes, cgr__plural(a->num_nodes), (long long)a->count, cgr__plural(a->count), b->num_nodes,
                    (long long)b->count);
}

int cgr__audit_node_args(cgr__audit *audit, const cgr__node_args *first, const cgr__node_args *second) {
  bool same = first->shape == second->shape && first->count == second->count;
  int error = 0;
  for (int64_t i = 0; i < first->count && !error; i++) {
    const cgr__node_arg *x = &first->arg[i], *y = same ? &second->arg[i] : x;
    found was, is;
    error = check_address(audit, first, x, &was);
    audit->counts.num_addresses += was.kind != WORD_NUMBER;
    if (error || x->value == y->value)
      continue;
    error = check_address(audit, second, y, &is);
    if (!error)
      tell_difference(audit, first, x, &was, y, &is);
  }
  for (int64_t i = 0; i < second->count && !error && !same; i++) {
    found f;
    error = check_address(audit, second, &second->arg[i], &f);
  }
  if (!same)
    tell_other_nodes(audit, first, second);
  audit->counts.num_graphs++;
  audit->counts.num_nodes += first->num_nodes;
  audit->counts.num_hidden += first->num_hidden;
  return error;
}
