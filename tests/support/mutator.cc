#include "tests/support/mutator.h"

#include <gtest/gtest.h>

#include <cstring>

namespace cgr_test {

namespace {

Mutator *current;

std::vector<uint64_t> WordsOf(const void *args, size_t bytes) {
  std::vector<uint64_t> words((bytes + 7) / 8);
  if (bytes > 0)
    std::memcpy(words.data(), args, bytes);
  return words;
}

template <class T> uint64_t WordOf(T *address) { return uint64_t(reinterpret_cast<uintptr_t>(address)); }

} // namespace

Mutator::Mutator(cgr_device *dev) : dev_(dev), inner_(dev->ops), ops_table_(*dev->ops) {
  EXPECT_EQ(current, nullptr);
  current = this;
  ops_table_.launch = Launch;
  ops_table_.host_call = HostCall;
  ops_table_.copy = Copy;
  ops_table_.fill = Fill;
  ops_table_.event_record = EventRecord;
  ops_table_.event_wait = EventWait;
  ops_table_.capture_end = CaptureEnd;
  EXPECT_EQ(inner_->stream_create(dev, CGR__STREAM_NORMAL, &outside_), CGR__DEVICE_OK);
  dev->ops = &ops_table_;
}

Mutator::~Mutator() {
  EXPECT_EQ(inner_->stream_destroy(dev_, outside_), CGR__DEVICE_OK);
  dev_->ops = inner_;
  current = nullptr;
}

void Mutator::Plan(const Mutant &mutant) {
  EXPECT_EQ(inner_->stream_sync(dev_, outside_), CGR__DEVICE_OK);
  mutant_ = mutant;
  ops_.clear();
  first_ = 0;
  stream_ = nullptr;
}

// ---------------------------------------------------------------------------------------------------------------- operations

bool Mutator::Captures(cudaStream_t stream) const {
  int capturing = 0;
  return inner_->capture_status(dev_, stream, &capturing) == CGR__DEVICE_OK && capturing != 0;
}

bool Mutator::FindAddress(uint64_t word, const void **base, size_t *bytes) const {
  return word != 0 && inner_->mem_find(dev_, reinterpret_cast<const void *>(uintptr_t(word)), base, bytes) == CGR__DEVICE_OK &&
         *base != nullptr;
}

void Mutator::MakeStale(Op *op) {
  int number = 0;
  for (uint64_t &word : op->words) {
    const void *base = nullptr;
    size_t bytes = 0;
    if (!FindAddress(word, &base, &bytes) || number++ != mutant_.other)
      continue;
    copies_.push_back(WordsOf(base, bytes));
    word += WordOf(copies_.back().data()) - WordOf(base);
    return;
  }
}

int Mutator::End() {
  int error = CGR__DEVICE_OK;
  for (const auto &held : held_)
    error = error != CGR__DEVICE_OK ? error : held.first.enqueue(held.first.words, held.second);
  held_.clear();
  first_ = int(ops_.size());
  return error;
}

int Mutator::Enqueue(Op op, cudaStream_t stream) {
  if (!Captures(stream))
    return op.enqueue(op.words, stream);
  if (stream != stream_)
    first_ = int(ops_.size());
  stream_ = stream;
  const int index = int(ops_.size());
  CapturedOp captured = { op.name, 0, first_ };
  for (uint64_t word : op.words) {
    const void *base = nullptr;
    size_t bytes = 0;
    captured.num_addresses += FindAddress(word, &base, &bytes);
  }
  ops_.push_back(captured);
  const bool is_mutant = index == mutant_.op;
  if (is_mutant && mutant_.mutation == Mutation::kRemoved)
    return CGR__DEVICE_OK;
  if (is_mutant && mutant_.mutation == Mutation::kOnce)
    return op.enqueue(op.words, outside_);
  if (is_mutant && mutant_.mutation == Mutation::kStale)
    MakeStale(&op);
  if (mutant_.mutation == Mutation::kEarlier && index >= mutant_.other && index < mutant_.op) {
    held_.push_back({ std::move(op), stream });
    return CGR__DEVICE_OK;
  }
  int error = op.enqueue(op.words, stream);
  for (const auto &held : held_)
    error = error != CGR__DEVICE_OK ? error : held.first.enqueue(held.first.words, held.second);
  held_.clear();
  return error;
}

int Mutator::Launch(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream) {
  Mutator &m = *current;
  return m.Enqueue({ kernel->name, WordsOf(args, kernel->args_size),
                     [&m, dev, kernel](const std::vector<uint64_t> &words, cudaStream_t on) {
                       return m.inner_->launch(dev, kernel, words.data(), on);
                     } },
                   stream);
}

int Mutator::HostCall(cgr_device *dev, cgr_host_function function, const void *args, size_t bytes, cudaStream_t stream) {
  Mutator &m = *current;
  return m.Enqueue({ "host", WordsOf(args, bytes),
                     [&m, dev, function, bytes](const std::vector<uint64_t> &words, cudaStream_t on) {
                       return m.inner_->host_call(dev, function, words.data(), bytes, on);
                     } },
                   stream);
}

int Mutator::Copy(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream) {
  Mutator &m = *current;
  return m.Enqueue({ "copy",
                     { WordOf(dst), WordOf(src) },
                     [&m, dev, bytes](const std::vector<uint64_t> &words, cudaStream_t on) {
                       return m.inner_->copy(dev, reinterpret_cast<void *>(uintptr_t(words[0])),
                                             reinterpret_cast<const void *>(uintptr_t(words[1])), bytes, on);
                     } },
                   stream);
}

int Mutator::Fill(cgr_device *dev, void *dst, uint64_t value, size_t width, size_t count, cudaStream_t stream) {
  Mutator &m = *current;
  return m.Enqueue({ "fill",
                     { WordOf(dst) },
                     [&m, dev, value, width, count](const std::vector<uint64_t> &words, cudaStream_t on) {
                       return m.inner_->fill(dev, reinterpret_cast<void *>(uintptr_t(words[0])), value, width, count, on);
                     } },
                   stream);
}

// ------------------------------------------------------------------------------------------------------------------- events

int Mutator::EventRecord(cgr_device *dev, cgr__event *event, cudaStream_t stream) {
  const int error = current->Captures(stream) ? current->End() : CGR__DEVICE_OK;
  return error != CGR__DEVICE_OK ? error : current->inner_->event_record(dev, event, stream);
}

int Mutator::EventWait(cgr_device *dev, cgr__event *event, cudaStream_t stream) {
  const int error = current->Captures(stream) ? current->End() : CGR__DEVICE_OK;
  return error != CGR__DEVICE_OK ? error : current->inner_->event_wait(dev, event, stream);
}

int Mutator::CaptureEnd(cgr_device *dev, cudaStream_t stream, cgr__graph **graph) {
  const int error = current->End();
  const int ended = current->inner_->capture_end(dev, stream, graph);
  return error != CGR__DEVICE_OK ? error : ended;
}

} // namespace cgr_test
