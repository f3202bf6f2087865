// The kernel of the on-demand buffers, batch after batch over the same memory: every word of every buffer is what a plain
// computation from the batch says, or its old value. This includes buffers that are not asked for, and pages that no kernel
// may read.
#include <array>
#include <numeric>

#include "kernels/on_demand.h"
#include "tests/support/device_memory.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

using Words = std::vector<int32_t>;

constexpr int32_t kPoison = int32_t(0xA5A5A5A5u), kReadTrash = 3, kWriteTrash = 5, kPages = 5000;

struct GroupShape {
  int32_t page_size, pages_per_row;
  int64_t stride;         // of the page table: at least as many
  int32_t pages_each = 1; // of backends

  int32_t size() const { return page_size / pages_each; } // of those
  int32_t width() const { return pages_per_row * pages_each; }
};

struct Shape {
  int32_t max_requests, max_rows, max_seq_len;
  std::vector<GroupShape> groups;
  int32_t num_sets = 1;
  uint64_t asked = CGR__ALL_ON_DEMAND;
  bool stateless = false; // no block_extents

  bool Asks(cgr_buffer buffer) const { return (asked & CGR_ON_DEMAND(buffer)) != 0; }
};

Shape RandomShape(Random &random) {
  Shape s;
  s.max_requests = random.OneIn(8) ? random.Pick32(900, CGR__MAX_REQUESTS) : random.Pick32(1, random.OneIn(3) ? 300 : 20);
  s.max_rows = s.max_requests + random.Pick32(0, 9);
  s.max_seq_len = s.max_requests > 300 ? random.Pick32(1, 90)
                  : random.OneIn(6)    ? random.Pick32(20000, 60000)
                                       : random.Pick32(1, 900);
  for (int32_t g = random.Pick32(1, s.max_seq_len > 1000 ? 1 : CGR__MAX_GROUPS); g > 0; g--) {
    const int32_t size =
        std::array<int32_t, 8>{ 16, 32, 48, 64, 96, 256, 1024, 1 }[size_t(random.Pick(0, s.max_seq_len > 1000 ? 6 : 7))];
    const int32_t pages = (s.max_seq_len + size - 1) / size;
    std::vector<int32_t> each = { 1 };
    for (int32_t small : { 1, 16, 32, 64, 128 })
      if (size % small == 0 && (small > 1 || s.max_requests < 20) && s.max_seq_len < 1000)
        each.push_back(size / small);
    s.groups.push_back({ size, pages, pages + (random.OneIn(2) ? 0 : random.Pick(1, 7)),
                         each[size_t(random.Pick(0, int64_t(each.size()) - 1))] });
  }
  if (s.max_seq_len > 1000)
    s.max_rows = s.max_requests = std::min(s.max_requests, 12);
  s.num_sets = random.Pick32(1, CGR__MAX_SETS);
  s.asked = random.OneIn(2) ? CGR__ALL_ON_DEMAND : random.Bits() & CGR__ALL_ON_DEMAND;
  s.stateless = random.OneIn(6);
  return s;
}

// A batch as the prologue leaves it.
struct Batch {
  int32_t num_requests, padded_requests, num_decodes;
  Words rows, starts, lens[CGR__MAX_SETS]; // to the padded count
  std::vector<Words> indptr, last;         // by group
};

// Lengths where something may go wrong.
int32_t RandomLength(Random &random, const Shape &s) {
  const int32_t page = s.groups[size_t(random.Pick(0, int64_t(s.groups.size()) - 1))].page_size * random.Pick32(1, 4);
  const int32_t lengths[] = { 0, 1, page - 1, page, page + 1, s.max_seq_len, random.Pick32(0, s.max_seq_len) };
  return std::min(lengths[random.Pick(0, 6)], s.max_seq_len);
}

Batch RandomBatch(Random &random, const Shape &s) {
  Batch b;
  b.padded_requests = random.OneIn(3) ? s.max_requests : random.Pick32(1, s.max_requests);
  b.num_requests = random.OneIn(8) ? 0 : random.OneIn(3) ? b.padded_requests : random.Pick32(0, b.padded_requests);
  b.num_decodes = random.OneIn(4) ? b.num_requests : random.OneIn(4) ? 0 : random.Pick32(0, b.num_requests);
  Words rows(size_t(s.max_rows));
  std::iota(rows.begin(), rows.end(), 0);
  for (size_t i = rows.size(); i > 1; i--)
    std::swap(rows[i - 1], rows[size_t(random.Pick(0, int64_t(i) - 1))]);
  b.starts = { 0 };
  for (int32_t i = 0; i < b.padded_requests; i++) {
    const bool real = i < b.num_requests, refused = real && random.OneIn(9);
    const int32_t query = !real || random.OneIn(7) ? 0 : i < b.num_decodes ? 1 : random.Pick32(1, 40);
    const int32_t length = !real || refused ? 0 : std::max(RandomLength(random, s), std::min(query, s.max_seq_len));
    b.rows.push_back(real ? (refused ? int32_t(random.Bits()) : rows[size_t(i)]) : s.max_rows);
    b.starts.push_back(b.starts.back() + (refused ? query : std::min(query, length)));
    for (Words &lens : b.lens)
      lens.push_back(&lens == b.lens || !real ? length : random.Pick32(0, 5000));
  }
  for (const GroupShape &g : s.groups) {
    Words indptr = { 0 }, last;
    for (int32_t length : b.lens[0]) {
      indptr.push_back(indptr.back() + (length + g.size() - 1) / g.size());
      last.push_back(length == 0 ? 1 : (length - 1) % g.size() + 1);
    }
    b.indptr.push_back(indptr);
    b.last.push_back(last);
  }
  return b;
}

// The buffers of a group, on the device and as they must be.
struct Output {
  Output(Bench &bench, const Words &content, bool asked)
      : want(content), there(asked ? std::make_unique<Array<int32_t>>(bench, content) : nullptr) {}
  int32_t *data() const { return there ? there->data() : nullptr; }
  void Expect(const char *name) const {
    if (!there)
      return;
    const Words got = there->Get();
    for (size_t i = 0; i < want.size(); i++)
      ASSERT_EQ(got[i], want[i]) << name << "[" << i << "]";
  }
  Words want;
  std::unique_ptr<Array<int32_t>> there;
};

struct GroupBuffers {
  GroupBuffers(Bench &bench, const Shape &s, const GroupShape &g, Random &random)
      : table(bench, Table(s, g, random)), indptr(bench, size_t(s.max_requests) + 1), last(bench, size_t(s.max_requests)),
        kv_indices(bench, Words(size_t(s.max_requests) * size_t(g.width()), kPoison), s.Asks(CGR_BUFFER_KV_INDICES)),
        block_table(bench, Words(size_t(s.max_requests) * size_t(g.width()), kReadTrash * g.pages_each),
                    s.Asks(CGR_BUFFER_BLOCK_TABLE)),
        extents(bench, Words(size_t(s.max_requests), 0), s.Asks(CGR_BUFFER_BLOCK_TABLE) && !s.stateless),
        prefill_table(bench, Words(size_t(s.max_requests) * size_t(g.width()), kReadTrash * g.pages_each),
                      s.Asks(CGR_BUFFER_PREFILL_BLOCK_TABLE)),
        prefill_extents(bench, Words(size_t(s.max_requests), 0), s.Asks(CGR_BUFFER_PREFILL_BLOCK_TABLE) && !s.stateless),
        prefill_indptr(bench, Words(size_t(s.max_requests) + 1, kPoison), s.Asks(CGR_BUFFER_PREFILL_KV_INDPTR)),
        prefill_last(bench, Words(size_t(s.max_requests), kPoison), s.Asks(CGR_BUFFER_PREFILL_KV_LAST_PAGE_LEN)) {}
  static Words Table(const Shape &s, const GroupShape &g, Random &random) {
    Words table;
    for (int64_t i = 0; i < (s.max_rows + 1) * g.stride; i++)
      table.push_back(random.OneIn(50) ? kReadTrash : random.Pick32(6, kPages - 1));
    return table;
  }
  Array<int32_t> table, indptr, last;
  Output kv_indices, block_table, extents, prefill_table, prefill_extents, prefill_indptr, prefill_last;
};

class KernelOnDemand : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_on_demand }); }
};

// All buffers of one shape.
class World {
public:
  World(Bench &bench, const Shape &s, Random &random)
      : s_(s), bench_(bench), counts_(bench, 16), error_(bench, sizeof(cgr__step_error) / 4), starts_(bench, Words1()),
        rows_(bench, Requests()), context_lens_(bench, Requests(), s.Asks(CGR_BUFFER_CONTEXT_LENS)),
        context_starts_(bench, Words1(), s.Asks(CGR_BUFFER_CONTEXT_START_LOC)),
        prefill_starts_(bench, Words1(), s.Asks(CGR_BUFFER_PREFILL_QUERY_START_LOC)) {
    for (int32_t set = 0; set < CGR__MAX_SETS; set++) {
      lens_.push_back(std::make_unique<Array<int32_t>>(bench, Requests()));
      kv_starts_.push_back(std::make_unique<Output>(bench, Words1(), s.Asks(CGR_BUFFER_KV_START_LOC)));
      prefill_lens_.push_back(std::make_unique<Output>(bench, Requests(), s.Asks(CGR_BUFFER_PREFILL_SEQ_LENS)));
      prefill_kv_starts_.push_back(std::make_unique<Output>(bench, Words1(), s.Asks(CGR_BUFFER_PREFILL_KV_START_LOC)));
    }
    for (const GroupShape &g : s.groups)
      groups_.push_back(std::make_unique<GroupBuffers>(bench, s, g, random));
  }
  GroupBuffers &group(size_t g) { return *groups_[g]; }

  void Run(const Batch &b) {
    Words counts(16, kPoison);
    counts[CGR_COUNT_REQUESTS] = b.num_requests;
    counts[CGR_COUNT_DECODES] = b.num_decodes;
    counts_.Put(counts);
    error_.Put(Words(sizeof(cgr__step_error) / 4, 0));
    Put(starts_, b.starts);
    Put(rows_, b.rows);
    for (size_t set = 0; set < CGR__MAX_SETS; set++)
      Put(*lens_[set], b.lens[set]);
    for (size_t g = 0; g < groups_.size(); g++) {
      Put(groups_[g]->indptr, b.indptr[g]);
      Put(groups_[g]->last, b.last[g]);
    }
    const cgr__on_demand_args args = Args(b);
    bench_.Run(cgr__kernel_on_demand, &args);
  }
  cgr__step_error Error() {
    cgr__step_error error;
    const Words got = error_.Get();
    std::memcpy(&error, got.data(), sizeof error);
    return error;
  }

  // What the batch leaves, by plain loops over requests.
  void Expect(const Batch &b) {
    const size_t n = size_t(b.padded_requests), first = size_t(b.num_decodes);
    for (size_t set = 0; set < CGR__MAX_SETS; set++) {
      Words &want = kv_starts_[set]->want;
      want[0] = int32_t(set) < s_.num_sets ? 0 : want[0];
      for (size_t i = 0; i < n && int32_t(set) < s_.num_sets; i++)
        want[i + 1] = want[i] + b.lens[set][i];
    }
    for (size_t set = 0; int32_t(set) < s_.num_sets; set++) {
      int32_t sum = 0;
      for (size_t j = 0; j <= n; j++) {
        prefill_kv_starts_[set]->want[j] = sum;
        const int32_t length = first + j < n ? b.lens[set][first + j] : 0;
        sum += length;
        if (j < n)
          prefill_lens_[set]->want[j] = length;
      }
    }
    context_starts_.want[0] = 0;
    for (size_t i = 0; i < n; i++) {
      const int32_t length = b.lens[0][i], before = length == 0 ? 0 : length - (b.starts[i + 1] - b.starts[i]);
      context_lens_.want[i] = before;
      context_starts_.want[i + 1] = context_starts_.want[i] + before;
    }
    for (size_t j = 0; j <= n; j++)
      prefill_starts_.want[j] = first + j <= n ? b.starts[first + j] - b.starts[first] : prefill_starts_.want[j - 1];
    for (size_t g = 0; g < groups_.size(); g++)
      ExpectGroup(b, g, first);
    context_lens_.Expect("context_lens");
    context_starts_.Expect("context_start_loc");
    prefill_starts_.Expect("prefill_query_start_loc");
    for (const auto &starts : kv_starts_)
      starts->Expect("kv_start_loc");
    for (const auto &lens : prefill_lens_)
      lens->Expect("prefill_seq_lens");
    for (const auto &starts : prefill_kv_starts_)
      starts->Expect("prefill_kv_start_loc");
  }

private:
  Words Requests() const { return Words(size_t(s_.max_requests), kPoison); }
  Words Words1() const { return Words(size_t(s_.max_requests) + 1, kPoison); }
  static void Put(Array<int32_t> &array, Words content) { // whatever comes after the padded count
    const size_t count = array.Get().size();
    content.resize(count, kPoison);
    array.Put(content);
  }
  void ExpectGroup(const Batch &b, size_t index, size_t first) {
    GroupBuffers &g = *groups_[index];
    const GroupShape &shape = s_.groups[index];
    const Words table = g.table.Get();
    const size_t n = size_t(b.padded_requests), width = size_t(shape.width());
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
      const size_t count = size_t((b.lens[0][i] + shape.size() - 1) / shape.size());
      for (size_t p = 0; p < width; p++) {
        const int32_t token = p < count ? int32_t(p) * shape.size() : 0; // the first one of the page
        int32_t page = p < count ? table[size_t(b.rows[i]) * size_t(shape.stride) + size_t(token / shape.page_size)] : kReadTrash;
        page = page < 0 || page >= kPages || page == kWriteTrash ? kReadTrash : page;
        const int32_t entry = (page * shape.page_size + token % shape.page_size) / shape.size();
        g.block_table.want[i * width + p] = entry;
        if (p < count)
          g.kv_indices.want[at++] = entry;
      }
      g.extents.want[i] = int32_t(count);
    }
    ASSERT_EQ(at, size_t(b.indptr[index][n]));
    for (size_t j = 0; j < n; j++) { // rows of requests that are not there hold the read-trash page
      const Words &all = g.block_table.want;
      const auto from = all.begin() + ptrdiff_t(std::min(first + j, n - 1) * width);
      const auto to = g.prefill_table.want.begin() + ptrdiff_t(j * width);
      if (first + j < n)
        std::copy(from, from + ptrdiff_t(width), to);
      else
        std::fill_n(to, width, kReadTrash * shape.pages_each);
      g.prefill_extents.want[j] = first + j < n ? g.extents.want[first + j] : 0;
    }
    for (size_t j = 0; j <= n; j++) {
      g.prefill_indptr.want[j] = b.indptr[index][std::min(first + j, n)];
      if (j < n)
        g.prefill_last.want[j] = first + j < n ? b.last[index][first + j] : 1;
    }
    SCOPED_TRACE("group " + std::to_string(index));
    g.kv_indices.Expect("kv_indices");
    g.block_table.Expect("block_table");
    g.extents.Expect("block_extents");
    g.prefill_table.Expect("prefill_block_table");
    g.prefill_extents.Expect("prefill_block_extents");
    g.prefill_indptr.Expect("prefill_kv_indptr");
    g.prefill_last.Expect("prefill_kv_last_page_len");
  }
  cgr__on_demand_args Args(const Batch &b) {
    cgr__on_demand_args a = {};
    a.batch.query_start_loc = starts_.data();
    a.batch.request_rows = rows_.data();
    for (size_t set = 0; set < CGR__MAX_SETS; set++) {
      a.batch.seq_lens[set] = lens_[set]->data();
      a.batch.kv_start_loc[set] = kv_starts_[set]->data(); // those past num_sets must stay
      a.batch.prefill_seq_lens[set] = prefill_lens_[set]->data();
      a.batch.prefill_kv_start_loc[set] = prefill_kv_starts_[set]->data();
    }
    a.batch.context_lens = context_lens_.data();
    a.batch.context_start_loc = context_starts_.data();
    a.batch.prefill_query_start_loc = prefill_starts_.data();
    a.batch.num_sets = s_.num_sets;
    a.batch.padded_requests = b.padded_requests;
    a.counts = counts_.data();
    a.error = reinterpret_cast<cgr__step_error *>(error_.data());
    a.num_groups = int32_t(groups_.size());
    for (size_t g = 0; g < groups_.size(); g++) {
      const GroupBuffers &from = *groups_[g];
      cgr__on_demand_group &to = a.group[g];
      to.page_table = from.table.data();
      to.page_table_stride = s_.groups[g].stride;
      to.num_pages = kPages;
      to.kv_indptr = from.indptr.data();
      to.kv_last_page_len = from.last.data();
      to.kv_indices = from.kv_indices.data();
      to.block_table = from.block_table.data();
      to.block_table_stride = s_.groups[g].width();
      to.pages_each = s_.groups[g].pages_each == 1 ? 0 : s_.groups[g].pages_each;
      to.block_extents = from.extents.data();
      to.prefill_block_table = from.prefill_table.data();
      to.prefill_block_extents = from.prefill_extents.data();
      to.prefill_kv_indptr = from.prefill_indptr.data();
      to.prefill_kv_last_page_len = from.prefill_last.data();
      to.read_trash_page = kReadTrash;
      to.write_trash_page = kWriteTrash;
    }
    return a;
  }

  const Shape s_;
  Bench &bench_;
  Array<int32_t> counts_, error_, starts_, rows_;
  Output context_lens_, context_starts_, prefill_starts_;
  std::vector<std::unique_ptr<Array<int32_t>>> lens_;
  std::vector<std::unique_ptr<Output>> kv_starts_, prefill_lens_, prefill_kv_starts_;
  std::vector<std::unique_ptr<GroupBuffers>> groups_;
};

TEST_P(KernelOnDemand, WritesWhatFollowsFromEachBatch) {
  SeededRandom random;
  const int rounds = GetParam().IsEmulated() ? 60 : 120; // every thread of a GPU in turn
  for (int round = 0; round < rounds; round++) {
    const Shape shape = RandomShape(random);
    World world(*bench_, shape, random);
    for (int step = 0; step < 6; step++) {
      SCOPED_TRACE("round " + std::to_string(round) + ", step " + std::to_string(step));
      const Batch batch = RandomBatch(random, shape);
      world.Run(batch);
      world.Expect(batch);
      ASSERT_EQ(world.Error().error, CGR_GUARD_NONE);
      ASSERT_FALSE(HasFailure());
    }
  }
}

// Every page size of a group, in pages of every size that kernels take.
TEST_P(KernelOnDemand, PagesOfKernelsAreThoseOfTheGroupsPages) {
  SeededRandom random;
  for (int32_t size : { 16, 32, 64, 128 })
    for (int32_t page = size; page <= 1024; page += size) {
      SCOPED_TRACE("pages of " + std::to_string(page) + ", of which kernels have " + std::to_string(size));
      const int32_t longest = 1 + random.Pick32(0, 3) * page + random.Pick32(0, page - 1), pages = (longest + page - 1) / page;
      Shape shape = { 6, 8, longest, { { page, pages, pages + 1, page / size } } };
      World world(*bench_, shape, random);
      for (int step = 0; step < 4; step++) {
        const Batch batch = RandomBatch(random, shape);
        world.Run(batch);
        world.Expect(batch);
        ASSERT_EQ(world.Error().error, CGR_GUARD_NONE);
        ASSERT_FALSE(HasFailure());
      }
    }
}

// By hand, as a second check: requests of 3 pages, none, 1 page (a prefill of 5 tokens after 4), and padding.
TEST_P(KernelOnDemand, OfASmallBatchAsByHand) {
  Random random(1);
  Shape shape = { 4, 6, 64, { { 16, 4, 4 } } };
  World world(*bench_, shape, random);
  Words table(28, 9);
  table[4 * 2 + 0] = 21, table[4 * 2 + 1] = 22, table[4 * 2 + 2] = 23;
  table[4 * 5 + 0] = 51;
  world.group(0).table.Put(table);
  Batch batch = { 3, 4, 2, { 2, -7, 5, 6 }, { 0, 1, 2, 7, 7 }, { { 48, 0, 9, 0 } }, { { 0, 3, 3, 4, 4 } }, { { 16, 1, 9, 1 } } };
  world.Run(batch);
  Words line = world.group(0).block_table.there->Get();
  EXPECT_EQ(line, (Words{ 21, 22, 23, 3, 3, 3, 3, 3, 51, 3, 3, 3, 3, 3, 3, 3 }));
  const Words list = world.group(0).kv_indices.there->Get();
  EXPECT_EQ(Words(list.begin(), list.begin() + 5), (Words{ 21, 22, 23, 51, kPoison }));
  EXPECT_EQ(world.group(0).prefill_indptr.there->Get(), (Words{ 3, 4, 4, 4, 4 }));
  EXPECT_EQ(world.group(0).prefill_last.there->Get(), (Words{ 9, 1, 1, 1 }));
  EXPECT_EQ(world.group(0).prefill_table.there->Get(), (Words{ 51, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3 }));
  Shape small = { 4, 6, 64, { { 32, 2, 2, 2 } } }; // the same lengths, in pages of 32
  World halves(*bench_, small, random);
  Words large(14, 9);
  large[2 * 2 + 0] = 21, large[2 * 2 + 1] = -1, large[2 * 5 + 0] = 51;
  halves.group(0).table.Put(large);
  halves.Run(batch);
  line = halves.group(0).block_table.there->Get();
  EXPECT_EQ(line, (Words{ 42, 43, 6, 6, 6, 6, 6, 6, 102, 6, 6, 6, 6, 6, 6, 6 }));
  line = halves.group(0).prefill_table.there->Get();
  EXPECT_EQ(line, (Words{ 102, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6 }));
  EXPECT_EQ(halves.Error().index, 1);
  for (size_t set = 1; set < CGR__MAX_SETS; set++)
    batch.lens[set].assign(4, 0);
  world.Expect(batch);
}

// The worst state that a row may be in: an earlier request had all of its pages.
TEST_P(KernelOnDemand, ClearsWhatLongerRequestsHaveLeft) {
  SeededRandom random;
  const Shape shape = { 5, 5, 40000, { { 16, 2500, 2503 }, { 64, 625, 626, 4 } } }; // kernels have pages of 16 in both
  World world(*bench_, shape, random);
  int32_t decodes = 0; // in turn: prefills move to other rows of their table
  for (int32_t length : { 40000, 0, 40000, 1, 39985, 16, 17, 40000 }) {
    decodes = (decodes + 2) % 6;
    Batch batch = { 5, 5, decodes, { 4, 2, 0, 1, 3 }, { 0, 1, 2, 3, 4, 5 }, {}, {}, {} };
    Words indptr = { 0 }, last;
    for (Words &lens : batch.lens)
      lens.assign(5, length);
    for (int i = 0; i < 5; i++) {
      indptr.push_back(indptr.back() + (length + 15) / 16);
      last.push_back(length == 0 ? 1 : (length - 1) % 16 + 1);
    }
    batch.indptr = { indptr, indptr };
    batch.last = { last, last };
    world.Run(batch);
    world.Expect(batch);
    ASSERT_FALSE(HasFailure()) << length;
  }
}

TEST_P(KernelOnDemand, UnreadablePagesAreReportedAndReplaced) {
  SeededRandom random;
  for (int32_t bad : { -1, INT32_MIN, kPages, INT32_MAX, kWriteTrash }) {
    Shape shape = RandomShape(random);
    shape.asked |= random.OneIn(2) ? CGR_ON_DEMAND(CGR_BUFFER_KV_INDICES) : CGR_ON_DEMAND(CGR_BUFFER_BLOCK_TABLE);
    World world(*bench_, shape, random);
    Batch batch = RandomBatch(random, shape);
    while (batch.indptr[0].back() == 0)
      batch = RandomBatch(random, shape);
    size_t i = 0;
    while (batch.indptr[0][i + 1] == 0)
      i++;
    const int32_t p = random.Pick32(0, batch.indptr[0][i + 1] - 1), row = batch.rows[i];
    Words table = world.group(0).table.Get();
    const int32_t index = p / shape.groups[0].pages_each;
    table[size_t(row) * size_t(shape.groups[0].stride) + size_t(index)] = bad;
    world.group(0).table.Put(table);
    world.Run(batch);
    world.Expect(batch);
    const cgr__step_error error = world.Error();
    EXPECT_EQ(error.error, CGR_GUARD_PAGE);
    EXPECT_EQ(error.row, row);
    EXPECT_EQ(error.index, index);
    EXPECT_EQ(error.value, bad);
  }
}

// At the largest sizes, the last rows and pages are past 2^31 bytes, and past 2^31 elements of the table.
TEST_P(KernelOnDemand, PlacesHave64Bits) {
  if (!bench_->is_cuda())
    GTEST_SKIP() << "the host does not have the memory";
  Random random(1);
  const int64_t stride = (int64_t{ 1 } << 31) - 64; // rows 0 and 1; row 1 begins near 2^33 bytes
  Array<int32_t> indptr(*bench_, Words{ 0, 3 }), rows(*bench_, Words{ 1 }), starts(*bench_, Words{ 0, 1 });
  Array<int32_t> lens(*bench_, Words{ 40 }), counts(*bench_, Words(16, 1)), error(*bench_, Words(8, 0)),
      list(*bench_, Words(3, kPoison));
  int32_t *table = static_cast<int32_t *>(bench_->Alloc(size_t(stride + 3) * 4, CGR__MEMORY_DEVICE));
  const Words pages = { 11, 12, 13 };
  bench_->Copy(table + stride, pages.data(), 12);
  cgr__on_demand_args a = {};
  a.batch.query_start_loc = starts.data();
  a.batch.request_rows = rows.data();
  a.batch.seq_lens[0] = lens.data();
  a.batch.num_sets = a.batch.padded_requests = a.num_groups = 1;
  a.counts = counts.data();
  a.error = reinterpret_cast<cgr__step_error *>(error.data());
  a.group[0].page_table = table;
  a.group[0].page_table_stride = stride;
  a.group[0].num_pages = kPages;
  a.group[0].kv_indptr = indptr.data();
  a.group[0].kv_indices = list.data();
  a.group[0].read_trash_page = kReadTrash;
  a.group[0].write_trash_page = kWriteTrash;
  bench_->Run(cgr__kernel_on_demand, &a);
  EXPECT_EQ(list.Get(), pages);
  EXPECT_EQ(error.Get()[0], 0);
  bench_->Free(table, CGR__MEMORY_DEVICE);
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelOnDemand);

} // namespace
} // namespace cgr_test
