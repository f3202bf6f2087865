// An NVTX tool in the test's own process: it keeps what the library reports, and decodes payloads by their registered
// schemas.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tracing/nvtx.h"

namespace cgr_test {

struct Tool {
  typedef std::map<std::string, std::string> Fields; // name to value; enumerations by their names

  struct Event {
    bool begin; // or an end
    std::string domain, name, category;
    Fields payload; // a plain number is "value"
  };
  std::vector<Event> events;
  std::vector<std::string> wrong; // what no library should do

  // Of the whole process.
  std::map<std::string, int> registered; // strings, and how often
  std::map<std::string, int> domains;
  std::map<uint32_t, std::string> categories;
  std::map<const void *, std::string> streams, cuda_events;

  static Tool &Get();
  // Whether the library can report anything in this build, schemas included.
  static bool IsThere();

  // Forgets the events.
  void Clear();
  // "a(b c(d))": the ranges that have begun, nested. A layer's number comes after a colon.
  std::string Tree() const;
  // Ranges that are open.
  int Depth() const;
  // The first begin of this name, or end of such a range.
  const Event *Find(const std::string &name, bool begin = true) const;
};

#define CGR_SKIP_WITHOUT_TOOL()                                                                                \
  do {                                                                                                         \
    if (!Tool::IsThere())                                                                                      \
      GTEST_SKIP() << "this build has no NVTX, or one without schemas (a CUDA toolkit from 13.0 on has them)"; \
  } while (0)

} // namespace cgr_test
