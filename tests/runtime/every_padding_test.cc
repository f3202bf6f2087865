// Every number of real requests in every bucket up to 64, and random ones up to 512, in FULL and PIECEWISE graphs, uniform and
// mixed: real rows have the bits of an unpadded eager step, whatever padded rows, stale tails, unowned pages and workspaces hold,
// and nothing but the step's own slots is written.
#include <algorithm>
#include <array>
#include <cstring>

#include "cgr/names.h"
#include "runtime/runtime.h"
#include "tests/support/devices.h"
#include "tests/support/expect.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

using Bytes = std::vector<unsigned char>;

enum { kPage = 16, kRowPages = 2, kHeads = 4, kKvHeads = 2, kSpare = 4, kReserved = 2, kNumPoisons = 5 };
const char *const kPoisons[kNumPoisons] = { "zeros", "NaN", "infinity", "the largest value", "noise" };

// An engine of one layer whose inputs are given; every row of the largest batch is open all the time.
class PaddedEngine {
public:
  PaddedEngine(const DeviceParam &device, uint64_t seed, int32_t max, cgr_graph_mode mode)
      : max_(max), bf16_(device.IsCuda()), dim_(device.IsCuda() ? 64 : 16), random_(seed) {
    CGR_EXPECT_OK(cgr_device_open(device.name.c_str(), &device.config, &dev_));
    CGR_EXPECT_OK(cgr_stream_create(dev_, &stream_));
    MakeMemory();
    MakeRuntime(mode);
    MakeRows();
  }
  ~PaddedEngine() {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt_));
    CGR_EXPECT_OK(cgr_stream_destroy(dev_, stream_));
    for (void *memory : memory_)
      CGR_EXPECT_OK(cgr_memory_free(dev_, memory));
    CGR_EXPECT_OK(cgr_device_close(dev_));
  }
  PaddedEngine(const PaddedEngine &) = delete;
  PaddedEngine &operator=(const PaddedEngine &) = delete;

  // "" or what is wrong: the first `real` rows in a graph of this size, next to the same alone.
  std::string Try(cgr_graph_kind kind, bool mixed, int32_t bucket, int32_t real, int poison) {
    const Bytes &want = Reference(real);
    cgr_key key = CGR_KEY_INIT;
    key.kind = kind, key.num_requests = key.num_tokens = bucket;
    key.query_len = mixed ? 0 : 1;
    Bytes got = Run(key, real, poison);
    if (got != want)
      return "the outputs of real rows differ";
    return CheckPool(real, poison);
  }
  uint64_t Replays() {
    const cgr_stats stats = StatsOf(rt_);
    return stats.by_reason[CGR_KIND_FULL][CGR_REASON_FORCED] + stats.by_reason[CGR_KIND_PIECEWISE][CGR_REASON_FORCED];
  }

private:
  size_t Element() const { return bf16_ ? 2 : 4; }
  size_t RowBytes(int32_t heads) const { return size_t(heads) * size_t(dim_) * Element(); }
  size_t PageBytes() const { return kPage * RowBytes(kKvHeads); }
  int32_t NumPages() const { return kReserved + max_ * kRowPages + kSpare; }
  size_t PoolBytes() const { return size_t(NumPages()) * PageBytes(); }
  void *Alloc(size_t bytes) {
    void *memory = nullptr;
    CGR_EXPECT_OK(cgr_memory_alloc(dev_, bytes, &memory));
    memory_.push_back(memory);
    return memory;
  }
  void Copy(void *to, const void *from, size_t bytes) { CGR_EXPECT_OK(cgr_copy(dev_, to, from, bytes, stream_)); }
  void Sync() { CGR_EXPECT_OK(cgr_stream_synchronize(dev_, stream_)); }

  // An element of poison.
  uint32_t Poison(int poison) {
    static const uint32_t narrow[] = { 0, 0xffc1, 0x7f80, 0x7f7f }, wide[] = { 0, 0xffc00001, 0x7f800000, 0x7f7fffff };
    return poison < 4 ? (bf16_ ? narrow : wide)[poison] : uint32_t(random_.Pick(0, UINT32_MAX));
  }
  void Put(Bytes &to, size_t element, uint32_t bits) { std::memcpy(to.data() + element * Element(), &bits, Element()); }
  Bytes Filled(size_t elements, int poison) {
    Bytes bytes(elements * Element());
    for (size_t i = 0; i < elements; i++)
      Put(bytes, i, Poison(poison));
    return bytes;
  }
  Bytes Values(size_t elements) { // finite, in +-[0.5, 2)
    Bytes bytes(elements * Element());
    for (size_t i = 0; i < elements; i++) {
      const uint32_t bits = uint32_t(random_.Pick(0, UINT32_MAX));
      Put(bytes, i, bf16_ ? 0x3f00 | (bits & 0x80ff) : 0x3f000000 | (bits & 0x80ffffff));
    }
    return bytes;
  }

  void MakeMemory() {
    const size_t tokens = size_t(max_);
    for (int which = 0; which < 3; which++) {
      const int32_t heads = which == 0 ? kHeads : kKvHeads;
      in_[which] = Alloc(tokens * RowBytes(heads));
      given_[which] = Alloc(tokens * RowBytes(heads));
      values_[which] = Values(tokens * size_t(heads) * size_t(dim_));
      for (int poison = 0; poison < kNumPoisons; poison++)
        rest_[which][poison] = Filled(tokens * size_t(heads) * size_t(dim_), poison);
    }
    out_ = Alloc(tokens * RowBytes(kHeads));
    lse_ = Alloc(tokens * kHeads * 4);
    pool_[0] = Alloc(PoolBytes());
    pool_[1] = Alloc(PoolBytes());
    for (int32_t i = 0; i < max_; i++) {
      before_.push_back(random_.Pick32(0, kPage * kRowPages - 1));
      order_.push_back(i);
    }
    for (size_t i = order_.size(); i > 1; i--)
      std::swap(order_[i - 1], order_[size_t(random_.Pick(0, int64_t(i) - 1))]);
    for (int which = 0; which < 2; which++)
      MakeImages(which);
  }
  // The caches before a step: the rows' context, and poison everywhere else; page 0 is zeros.
  void MakeImages(int which) {
    const Bytes context = Values(PoolBytes() / Element());
    for (int poison = 0; poison < kNumPoisons; poison++) {
      Bytes image = Filled(PoolBytes() / Element(), poison);
      std::memset(image.data(), 0, PageBytes());
      for (int32_t row = 0; row < max_; row++) {
        const size_t at = size_t(FirstPage(row)) * PageBytes();
        std::memcpy(image.data() + at, context.data() + at, size_t(before_[size_t(row)]) * RowBytes(kKvHeads));
      }
      void *copy = Alloc(PoolBytes());
      Copy(copy, image.data(), PoolBytes());
      Sync();
      device_images_[which][poison] = copy;
      images_[which][poison] = std::move(image);
    }
  }
  int32_t FirstPage(int32_t row) const { return kReserved + row * kRowPages; }

  void MakeRuntime(cgr_graph_mode mode) {
    const cgr_dtype dtype = bf16_ ? CGR_DTYPE_BF16 : CGR_DTYPE_FP32;
    cgr_group group = CGR_GROUP_INIT;
    group.page_size = kPage, group.num_pages = NumPages();
    cgr_layer layer = CGR_LAYER_INIT;
    layer.num_q_heads = kHeads, layer.num_kv_heads = kKvHeads, layer.head_dim = dim_;
    CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, pool_[0], dtype, kPage, kKvHeads, dim_, &layer.k));
    CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, pool_[1], dtype, kPage, kKvHeads, dim_, &layer.v));
    call_ = CGR_ATTENTION_INIT;
    CGR_EXPECT_OK(cgr_view_make(in_[0], dtype, kHeads, dim_, &call_.q));
    CGR_EXPECT_OK(cgr_view_make(in_[1], dtype, kKvHeads, dim_, &call_.k));
    CGR_EXPECT_OK(cgr_view_make(in_[2], dtype, kKvHeads, dim_, &call_.v));
    CGR_EXPECT_OK(cgr_view_make(out_, dtype, kHeads, dim_, &call_.out));
    call_.lse = { lse_, CGR_DTYPE_FP32, 0, kHeads, 1 };
    std::vector<int32_t> buckets;
    std::vector<cgr_bucket> pairs;
    for (int32_t n = 1; n <= max_; n++) {
      buckets.push_back(n);
      pairs.push_back({ n, n });
    }
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev_, config.groups = &group, config.num_groups = 1, config.layers = &layer;
    config.num_layers = 1, config.max_requests = config.max_tokens = max_;
    config.max_seq_len = kPage * kRowPages, config.graph_mode = mode, config.decode_buckets = buckets.data();
    config.num_decode_buckets = max_, config.mixed_buckets = pairs.data(), config.num_mixed_buckets = max_;
    CGR_EXPECT_OK(cgr_runtime_create(&config, &rt_));
    cgr_capture capture = CaptureOf(Record, this);
    CGR_EXPECT_OK(cgr_runtime_capture(rt_, &capture));
  }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    const PaddedEngine &e = *static_cast<PaddedEngine *>(engine);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    cgr_status status = cgr_record_get_info(recorder, &info);
    for (int which = 0; which < 3 && status == CGR_OK; which++)
      status = cgr_copy(e.dev_, e.in_[which], e.given_[which],
                        size_t(info.num_tokens) * e.RowBytes(which == 0 ? kHeads : kKvHeads), info.stream);
    return status == CGR_OK ? cgr_record_attention(recorder, &e.call_) : status;
  }
  void MakeRows() {
    for (int32_t i = 0; i < max_; i++) {
      int32_t row = -1;
      const int32_t pages[kRowPages] = { FirstPage(i), FirstPage(i) + 1 };
      CGR_EXPECT_OK(cgr_request_open(rt_, 0, &row));
      EXPECT_EQ(row, i);
      CGR_EXPECT_OK(cgr_request_set_pages(rt_, row, 0, 0, pages, kRowPages));
    }
    Flush();
  }
  void Flush() {
    for (cgr_status status = CGR_ERROR_BUSY; status == CGR_ERROR_BUSY;) {
      uint64_t seq = 0;
      status = cgr_test::Flush(rt_, stream_, &seq);
      CGR_EXPECT_OK(cgr_step_wait(rt_, cgr_mark{ 0, 0, seq }, -1, nullptr));
    }
  }

  // Fills everything that a step writes, and everything that no row owns, with something else beforehand.
  void MakeStale(int32_t real, int poison) {
    static const int bytes[kNumPoisons] = { 0x00, 0xff, 0x7f, 0x55, 0xa7 };
    for (int which = 0; which < 3; which++) {
      const size_t row = RowBytes(which == 0 ? kHeads : kKvHeads);
      Copy(given_[which], values_[which].data(), size_t(real) * row);
      if (real < max_)
        Copy(static_cast<char *>(given_[which]) + size_t(real) * row, rest_[which][poison].data(), size_t(max_ - real) * row);
      CGR_EXPECT_OK(cgr_fill(dev_, in_[which], bytes[poison], size_t(max_) * row, stream_));
    }
    CGR_EXPECT_OK(cgr_fill(dev_, out_, bytes[poison], size_t(max_) * RowBytes(kHeads), stream_));
    CGR_EXPECT_OK(cgr_fill(dev_, lse_, bytes[poison], size_t(max_) * kHeads * 4, stream_));
    for (int which = 0; which < 2; which++)
      Copy(pool_[which], device_images_[which][poison], PoolBytes());
    for (int id = 0; id < CGR__BUFFER_COUNT; id++) {
      const cgr__buffer_shape shape = cgr__buffer_shape_of(&rt_->setup.limits, id, 0);
      for (int32_t copy = 0; copy < shape.copies && shape.source != CGR__SOURCE_STATE && id != CGR_BUFFER_COUNTS; copy++)
        CGR_EXPECT_OK(cgr_fill(dev_, rt_->arena + rt_->layout.offset[id][copy], bytes[poison],
                               size_t(shape.rows * shape.columns) * cgr_dtype_size(shape.dtype), stream_));
    }
    rt_->lane.device_batch = 0; // the batch layout is gone
    Sync();
  }
  // out and lse of the real tokens.
  Bytes Run(const cgr_key &key, int32_t real, int poison) {
    std::vector<int32_t> tokens(size_t(real), 3);
    for (int32_t i = 0; i < real; i++)
      CGR_EXPECT_OK(cgr_request_set_length(rt_, order_[size_t(i)], before_[size_t(order_[size_t(i)])]));
    Flush();
    MakeStale(real, poison);
    cgr_batch batch = BatchOf(real, order_.data(), tokens.data());
    cgr_step step = CGR_STEP_INIT;
    batch.forced_key = &key;
    CGR_EXPECT_OK(cgr_step_prepare(rt_, &batch, &step));
    CGR_EXPECT_OK(cgr_step_launch(rt_, &step, stream_));
    CGR_EXPECT_OK(cgr_step_wait(rt_, step.mark, -1, nullptr));
    Bytes got(size_t(real) * (RowBytes(kHeads) + kHeads * 4));
    if (real > 0) {
      Copy(got.data(), out_, size_t(real) * RowBytes(kHeads));
      Copy(got.data() + size_t(real) * RowBytes(kHeads), lse_, size_t(real) * kHeads * 4);
    }
    Sync();
    return got;
  }
  const Bytes &Reference(int32_t real) {
    auto found = references_.find(real);
    if (found != references_.end())
      return found->second;
    cgr_key key = CGR_KEY_INIT;
    key.num_requests = key.num_tokens = std::max(real, 1);
    return references_[real] = Run(key, real, 0);
  }
  // Every byte of the caches but the write-trash page's.
  std::string CheckPool(int32_t real, int poison) {
    for (int which = 0; which < 2; which++) {
      pool_got_.resize(PoolBytes());
      pool_want_ = images_[which][poison];
      for (int32_t i = 0; i < real; i++) {
        const size_t row = size_t(order_[size_t(i)]), slot = size_t(FirstPage(int32_t(row))) * kPage + size_t(before_[row]);
        std::memcpy(pool_want_.data() + slot * RowBytes(kKvHeads), values_[1 + which].data() + size_t(i) * RowBytes(kKvHeads),
                    RowBytes(kKvHeads));
      }
      Copy(pool_got_.data(), pool_[which], PoolBytes());
      Sync();
      std::memcpy(pool_got_.data() + PageBytes(), pool_want_.data() + PageBytes(), PageBytes());
      if (pool_got_ != pool_want_)
        return std::string(which == 0 ? "K" : "V") + " differs in page " +
               std::to_string(
                   size_t(std::mismatch(pool_got_.begin(), pool_got_.end(), pool_want_.begin()).first - pool_got_.begin()) /
                   PageBytes());
    }
    return "";
  }

  const int32_t max_;
  const bool bf16_;
  const int32_t dim_; // narrow on the host, where time goes into copies of the caches
  Random random_;
  cgr_device *dev_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cgr_runtime *rt_ = nullptr;
  cgr_attention call_;
  void *in_[3], *given_[3], *out_, *lse_, *pool_[2];
  Bytes values_[3], rest_[3][kNumPoisons]; // of real tokens, and of the others
  std::array<std::array<Bytes, kNumPoisons>, 2> images_;
  Bytes pool_got_, pool_want_; // kept from one comparison to the next: new memory takes as long as what is done with it
  std::array<std::array<void *, kNumPoisons>, 2> device_images_;
  std::vector<int32_t> before_, order_; // tokens in the cache, by row; rows of a batch
  std::map<int32_t, Bytes> references_;
  std::vector<void *> memory_;
};

class EveryPadding : public OverDevices {
protected:
  static std::string Name(cgr_graph_kind kind, bool mixed, int32_t bucket, int32_t real, int poison) {
    return std::string(cgr_graph_kind_name(kind)) + (mixed ? ", mixed, " : ", ") + std::to_string(real) + " of " +
           std::to_string(bucket) + ", " + kPoisons[poison];
  }
};

// With every poison on a GPU; with one after the other on the host, where the next run has another.
TEST_P(EveryPadding, RealRowsAreThoseOfAnUnpaddedStep) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  int poison = int(seed % kNumPoisons);
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    const cgr_graph_kind kind = mode == CGR_MODE_FULL ? CGR_KIND_FULL : CGR_KIND_PIECEWISE;
    PaddedEngine engine(GetParam(), seed, 64, mode);
    uint64_t tried = 0;
    for (int32_t bucket = 1; bucket <= 64; bucket++)
      for (int32_t real = 0; real <= bucket; real++)
        for (bool mixed : { false, true })
          for (int n = 0; n < (GetParam().IsCuda() ? int(kNumPoisons) : 1); n++, tried++) {
            poison = (poison + 1) % kNumPoisons;
            ASSERT_EQ(engine.Try(kind, mixed, bucket, real, poison), "") << Name(kind, mixed, bucket, real, poison);
            ASSERT_FALSE(HasFailure());
          }
    EXPECT_EQ(engine.Replays(), tried);
  }
}

TEST_P(EveryPadding, AlsoOfLargeBuckets) {
  const uint64_t seed = Seed();
  SeededRandom random(seed);
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
    const cgr_graph_kind kind = mode == CGR_MODE_FULL ? CGR_KIND_FULL : CGR_KIND_PIECEWISE;
    PaddedEngine engine(GetParam(), seed, 512, mode);
    for (int n = 0; n < (GetParam().IsCuda() ? 300 : 40); n++) {
      const int32_t bucket = random.Pick32(65, 512), real = random.Pick32(0, bucket);
      const int poison = int(random.Pick(0, kNumPoisons - 1));
      const bool mixed = random.OneIn(2);
      ASSERT_EQ(engine.Try(kind, mixed, bucket, real, poison), "") << Name(kind, mixed, bucket, real, poison);
      ASSERT_FALSE(HasFailure());
    }
  }
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(EveryPadding);

} // namespace
} // namespace cgr_test
