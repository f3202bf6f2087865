// The kernel that splits a batch into two levels writes the words of the host's split, whatever was there before, eagerly and in
// a graph whose batch changes from replay to replay; a batch that split refuses gives levels without requests.
#include "tests/support/enqueue_case.h"
#include "tests/support/flashinfer_cascade.h"

namespace cgr_test {
namespace {

class FlashInferCascadeKernel : public EnqueueTest {
protected:
  // Arrays on the device for these numbers of requests, groups and pages.
  struct There {
    There(Bench &bench, int32_t requests, int32_t groups, int32_t pages)
        : qo(bench, size_t(requests) + 1), kv(bench, size_t(requests) + 1), last(bench, size_t(requests)),
          indices(bench, size_t(pages)), start(bench, size_t(groups) + 1), prefix(bench, size_t(groups)),
          shared_qo(bench, size_t(groups) + 1), shared_kv(bench, size_t(groups) + 1), shared_last(bench, size_t(groups)),
          shared_indices(bench, size_t(pages)), unique_kv(bench, size_t(requests) + 1), unique_last(bench, size_t(requests)),
          unique_indices(bench, size_t(pages)), status(bench, 1), live(bench, 1) {
      c.num_requests = requests, c.num_groups = groups, c.page_size = 16, c.max_indices = pages;
      c.qo_indptr = qo.data(), c.kv_indptr = kv.data(), c.kv_last_page_len = last.data(), c.kv_indices = indices.data();
      c.group_start = start.data(), c.prefix_pages = prefix.data();
      c.shared_qo_indptr = shared_qo.data(), c.shared_kv_indptr = shared_kv.data();
      c.shared_last_page_len = shared_last.data(), c.shared_kv_indices = shared_indices.data();
      c.unique_kv_indptr = unique_kv.data(), c.unique_last_page_len = unique_last.data();
      c.unique_kv_indices = unique_indices.data(), c.status = status.data();
    }
    // Includes the number of live requests, if `host` has one.
    void Put(const Cascade &host) {
      Ints pages = host.indices;
      pages.resize(size_t(c.max_indices), -9);
      qo.Put(host.qo), kv.Put(host.kv), last.Put(host.last), start.Put(host.start), prefix.Put(host.prefix), indices.Put(pages);
      c.live_requests = host.live.empty() ? nullptr : live.data();
      if (!host.live.empty())
        live.Put(host.live);
      for (Array<int32_t> *out :
           { &shared_qo, &shared_kv, &shared_last, &shared_indices, &unique_kv, &unique_last, &unique_indices, &status })
        out->Put(Ints(out->Get().size(), -7));
    }
    cgr_flashinfer_cascade c = CGR_FLASHINFER_CASCADE_INIT;
    Array<int32_t> qo, kv, last, indices, start, prefix, shared_qo, shared_kv, shared_last, shared_indices, unique_kv,
        unique_last, unique_indices, status, live;
  };

  static void ExpectBegins(const Ints &got, const Ints &expected, int32_t count, const char *what) {
    EXPECT_EQ(Ints(got.begin(), got.begin() + count), Ints(expected.begin(), expected.begin() + count)) << what;
    EXPECT_EQ(std::count(got.begin() + count, got.end(), -7), int64_t(got.size()) - count) << what << ", past its end";
  }
  // `host` has been split; `status` is the result.
  static void ExpectSame(const Cascade &host, cgr_status status, const There &there) {
    if (status != CGR_OK) {
      EXPECT_EQ(there.status.Get()[0], CGR_ERROR_INVALID_ARGUMENT);
      for (const Array<int32_t> *sums : { &there.shared_qo, &there.shared_kv, &there.unique_kv })
        EXPECT_EQ(sums->Get(), Ints(sums->Get().size(), 0));
      for (const Array<int32_t> *lens : { &there.shared_last, &there.unique_last })
        EXPECT_EQ(lens->Get(), Ints(lens->Get().size(), 1));
      return;
    }
    EXPECT_EQ(there.status.Get()[0], CGR_OK);
    EXPECT_EQ(there.shared_qo.Get(), host.shared_qo);
    EXPECT_EQ(there.shared_kv.Get(), host.shared_kv);
    EXPECT_EQ(there.shared_last.Get(), host.shared_last);
    EXPECT_EQ(there.unique_kv.Get(), host.unique_kv);
    EXPECT_EQ(there.unique_last.Get(), host.unique_last);
    ExpectBegins(there.shared_indices.Get(), host.shared_indices, host.shared_kv.back(), "shared pages");
    ExpectBegins(there.unique_indices.Get(), host.unique_indices, host.unique_kv.back(), "unique pages");
  }
  void Check(Cascade host) {
    host.Bind();
    cgr_status status = cgr_flashinfer_cascade_split(&host.c);
    There there(*bench_, host.c.num_requests, host.c.num_groups, int32_t(host.indices.size()) + 1);
    there.Put(host);
    CGR_ASSERT_OK(cgr_flashinfer_cascade_enqueue(device_, &there.c, stream_));
    Sync();
    ExpectSame(host, status, there);
  }
};

TEST_P(FlashInferCascadeKernel, EqualsTheHost) {
  ForSeeds(500, [&](Random &random) {
    Cascade host = RandomCascade(random);
    if (random.OneIn(2))
      Pad(random, host, random.Pick32(0, 40));
    if (!host.last.empty())
      Check(host);
  });
}

TEST_P(FlashInferCascadeKernel, TakesManyRequestsAndGroups) {
  SeededRandom random;
  for (int32_t groups : { 1, 2, 33, 1023, 1025, 4096 }) {
    Cascade host;
    for (int32_t g = 0; g < groups; g++) {
      host.AddGroup(random.Pick32(0, 3));
      for (int32_t n = groups == 1 ? 4096 : groups >= 1023 ? random.Pick32(g + 1 == groups ? 1 : 0, 1) : 70; n > 0; n--)
        host.Add(1, host.prefix.back() + random.Pick32(1, 3), 16);
    }
    ASSERT_LE(host.last.size(), 4096u);
    Check(host);
    host.live = { random.Pick32(0, int32_t(host.last.size())) };
    Check(host);
  }
}

TEST_P(FlashInferCascadeKernel, BadBatchesGiveNoRequests) {
  int refused = 0;
  ForSeeds(500, [&](Random &random) {
    Cascade host = RandomCascade(random);
    if (random.OneIn(3))
      Pad(random, host, random.Pick32(0, 5));
    if (host.last.empty())
      return;
    std::vector<Ints *> arrays = { &host.qo, &host.kv, &host.last, &host.start, &host.prefix };
    for (Ints *array : { &host.indices, &host.live })
      if (!array->empty())
        arrays.push_back(array);
    Ints &array = *arrays[size_t(random.Pick(0, int64_t(arrays.size()) - 1))];
    array[random.Pick(0, array.size() - 1)] = random.OneIn(2) ? int32_t(random.Bits()) : random.Pick32(-2, 3);
    host.Bind();
    if (host.kv[size_t(host.num_live())] > int32_t(host.indices.size()))
      return; // the host's indices end before that
    refused += cgr_flashinfer_cascade_split(&host.c) != CGR_OK;
    Check(host);
  });
  EXPECT_GT(refused, 50);
}

TEST_P(FlashInferCascadeKernel, MorePagesThanThereIsRoomForAreRefused) {
  Cascade host;
  host.AddGroup(2);
  host.Add(1, 5, 3);
  host.Bind();
  There there(*bench_, 1, 1, 5);
  there.Put(host);
  there.c.max_indices = 4;
  CGR_ASSERT_OK(cgr_flashinfer_cascade_enqueue(device_, &there.c, stream_));
  Sync();
  ExpectSame(host, CGR_ERROR_INVALID_ARGUMENT, there);
  there.c.max_indices = 0;
  EXPECT_EQ(cgr_flashinfer_cascade_enqueue(device_, &there.c, stream_), CGR_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(cgr_last_message(), "cgr_flashinfer_cascade_enqueue: max_indices is 0, expected 1 or more with kv_indices");
  EXPECT_EQ(cgr_flashinfer_cascade_enqueue(nullptr, &there.c, stream_), CGR_ERROR_NULL_POINTER);
}

// On the host device the kernel that refuses a batch runs in the call: the thread's last message stays that of a public call.
TEST(FlashInferCascadeAlone, KernelsLeaveNoMessage) {
  const DeviceParam param = HostParam(CGR_SCHEDULE_EARLIEST);
  cgr_device *device = nullptr;
  cudaStream_t stream = nullptr;
  CGR_ASSERT_OK(cgr_device_open(param.name.c_str(), &param.config, &device));
  CGR_ASSERT_OK(cgr_stream_create(device, &stream));
  Cascade host;
  host.AddGroup(2);
  host.Add(1, 5, 17); // more tokens than a page has
  host.Bind();
  int32_t status = -1;
  host.c.status = &status;
  host.c.max_indices = int32_t(host.indices.size());
  EXPECT_EQ(cgr_flashinfer_cascade_enqueue(nullptr, &host.c, stream), CGR_ERROR_NULL_POINTER);
  const std::string before = cgr_last_message();
  CGR_EXPECT_OK(cgr_flashinfer_cascade_enqueue(device, &host.c, stream));
  EXPECT_EQ(status, CGR_ERROR_INVALID_ARGUMENT) << "it runs in the call";
  EXPECT_EQ(cgr_last_message(), before);
  CGR_EXPECT_OK(cgr_stream_destroy(device, stream));
  CGR_EXPECT_OK(cgr_device_close(device));
}

TEST_P(FlashInferCascadeKernel, OneGraphSplitsManyBatches) {
  SeededRandom random;
  There there(*bench_, 40, 3, 4000);
  there.c.live_requests = there.live.data();
  auto replay = [&](auto launch) {
    for (int n = 0; n < 50 && !HasFailure(); n++) {
      Cascade host;
      for (int32_t g = 0; g < 3; g++) {
        host.AddGroup(random.Pick32(0, 20));
        for (int32_t left = g == 2 ? 40 - int32_t(host.last.size()) : random.Pick32(0, 15); left > 0; left--)
          host.Add(random.Pick32(0, 3), host.prefix.back() + random.Pick32(1, 9), random.Pick32(1, 16));
      }
      host.live = { n % 3 == 0 ? 40 : random.Pick32(0, 40) };
      host.Bind();
      cgr_status status = cgr_flashinfer_cascade_split(&host.c);
      there.Put(host);
      ASSERT_NO_FATAL_FAILURE(launch());
      ExpectSame(host, status, there);
    }
  };
  InAGraph([&] { return cgr_flashinfer_cascade_enqueue(device_, &there.c, stream_); }, replay);
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(FlashInferCascadeKernel);

} // namespace
} // namespace cgr_test
