// A model of the rows and of the device that runs their steps, kept apart from the code under test.
//
// The host's side (Model) says what each call must answer and what each row has. The device's side (Device) has tables of its
// own, which change only by the changes that a launched step carries; steps that the device loses change nothing.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/requests/rig.h"

namespace cgr_test {

using Statuses = std::set<cgr_status>; // those of all that is wrong with a call; empty: it must succeed

struct ModelRow {
  bool open = false, has_token = false;
  uint64_t tag = 0, last_seq = 0;
  int32_t computed = 0;
  std::map<int32_t, int32_t> pages[CGR__MAX_GROUPS]; // by index
  std::set<int32_t> set[CGR__MAX_GROUPS];            // indices that had a page since the row was opened
};

struct ModelConfig {
  const char *name;
  std::vector<GroupSpec> groups;
  int32_t max_rows, max_seq_len, max_requests, max_tokens, ring_depth, max_changes;
};

class Model {
public:
  explicit Model(const ModelConfig &config) : config_(config), rows_(static_cast<size_t>(config.max_rows)) {}

  ModelRow &row(int32_t i) { return rows_[static_cast<size_t>(i)]; }
  const ModelRow &row(int32_t i) const { return rows_[static_cast<size_t>(i)]; }
  const ModelConfig &config() const { return config_; }
  const GroupSpec &group(int32_t g) const { return config_.groups[static_cast<size_t>(g)]; }
  int32_t num_groups() const { return static_cast<int32_t>(config_.groups.size()); }
  int32_t PagesPerRow(int32_t g) const { return (config_.max_seq_len + group(g).page_size - 1) / group(g).page_size; }

  std::vector<int32_t> Open() const {
    std::vector<int32_t> open;
    for (int32_t i = 0; i < config_.max_rows; i++)
      if (row(i).open)
        open.push_back(i);
    return open;
  }
  int32_t First(int32_t i, int32_t g) const { return row(i).pages[g].empty() ? 0 : row(i).pages[g].begin()->first; }
  int32_t End(int32_t i, int32_t g) const { return row(i).pages[g].empty() ? 0 : row(i).pages[g].rbegin()->first + 1; }

  // Tokens up to which the pages of every group go.
  int32_t Capacity(int32_t i) const {
    int32_t capacity = config_.max_seq_len;
    for (int32_t g = 0; g < num_groups(); g++)
      if (!group(g).engine_table)
        capacity = std::min(capacity, End(i, g) * group(g).page_size);
    return capacity;
  }

  // The first token that some layer of a group sees in a step after `computed` tokens.
  int32_t FirstSeen(int32_t g, int32_t computed) const {
    int32_t first = group(g).layers.empty() ? 0 : computed;
    for (const auto &[window, chunk] : group(g).layers) {
      int32_t seen = 0;
      while ((window > 0 && seen < computed - window + 1) || (chunk > 0 && seen / chunk < computed / chunk))
        seen++;
      first = std::min(first, seen);
    }
    return first;
  }
  // Whether a step after `computed` tokens finds the pages of all earlier tokens that it sees.
  bool HasFront(int32_t i, int32_t computed) const {
    for (int32_t g = 0; g < num_groups(); g++)
      for (int32_t p = FirstSeen(g, computed) / group(g).page_size; p < First(i, g) && !group(g).engine_table; p++)
        if (row(i).pages[g].count(p) == 0)
          return false;
    return true;
  }

  Statuses CheckSetPages(int32_t i, int32_t g, int32_t first, const std::vector<int32_t> &pages) const {
    Statuses wrong;
    const std::map<int32_t, int32_t> &has = row(i).pages[g];
    int32_t count = static_cast<int32_t>(pages.size()), end = first + count;
    if (group(g).engine_table)
      return { CGR_ERROR_STATE };
    if (first < 0 || (!has.empty() && (first > End(i, g) || end < First(i, g))))
      wrong.insert(CGR_ERROR_INVALID_ARGUMENT);
    if (end > PagesPerRow(g))
      wrong.insert(CGR_ERROR_SEQUENCE_TOO_LONG);
    std::set<int32_t> seen;
    for (const auto &[index, page] : has)
      if (index < first || index >= end)
        seen.insert(page);
    for (int32_t page : pages) {
      if (page < 0 || page >= group(g).num_pages || page == group(g).read_trash || page == group(g).write_trash)
        wrong.insert(CGR_ERROR_PAGE_OUT_OF_RANGE);
      if (!seen.insert(page).second)
        wrong.insert(CGR_ERROR_INVALID_ARGUMENT);
    }
    return wrong;
  }
  void SetPages(int32_t i, int32_t g, int32_t first, const std::vector<int32_t> &pages) {
    for (int32_t p = 0; p < first && !pages.empty() && row(i).pages[g].empty(); p++)
      row(i).set[g].insert(p);
    for (size_t k = 0; k < pages.size(); k++) {
      row(i).pages[g][first + static_cast<int32_t>(k)] = pages[k];
      row(i).set[g].insert(first + static_cast<int32_t>(k));
    }
  }

  Statuses CheckDropPages(int32_t i, int32_t g, int32_t first, int32_t count) const {
    if (group(g).engine_table)
      return { CGR_ERROR_STATE };
    if (count == 0)
      return {};
    int32_t end = first + count;
    bool has_all = count > 0 && first >= First(i, g) && end <= End(i, g);
    bool at_an_end = first == First(i, g) || end == End(i, g);
    return has_all && at_an_end ? Statuses{} : Statuses{ CGR_ERROR_INVALID_ARGUMENT };
  }
  void DropPages(int32_t i, int32_t g, int32_t first, int32_t count) {
    for (int32_t k = 0; k < count; k++)
      row(i).pages[g].erase(first + k);
  }

  Statuses CheckSetLength(int32_t i, int32_t tokens) const {
    Statuses wrong;
    if (tokens < 0)
      wrong.insert(CGR_ERROR_INVALID_ARGUMENT);
    if (tokens > config_.max_seq_len)
      wrong.insert(CGR_ERROR_SEQUENCE_TOO_LONG);
    if (tokens > Capacity(i) || (tokens > 0 && !HasFront(i, tokens)))
      wrong.insert(CGR_ERROR_PAGES_MISSING);
    return wrong;
  }

  Statuses CheckBatch(const Batch &batch) const {
    Statuses wrong;
    std::set<int32_t> seen;
    int64_t at = 0;
    if (batch.rows.size() > static_cast<size_t>(config_.max_requests))
      return { CGR_ERROR_TOO_MANY_REQUESTS };
    for (size_t i = 0; i < batch.rows.size(); i++) {
      int32_t query_len = batch.QueryLen(i);
      CheckRow(batch.rows[i], query_len, &seen, &wrong);
      if (batch.has_flags && (batch.flags[i] & ~1u) != 0)
        wrong.insert(CGR_ERROR_INVALID_ENUM);
      if (at + query_len > config_.max_tokens)
        wrong.insert(CGR_ERROR_TOO_MANY_TOKENS);
      if (query_len > 0 && at + query_len <= batch.NumTokens())
        CheckTokens(batch, i, at, query_len, &wrong);
      at += std::max(query_len, 0);
    }
    return wrong;
  }
  // A step of this batch was launched as `seq`.
  void Launch(const Batch &batch, uint64_t seq) {
    for (size_t i = 0; i < batch.rows.size(); i++) {
      ModelRow &r = row(batch.rows[i]);
      r.computed += batch.QueryLen(i);
      r.last_seq = seq;
      if (batch.QueryLen(i) > 0)
        r.has_token = !batch.has_flags || batch.flags[i] == 0;
    }
  }

private:
  void CheckRow(int32_t i, int32_t query_len, std::set<int32_t> *seen, Statuses *wrong) const {
    if (query_len < 0)
      wrong->insert(CGR_ERROR_INVALID_ARGUMENT);
    if (i < 0 || i >= config_.max_rows) {
      wrong->insert(CGR_ERROR_INVALID_ARGUMENT);
      return;
    }
    if (!row(i).open)
      wrong->insert(CGR_ERROR_ROW_CLOSED);
    if (!seen->insert(i).second)
      wrong->insert(CGR_ERROR_ROW_REPEATED);
    if (row(i).open && row(i).computed + query_len > config_.max_seq_len)
      wrong->insert(CGR_ERROR_SEQUENCE_TOO_LONG);
    if (row(i).open && query_len != 0 && row(i).computed + query_len > Capacity(i))
      wrong->insert(CGR_ERROR_PAGES_MISSING);
    if (row(i).open && query_len > 0 && !HasFront(i, row(i).computed))
      wrong->insert(CGR_ERROR_PAGES_MISSING);
  }
  void CheckTokens(const Batch &batch, size_t i, int64_t at, int32_t query_len, Statuses *wrong) const {
    int32_t row_of = batch.rows[i];
    bool has_last = row_of >= 0 && row_of < config_.max_rows && row(row_of).open && row(row_of).has_token;
    for (int32_t j = 0; j < query_len; j++) {
      int32_t token = batch.has_tokens ? batch.tokens[static_cast<size_t>(at + j)] : CGR_TOKEN_LAST;
      if (token < CGR_TOKEN_LAST)
        wrong->insert(CGR_ERROR_INVALID_ARGUMENT);
      if (token == CGR_TOKEN_LAST && (j > 0 || !has_last))
        wrong->insert(CGR_ERROR_INVALID_ARGUMENT);
    }
    if (!batch.has_tokens && query_len > 1)
      wrong->insert(CGR_ERROR_NULL_POINTER);
  }

  ModelConfig config_;
  std::vector<ModelRow> rows_;
};

// The tables on the device. Nothing but a launched step changes them.
class Device {
public:
  explicit Device(const Model &model) : computed(static_cast<size_t>(model.config().max_rows), 0) {
    for (int32_t g = 0; g < model.num_groups(); g++) {
      pages_per_row_.push_back(model.PagesPerRow(g));
      pages_.emplace_back(static_cast<size_t>(model.config().max_rows) * static_cast<size_t>(model.PagesPerRow(g)),
                          model.group(g).read_trash);
    }
  }
  int32_t &Page(int32_t row, int32_t g, int32_t index) {
    size_t group = static_cast<size_t>(g);
    return pages_[group][static_cast<size_t>(row) * static_cast<size_t>(pages_per_row_[group]) + static_cast<size_t>(index)];
  }
  void Apply(const std::vector<cgr__change> &changes) {
    for (const cgr__change &c : changes) {
      if (c.kind == CGR__CHANGE_COMPUTED)
        computed[static_cast<size_t>(c.row)] = c.value;
      else
        Page(c.row, c.kind >> 8, c.index) = c.value;
    }
  }
  void Advance(const Batch &batch) {
    for (size_t i = 0; i < batch.rows.size(); i++)
      computed[static_cast<size_t>(batch.rows[i])] += batch.QueryLen(i);
  }

  std::vector<int32_t> computed;
  bool lost = false; // it refuses every step until the host has seen that

private:
  std::vector<int32_t> pages_per_row_;
  std::vector<std::vector<int32_t>> pages_;
};

} // namespace cgr_test
