/* The requests of a case or a decoy, as they are drawn: random numbers, lengths before the step, pages. */
#include "runtime/capture/self_test/self_test.h"

uint64_t cgr__test_random(cgr__self_test *t, uint64_t below) {
  t->random = cgr__pages_mix(t->random + 0x9e3779b97f4a7c15u);
  return t->random % below;
}

int32_t cgr__test_smallest_page(const cgr_runtime *rt) {
  int32_t size = INT32_MAX;
  for (int32_t g = 0; g < rt->setup.config.num_groups; g++)
    size = rt->setup.groups[g].page_size < size ? rt->setup.groups[g].page_size : size;
  return size;
}

int cgr__test_by_length(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Tokens before the step, of at most `room`. Of the case that is not full the first request is as long as can be, and the second
 * one begins. */
static int32_t draw_before(cgr__self_test *t, const cgr__test_requests *of, int32_t i, int32_t room) {
  bool of_case = of == &t->test_case.of;
  if (of_case && (i < 2 || t->is_full))
    return i == 0 && !t->is_full ? room : 0;
  return cgr__test_pick(t, room + 1);
}

void cgr__test_own_pages(cgr__self_test *t, cgr__test_requests *of, int32_t i, int32_t next) {
  const cgr_runtime *rt = t->rt;
  for (int32_t g = 0; g < rt->setup.config.num_groups; g++) {
    int32_t size = rt->setup.groups[g].page_size, set = rt->setup.groups[g].length_set;
    int32_t at = i * rt->setup.config.num_groups + g, tokens = cgr__test_after(t, of, i, set);
    tokens += set == t->test_case.set ? next : 0;
    of->first_page[at] = of->owned[g];
    of->num_pages[at] = (tokens + size - 1) / size;
    of->owned[g] += of->num_pages[at];
  }
}

int32_t cgr__test_add_request(cgr__self_test *t, cgr__test_requests *of, int32_t len, int32_t next, int32_t share) {
  const cgr_runtime *rt = t->rt;
  const int64_t most = (int64_t)share * cgr__test_smallest_page(rt);
  int32_t i = of->count++, sets = rt->setup.limits.num_sets;
  of->lens[i] = len;
  of->num_tokens += len;
  of->seeds[i] = cgr__test_random(t, UINT64_MAX);
  for (int32_t s = 0; s < sets; s++) {
    int32_t longest = rt->setup.limits.max_lens[s], room = most < longest ? (int32_t)most : longest;
    if (s == t->test_case.set) {
      next = next <= room - len ? next : t->rt->graphs.exact_lengths ? 0 : room - len;
      room -= len + next;
    }
    of->before[i * sets + s] = draw_before(t, of, i, room);
  }
  cgr__test_own_pages(t, of, i, next);
  return next;
}
