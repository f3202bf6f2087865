// Random batches for the block table, and the words that they must give, computed entry by entry.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cgr/interop/block_table.h"
#include "tests/support/seed.h"

namespace cgr_test {

struct BlockTableBatch {
  cgr_block_table_input input = CGR_BLOCK_TABLE_INPUT_INIT;
  std::vector<int32_t> page_table, rows, seq_lens, query_start_loc;
  int32_t live = -1;          // -1: NULL
  int32_t first_prefill = -1; // -1: NULL

  BlockTableBatch() = default;
  BlockTableBatch(const BlockTableBatch &) = delete; // `input` points into it
  BlockTableBatch &operator=(const BlockTableBatch &) = delete;

  void Bind() {
    input.page_table = page_table.data();
    input.rows = rows.data();
    input.seq_lens = seq_lens.data();
    input.query_start_loc = query_start_loc.data();
    input.live_requests = live < 0 ? nullptr : &live;
    input.first_prefill = input.max_prefill_query_len > 0 ? &first_prefill : nullptr;
  }
  int32_t num_live() const { return live < 0 ? input.num_requests : live; }
};

// The kernel's pages, and the engine's as some of them.
inline void RandomPageSizes(Random &random, cgr_block_table_input *in) {
  const int32_t size = 16 << random.Pick(0, 3), most = 1024 / size;
  in->page_size = random.OneIn(2) ? size : size * (random.OneIn(2) ? random.Pick32(1, most) : 1 << random.Pick(0, 3));
  in->kernel_page_size = in->page_size == size && random.OneIn(2) ? 0 : size;
}
inline int32_t KernelPageSize(const cgr_block_table_input &in) {
  return in.kernel_page_size ? in.kernel_page_size : in.page_size;
}

// `spoiled`: rows, lengths, pages, the first prefill and tokens of uniform decodes may be out of range, and lengths below the new
// tokens, which only the device accepts.
inline void RandomBlockTable(Random &random, int32_t most_requests, bool spoiled, BlockTableBatch *b) {
  cgr_block_table_input &in = b->input;
  in = CGR_BLOCK_TABLE_INPUT_INIT;
  in.num_requests = random.Pick32(1, most_requests);
  in.query_len = random.Pick32(1, 4);
  RandomPageSizes(random, &in);
  in.max_seq_len = random.OneIn(3) ? random.Pick32(in.query_len, 100) : random.Pick32(in.query_len, 20000);
  const int32_t pages = (in.max_seq_len + in.page_size - 1) / in.page_size;
  in.max_pages = (in.max_seq_len + KernelPageSize(in) - 1) / KernelPageSize(in) + (random.OneIn(2) ? 0 : random.Pick32(0, 9));
  in.kv_layout = CGR_LAYOUT_HND;
  in.num_rows = random.Pick32(1, 20);
  in.num_pages = random.Pick32(1, 5000);
  in.read_trash_page = random.Pick32(0, int32_t(in.num_pages) - 1);
  in.page_table_stride = pages + random.Pick32(0, 5);
  b->live = random.OneIn(2) ? random.Pick32(0, in.num_requests) : -1;
  b->first_prefill = -1;
  if (random.OneIn(2)) {
    in.max_prefill_query_len = random.Pick32(1, std::min(50, in.max_seq_len));
    in.whole_query = random.OneIn(3);
    b->first_prefill = random.OneIn(4) ? 0 : random.OneIn(4) ? b->num_live() : random.Pick32(0, b->num_live());
  }
  const bool uniform = random.OneIn(2);
  in.num_tokens = uniform ? in.query_len * in.num_requests : 0;
  if (uniform && random.OneIn(2))
    in.query_len = 0;
  const int32_t query_len = in.query_len ? in.query_len : in.num_tokens / in.num_requests;
  b->page_table.clear();
  b->rows.clear();
  b->seq_lens.clear();
  for (int64_t i = 0; i < in.num_rows * in.page_table_stride; i++)
    b->page_table.push_back(spoiled && random.OneIn(9) ? int32_t(random.Bits()) : random.Pick32(0, int32_t(in.num_pages) - 1));
  b->query_start_loc.assign(1, 0);
  for (int32_t i = 0; i < in.num_requests; i++) {
    const bool bad = i >= b->num_live() || (spoiled && random.OneIn(6));
    int32_t len = random.OneIn(3)
                      ? random.Pick32(0, in.max_seq_len)
                      : std::min(in.max_seq_len, std::max(0, random.Pick32(0, pages) * in.page_size + random.Pick32(-1, 1)));
    b->rows.push_back(bad && random.OneIn(2) ? int32_t(random.Bits()) : random.Pick32(0, in.num_rows - 1));
    const bool is_prefill = in.max_prefill_query_len > 0 && i >= b->first_prefill;
    const bool exact = uniform && !is_prefill && !(spoiled && random.OneIn(20));
    const int32_t tokens = exact        ? query_len
                           : is_prefill ? random.Pick32(0, in.max_prefill_query_len)
                                        : random.Pick32(0, query_len);
    b->query_start_loc.push_back(b->query_start_loc.back() + tokens);
    b->seq_lens.push_back(bad && random.OneIn(2) ? int32_t(random.Bits()) : bad ? len : std::max(len, tokens));
  }
  if (in.max_prefill_query_len > 0 && spoiled && random.OneIn(8))
    b->first_prefill = random.OneIn(2) ? int32_t(random.Bits()) : b->num_live() + 1;
  b->Bind();
}

// One stretch of the batch: requests [first, end), at these places of the memory.
struct BlockTableArrays {
  size_t block_table, seq_lens, query_start_loc, kv_start_loc, counts;
};
inline void PutBlockTableStretch(const BlockTableBatch &b, int32_t first, int32_t end, bool is_prefills,
                                 const BlockTableArrays &at, std::vector<int32_t> *words) {
  const cgr_block_table_input &in = b.input;
  const int32_t size = KernelPageSize(in), each = in.page_size / size;
  const int32_t query_len = in.query_len ? in.query_len : in.num_tokens / in.num_requests;
  std::vector<int32_t> queries, lens; // of the requests, then of the padding
  for (int32_t i = first; i < end; i++) {
    const size_t r = size_t(i);
    const bool good = b.rows[r] >= 0 && b.rows[r] < in.num_rows && b.seq_lens[r] <= in.max_seq_len &&
                      b.seq_lens[r] >= b.query_start_loc[r + 1] - b.query_start_loc[r]; // new tokens
    const bool placed = is_prefills || in.num_tokens == 0 ||
                        (b.query_start_loc[r] == i * query_len && b.query_start_loc[r + 1] == (i + 1) * query_len);
    lens.push_back(good && placed ? b.seq_lens[r] : 0);
    queries.push_back(b.query_start_loc[r + 1] - b.query_start_loc[r]);
  }
  lens.resize(size_t(in.num_requests), 0);
  queries.resize(size_t(in.num_requests), 0);
  int32_t query_sum = is_prefills && !in.whole_query ? 0 : b.query_start_loc[size_t(first)], kv_sum = 0;
  for (size_t j = 0; j < lens.size(); j++) {
    for (int32_t p = 0; p < in.max_pages; p++) {
      int32_t entry = in.read_trash_page * each; // nothing follows a sequence but this
      if (int64_t{ p } * size < lens[j]) {
        const int32_t token = p * size; // the first of the kernel's page, which is somewhere in one of the engine's
        int32_t page = b.page_table[size_t(b.rows[size_t(first) + j] * in.page_table_stride + token / in.page_size)];
        page = page < 0 || page >= in.num_pages ? in.read_trash_page : page;
        entry = int32_t((int64_t{ page } * in.page_size + token % in.page_size) / size);
      }
      (*words)[at.block_table / 4 + j * size_t(in.max_pages) + size_t(p)] = entry;
    }
    (*words)[at.seq_lens / 4 + j] = lens[j];
    (*words)[at.query_start_loc / 4 + j] = query_sum;
    (*words)[at.kv_start_loc / 4 + j] = kv_sum;
    query_sum += queries[j];
    kv_sum += lens[j];
  }
  (*words)[at.query_start_loc / 4 + lens.size()] = query_sum;
  (*words)[at.kv_start_loc / 4 + lens.size()] = kv_sum;
  if (in.max_prefill_query_len == 0)
    return;
  int32_t *counts = words->data() + at.counts / 4 + (is_prefills ? 4 : 0);
  counts[0] = end - first;
  counts[1] = b.query_start_loc[size_t(end)] - b.query_start_loc[size_t(first)];
  counts[2] = *std::max_element(queries.begin(), queries.end());
  counts[3] = *std::max_element(lens.begin(), lens.end());
}

// The expected memory, at the layout's places; 0 between them.
inline std::vector<int32_t> BlockTableWords(const BlockTableBatch &b, const cgr_block_table_layout &at) {
  const bool mixed = b.input.max_prefill_query_len > 0;
  const int32_t live = b.num_live(), border = mixed ? std::max(0, std::min(b.first_prefill, live)) : live;
  std::vector<int32_t> words(at.bytes / 4, 0);
  PutBlockTableStretch(b, 0, border, false, { at.block_table, at.seq_lens, at.query_start_loc, at.kv_start_loc, at.counts },
                       &words);
  if (mixed)
    PutBlockTableStretch(
        b, border, live, true,
        { at.prefill_block_table, at.prefill_seq_lens, at.prefill_query_start_loc, at.prefill_kv_start_loc, at.counts }, &words);
  return words;
}

} // namespace cgr_test
