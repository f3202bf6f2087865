// Random batches of the rows that a model has.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/requests/model.h"

namespace cgr_test {

class RandomBatches {
public:
  RandomBatches(const Model &model, Random *random) : model_(model), random_(*random) {}

  // An open row; -1: there is none.
  int32_t AnyRow() {
    std::vector<int32_t> open = model_.Open();
    return open.empty() ? -1 : open[Index(open.size())];
  }

  // A batch like `last`, or another one; one in `one_in` has something changed about it, most often for the worse.
  Batch Next(const Batch &last, int32_t one_in) {
    bool invalid = random_.OneIn(one_in);
    Batch batch = !last.rows.empty() && !random_.OneIn(4) ? Again(last) : Good();
    return invalid ? Invalid(batch) : batch;
  }

private:
  size_t Index(size_t size) { return static_cast<size_t>(random_.Pick(0, static_cast<int64_t>(size) - 1)); }

  Batch Again(Batch last) {
    if (last.has_tokens && !random_.OneIn(4) && !last.has_query_lens)
      last.has_tokens = false;
    return last;
  }

  // A batch that is good, as far as the rows' pages allow one.
  Batch Good() {
    std::vector<int32_t> open = model_.Open(), chosen, lengths;
    int64_t left = model_.config().max_tokens;
    int32_t uniform = random_.OneIn(3) ? 1 : random_.OneIn(3) ? random_.Pick32(2, 5) : 0;
    for (size_t i = open.size(); i > 1; i--)
      std::swap(open[i - 1], open[Index(i)]);
    size_t most = Index(std::min(open.size(), static_cast<size_t>(model_.config().max_requests)) + 1);
    for (size_t i = 0; i < open.size() && chosen.size() < most; i++) {
      int32_t room = model_.Capacity(open[i]) - model_.row(open[i]).computed;
      int32_t length = uniform ? uniform : random_.OneIn(3) ? 1 : random_.Pick32(0, 20);
      bool sees = model_.HasFront(open[i], model_.row(open[i]).computed) || random_.OneIn(50);
      if (room < 0 || length > room || length > left || !sees)
        continue;
      chosen.push_back(open[i]);
      lengths.push_back(length);
      left -= length;
    }
    Batch batch = Batch::Prefill(chosen, lengths);
    ChooseForms(&batch);
    return batch;
  }

  // Which tokens are the device's own, and which arrays the batch has.
  void ChooseForms(Batch *batch) {
    const std::vector<int32_t> &lengths = batch->query_lens;
    int64_t at = 0;
    bool decode = true, all_last = true;
    for (size_t i = 0; i < lengths.size(); at += lengths[i++]) {
      bool can = lengths[i] == 0 || model_.row(batch->rows[i]).has_token;
      if (lengths[i] > 0 && can && random_.OneIn(2))
        batch->tokens[static_cast<size_t>(at)] = CGR_TOKEN_LAST;
      decode &= lengths[i] == 1;
      all_last &= can && lengths[i] <= 1;
    }
    batch->has_query_lens = !decode || random_.OneIn(4);
    batch->has_tokens = !all_last || random_.OneIn(3);
    if (random_.OneIn(4)) {
      std::vector<uint32_t> flags;
      for (size_t i = 0; i < lengths.size(); i++)
        flags.push_back(random_.OneIn(3) ? CGR_REQUEST_PARTIAL : 0);
      batch->WithFlags(flags);
    }
  }

  Batch Invalid(Batch batch) {
    if (batch.rows.empty())
      return batch;
    const size_t i = Index(batch.rows.size());
    switch (random_.Pick(0, 6)) {
    case 0:
      batch.rows[i] = random_.Pick32(-1, model_.config().max_rows);
      break;
    case 1:
      batch.rows[i] = batch.rows[0];
      break;
    case 2:
      if (batch.has_tokens && !batch.tokens.empty())
        batch.tokens[Index(batch.tokens.size())] = random_.Pick32(-3, 0);
      break;
    case 3:
      batch.WithFlags(std::vector<uint32_t>(batch.rows.size(), random_.OneIn(2) ? 1 : 2));
      break;
    case 4:
      batch.has_tokens = false;
      break;
    case 5:
      return OtherLength(batch, i);
    default:
      batch.rows.push_back(AnyRow());
      if (batch.has_query_lens)
        batch.query_lens.push_back(1);
      if (batch.has_tokens)
        batch.tokens.push_back(3);
      if (batch.has_flags)
        batch.flags.push_back(0);
    }
    return batch;
  }
  Batch OtherLength(Batch batch, size_t i) {
    std::vector<int32_t> lengths;
    for (size_t k = 0; k < batch.rows.size(); k++)
      lengths.push_back(k == i ? random_.Pick32(-1, model_.config().max_seq_len) : batch.QueryLen(k));
    if (lengths[i] >= 0)
      return Batch::Prefill(batch.rows, lengths);
    batch.has_query_lens = true;
    batch.query_lens = lengths;
    return batch;
  }

  const Model &model_;
  Random &random_;
};

} // namespace cgr_test
