// What schedulers over an engine that guesses have in common: the batch of what each request does in a step, and the standing
// batch that is edited to be it. A Work has a request with a row, its tokens and flags, and whether the device has all tokens.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tests/support/guess_engine.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace guesses {

inline List RandomPrompt(Random *random) {
  List tokens;
  for (int32_t n = random->Pick32(1, 40); n > 0; n--)
    tokens.push_back(random->Pick32(0, kVocab - 1));
  return tokens;
}

// Of requests that are open; null: none has the tag.
template <class Requests> auto *FindTag(const Requests &open, uint64_t tag) {
  const auto found = std::find_if(open.begin(), open.end(), [&](auto &r) { return r->tag == tag; });
  return found == open.end() ? nullptr : found->get();
}

// Holds what a batch points to.
class WorkBatch {
public:
  template <class Work> explicit WorkBatch(const std::vector<Work> &works) {
    for (const Work &work : works) {
      rows_.push_back(work.request->row), lens_.push_back(int32_t(work.tokens.size())), flags_.push_back(work.flags);
      tokens_.insert(tokens_.end(), work.tokens.begin(), work.tokens.end());
      of_device &= work.of_device;
    }
  }
  cgr_batch Batch(bool with_tokens) const {
    cgr_batch batch = BatchOf(int32_t(rows_.size()), rows_.data(), with_tokens ? tokens_.data() : nullptr, lens_.data());
    batch.flags = flags_.data();
    return batch;
  }
  bool of_device = true; // all of it: no tokens need be given

private:
  List rows_, lens_, tokens_;
  std::vector<uint32_t> flags_;
};

class EditedStanding {
public:
  // Members that are not in the step leave; what goes on by itself is not updated.
  template <class Work> void Edit(cgr_runtime *rt, const std::vector<Work> &works) {
    std::map<int32_t, std::pair<int32_t, uint32_t>> next;
    for (const Work &work : works) {
      const int32_t row = work.request->row, count = int32_t(work.tokens.size());
      next[row] = { work.of_device ? count : -1, work.flags };
      const auto member = members_.find(row);
      if (work.of_device && member != members_.end() && member->second == next[row])
        continue;
      CGR_ASSERT_OK((member != members_.end() ? cgr_standing_update : cgr_standing_add)(
          rt, nullptr, row, count, work.of_device ? nullptr : work.tokens.data(), work.flags));
    }
    for (const auto &member : members_)
      if (!next.count(member.first))
        CGR_ASSERT_OK(cgr_standing_remove(rt, nullptr, member.first));
    members_ = next;
  }
  // Of a row that is closed.
  void Remove(cgr_runtime *rt, int32_t row) {
    if (members_.erase(row) > 0)
      CGR_ASSERT_OK(cgr_standing_remove(rt, nullptr, row));
  }

private:
  std::map<int32_t, std::pair<int32_t, uint32_t>> members_; // by row: the tokens that each goes on by (-1: given ones), and flags
};

} // namespace guesses
} // namespace cgr_test
