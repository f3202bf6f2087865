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
  int32_t live = -1; // -1: NULL

  BlockTableBatch() = default;
  BlockTableBatch(const BlockTableBatch &) = delete; // `input` points into it
  BlockTableBatch &operator=(const BlockTableBatch &) = delete;

  void Bind() {
    input.page_table = page_table.data();
    input.rows = rows.data();
    input.seq_lens = seq_lens.data();
    input.query_start_loc = query_start_loc.data();
    input.live_requests = live < 0 ? nullptr : &live;
  }
  int32_t num_live() const { return live < 0 ? input.num_requests : live; }
};

// `spoiled`: rows, lengths and pages may be out of range, which only the device accepts.
inline void RandomBlockTable(Random &random, int32_t most_requests, bool spoiled, BlockTableBatch *b) {
  cgr_block_table_input &in = b->input;
  in = CGR_BLOCK_TABLE_INPUT_INIT;
  in.num_requests = random.Pick32(1, most_requests);
  in.query_len = random.Pick32(1, 4);
  in.page_size = 16 << random.Pick(0, 2);
  in.max_seq_len = random.OneIn(3) ? random.Pick32(1, 100) : random.Pick32(1, 20000);
  const int32_t pages = (in.max_seq_len + in.page_size - 1) / in.page_size;
  in.max_pages = pages + (random.OneIn(2) ? 0 : random.Pick32(0, 9));
  in.kv_layout = CGR_LAYOUT_HND;
  in.num_rows = random.Pick32(1, 20);
  in.num_pages = random.Pick32(1, 5000);
  in.read_trash_page = random.Pick32(0, int32_t(in.num_pages) - 1);
  in.page_table_stride = pages + random.Pick32(0, 5);
  b->live = random.OneIn(2) ? random.Pick32(0, in.num_requests) : -1;
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
    b->seq_lens.push_back(bad && random.OneIn(2) ? int32_t(random.Bits()) : len);
    b->query_start_loc.push_back(b->query_start_loc.back() + random.Pick32(0, in.query_len));
  }
  b->Bind();
}

// The expected memory, at the layout's places; 0 between them.
inline std::vector<int32_t> BlockTableWords(const BlockTableBatch &b, const cgr_block_table_layout &at) {
  const cgr_block_table_input &in = b.input;
  std::vector<int32_t> words(at.bytes / 4, 0);
  int64_t sum = 0;
  for (int32_t i = 0; i <= in.num_requests; i++) {
    words[at.query_start_loc / 4 + size_t(i)] = b.query_start_loc[size_t(std::min(i, b.num_live()))];
    words[at.kv_start_loc / 4 + size_t(i)] = int32_t(sum);
    if (i == in.num_requests)
      break;
    const int32_t row = b.rows[size_t(i)], given = b.seq_lens[size_t(i)];
    const bool good = i < b.num_live() && row >= 0 && row < in.num_rows && given >= 0 && given <= in.max_seq_len;
    const int32_t len = good ? given : 0;
    words[at.seq_lens / 4 + size_t(i)] = len;
    sum += len;
    for (int32_t p = 0; p < in.max_pages; p++) {
      int32_t page = in.read_trash_page;
      if (int64_t{ p } * in.page_size < len)
        page = b.page_table[size_t(row * in.page_table_stride + p)];
      if (page < 0 || page >= in.num_pages)
        page = in.read_trash_page;
      words[at.block_table / 4 + size_t(i) * size_t(in.max_pages) + size_t(p)] = page;
    }
  }
  return words;
}

} // namespace cgr_test
