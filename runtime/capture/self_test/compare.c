/* Differences of runs, as findings. */
#include <stdio.h>
#include <string.h>

#include "runtime/capture/self_test/self_test.h"

/* One element as text. */
static void print_element(char *text, size_t size, const cgr__test_item *item, const unsigned char *row, int64_t byte) {
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

static void report_difference(cgr__self_test *t, const cgr__test_item *item, int32_t row, int64_t byte, const unsigned char *a,
                              const unsigned char *b, const char *in_a, const char *in_b) {
  char x[24], y[24];
  size_t size = cgr_dtype_size(item->dtype);
  print_element(x, sizeof x, item, a, byte);
  print_element(y, sizeof y, item, b, byte);
  cgr__findings_add(&t->findings, CGR_ERROR_SELF_TEST, cgr__key_name(&t->test_case.key).text, "%.31s[%d][%lld]%s is %s %s, %s %s",
                    item->name, row, (long long)(size > 0 ? byte / (int64_t)size : byte),
                    item->of_next ? " of the next step" : "", x, in_a, y, in_b);
}

/* The first row in which an item differs; -1: none. */
static int32_t compare_item(const cgr__test_item *item, const cgr__test_run *in_a, const cgr__test_run *in_b) {
  const unsigned char *a = in_a->content + item->offset, *b = in_b->content + item->offset;
  if (item->of_next && !(in_a->has_next && in_b->has_next))
    return -1;
  for (int32_t i = 0; i < item->rows; i++)
    if (!(item->lens && item->lens[i] == 0) && memcmp(a + i * item->stride, b + i * item->stride, (size_t)item->row_bytes) != 0)
      return i;
  return -1;
}

static const char *tensor_name(int32_t tensor) {
  static const char *const names[CGR__TEST_TENSORS] = { "keys", "values", "factors of keys", "factors of values" };
  return names[tensor % CGR__TEST_TENSORS];
}

static int32_t test_page_at(const cgr__self_test *t, int32_t group, int32_t place) {
  return place == t->given.num_pages ? t->rt->setup.groups[group].read_trash_page
                                     : t->pages[(int64_t)group * t->given.num_pages + place];
}

/* The first of the pages that requests own, in all tensors, which differs, and its place; false: none. */
static bool find_page(const cgr__self_test *t, const cgr__test_run *a, const cgr__test_run *b, int32_t *tensor, int32_t *place) {
  for (int32_t k = 0; k < cgr__test_num_tensors(t); k++) {
    int32_t group = cgr__test_layer(t, k)->group;
    for (int32_t p = 0; p < t->test_case.of.owned[group] && cgr__test_has_tensor(t, k); p++) {
      *tensor = k;
      *place = cgr__test_place(t, &t->test_case.of, group, p);
      if (a->digests[(int64_t)k * cgr__test_num_pages(t) + *place] != b->digests[(int64_t)k * cgr__test_num_pages(t) + *place])
        return true;
    }
  }
  return false;
}

static void tell_page(cgr__self_test *t, int32_t tensor, int32_t place, const char *what) {
  int32_t layer = t->caches[tensor / CGR__TEST_TENSORS], group = t->rt->setup.layers[layer].group;
  t->findings.layer = layer;
  t->findings.group = group;
  cgr__findings_add(&t->findings, CGR_ERROR_SELF_TEST, cgr__key_name(&t->test_case.key).text, "page %d (layer %d, %s)%s",
                    test_page_at(t, group, place), layer, tensor_name(tensor), what);
  t->findings.layer = t->findings.group = -1;
}

bool cgr__test_differs(const cgr__self_test *t, const cgr__test_run *a, const cgr__test_run *b) {
  const cgr__test_case *c = &t->test_case;
  int32_t tensor, place;
  bool differs = find_page(t, a, b, &tensor, &place);
  for (int32_t i = 0; i < c->num_items && !differs; i++)
    differs = compare_item(&c->items[i], a, b) >= 0;
  return differs;
}

int32_t cgr__test_compare(cgr__self_test *t, const cgr__test_run *a, const cgr__test_run *b, const char *in_a, const char *in_b) {
  const cgr__test_case *c = &t->test_case;
  int32_t tensor, place, count = 0;
  char text[128];
  if (find_page(t, a, b, &tensor, &place)) {
    snprintf(text, sizeof text, ", which a request owns, differs %s and %s", in_a, in_b);
    tell_page(t, tensor, place, text);
    count++;
  }
  for (int32_t i = 0; i < c->num_items; i++) {
    const cgr__test_item *item = &c->items[i];
    const unsigned char *x = a->content + item->offset, *y = b->content + item->offset;
    int32_t row = compare_item(item, a, b);
    if (row < 0)
      continue;
    int64_t byte = 0;
    x += row * item->stride;
    y += row * item->stride;
    while (x[byte] == y[byte])
      byte++;
    report_difference(t, item, row, byte, x, y, in_a, in_b);
    count++;
  }
  return count;
}

/* ----------------------------------------------------------------------------------------------------------------- calls */

static void tell_calls(cgr__self_test *t, const char *function, int32_t eager, int32_t graph) {
  cgr__findings_add(&t->findings, CGR_ERROR_SELF_TEST, cgr__key_name(&t->test_case.key).text,
                    "%s was called %d time%s for the eager step, and %d time%s for the graph", function, eager,
                    cgr__plural(eager), graph, cgr__plural(graph));
}

/* A graph may do more: `record` may leave out of an eager step what its real lengths do not need. A check that one of the two
 * lacks leaves NaN unseen there, and nothing else tells. */
void cgr__test_compare_calls(cgr__self_test *t, const cgr__record_calls *eager, const cgr__record_calls *graph) {
  static const char *const functions[CGR__RECORDED_COUNT] = {
    [CGR__RECORDED_ATTENTION] = "cgr_record_attention", [CGR__RECORDED_MERGE] = "cgr_record_merge",
    [CGR__RECORDED_MEASURE] = "cgr_record_measure",     [CGR__RECORDED_CALL] = "cgr_record_call",
    [CGR__RECORDED_CHECK] = "cgr_record_check_values",  [CGR__RECORDED_BUFFER] = "cgr_record_buffer of on-demand buffers",
  };
  for (int i = 0; i < CGR__RECORDED_COUNT; i++)
    if (graph->count[i] < eager->count[i] || (i == CGR__RECORDED_CHECK && graph->count[i] > eager->count[i]))
      tell_calls(t, functions[i], eager->count[i], graph->count[i]);
  const uint32_t bits = eager->checked ^ graph->checked;
  if (bits != 0 && graph->count[CGR__RECORDED_CHECK] == eager->count[CGR__RECORDED_CHECK])
    cgr__findings_add(&t->findings, CGR_ERROR_SELF_TEST, cgr__key_name(&t->test_case.key).text,
                      "cgr_record_check_values has other bits for the eager step (%#x) than for the graph (%#x)",
                      (unsigned)eager->checked, (unsigned)graph->checked);
}

static bool is_owned(const cgr__self_test *t, int32_t group, int32_t place) {
  int32_t n = t->given.num_pages, p = (int32_t)(((int64_t)place - t->test_case.of.turn[group] + n) % n);
  return place < n && p < t->test_case.of.owned[group];
}

bool cgr__test_check_pages(cgr__self_test *t, int index) {
  char text[96];
  const uint64_t *now = t->runs[index].digests, *filled = t->filled[cgr__test_noise(index)];
  for (int32_t k = 0; k < cgr__test_num_tensors(t); k++) {
    int32_t group = cgr__test_layer(t, k)->group;
    for (int32_t p = 0; p < cgr__test_num_pages(t) && cgr__test_has_tensor(t, k); p++) {
      int64_t at = (int64_t)k * cgr__test_num_pages(t) + p;
      if (is_owned(t, group, p) || now[at] == filled[at])
        continue;
      snprintf(text, sizeof text, ", %s, was written in the %s",
               p == t->given.num_pages ? "the read-trash page" : "which no request owns", index == 0 ? "eager step" : "replay");
      tell_page(t, k, p, text);
      return false;
    }
  }
  return true;
}
