#include "kernels/reference/merge.h"

#include <math.h>
#include <stdbool.h>

#include "kernels/reference/reference.h"

static bool is_empty(const cgr__reference_head *side) { return isinf(side->lse); }

/* Merges if at most one side has seen anything; returns whether that is so. */
static bool is_trivial(int32_t dtype, int32_t head_dim, const cgr__reference_head *a, const cgr__reference_head *b,
                       cgr__reference_head *merged) {
  const cgr__reference_head *only = is_empty(a) ? b : a;
  if (!is_empty(a) && !is_empty(b))
    return false;
  merged->lse = is_empty(only) ? -INFINITY : only->lse;
  for (int32_t d = 0; d < head_dim; d++)
    merged->out[d] = is_empty(only) ? 0.0 : dtype ? cgr__reference_round(dtype, only->out[d]) : only->out[d];
  return true;
}

void cgr__reference_merge(int32_t head_dim, const cgr__reference_head *a, const cgr__reference_head *b,
                          cgr__reference_head *merged) {
  if (is_trivial(0, head_dim, a, b, merged))
    return;
  double high = fmax(a->lse, b->lse), low = fmin(a->lse, b->lse);
  merged->lse = high + log1p(exp(low - high));
  for (int32_t d = 0; d < head_dim; d++)
    merged->out[d] = exp(a->lse - merged->lse) * a->out[d] + exp(b->lse - merged->lse) * b->out[d];
}

void cgr__reference_merge_in(int32_t dtype, int32_t head_dim, const cgr__reference_head *a, const cgr__reference_head *b,
                             cgr__reference_head *merged) {
  if (is_trivial(dtype, head_dim, a, b, merged))
    return;
  float of_a = (float)a->lse, of_b = (float)b->lse, high = fmaxf(of_a, of_b);
  float sum = expf(of_a - high) + expf(of_b - high);
  merged->lse = high + logf(sum);
  for (int32_t d = 0; d < head_dim; d++) {
    float x = expf(of_a - high) / sum * (float)a->out[d] + expf(of_b - high) / sum * (float)b->out[d];
    merged->out[d] = cgr__reference_round(dtype, x);
  }
}
