// Rows and batch layouts in memory of exactly their size, and batches from vectors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "requests/batch.h"
#include "requests/changes.h"
#include "requests/data.h"
#include "requests/pages.h"
#include "requests/rows.h"
#include "requests/follow.h"
#include "requests/members.h"
#include "requests/standing.h"
#include "tests/support/expect.h"
#include "tests/support/seed.h"

namespace cgr_test {

using Layers = std::vector<std::pair<int32_t, int32_t>>; // window and chunk of each

// The first token that a step after `computed` tokens sees.
inline int32_t FirstSeen(const Layers &layers, int32_t computed) {
  int32_t first = computed;
  for (const auto &[window, chunk] : layers)
    first = std::min(first, chunk > 0 ? computed / chunk * chunk : std::max(computed + 1 - window, 0));
  return first;
}

struct GroupSpec {
  int32_t page_size = 16;
  int64_t num_pages = 1000;
  int32_t read_trash = 0, write_trash = 1;
  bool engine_table = false;
  Layers layers = {};     // none: all see everything
  int32_t length_set = 0; // 0 or 1
};

using Memory = std::unique_ptr<void, decltype(&free)>;
inline Memory Cleared(size_t bytes) {
  EXPECT_EQ(bytes % 64, 0u);
  Memory memory(aligned_alloc(64, bytes), free);
  memset(memory.get(), 0, bytes);
  return memory;
}

struct Rows {
  cgr__rows rows;
  cgr__lane_batches batches; // without batch layouts until there is a Pool
  Memory memory{ nullptr, free }, memory_of_batches{ nullptr, free };
  size_t bytes = 0, bytes_of_batches = 0; // of these
  std::unique_ptr<cgr__limits> limits = std::make_unique<cgr__limits>();

  // With max_requests there is a standing batch.
  Rows(int32_t max_rows, int32_t max_seq_len, const std::vector<GroupSpec> &specs, int32_t max_requests = 0,
       int32_t max_tokens = 0, bool ledger = false, int32_t num_draft_tokens = 0, int32_t ring_depth = 0) {
    static const int32_t engine_table[1] = { 0 };
    std::vector<cgr_group> groups;
    for (const GroupSpec &spec : specs) {
      cgr_group group = CGR_GROUP_INIT;
      group.page_size = spec.page_size;
      group.num_pages = spec.num_pages;
      group.read_trash_page = spec.read_trash;
      group.write_trash_page = spec.write_trash;
      group.page_table = spec.engine_table ? engine_table : nullptr;
      group.length_set = spec.length_set;
      groups.push_back(group);
    }
    cgr__rows_config config = {};
    config.ledger = ledger;
    if (std::any_of(specs.begin(), specs.end(), [](const GroupSpec &spec) { return spec.length_set == 1; })) {
      limits->num_sets = 2;
      limits->max_lens[1] = max_seq_len;
      config.num_data = config.data[0].words = 1; // lengths are data of buffer 0
    }
    limits->max_rows = max_rows;
    limits->token_stride = 1 + num_draft_tokens;
    limits->ring_depth = ring_depth;
    limits->max_lens[0] = max_seq_len;
    limits->max_requests = max_requests;
    limits->max_tokens = max_tokens;
    limits->num_groups = static_cast<int32_t>(specs.size());
    config.limits = limits.get();
    config.groups = groups.data();
    for (size_t g = 0; g < specs.size(); g++)
      for (const auto &[window, chunk] : specs[g].layers)
        cgr__window_spans_add(&config.window_spans[g], window, chunk);
    bytes = cgr__rows_bytes(&config);
    memory = Cleared(bytes);
    memset(&rows, 0xa5, sizeof rows);
    cgr__rows_init(&rows, &batches, &config, memory.get());
    bytes_of_batches = cgr__lane_batches_bytes(limits.get());
    memory_of_batches = Cleared(bytes_of_batches);
    memset(&batches, 0xa5, sizeof batches);
    cgr__lane_batches_init(&batches, limits.get(), memory_of_batches.get());
  }
  Rows(const Rows &) = delete; // rows and batches are where they were made
  operator cgr__rows *() { return &rows; }

  int32_t Open(uint64_t tag = 1) {
    int32_t row = -1;
    EXPECT_EQ(cgr__rows_open(&rows, tag, &row), CGR_OK) << cgr_last_message();
    return row;
  }
  cgr_status SetPages(int32_t row, int32_t first, const std::vector<int32_t> &pages, int32_t group = 0) {
    return cgr__rows_set_pages(&rows, row, group, first, pages.data(), static_cast<int32_t>(pages.size()));
  }
  cgr_status DropPages(int32_t row, int32_t first, int32_t count, int32_t group = 0) {
    return cgr__rows_drop_pages(&rows, row, group, first, count);
  }
  // An open row with pages 0 .. count - 1 of each group, numbered from `page` on.
  int32_t OpenWithPages(int32_t count, int32_t page, uint64_t tag = 1) {
    int32_t row = Open(tag);
    std::vector<int32_t> pages(static_cast<size_t>(count));
    std::iota(pages.begin(), pages.end(), page);
    for (int32_t g = 0; g < rows.limits->num_groups; g++)
      if (!rows.group[g].engine_table) {
        EXPECT_EQ(SetPages(row, 0, pages, g), CGR_OK) << cgr_last_message();
      }
    return row;
  }

  // What the host says of a row's page: the read-trash page if it has none.
  int32_t Page(int32_t row, int32_t index, int32_t group = 0) const {
    const cgr__page_group &g = rows.group[group];
    bool has = index >= g.row[row].first && index < g.row[row].end;
    return has ? g.pages[static_cast<int64_t>(row) * g.pages_per_row + index] : g.read_trash;
  }
  std::vector<int32_t> Pages(int32_t row, int32_t group = 0) const {
    std::vector<int32_t> pages;
    for (int32_t i = rows.group[group].row[row].first; i < rows.group[group].row[row].end; i++)
      pages.push_back(Page(row, i, group));
    return pages;
  }
  int32_t Computed(int32_t row) {
    cgr__members_sync(&rows, row);
    return rows.row[row].computed;
  }

  // All changes, in slots of `capacity`.
  std::vector<cgr__change> Collect(int32_t capacity = 1 << 20) {
    std::vector<cgr__change> all, slot(static_cast<size_t>(capacity));
    while (cgr__changes_pending(&rows) > 0) {
      int32_t count = cgr__changes_collect(&rows, slot.data(), capacity);
      EXPECT_GT(count, 0);
      if (count <= 0)
        break;
      all.insert(all.end(), slot.begin(), slot.begin() + count);
    }
    return all;
  }
  void Restore(const std::vector<cgr__change> &changes) {
    cgr__changes_restore(&rows, changes.data(), static_cast<int32_t>(changes.size()));
  }
};

// A batch whose arrays are as long as they must be and no longer. An array that is switched off is NULL.
struct Batch {
  std::vector<int32_t> rows, query_lens, tokens;
  std::vector<uint32_t> flags;
  bool has_query_lens = false, has_tokens = false, has_flags = false;

  static Batch Decode(const std::vector<int32_t> &rows) {
    Batch batch;
    batch.rows = rows;
    return batch;
  }
  // Given token ids, so that no row needs a last one.
  static Batch Prefill(const std::vector<int32_t> &rows, const std::vector<int32_t> &query_lens) {
    Batch batch;
    batch.rows = rows;
    batch.query_lens = query_lens;
    batch.has_query_lens = true;
    return batch.WithIds();
  }
  int32_t QueryLen(size_t i) const { return has_query_lens ? query_lens[i] : 1; }
  int64_t NumTokens() const {
    int64_t sum = 0;
    for (size_t i = 0; i < rows.size(); i++)
      sum += QueryLen(i);
    return sum;
  }
  Batch &WithIds() {
    tokens.resize(static_cast<size_t>(NumTokens()));
    std::iota(tokens.begin(), tokens.end(), 0);
    has_tokens = true;
    return *this;
  }
  Batch &WithFlags(const std::vector<uint32_t> &given) {
    flags = given;
    has_flags = true;
    return *this;
  }
  cgr_batch Get() const {
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = static_cast<int32_t>(rows.size());
    batch.rows = rows.data();
    batch.query_lens = has_query_lens ? query_lens.data() : nullptr;
    batch.tokens = has_tokens ? tokens.data() : nullptr;
    batch.flags = has_flags ? flags.data() : nullptr;
    return batch;
  }
};

// The batch layouts, used as a runtime does: a prepared step counts as a use, and so does a result in the ring.
struct Pool {
  cgr__batch_layouts &pool;
  Memory memory;
  int32_t max_requests, max_tokens;

  Pool(Rows &rows, int32_t requests, int32_t tokens, int32_t depth)
      : pool(rows.batches.layouts), memory(Cleared(cgr__batch_layouts_bytes(requests, depth))), max_requests(requests),
        max_tokens(tokens) {
    memset(&pool, 0xa5, sizeof pool);
    cgr__batch_layouts_init(&pool, requests, depth, memory.get());
  }
  cgr_status Validate(Rows &rows, const Batch &batch, cgr__checked_batch *checked) {
    cgr_batch given = batch.Get();
    return Validate(rows, given, checked);
  }
  cgr_status Validate(Rows &rows, const cgr_batch &batch, cgr__checked_batch *checked, int32_t set = 0) {
    return cgr__batch_validate(rows, &rows.batches, &batch, set, max_requests, max_tokens, checked);
  }
  // As cgr_step_choose looks at a batch, perhaps while a step is prepared.
  cgr_status Choose(Rows &rows, const Batch &batch, bool prepared, cgr__checked_batch *checked) {
    cgr_batch given = batch.Get();
    auto *look = prepared ? cgr__batch_look : cgr__batch_validate;
    return look(rows, &rows.batches, &given, 0, max_requests, max_tokens, checked);
  }
  void Prepare(cgr__checked_batch *checked) { checked->batch_layout->uses++; }
  void Cancel(cgr__checked_batch *checked) { checked->batch_layout->uses--; }
  void Launch(Rows &rows, cgr__checked_batch *checked, uint64_t seq) {
    checked->batch_layout->uses--;
    cgr__batch_layouts_launch(&pool, seq, checked->follows ? cgr__members_snapshot(&rows.batches) : checked->batch_layout);
    if (checked->follows)
      cgr__members_commit(rows, &rows.batches, seq, seq);
    else
      cgr__batch_commit(rows, &rows.batches, checked, seq, seq);
  }
  // All of it at once.
  cgr_status Step(Rows &rows, const Batch &batch, uint64_t seq) {
    cgr__checked_batch checked;
    cgr_status status = Validate(rows, batch, &checked);
    if (status != CGR_OK)
      return status;
    Prepare(&checked);
    Launch(rows, &checked, seq);
    return CGR_OK;
  }
};

} // namespace cgr_test
