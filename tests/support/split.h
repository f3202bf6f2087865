// Where other engines end the decodes of a batch, sentence by sentence as their interface has it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace cgr_test {

struct Split {
  int32_t decodes, tokens;
};

inline Split SplitOf(const std::vector<int32_t> &lens, int32_t threshold, bool uniform) {
  if (threshold == 0 || lens.empty())
    return { 0, 0 };
  const auto up_to = [&](auto end) { return Split{ int32_t(end - lens.begin()), std::accumulate(lens.begin(), end, 0) }; };
  const int32_t first = lens[0], longest = *std::max_element(lens.begin(), lens.end());
  if (longest <= threshold && (!uniform || threshold <= 1))
    return up_to(lens.end());
  if (first > threshold)
    return { 0, 0 };
  if (!uniform)
    return up_to(std::find_if(lens.begin(), lens.end(), [&](int32_t length) { return length > threshold; }));
  if (std::all_of(lens.begin(), lens.end(), [&](int32_t length) { return length == first || length == 0; }))
    return up_to(lens.end());
  return up_to(std::find_if(lens.begin(), lens.end(), [&](int32_t length) { return length != first; }));
}

// By hand.
struct SplitExample {
  std::vector<int32_t> lens;
  int32_t threshold;
  bool uniform;
  Split want;
};
inline std::vector<SplitExample> SplitExamples() {
  return { { { 2, 1, 2, 3 }, 3, false, { 4, 8 } }, { { 2, 1, 2, 3 }, 3, true, { 1, 2 } }, { { 2, 2, 0, 0 }, 3, true, { 4, 4 } },
           { { 3, 3, 2, 0 }, 3, true, { 2, 6 } },  { { 4, 1 }, 3, true, { 0, 0 } },       { { 4, 4 }, 3, true, { 0, 0 } },
           { { 2, 0, 2, 5 }, 3, true, { 1, 2 } }, // an empty one ends them where there is a prefill
           { { 2, 0, 2, 5 }, 3, false, { 3, 4 } }, { { 0, 2, 2 }, 3, true, { 1, 0 } },    { { 0, 1, 1 }, 1, true, { 3, 2 } },
           { { 1, 0, 4 }, 1, true, { 1, 1 } },     { { 0, 0 }, 2, true, { 2, 0 } },       { {}, 2, true, { 0, 0 } },
           { { 1, 1 }, 0, false, { 0, 0 } } };
}

} // namespace cgr_test
