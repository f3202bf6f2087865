// How an audit reads the words of two captures, without a device.
#include <cstring>
#include <string>
#include <vector>

#include "graphs/audit.h"
#include "tests/graphs/rig.h"

namespace {

using namespace cgr_test;

constexpr uint64_t kOwn = 0x10000, kNamed = 0x20000, kOther = 0x30000, kMemory = 0x100000, kMore = 0x200000;

int Find(cgr_device *, const void *address, const void **base, size_t *bytes) {
  const uint64_t at = reinterpret_cast<uintptr_t>(address);
  *base = at >= kMemory && at < kMemory + 256 ? reinterpret_cast<void *>(kMemory)
          : at >= kMore && at < kMore + 256   ? reinterpret_cast<void *>(kMore)
                                              : nullptr;
  *bytes = *base == nullptr ? 0 : 256;
  return at == 0xdead000 ? CGR__DEVICE_FAILED : CGR__DEVICE_OK;
}

using Values = std::vector<uint64_t>;

// A capture: nodes with parameters of 64-bit words.
struct NodeArgs {
  NodeArgs() {
    std::memset(&all, 0, sizeof all);
    cgr__node_args_empty(&all);
    all.held.named = true;
    all.held.count = 1;
    all.held.region = static_cast<int32_t *>(malloc(sizeof(int32_t)));
    all.held.region[0] = 1;
    cgr__node_args_begin(&all);
  }
  ~NodeArgs() { cgr__node_args_free(&all); }
  NodeArgs(const NodeArgs &) = delete;
  NodeArgs &Param(const char *name, int32_t index, const Values &values) {
    return Bytes(name, index, values.data(), values.size() * 8);
  }
  NodeArgs &Bytes(const char *name, int32_t index, const void *data, size_t bytes, bool hidden = false) {
    node_ += index <= 0;
    const cgr__node_param param = { node_, name, index, hidden, data, bytes, nullptr, 0 };
    EXPECT_EQ(cgr__node_args_add(&all, &param), 0);
    return *this;
  }
  NodeArgs &Piece() {
    cgr__node_args_begin(&all);
    node_ = -1;
    return *this;
  }
  cgr__node_args all;

private:
  int64_t node_ = -1;
};

class AuditNodeArgs : public ::testing::Test {
protected:
  AuditNodeArgs() : rig_(CGR_MODE_FULL_DECODE_ONLY, 16, 16, { 1, 2 }) {
    ops_.mem_find = Find;
    device_.ops = &ops_;
    rig_.graphs->dev = &device_;
    rig_.regions->region[0] = { reinterpret_cast<void *>(kOwn), 256, 0 };
    rig_.regions->region[1] = { reinterpret_cast<void *>(kNamed), 256, 0 };
    rig_.regions->region[2] = { reinterpret_cast<void *>(kOther), 256, 0 };
    rig_.regions->first_movable = 1;
    rig_.regions->count = 3;
    found_.resize(32);
    audit_.graphs = rig_.graphs.get();
    audit_.key = "a key";
    cgr__findings_init(&audit_.findings, found_.data(), 32);
  }
  ~AuditNodeArgs() override { cgr__audit_free(&audit_); }
  // The findings' texts that two captures add.
  std::vector<std::string> Run(const NodeArgs &first, const NodeArgs &second, int error = 0) {
    const int32_t before = audit_.findings.count;
    EXPECT_EQ(cgr__audit_node_args(&audit_, &first.all, &second.all), error);
    std::vector<std::string> texts;
    for (int32_t i = before; i < audit_.findings.count; i++) {
      EXPECT_STREQ(found_[size_t(i)].field, "a key");
      EXPECT_EQ(found_[size_t(i)].status, CGR_ERROR_AUDIT);
      texts.push_back(found_[size_t(i)].text);
    }
    return texts;
  }
  Graphs rig_;
  cgr__device_ops ops_ = {};
  cgr_device device_ = {};
  std::vector<cgr_finding> found_;
  cgr__audit audit_ = {};
};

using Texts = std::vector<std::string>;

TEST_F(AuditNodeArgs, AddressesThatAreHeldAreCounted) {
  NodeArgs a, b;
  for (NodeArgs *w : { &a, &b })
    w->Param("k", 0, { kOwn, kOwn + 255, kNamed, 7, 0 }).Param("k", 1, { kNamed + 8, 0xffffffffffffffff });
  EXPECT_EQ(Run(a, b), Texts());
  EXPECT_EQ(audit_.counts.num_addresses, 4);
  EXPECT_EQ(audit_.counts.num_nodes, 1);
  EXPECT_EQ(audit_.counts.num_graphs, 1);
  EXPECT_EQ(audit_.counts.num_hidden, 0);
}

// A region that holds it and is held counts, whatever comes before.
TEST_F(AuditNodeArgs, AnAddressInTwoRegionsIsHeldByEither) {
  rig_.regions->region[3] = { reinterpret_cast<void *>(kOther), 16, 0 };
  rig_.regions->count = 4;
  NodeArgs a, b;
  for (NodeArgs *w : { &a, &b }) {
    w->all.held.region[0] = 3;
    w->Param("k", 0, { kOther });
  }
  EXPECT_EQ(Run(a, b), Texts());
  EXPECT_EQ(audit_.counts.num_addresses, 1);
}

TEST_F(AuditNodeArgs, OtherAddressesAreToldOnce) {
  NodeArgs a, b;
  for (NodeArgs *w : { &a, &b })
    w->Param("k", 0, { kOther + 1, kOther + 2 }).Param("k", 1, { kOther + 3, kMemory + 9, kMemory, kMore + 255 });
  EXPECT_EQ(
      Run(a, b),
      (Texts{
          "node 0 (k), parameter 0, byte 0: 0x30001 is in region 2, which the graph's `record` has not named",
          "node 0 (k), parameter 1, byte 8: 0x100009 is in no region (cgr_region_register), in 256 bytes from 0x100000 on",
          "node 0 (k), parameter 1, byte 24: 0x2000ff is in no region (cgr_region_register), in 256 bytes from 0x200000 on" }));
  // The region once more in another graph, the allocations not.
  EXPECT_EQ(Run(a, b).size(), 1u);
}

// Two unnamed regions are two findings.
TEST_F(AuditNodeArgs, EachRegionIsTold) {
  rig_.regions->region[3] = { reinterpret_cast<void *>(uint64_t(0x40000)), 16, 0 };
  rig_.regions->count = 4;
  NodeArgs a, b;
  for (NodeArgs *w : { &a, &b })
    w->Param("k", 0, { kOther, 0x40000 });
  EXPECT_EQ(Run(a, b).size(), 2u);
}

TEST_F(AuditNodeArgs, NumbersAreToldByHalvesAndPlaces) {
  NodeArgs a, b;
  a.Param("k", 0, { 1 | 2ull << 32, 5 }).Param("k", 1, { 9, 5 }).Param("other", 0, { 1 });
  b.Param("k", 0, { 1 | 3ull << 32, 6 | 7ull << 32 }).Param("k", 1, { 8, 6 }).Param("other", 0, { 2 });
  const std::string why = ": a value of the host's, or a hole in a struct";
  EXPECT_EQ(Run(a, b), (Texts{ "node 0 (k), parameter 0, byte 4: 0x2 in one capture, 0x3 in the next" + why,
                               "node 0 (k), parameter 0, byte 8: 0x5 in one capture, 0x6 in the next" + why,
                               "node 0 (k), parameter 0, byte 12: 0 in one capture, 0x7 in the next" + why,
                               "node 0 (k), parameter 1, byte 0: 0x9 in one capture, 0x8 in the next" + why,
                               "node 0 (k), parameter 1, byte 8: 0x5 in one capture, 0x6 in the next" + why,
                               "node 1 (other), parameter 0, byte 0: 0x1 in one capture, 0x2 in the next" + why }));
  EXPECT_EQ(Run(a, b), Texts()) << "the same places in another graph";
}

// Names longer than the part that is kept still differ.
TEST_F(AuditNodeArgs, NamesCountWhole) {
  const std::string name(200, 'x');
  NodeArgs a, b;
  a.Param((name + "1").c_str(), 0, { 1 }).Param((name + "2").c_str(), 0, { 1 });
  b.Param((name + "1").c_str(), 0, { 2 }).Param((name + "2").c_str(), 0, { 2 });
  EXPECT_EQ(Run(a, b).size(), 2u);
  NodeArgs c, d;
  c.Param((name + "1").c_str(), 0, { 1 });
  d.Param((name + "2").c_str(), 0, { 1 });
  EXPECT_EQ(Run(c, d).size(), 1u);
}

TEST_F(AuditNodeArgs, AddressesMayChangeWithinARegionAlone) {
  NodeArgs a, b;
  a.Param("k", 0, { kNamed, kNamed, kNamed, 5, kMemory });
  b.Param("k", 0, { kNamed + 16, kOwn, 0, kNamed, kMemory + 8 });
  const std::string elsewhere = ", which is elsewhere";
  EXPECT_EQ(
      Run(a, b),
      (Texts{
          "node 0 (k), parameter 0, byte 8: 0x20000 in one capture, 0x10000 in the next" + elsewhere,
          "node 0 (k), parameter 0, byte 16: 0x20000 in one capture, 0 in the next" + elsewhere,
          "node 0 (k), parameter 0, byte 24: 0x5 in one capture, 0x20000 in the next" + elsewhere,
          "node 0 (k), parameter 0, byte 32: 0x100000 is in no region (cgr_region_register), in 256 bytes from 0x100000 on" }));
}

// The last bytes of a parameter, and a launch's dimensions.
TEST_F(AuditNodeArgs, NothingIsLeftOut) {
  const unsigned char short_one[11] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3 }, another[11] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4 };
  NodeArgs a, b;
  a.Param("k", -1, { 64, 128 }).Bytes("k", 1, short_one, 11);
  b.Param("k", -1, { 65, 128 }).Bytes("k", 1, another, 11);
  const Texts texts = Run(a, b);
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].rfind("node 0 (k), its launch, byte 0: 0x40 in one capture, 0x41", 0), 0u) << texts[0];
  EXPECT_EQ(texts[1].rfind("node 0 (k), parameter 1, byte 8: 0x30201 in one capture, 0x40201", 0), 0u) << texts[1];
}

// Nodes that differ in number, kind or place: one finding, and the addresses of both captures are checked.
TEST_F(AuditNodeArgs, OtherNodesAreTold) {
  for (int what = 0; what < 6; what++) {
    SCOPED_TRACE(what);
    NodeArgs a, b;
    a.Param("k", 0, { 1 }).Param("l", 0, { 1 });
    switch (what) {
    case 0: // fewer
      b.Param("k", 0, { 1 });
      break;
    case 1: // others
      b.Param("k", 0, { 1 }).Param("m", 0, { 1 });
      break;
    case 2: // one node with both words
      b.Param("k", 0, { 1 }).Param("k", 1, { 1 });
      break;
    case 3: // elsewhere in the parameter
      b.Param("k", 0, { 1, 1 }).Param("l", 0, {});
      break;
    case 4: // in another piece
      b.Param("k", 0, { 1 }).Piece().Param("l", 0, { 1 });
      break;
    default: // a shorter parameter of as many words
      b.Param("k", 0, { 1 }).Bytes("l", 0, &what, 4);
    }
    const Texts texts = Run(a, b);
    ASSERT_EQ(texts.size(), 1u);
    EXPECT_EQ(texts[0].rfind("record enqueued other work the second time: 2 nodes with 2 words of parameters, then ", 0), 0u);
  }
  NodeArgs a, b;
  a.Param("k", 0, { 1 });
  b.Param("k", 0, { 1, kMore });
  EXPECT_EQ(Run(a, b).size(), 2u);
}

TEST_F(AuditNodeArgs, HiddenNodesAreCounted) {
  NodeArgs a, b;
  for (NodeArgs *w : { &a, &b })
    w->Bytes("one", 0, nullptr, 0, true).Param("k", 0, { 1 }).Bytes("two", 0, nullptr, 0, true);
  EXPECT_EQ(Run(a, b), Texts());
  EXPECT_EQ(audit_.counts.num_hidden, 2);
  EXPECT_EQ(audit_.counts.num_nodes, 3);
}

TEST_F(AuditNodeArgs, ADevicesErrorIsTheAnswer) {
  NodeArgs a, b;
  a.Param("k", 0, { 0xdead000 });
  b.Param("k", 0, { 0xdead000 });
  EXPECT_EQ(Run(a, b, CGR__DEVICE_FAILED), Texts());
}

} // namespace
