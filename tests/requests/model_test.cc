// Rows, pages, changes and batches together against a model: random calls, right and wrong ones, while a simulated device runs
// the steps. Whatever was cancelled, given up or lost, a step that runs finds in the device's tables what its rows need.
#include <algorithm>
#include <memory>
#include <vector>

#include "tests/requests/model.h"
#include "tests/requests/random_batches.h"

namespace {

using namespace cgr_test;
using List = std::vector<int32_t>;

// What a launched or prepared step said of its requests.
struct Told {
  List rows, query_lens;
  std::vector<uint32_t> flags;
  std::vector<uint64_t> tags;
};

struct Prepared {
  Batch batch;
  Told told;
  cgr__checked_batch checked;
  std::vector<std::vector<cgr__change>> slots; // the last is that of the step itself
  std::map<int32_t, ModelRow> rows;            // of the batch, as they were
};

class Driver {
public:
  Driver(const ModelConfig &config, uint64_t seed)
      : config_(config), random_(seed), model_(config), batches_(model_, &random_), device_(model_),
        rows_(config.max_rows, config.max_seq_len, config.groups, config.max_requests, config.max_tokens),
        pool_(rows_, config.max_requests, config.max_tokens, config.ring_depth) {}

  int64_t operations() const { return operations_; }
  int64_t launched() const { return static_cast<int64_t>(launched_); }
  int64_t refused() const { return refused_; }
  int64_t same() const { return same_; } // unchanged decode batches
  int64_t followed() const { return followed_; }
  int64_t known() const { return known_; } // of which the device need not be told

  void Step() {
    switch (random_.Pick(0, 21)) {
    case 0:
      return Open();
    case 1:
      return Close();
    case 2:
    case 3:
    case 4:
      return SetPages();
    case 5:
      return DropPages();
    case 6:
      return SetLength();
    case 7:
      return Choose();
    case 8:
      return random_.OneIn(4) ? Lose() : Flush();
    case 9:
      return random_.OneIn(3) ? CompareAll() : CompareRows();
    default:
      return prepared_ == nullptr ? Prepare() : Finish();
    }
  }
  void CompareAll();

private:
  void Open();
  void Close();
  void SetPages();
  void DropPages();
  void SetLength();
  void Choose();
  void Lose();
  void Flush();
  void Prepare();
  void Finish();

  void Expect(cgr_status got, const Statuses &wrong, const char *what);
  void ExpectChecked(const Batch &batch, const cgr__checked_batch &checked, Told *told);
  std::vector<cgr__change> Collect();
  void CheckChange(const cgr__change &change);
  void SeeLoss();
  void Cancel();
  void Launch();
  void GiveUp();
  void LaunchSlot(const std::vector<cgr__change> &changes);
  void CheckOnDevice();
  void CompareRows();
  void CheckResults();
  void AddPages(int32_t row);
  List FreshPages(int32_t row, int32_t group, int32_t count);
  bool IsPrepared(int32_t row) const;
  void CheckRowOnDevice(int32_t row, const ModelRow &expected);

  ModelConfig config_;
  Random random_;
  Model model_;
  RandomBatches batches_;
  Device device_;
  Rows rows_;
  Pool pool_;
  std::unique_ptr<Prepared> prepared_;
  std::map<uint64_t, std::unique_ptr<Told>> results_;
  Batch last_; // launched last
  bool last_can_repeat_ = false;
  uint64_t launched_ = 0;
  int64_t operations_ = 0, refused_ = 0, same_ = 0, followed_ = 0, known_ = 0;
};

// ----------------------------------------------------------------------------------------------------------------- helpers

void Driver::Expect(cgr_status got, const Statuses &wrong, const char *what) {
  operations_++;
  refused_ += got != CGR_OK;
  if (wrong.empty())
    ASSERT_EQ(got, CGR_OK) << what << ": " << cgr_last_message();
  else
    ASSERT_EQ(wrong.count(got), 1u) << what << " gave " << cgr_status_name(got) << ", " << wrong.size() << " faults, one is "
                                    << cgr_status_name(*wrong.begin()) << "; " << cgr_last_message();
}

bool Driver::IsPrepared(int32_t row) const { return prepared_ != nullptr && prepared_->rows.count(row) != 0; }

List Driver::FreshPages(int32_t row, int32_t group, int32_t count) {
  std::set<int32_t> taken = { model_.group(group).read_trash, model_.group(group).write_trash };
  for (const auto &[index, page] : model_.row(row).pages[group])
    taken.insert(page);
  List pages;
  while (static_cast<int32_t>(pages.size()) < count) {
    int32_t page = static_cast<int32_t>(random_.Pick(0, model_.group(group).num_pages - 1));
    if (taken.insert(page).second)
      pages.push_back(page);
  }
  return pages;
}

// ------------------------------------------------------------------------------------------------------------------- calls

void Driver::Open() {
  int32_t row = -1;
  uint64_t tag = random_.Bits();
  bool full = static_cast<int32_t>(model_.Open().size()) == config_.max_rows;
  Expect(cgr__rows_open(rows_, tag, &row), full ? Statuses{ CGR_ERROR_TOO_MANY_REQUESTS } : Statuses{}, "open");
  if (full || row < 0)
    return;
  ASSERT_LT(row, config_.max_rows);
  ASSERT_FALSE(model_.row(row).open) << "row " << row << " is open already";
  uint64_t last_seq = model_.row(row).last_seq; // of an owner before
  model_.row(row) = ModelRow();
  model_.row(row).last_seq = last_seq;
  model_.row(row).open = true;
  model_.row(row).tag = tag;
}

void Driver::Close() {
  int32_t row = batches_.AnyRow();
  if (row < 0 || IsPrepared(row) || random_.OneIn(2))
    return;
  Expect(cgr__rows_close(rows_, row), {}, "close");
  uint64_t last_seq = model_.row(row).last_seq;
  model_.row(row) = ModelRow();
  model_.row(row).last_seq = last_seq;
}

void Driver::SetPages() {
  int32_t row = batches_.AnyRow();
  if (row < 0)
    return;
  if (random_.OneIn(3))
    return AddPages(row);
  int32_t group = random_.Pick32(0, model_.num_groups() - 1);
  int32_t first = random_.OneIn(2) ? model_.End(row, group) : random_.Pick32(-1, model_.End(row, group) + 1);
  if (first < 0 && !random_.OneIn(5))
    first = 0;
  List pages = FreshPages(row, group, random_.Pick32(0, 3));
  if (!pages.empty() && random_.OneIn(8)) { // something wrong, or a page that the range replaces
    const int32_t bad[] = { -1,
                            static_cast<int32_t>(model_.group(group).num_pages),
                            model_.group(group).read_trash,
                            model_.group(group).write_trash,
                            pages[0],
                            model_.row(row).pages[group].begin()->second };
    pages.back() = bad[random_.Pick(0, model_.row(row).pages[group].empty() ? 4 : 5)];
  }
  if (pages.empty()) // what is right with no pages is not told
    first = model_.End(row, group);
  Statuses wrong = model_.CheckSetPages(row, group, first, pages);
  Expect(rows_.SetPages(row, first, pages, group), wrong, "set_pages");
  if (wrong.empty())
    model_.SetPages(row, group, first, pages);
}

// One page more in every group, and the first ones if they are missing.
void Driver::AddPages(int32_t row) {
  for (int32_t g = 0; g < model_.num_groups(); g++) {
    if (model_.group(g).engine_table)
      continue;
    int32_t first = model_.First(row, g), end = model_.End(row, g);
    if (first > 0) {
      List front = FreshPages(row, g, first);
      Expect(rows_.SetPages(row, 0, front, g), {}, "set_pages at the front");
      model_.SetPages(row, g, 0, front);
    }
    int32_t count = std::min(random_.Pick32(1, 3), model_.PagesPerRow(g) - end);
    if (count <= 0)
      continue;
    List pages = FreshPages(row, g, count);
    Expect(rows_.SetPages(row, end, pages, g), {}, "set_pages at the end");
    model_.SetPages(row, g, end, pages);
  }
}

void Driver::DropPages() {
  int32_t row = batches_.AnyRow(), group = random_.Pick32(0, model_.num_groups() - 1);
  if (row < 0 || IsPrepared(row))
    return;
  int32_t first = model_.First(row, group), end = model_.End(row, group);
  int32_t count = random_.OneIn(8) ? end - first : random_.Pick32(-1, 2);
  int32_t from = random_.OneIn(6) ? random_.Pick32(first - 1, end + 1) : random_.OneIn(3) ? first : end - count;
  Statuses wrong = model_.CheckDropPages(row, group, from, count);
  Expect(rows_.DropPages(row, from, count, group), wrong, "drop_pages");
  if (wrong.empty())
    model_.DropPages(row, group, from, count);
}

void Driver::SetLength() {
  int32_t row = batches_.AnyRow();
  if (row < 0 || IsPrepared(row))
    return;
  int32_t capacity = model_.Capacity(row);
  int32_t tokens = random_.OneIn(8) ? random_.Pick32(-2, config_.max_seq_len + 2) : random_.Pick32(0, capacity);
  Statuses wrong = model_.CheckSetLength(row, tokens);
  Expect(cgr__rows_set_length(rows_, row, tokens), wrong, "set_length");
  if (!wrong.empty())
    return;
  model_.row(row).computed = tokens;
  model_.row(row).has_token = false;
}

// ----------------------------------------------------------------------------------------------------------------- batches

// What is reported about a batch that was found good.
void Driver::ExpectChecked(const Batch &batch, const cgr__checked_batch &checked, Told *told) {
  bool uniform = !batch.rows.empty(), flags = false;
  *told = Told();
  for (size_t i = 0; i < batch.rows.size(); i++) {
    const ModelRow &row = model_.row(batch.rows[i]);
    told->rows.push_back(batch.rows[i]);
    told->query_lens.push_back(batch.QueryLen(i));
    told->flags.push_back(batch.has_flags ? batch.flags[i] : 0);
    told->tags.push_back(row.tag);
    uniform &= batch.QueryLen(i) == batch.QueryLen(0);
    flags |= told->flags.back() != 0;
  }
  ASSERT_EQ(checked.num_requests, static_cast<int32_t>(batch.rows.size()));
  ASSERT_EQ(checked.num_tokens, batch.NumTokens());
  ASSERT_EQ(checked.query_len, uniform ? batch.QueryLen(0) : 0);
  bool same = last_can_repeat_ && told->rows == last_.rows;
  for (size_t i = 0; i < batch.rows.size() && same; i++)
    same = batch.QueryLen(i) == last_.QueryLen(i);
  const cgr__members &members = rows_.batches.members;
  same_ += same && !flags && checked.query_len == 1 && prepared_ == nullptr;
  followed_ += checked.follows;
  known_ += checked.follows && members.num_dirty == 0 && !members.all_dirty;
  const cgr__batch_layout *c = checked.batch_layout;
  ASSERT_EQ(List(c->rows, c->rows + checked.num_requests), told->rows);
  ASSERT_EQ(List(c->query_lens, c->query_lens + checked.num_requests), told->query_lens);
  ASSERT_EQ(std::vector<uint32_t>(c->flags, c->flags + checked.num_requests), told->flags);
  ASSERT_EQ(std::vector<uint64_t>(c->tags, c->tags + checked.num_requests), told->tags);
  ASSERT_EQ(c->num_partial != 0, flags);
}

void Driver::Choose() {
  Batch batch = batches_.Next(last_, 5);
  cgr__checked_batch checked;
  Told told;
  Statuses wrong = model_.CheckBatch(batch);
  Expect(pool_.Choose(rows_, batch, prepared_ != nullptr, &checked), wrong, "choose");
  if (wrong.empty())
    ExpectChecked(batch, checked, &told);
  CheckResults();
}

// ----------------------------------------------------------------------------------------------------------------- changes

// A change tells what the host says now.
void Driver::CheckChange(const cgr__change &change) {
  ASSERT_GE(change.row, 0);
  ASSERT_LT(change.row, config_.max_rows);
  const ModelRow &row = model_.row(change.row);
  ASSERT_TRUE(row.open) << "a change of closed row " << change.row;
  if (change.kind == CGR__CHANGE_COMPUTED) {
    ASSERT_EQ(change.value, row.computed) << "length of row " << change.row;
    return;
  }
  ASSERT_EQ(change.kind & 255, CGR__CHANGE_PAGE);
  int32_t group = change.kind >> 8;
  ASSERT_LT(group, model_.num_groups());
  ASSERT_FALSE(model_.group(group).engine_table);
  ASSERT_GE(change.index, 0);
  ASSERT_LT(change.index, model_.PagesPerRow(group));
  auto page = row.pages[group].find(change.index);
  ASSERT_EQ(change.value, page != row.pages[group].end() ? page->second : model_.group(group).read_trash)
      << "page " << change.index << " of row " << change.row << ", group " << group;
}

// One slot full of changes.
std::vector<cgr__change> Driver::Collect() {
  int64_t pending = cgr__changes_pending(rows_);
  std::vector<cgr__change> slot(static_cast<size_t>(config_.max_changes));
  int32_t count = cgr__changes_collect(rows_, slot.data(), config_.max_changes);
  operations_++;
  EXPECT_EQ(count, std::min<int64_t>(pending, config_.max_changes));
  EXPECT_EQ(cgr__changes_pending(rows_), pending - count);
  slot.resize(static_cast<size_t>(std::max(count, 0)));
  std::set<std::vector<int32_t>> words;
  for (const cgr__change &c : slot) {
    EXPECT_TRUE(words.insert({ c.kind, c.row, c.index }).second) << "a word twice in a slot";
    CheckChange(c);
  }
  return slot;
}

// A step without requests of its own.
void Driver::LaunchSlot(const std::vector<cgr__change> &changes) {
  cgr__batch_layouts_launch(&pool_.pool, ++launched_, nullptr);
  results_[launched_] = nullptr;
  if (!device_.lost)
    device_.Apply(changes);
}

void Driver::Flush() {
  if (prepared_ != nullptr)
    return;
  SeeLoss();
  std::vector<cgr__change> changes = Collect();
  if (random_.OneIn(3))
    rows_.Restore(changes); // it could not be launched
  else
    LaunchSlot(changes);
}

// The device refuses a step, and with it all steps that were staged before the host knows.
void Driver::Lose() { device_.lost = true; }

void Driver::SeeLoss() {
  if (!device_.lost)
    return;
  operations_++;
  cgr__changes_mark_all(rows_);
  device_.lost = false;
}

// ------------------------------------------------------------------------------------------------------------------- steps

void Driver::Prepare() {
  SeeLoss();
  auto next = std::make_unique<Prepared>();
  next->batch = batches_.Next(last_, 6);
  Statuses wrong = model_.CheckBatch(next->batch);
  Expect(pool_.Validate(rows_, next->batch, &next->checked), wrong, "prepare");
  if (!wrong.empty())
    return;
  ExpectChecked(next->batch, next->checked, &next->told);
  do {
    next->slots.push_back(Collect());
  } while (cgr__changes_pending(rows_) > 0);
  for (int32_t row : next->batch.rows)
    next->rows[row] = model_.row(row);
  pool_.Prepare(&next->checked);
  prepared_ = std::move(next);
}

void Driver::Finish() {
  int64_t choice = random_.Pick(0, 9);
  choice == 0 ? Cancel() : choice == 1 ? GiveUp() : Launch();
  prepared_.reset();
  CheckResults();
}

void Driver::Cancel() {
  operations_++;
  for (const auto &slot : prepared_->slots)
    rows_.Restore(slot);
  pool_.Cancel(&prepared_->checked);
}

void Driver::Launch() {
  operations_++;
  for (size_t i = 0; i + 1 < prepared_->slots.size(); i++)
    LaunchSlot(prepared_->slots[i]);
  if (!device_.lost) {
    device_.Apply(prepared_->slots.back());
    CheckOnDevice();
    device_.Advance(prepared_->batch);
  }
  pool_.Launch(rows_, &prepared_->checked, ++launched_);
  model_.Launch(prepared_->batch, launched_);
  results_[launched_] = std::make_unique<Told>(prepared_->told);
  last_ = prepared_->batch;
  last_can_repeat_ = true;
  for (uint32_t flag : prepared_->told.flags)
    last_can_repeat_ &= flag == 0;
}

// The launch of some slot fails: the slots before it have run, its number is used up, and the rest is pending again. If it is the
// step's own slot, the device may have run it all the same.
void Driver::GiveUp() {
  operations_++;
  size_t failed = static_cast<size_t>(random_.Pick(0, static_cast<int64_t>(prepared_->slots.size()) - 1));
  for (size_t i = 0; i < failed; i++)
    LaunchSlot(prepared_->slots[i]);
  bool ran = failed + 1 == prepared_->slots.size() && random_.OneIn(2);
  pool_.Cancel(&prepared_->checked);
  LaunchSlot(ran ? prepared_->slots[failed] : std::vector<cgr__change>());
  for (size_t i = failed; i < prepared_->slots.size(); i++)
    rows_.Restore(prepared_->slots[i]);
  cgr__batch_abandon(rows_, &prepared_->checked, launched_);
  if (ran && !device_.lost)
    device_.Advance(prepared_->batch);
  if (ran)
    cgr__rows_forget_tokens(rows_, prepared_->checked.batch_layout);
  for (int32_t row : prepared_->batch.rows) {
    model_.row(row).last_seq = launched_;
    model_.row(row).has_token &= !ran;
  }
}

// The device has the row's length, and every page that it ever had.
void Driver::CheckRowOnDevice(int32_t row, const ModelRow &expected) {
  ASSERT_EQ(device_.computed[static_cast<size_t>(row)], expected.computed) << "length of row " << row;
  for (int32_t g = 0; g < model_.num_groups(); g++)
    for (int32_t index : expected.set[g]) {
      auto page = expected.pages[g].find(index);
      ASSERT_EQ(device_.Page(row, g, index), page != expected.pages[g].end() ? page->second : model_.group(g).read_trash)
          << "page " << index << " of row " << row << ", group " << g;
    }
}

// The device has what the rows of the step need, as they were when it was prepared.
void Driver::CheckOnDevice() {
  for (int32_t row : prepared_->batch.rows)
    ASSERT_NO_FATAL_FAILURE(CheckRowOnDevice(row, prepared_->rows[row]));
}

// -------------------------------------------------------------------------------------------------------------- comparison

// Every result that is still in the ring tells what its step had.
void Driver::CheckResults() {
  uint64_t depth = static_cast<uint64_t>(config_.ring_depth);
  for (uint64_t seq = launched_; seq > 0 && seq + depth > launched_; seq--) {
    const cgr__batch_layout *c = cgr__batch_layout_of(&pool_.pool, seq);
    const Told *told = results_[seq].get();
    ASSERT_EQ(c != nullptr, told != nullptr) << "step " << seq;
    if (c == nullptr)
      continue;
    ASSERT_EQ(List(c->rows, c->rows + told->rows.size()), told->rows) << "step " << seq;
    ASSERT_EQ(std::vector<uint64_t>(c->tags, c->tags + told->rows.size()), told->tags) << "step " << seq;
  }
  while (results_.size() > 2 * depth)
    results_.erase(results_.begin());
  if (prepared_ != nullptr) {
    const cgr__batch_layout *c = prepared_->checked.batch_layout;
    ASSERT_EQ(List(c->rows, c->rows + c->num_requests), prepared_->told.rows) << "the prepared step";
    ASSERT_EQ(std::vector<uint64_t>(c->tags, c->tags + c->num_requests), prepared_->told.tags) << "the prepared step";
  }
}

void Driver::CompareRows() {
  for (int32_t i = 0; i < config_.max_rows; i++) {
    cgr__members_sync(rows_, i);
    const cgr__row &has = rows_.rows.row[i];
    const ModelRow &row = model_.row(i);
    ASSERT_EQ(has.open, row.open) << "row " << i;
    ASSERT_EQ(has.last_seq, row.last_seq) << "row " << i;
    if (!row.open)
      continue;
    ASSERT_EQ(has.tag, row.tag) << "row " << i;
    ASSERT_EQ(has.computed, row.computed) << "row " << i;
    ASSERT_EQ(has.has_token, row.has_token) << "row " << i;
    ASSERT_EQ(has.capacity, model_.Capacity(i)) << "row " << i;
    for (int32_t g = 0; g < model_.num_groups(); g++) {
      List pages;
      for (const auto &[index, page] : row.pages[g])
        pages.push_back(page);
      ASSERT_EQ(rows_.Pages(i, g), pages) << "row " << i << ", group " << g;
      ASSERT_EQ(rows_.rows.group[g].row[i].first, model_.First(i, g));
    }
  }
}

// Sends all that is pending; then the device agrees in every word that a row ever had.
void Driver::CompareAll() {
  CompareRows();
  if (prepared_ != nullptr)
    return;
  SeeLoss();
  while (cgr__changes_pending(rows_) > 0 && !::testing::Test::HasFatalFailure())
    LaunchSlot(Collect());
  for (int32_t row : model_.Open())
    ASSERT_NO_FATAL_FAILURE(CheckRowOnDevice(row, model_.row(row)));
}

std::vector<ModelConfig> Configs() {
  const GroupSpec engine = { 32, 1000, 0, 1, true };
  const Layers windows = { { 20, 0 }, { 33, 0 } }, chunks = { { 0, 48 } }, mixed = { { 25, 0 }, { 0, 40 }, { 90, 64 } };
  const Layers all = { { 5, 0 }, { 0, 0 } };
  return {
    // name, groups, rows, max_seq_len, requests, tokens, depth, changes
    { "one word at a time", { { 16, 400, 0, 1, false } }, 3, 100, 3, 40, 2, 1 },
    { "one row", { { 16, 60, 5, 7, false } }, 1, 333, 1, 64, 3, 4 },
    { "three groups", { { 16, 2000, 3, 4, false }, { 32, 300, 0, 1, false }, { 64, 150, 9, 8, false } }, 8, 500, 5, 60, 4, 7 },
    { "an engine's table between", { { 16, 500, 11, 12, false }, engine, { 64, 99, 0, 1, false } }, 6, 400, 6, 90, 8, 3 },
    { "an engine's table alone", { engine }, 5, 700, 4, 100, 5, 2 },
    { "windows", { { 16, 400, 0, 1, false, windows } }, 3, 333, 3, 60, 3, 5 },
    { "windows, chunks and all",
      { { 16, 500, 3, 4, false, chunks }, { 48, 300, 0, 1, false, mixed }, { 32, 150, 0, 1, false, all } },
      6,
      500,
      5,
      90,
      4,
      20 },
    { "many rows", { { 16, 5000, 0, 1, false } }, 40, 640, 24, 200, 4, 100 },
  };
}

TEST(RowsModel, RandomCallsAgreeWithTheModelAndTheDevice) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  int64_t operations = 0, launched = 0, refused = 0, same = 0, followed = 0, known = 0;
  for (const ModelConfig &config : Configs()) {
    SCOPED_TRACE(config.name);
    Driver driver(config, seed);
    while (driver.operations() < 50000 && !HasFailure())
      driver.Step();
    driver.CompareAll();
    ASSERT_FALSE(HasFailure());
    operations += driver.operations();
    launched += driver.launched();
    refused += driver.refused();
    same += driver.same();
    followed += driver.followed();
    known += driver.known();
  }
  EXPECT_GE(operations, 300000);
  EXPECT_GT(launched, 30000);
  EXPECT_GT(refused, 5000);
  EXPECT_GT(known, same * 9 / 10);
  EXPECT_GT(followed, 5 * known / 4);
  std::cout << operations << " operations, " << launched << " steps launched, " << refused << " calls refused; " << same
            << " batches as the last, " << known << " known, " << followed << " followed\n";
}

} // namespace
