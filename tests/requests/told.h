// What a device knows of the members by what it has been told.
#pragma once

#include <map>
#include <vector>

#include "requests/standing.h"
#include "tests/requests/rig.h"

namespace cgr_test {

// What edits have told a device, and the tokens that the last step named.
struct Told {
  std::vector<int32_t> rows, lens;
  std::vector<uint32_t> flags;
  std::map<int32_t, std::vector<int32_t>> tokens; // by row
  int32_t num_edits = 0;

  void Take(const cgr__batch_layout &whole) {
    const auto n = whole.num_requests;
    rows = std::vector<int32_t>(whole.rows, whole.rows + n);
    lens = std::vector<int32_t>(whole.query_lens, whole.query_lens + n);
    flags = std::vector<uint32_t>(whole.flags, whole.flags + n);
  }
  void Hear(const Rows &from, bool whole) {
    const cgr__batch_layout &members = from.batches.members.layout;
    const auto n = static_cast<size_t>(members.num_requests);
    std::vector<cgr__edit> edits(static_cast<size_t>(from.batches.members.max_requests));
    std::vector<int32_t> ids(static_cast<size_t>(from.batches.members.max_tokens));
    int32_t num_ids = -1;
    num_edits = cgr__members_edits(&from.rows, &from.batches, whole, edits.data(), ids.data(), &num_ids);
    ASSERT_LE(num_edits, from.batches.members.max_requests);
    ASSERT_LE(num_ids, from.batches.members.max_tokens);
    rows.resize(n, -1);
    lens.resize(n, -1);
    flags.resize(n, 77);
    tokens.clear();
    std::vector<bool> named(n);
    if (whole)
      Take(members);
    for (int32_t e = 0; e < num_edits; e++) {
      const cgr__edit &edit = edits[static_cast<size_t>(e)];
      const auto i = static_cast<size_t>(edit.place & 0xffff);
      ASSERT_LT(i, n);
      ASSERT_FALSE(named[i]) << "place " << i << " is named twice";
      named[i] = true;
      rows[i] = edit.row;
      lens[i] = edit.query_len;
      flags[i] = static_cast<uint32_t>(edit.place) >> 16;
      if (edit.first_token < 0)
        continue;
      ASSERT_LE(edit.first_token + edit.query_len, num_ids);
      tokens[edit.row] = std::vector<int32_t>(ids.begin() + edit.first_token, ids.begin() + edit.first_token + edit.query_len);
    }
  }
};

} // namespace cgr_test
