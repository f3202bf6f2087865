// How far back the layers of a group see, against a look at every token.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "requests/window_spans.h"
#include "tests/support/seed.h"

namespace {

using namespace cgr_test;
using Layers = std::vector<std::pair<int32_t, int32_t>>; // window, chunk

cgr__window_spans Of(const Layers &layers) {
  cgr__window_spans spans = {};
  for (const auto &[window, chunk] : layers)
    cgr__window_spans_add(&spans, window, chunk);
  return spans;
}

// The first token that any layer lets the query at `position` see.
int32_t FirstSeen(const Layers &layers, int32_t position) {
  for (int32_t token = 0; token < position; token++)
    for (const auto &[window, chunk] : layers)
      if ((window == 0 || token > position - window) && (chunk == 0 || token / chunk == position / chunk))
        return token;
  return layers.empty() ? 0 : position;
}

TEST(WindowSpans, IsThatOfTheLayerThatSeesFurthest) {
  SeededRandom random;
  for (int32_t round = 0; round < 300 && !HasFailure(); round++) {
    const int32_t most = 90;
    Layers layers;
    for (int32_t n = random.Pick32(0, 5); n > 0; n--)
      layers.push_back({ random.OneIn(3) ? 0 : random.Pick32(1, 40), random.OneIn(2) ? 0 : random.Pick32(1, 40) });
    if (random.OneIn(2))
      layers.erase(std::remove(layers.begin(), layers.end(), std::pair<int32_t, int32_t>(0, 0)), layers.end());
    std::string text = "layers";
    for (const auto &[window, chunk] : layers)
      text += " " + std::to_string(window) + "/" + std::to_string(chunk);
    SCOPED_TRACE(text);
    const cgr__window_spans spans = Of(layers);
    std::vector<int32_t> seen;
    for (int32_t c = 0; c <= most; c++) {
      seen.push_back(FirstSeen(layers, c));
      ASSERT_EQ(cgr__window_spans_first(&spans, c), seen.back()) << c;
      ASSERT_GE(seen.back(), seen[size_t(std::max(c - 1, 0))]) << "it moves back";
    }
    for (int32_t first = 0; first <= most; first++) {
      auto at = std::find_if(seen.begin(), seen.end(), [&](int32_t token) { return token >= first; });
      const int32_t least = cgr__window_spans_least(&spans, first);
      if (at != seen.end()) {
        ASSERT_EQ(least, int32_t(at - seen.begin())) << first;
      } else {
        ASSERT_GT(least, most) << first;
      }
    }
  }
}

TEST(WindowSpans, IsAllWithoutLayersOrWithOneThatSeesAll) {
  for (const Layers &layers : { Layers{}, Layers{ { 0, 0 } }, Layers{ { 4, 0 }, { 0, 0 } }, Layers{ { 0, 0 }, { 0, 8 } } }) {
    const cgr__window_spans spans = Of(layers);
    EXPECT_EQ(cgr__window_spans_first(&spans, 1 << 30), 0);
    EXPECT_EQ(cgr__window_spans_least(&spans, 0), 0);
    EXPECT_EQ(cgr__window_spans_least(&spans, 1), INT32_MAX);
  }
}

TEST(WindowSpans, OfTheWidest) {
  const int32_t most = INT32_MAX, longest = 1 << 30;
  for (const Layers &layers : { Layers{ { most, 0 } }, Layers{ { 0, most } }, Layers{ { most, most } } }) {
    const cgr__window_spans spans = Of(layers);
    EXPECT_EQ(cgr__window_spans_first(&spans, longest), 0);
    EXPECT_EQ(cgr__window_spans_least(&spans, 1), most);
    EXPECT_EQ(cgr__window_spans_least(&spans, longest), most);
  }
}

// Equal layers count once; if there are too many kinds for the list, every page is needed.
TEST(WindowSpans, OfManyKinds) {
  Layers layers;
  for (int32_t i = 0; i < CGR__MAX_WINDOW_SPANS; i++)
    layers.insert(layers.end(), 3, { 10 + i, 0 });
  cgr__window_spans spans = Of(layers);
  EXPECT_EQ(cgr__window_spans_first(&spans, 100), 101 - (10 + CGR__MAX_WINDOW_SPANS - 1));
  cgr__window_spans_add(&spans, 1, 0);
  EXPECT_EQ(cgr__window_spans_first(&spans, 100), 0);
  EXPECT_EQ(cgr__window_spans_least(&spans, 16), INT32_MAX);
}

} // namespace
