// A sampler whose steps are known before they are launched: it compares the step's buffers with what is expected, and writes what
// it was told to.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cgr/cgr.h"

namespace cgr_test {
namespace guess_sampler {

using List = std::vector<int32_t>;

// A request's part of a step, and what the device makes of it.
struct Work {
  int32_t row = -1;
  uint64_t tag = 0;
  List tokens;          // as they are given; empty: none
  bool goes_on = false; // it needs no tokens of the host's
  bool partial = false;
  int32_t guesses = 0;
  // What the sampler finds, writes and thereby does.
  int32_t position = 0;
  List ids, next, drafts;
  int32_t writes_accepted = 0, accepted = 0, num_tokens = 0;
  int32_t length() const { return int32_t(tokens.size()); }
  uint32_t flags() const { return partial ? uint32_t(CGR_REQUEST_PARTIAL) : CGR_REQUEST_DRAFTS(guesses); }
};

struct Launched {
  cgr_mark mark = {};
  std::map<int32_t, Work> works; // by row
  bool refused = false, fails = false;
  bool loses = false;      // what it carried, and has guesses itself
  uint64_t generation = 0; // that the host had seen
};

// What the sampler's calls find, in the order of the steps.
struct Device {
  std::mutex mutex;
  std::deque<Launched> expected;
  std::string failure;
  int64_t samples = 0;
};

struct SamplerArgs {
  Device *device;
  const int32_t *counts, *rows, *starts, *seq_lens, *ids, *positions, *num_drafts;
  int32_t *next, *num_accepted, *draft_tokens;
  int32_t stride, num_requests;
};

inline std::string CompareRequest(const SamplerArgs &a, int32_t i, const Work &work) {
  const int32_t start = a.starts[i], length = a.starts[i + 1] - start;
  const std::string at = "row " + std::to_string(work.row) + ": ";
  if (length != work.length() || a.seq_lens[i] != work.position + length)
    return at + std::to_string(length) + " tokens up to " + std::to_string(a.seq_lens[i]) + ", expected " +
           std::to_string(work.length()) + " up to " + std::to_string(work.position + work.length());
  if (a.num_drafts[i] != work.guesses)
    return at + "num_drafts " + std::to_string(a.num_drafts[i]) + ", expected " + std::to_string(work.guesses);
  for (int32_t j = 0; j < length; j++)
    if (a.ids[start + j] != work.ids[size_t(j)] || a.positions[start + j] != work.position + j)
      return at + "token " + std::to_string(j) + " is " + std::to_string(a.ids[start + j]) + " at " +
             std::to_string(a.positions[start + j]) + ", expected " + std::to_string(work.ids[size_t(j)]) + " at " +
             std::to_string(work.position + j);
  return "";
}

inline void Sample(const void *raw) {
  const SamplerArgs &a = *static_cast<const SamplerArgs *>(raw);
  const std::lock_guard<std::mutex> lock(a.device->mutex);
  if (a.device->expected.empty() || !a.device->failure.empty())
    return;
  const Launched step = a.device->expected.front();
  a.device->expected.pop_front();
  a.device->samples++;
  const int32_t expected = step.refused ? 0 : int32_t(step.works.size());
  if (a.counts[CGR_COUNT_REQUESTS] != expected)
    a.device->failure = std::to_string(a.counts[CGR_COUNT_REQUESTS]) + " requests, expected " + std::to_string(expected);
  for (int32_t i = 0; i < a.counts[CGR_COUNT_REQUESTS] && a.device->failure.empty(); i++) {
    const auto found = step.works.find(a.rows[i]);
    if (found == step.works.end()) {
      a.device->failure = "row " + std::to_string(a.rows[i]) + " is not in the step";
      return;
    }
    const Work &work = found->second;
    a.device->failure = CompareRequest(a, i, work);
    a.num_accepted[i] = work.writes_accepted;
    std::copy(work.next.begin(), work.next.end(), a.next + i * a.stride);
    std::copy(work.drafts.begin(), work.drafts.end(), a.draft_tokens + i * (a.stride - 1));
  }
}

} // namespace guess_sampler
} // namespace cgr_test
