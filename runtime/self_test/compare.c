/* Differences of runs, as findings. */
#include <stdio.h>
#include <string.h>

#include "runtime/self_test/self_test.h"

/* One element as text. */
static void print(char *text, size_t size, const cgr__test_item *item, const unsigned char *row, int64_t byte) {
  int32_t narrow;
  int64_t wide;
  if (item->dtype == CGR_DTYPE_I64) {
    memcpy(&wide, row + byte / 8 * 8, sizeof wide);
    snprintf(text, size, "%lld", (long long)wide);
  } else if (item->dtype == CGR_DTYPE_I32) {
    memcpy(&narrow, row + byte / 4 * 4, sizeof narrow);
    snprintf(text, size, "%d", narrow);
  } else {
    snprintf(text, size, "0x%02x", row[byte]);
  }
}

static void tell(cgr__self_test *t, const cgr__test_item *item, int32_t row, int64_t byte, const unsigned char *a,
                 const unsigned char *b, const char *in_a, const char *in_b) {
  char x[24], y[24];
  size_t size = cgr_dtype_size(item->dtype);
  print(x, sizeof x, item, a, byte);
  print(y, sizeof y, item, b, byte);
  cgr__findings_add(&t->findings, CGR_ERROR_SELF_TEST, cgr__key_name(&t->test_case.key).text, "%.31s[%d][%lld] is %s %s, %s %s", item->name, row,
                    (long long)(size > 0 ? byte / (int64_t)size : byte), x, in_a, y, in_b);
}

/* The first row in which an item differs; -1: none. */
static int32_t compare_item(const cgr__test_case *c, const cgr__test_item *item, const unsigned char *a, const unsigned char *b) {
  for (int32_t i = 0; i < item->rows; i++)
    if (!(item->by_request && c->lens[i] == 0) &&
        memcmp(a + i * item->stride, b + i * item->stride, (size_t)item->row_bytes) != 0)
      return i;
  return -1;
}

/* Pages that requests own, in each cache. */
static int32_t compare_pages(cgr__self_test *t, const cgr__test_run *a, const cgr__test_run *b, const char *in_a,
                             const char *in_b) {
  for (int32_t k = 0; k < 2 * t->num_caches; k++) {
    int32_t layer = t->caches[k / 2], group = t->rt->setup.layers[layer].group;
    for (int32_t p = 0; p < t->test_case.owned[group]; p++) {
      int64_t at = (int64_t)k * cgr__test_pages(t) + p;
      if (a->digests[at] == b->digests[at])
        continue;
      t->findings.layer = layer;
      t->findings.group = group;
      cgr__findings_add(&t->findings, CGR_ERROR_SELF_TEST, cgr__key_name(&t->test_case.key).text, "page %d, which a request owns, has other %s %s than %s",
                        t->given.pages[(int64_t)group * t->given.num_pages + p], k % 2 ? "values" : "keys", in_a, in_b);
      t->findings.layer = t->findings.group = -1;
      return 1;
    }
  }
  return 0;
}

int32_t cgr__test_compare(cgr__self_test *t, const cgr__test_run *a, const cgr__test_run *b, const char *in_a, const char *in_b) {
  const cgr__test_case *c = &t->test_case;
  int32_t count = compare_pages(t, a, b, in_a, in_b);
  for (int32_t i = 0; i < c->num_items; i++) {
    const cgr__test_item *item = &c->items[i];
    const unsigned char *x = a->content + item->offset, *y = b->content + item->offset;
    int32_t row = compare_item(c, item, x, y);
    if (row < 0)
      continue;
    int64_t byte = 0;
    x += row * item->stride;
    y += row * item->stride;
    while (x[byte] == y[byte])
      byte++;
    tell(t, item, row, byte, x, y, in_a, in_b);
    count++;
  }
  return count;
}

bool cgr__test_check_pages(cgr__self_test *t, int index) {
  const cgr__test_run *run = &t->runs[index];
  for (int32_t k = 0; k < 2 * t->num_caches; k++) {
    int32_t layer = t->caches[k / 2], group = t->rt->setup.layers[layer].group;
    for (int32_t p = t->test_case.owned[group]; p < cgr__test_pages(t); p++) {
      int64_t at = (int64_t)k * cgr__test_pages(t) + p;
      if (run->digests[at] == t->before[index][at])
        continue;
      bool trash = p == t->given.num_pages;
      t->findings.layer = layer;
      t->findings.group = group;
      cgr__findings_add(&t->findings, CGR_ERROR_SELF_TEST, cgr__key_name(&t->test_case.key).text, "page %d was written (%s), %s",
                        trash ? t->rt->setup.groups[group].read_trash_page
                              : t->given.pages[(int64_t)group * t->given.num_pages + p],
                        k % 2 ? "values" : "keys", trash ? "the read-trash page" : "which no request owns");
      t->findings.layer = t->findings.group = -1;
      return false;
    }
  }
  return true;
}
