// What the functions of ranks refuse, and exchanges of an engine's own: that fail, that wait, that show nothing, that mix ranks
// up.
#include <cstring>

#include "tests/ranks/rank_engine.h"
#include "tests/support/mistake.h"

namespace cgr_test {
namespace {

// An exchange of one rank, with what it does next.
struct OwnExchange {
  OwnExchange() {
    exchange.context = this;
    exchange.gather = [](void *context, const void *mine, size_t bytes, void *all, int32_t timeout, uint64_t *absent) {
      auto *own = static_cast<OwnExchange *>(context);
      own->calls++, own->timeout_ms = timeout;
      if (own->next != CGR_OK) {
        *absent = own->missing;
        return own->next;
      }
      std::memcpy(all, mine, bytes);
      for (int32_t r = 1; r < own->exchange.num_ranks; r++)
        std::memcpy(static_cast<char *>(all) + size_t(r) * bytes, mine, bytes);
      if (own->mix)
        static_cast<char *>(all)[9] ^= 1;
      if (own->spoil)
        static_cast<char *>(all)[bytes] ^= 1;
      return CGR_OK;
    };
  }
  cgr_exchange exchange = CGR_EXCHANGE_INIT;
  cgr_status next = CGR_OK;
  uint64_t missing = 0;
  bool mix = false, spoil = false;
  int calls = 0, timeout_ms = 0;
};

class Refused : public ::testing::Test {
protected:
  Refused() : engine_(device_, CGR_MODE_FULL) {}
  ~Refused() override { CGR_EXPECT_OK(cgr_ranks_destroy(ranks_)); }
  cgr_status Create(int32_t num_ranks = 1, int32_t timeout_ms = 70) {
    own_.exchange.num_ranks = num_ranks;
    cgr_ranks_config config = CGR_RANKS_CONFIG_INIT;
    config.exchange = &own_.exchange;
    config.timeout_ms = timeout_ms;
    return cgr_ranks_create(engine_.rt, &config, &ranks_);
  }
  cgr_status Agree() { return cgr_ranks_agree(ranks_, nullptr, &agreed_); }
  std::string Report() {
    size_t length = 0;
    char text[1024];
    CGR_EXPECT_OK(cgr_ranks_report(ranks_, text, sizeof text, &length));
    EXPECT_EQ(length, std::strlen(text));
    return text;
  }

  HostDevice device_;
  TinyEngine engine_;
  OwnExchange own_;
  cgr_ranks *ranks_ = nullptr;
  cgr_agreement agreed_ = CGR_AGREEMENT_INIT;
};

TEST_F(Refused, ConfigurationsOfRanks) {
  struct Given {
    cgr_ranks_config config;
    cgr_exchange exchange;
  };
  const auto good = [&] { return Given{ CGR_RANKS_CONFIG_INIT, own_.exchange }; };
  const auto show = [](void *, const void *, size_t) {};
  const auto look = [](void *, int32_t, void *, size_t) { return CGR_NOT_READY; };
  const std::vector<Mistake<Given>> rows = {
    { kStruct, "cgr_ranks_create: config: size is 0", [](Given &g) { g.config.size = 0; } },
    { kEnum, "cgr_ranks_create: config.rule is 2", [](Given &g) { g.config.rule = 2; } },
    { kNewer, "cgr_ranks_create: config.reserved is 1", [](Given &g) { g.config.reserved = 1; } },
    { kArgument, "cgr_ranks_create: config.timeout_ms is -2, expected -1 or more", [](Given &g) { g.config.timeout_ms = -2; } },
    { kStruct, "cgr_ranks_create: config.exchange: size is 3", [](Given &g) { g.exchange.size = 3; } },
    { kNewer, "cgr_ranks_create: config.exchange.reserved is 5", [](Given &g) { g.exchange.reserved = 5; } },
    { kArgument, "cgr_ranks_create: config.exchange.num_ranks is -1, expected 1 .. 64",
      [](Given &g) { g.exchange.num_ranks = -1; } },
    { kArgument, "cgr_ranks_create: config.exchange.num_ranks is 65, expected 1 .. 64",
      [](Given &g) { g.exchange.num_ranks = 65; } },
    { kArgument, "cgr_ranks_create: config.exchange.rank is 1, expected 0 .. 0", [](Given &g) { g.exchange.rank = 1; } },
    { kArgument, "cgr_ranks_create: config.exchange.rank is -1, expected 0 .. 0", [](Given &g) { g.exchange.rank = -1; } },
    { kNull, "cgr_ranks_create: config.exchange.gather is NULL, expected a function",
      [](Given &g) { g.exchange.gather = nullptr; } },
    { kNull, "cgr_ranks_create: config.exchange.look is NULL and the other of show and look is not, expected both or neither",
      [&](Given &g) { g.exchange.show = show; } },
    { kNull, "cgr_ranks_create: config.exchange.show is NULL and", [&](Given &g) { g.exchange.look = look; } },
  };
  EachMistake<Given>(rows, good, [&](Given &given, const Mistake<Given> &row) {
    given.config.exchange = &given.exchange;
    ExpectMessage(cgr_ranks_create(engine_.rt, &given.config, &ranks_), row.status, PartsOf(row.says));
    EXPECT_EQ(ranks_, nullptr);
  });
  EXPECT_EQ(own_.calls, 0) << "refused before anything is sent";
  cgr_ranks_config config = CGR_RANKS_CONFIG_INIT;
  ExpectMessage(cgr_ranks_create(engine_.rt, &config, &ranks_), kNull, { "cgr_ranks_create: config.exchange is NULL" });
  ExpectMessage(cgr_ranks_create(engine_.rt, nullptr, &ranks_), kNull, { "cgr_ranks_create: config is NULL" });
  config.exchange = &own_.exchange;
  ExpectMessage(cgr_ranks_create(nullptr, &config, &ranks_), kNull, { "cgr_ranks_create: runtime is NULL" });
  ExpectMessage(cgr_ranks_create(engine_.rt, &config, nullptr), kNull, { "cgr_ranks_create: ranks is NULL" });
}

TEST_F(Refused, Arguments) {
  cgr_rank_proposal proposal = CGR_RANK_PROPOSAL_INIT;
  CGR_ASSERT_OK(Create());
  ExpectMessage(cgr_ranks_proposal(ranks_, 0, &proposal), CGR_ERROR_STATE,
                { "cgr_ranks_proposal: the ranks have not agreed yet, expected it after cgr_ranks_agree" });
  ExpectMessage(cgr_ranks_agree(ranks_, nullptr, nullptr), kNull, { "cgr_ranks_agree: agreement is NULL" });
  agreed_.size = 12;
  ExpectMessage(Agree(), kStruct, { "cgr_ranks_agree: agreement: size is 12" });
  agreed_.size = sizeof agreed_;
  CGR_ASSERT_OK(Agree());
  for (const int32_t rank : { -1, 1 })
    ExpectMessage(cgr_ranks_proposal(ranks_, rank, &proposal), kArgument,
                  { "cgr_ranks_proposal: rank is " + std::to_string(rank) + ", expected 0 .. 0" });
  ExpectMessage(cgr_ranks_proposal(ranks_, 0, nullptr), kNull, { "cgr_ranks_proposal: proposal is NULL" });
  const std::string long_name(32, 'n'), long_note(48, 'n');
  ExpectMessage(cgr_ranks_barrier(ranks_, long_name.c_str()), kArgument,
                { "cgr_ranks_barrier: name is \"" + long_name.substr(1) + "\", expected 1 .. 31 characters" });
  ExpectMessage(cgr_ranks_barrier(ranks_, ""), kArgument, { "cgr_ranks_barrier: name is \"\", expected 1 .. 31 characters" });
  ExpectMessage(cgr_ranks_barrier(ranks_, nullptr), kNull, { "cgr_ranks_barrier: name is NULL" });
  CGR_EXPECT_OK(cgr_ranks_barrier(ranks_, long_name.c_str() + 1));
  ExpectMessage(cgr_ranks_note(ranks_, long_note.c_str()), kArgument,
                { "cgr_ranks_note: text is \"" + long_note.substr(1) + "...\", expected at most 47 characters" });
  size_t length = 0;
  ExpectMessage(cgr_ranks_report(ranks_, nullptr, 1, &length), kNull, { "cgr_ranks_report: out is NULL, expected 1 bytes" });
  ExpectMessage(cgr_ranks_report(ranks_, nullptr, 0, nullptr), kNull, { "cgr_ranks_report: length is NULL" });
  ExpectMessage(cgr_ranks_capture(ranks_, nullptr), kNull, { "cgr_ranks_capture: capture is NULL" });
  ExpectMessage(cgr_ranks_agree(nullptr, nullptr, &agreed_), kNull, { "cgr_ranks_agree: " });
  ExpectMessage(cgr_ranks_barrier(nullptr, "b"), kNull, { "cgr_ranks_barrier: " });
  ExpectMessage(cgr_ranks_capture(nullptr, nullptr), kNull, { "cgr_ranks_capture: " });
  ExpectMessage(cgr_ranks_proposal(nullptr, 0, &proposal), kNull, { "cgr_ranks_proposal: " });
  ExpectMessage(cgr_ranks_note(nullptr, nullptr), kNull, { "cgr_ranks_note: " });
  ExpectMessage(cgr_ranks_report(nullptr, nullptr, 0, &length), kNull, { "cgr_ranks_report: " });
  ExpectMessage(cgr_board_exchange(nullptr, &own_.exchange), kNull, { "cgr_board_exchange: board is NULL" });
  CGR_EXPECT_OK(cgr_ranks_destroy(nullptr));
}

TEST_F(Refused, BlocksThatABoardHasNoRoomFor) {
  PlaceOnBoard place(NewBoardName(), 0, 1);
  char block[CGR_EXCHANGE_BYTES + 1] = "";
  std::vector<char> all(sizeof block);
  uint64_t missing = 0;
  for (const size_t bytes : { size_t(0), sizeof block })
    ExpectMessage(place.exchange.gather(place.exchange.context, block, bytes, all.data(), 0, &missing), kArgument,
                  { "cgr_board_exchange: gather: bytes is " + std::to_string(bytes) + ", expected 1 .. 448" });
  CGR_EXPECT_OK(place.exchange.gather(place.exchange.context, block, sizeof block - 1, all.data(), 0, &missing));
  ExpectMessage(cgr_board_exchange(place.board, nullptr), kNull, { "cgr_board_exchange: exchange is NULL" });
  ExpectMessage(cgr_board_open("x", 0, 1, -2, &place.board), kArgument,
                { "cgr_board_open: timeout_ms is -2, expected -1 or more" });
  ExpectMessage(cgr_board_open("x", 0, 1, 0, nullptr), kNull, { "cgr_board_open: board is NULL" });
}

// ---------------------------------------------------------------------------------------------------------------- exchanges

TEST_F(Refused, AnExchangeThatFails) {
  own_.next = CGR_ERROR_DEVICE;
  ExpectMessage(Create(), CGR_ERROR_CALLBACK, { "cgr_ranks_create: exchange.gather returned CGR_ERROR_DEVICE" });
  own_.next = CGR_OK;
  CGR_ASSERT_OK(Create());
  EXPECT_EQ(own_.timeout_ms, 70);
  own_.next = static_cast<cgr_status>(77);
  ExpectMessage(Agree(), CGR_ERROR_CALLBACK, { "cgr_ranks_agree: exchange.gather returned CGR_STATUS_UNKNOWN (77)" });
  own_.next = CGR_OK;
  CGR_ASSERT_OK(Agree()); // the next call begins anew
  EXPECT_EQ(agreed_.number, 1u);
  own_.next = CGR_ERROR_RANK;
  ExpectMessage(cgr_ranks_barrier(ranks_, "b"), CGR_ERROR_RANK, { "cgr_ranks_barrier: exchange.gather returned CGR_ERROR_RANK" });
  own_.next = CGR_OK;
  ExpectMessage(Agree(), CGR_ERROR_RANK, { "cgr_ranks_agree: the ranks have parted: cgr_ranks_barrier: exchange.gather" });
}

TEST_F(Refused, AnExchangeThatWaits) {
  CGR_ASSERT_OK(Create(3, 0));
  EXPECT_EQ(own_.timeout_ms, 30000);
  own_.next = CGR_NOT_READY;
  ExpectMessage(Agree(), CGR_NOT_READY,
                { "cgr_ranks_agree: not here within 30000 ms: rank unknown (cgr_ranks_report tells more)" });
  own_.missing = 6;
  ExpectMessage(Agree(), CGR_NOT_READY, { "cgr_ranks_agree: not here within 30000 ms: ranks 1 and 2 (" });
  const std::string text = Report();
  EXPECT_NE(text.find(", waits for ranks 1 and 2; agreement 0"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 2: has shown nothing yet\n"), std::string::npos) << text;
  const cgr_capture capture = engine_.CaptureStruct();
  ExpectMessage(cgr_ranks_capture(ranks_, &capture), CGR_ERROR_STATE,
                { "cgr_ranks_capture: cgr_ranks_agree waits for other ranks, expected that call again" });
  own_.next = CGR_OK;
  CGR_ASSERT_OK(Agree());
  EXPECT_EQ(agreed_.number, 1u);
  own_.next = CGR_NOT_READY;
  EXPECT_EQ(cgr_ranks_barrier(ranks_, "one"), CGR_NOT_READY);
  ExpectMessage(
      cgr_ranks_barrier(ranks_, "two"), CGR_ERROR_STATE,
      { "cgr_ranks_barrier: name is \"two\", but cgr_ranks_barrier one waits for other ranks: expected that call again" });
  own_.next = CGR_OK;
  CGR_EXPECT_OK(cgr_ranks_barrier(ranks_, "one"));
  CGR_EXPECT_OK(cgr_ranks_barrier(ranks_, "two"));
}

// A capture that is done is not done again while the others are waited for.
TEST_F(Refused, ACaptureThatWaitsGoesOn) {
  CGR_ASSERT_OK(Create(2));
  static OwnExchange *own = &own_;
  own = &own_;
  static int records = 0;
  cgr_capture capture = engine_.CaptureStruct();
  capture.record = [](cgr_recorder *, void *) {
    records++;
    own->next = CGR_NOT_READY; // when the captures are compared
    return CGR_ERROR_UNSUPPORTED;
  };
  EXPECT_EQ(cgr_ranks_capture(ranks_, &capture), CGR_NOT_READY);
  const int so_far = records;
  EXPECT_GE(so_far, 1);
  EXPECT_EQ(cgr_ranks_capture(ranks_, &capture), CGR_NOT_READY);
  own_.next = CGR_OK;
  ExpectMessage(cgr_ranks_capture(ranks_, &capture), CGR_ERROR_CALLBACK, { "cgr_ranks_capture: " });
  EXPECT_EQ(records, so_far);
  const cgr_capture good = engine_.CaptureStruct();
  CGR_EXPECT_OK(cgr_ranks_capture(ranks_, &good));
}

TEST_F(Refused, AnExchangeThatMixesBlocksUp) {
  own_.mix = true;
  ExpectMessage(
      Create(), CGR_ERROR_CALLBACK,
      { "cgr_ranks_create: exchange.gather has not given rank 0's own block in its place, expected the blocks of this call" });
  own_.mix = false;
  CGR_ASSERT_OK(Create(2));
  own_.spoil = true;
  ExpectMessage(Agree(), CGR_ERROR_RANK,
                { "cgr_ranks_agree: rank 1 has sent a block of another kind: expected the same library on all ranks" });
}

TEST_F(Refused, AReportOfAnExchangeThatShowsNothing) {
  CGR_ASSERT_OK(Create(2));
  CGR_ASSERT_OK(Agree());
  std::string text = Report();
  EXPECT_NE(text.find("rank 1: shows nothing; at agreement 1 it had launched 0 steps, and brought 0 requests and 0 tokens\n"),
            std::string::npos)
      << text;
  char small[20];
  std::memset(small, 'x', sizeof small);
  size_t length = 0;
  CGR_ASSERT_OK(cgr_ranks_report(ranks_, small, 11, &length));
  EXPECT_STREQ(small, "rank 0 (th");
  EXPECT_EQ(small[11], 'x');
  EXPECT_GT(length, 100u);
}

// ------------------------------------------------------------------------------------------------------------------ runtimes

// The others learn at once that a runtime is dead, and reports can still be read.
TEST(RefusedOfTwo, ADeadRuntime) {
  const std::string name = NewBoardName();
  OnRanks(2, [&](int rank) {
    PlaceOnBoard place(name, rank, 2);
    HostDevice device(CGR_SCHEDULE_EARLIEST, true);
    TinyEngine engine(device, CGR_MODE_FULL);
    cgr_ranks_config config = CGR_RANKS_CONFIG_INIT;
    config.exchange = &place.exchange;
    config.timeout_ms = 20000;
    cgr_ranks *ranks = nullptr;
    CGR_ASSERT_OK(cgr_ranks_create(engine.rt, &config, &ranks));
    const cgr__fault_plan dies = { CGR__FAULT_ANY_OP, 1, CGR__FAULT_FROM_NTH_ON, 0, CGR__DEVICE_DEAD, 0 };
    if (rank == 1) {
      cgr__fault_set(device, &dies);
      EXPECT_EQ(engine.Capture(), CGR_ERROR_DEAD);
    }
    cgr_agreement agreed = CGR_AGREEMENT_INIT;
    for (int turn = 0; turn < 2; turn++) {
      const cgr_status status = cgr_ranks_agree(ranks, nullptr, &agreed);
      if (rank == 1)
        ExpectMessage(status, CGR_ERROR_DEAD, { "cgr_ranks_agree: the runtime is dead" });
      else
        ExpectMessage(status, CGR_ERROR_RANK, { "cgr_ranks_agree: rank 1 cannot run its batch: CGR_ERROR_DEAD (" });
    }
    size_t length = 0;
    char text[2048];
    CGR_EXPECT_OK(cgr_ranks_report(ranks, text, sizeof text, &length));
    EXPECT_NE(std::string(text).find("rank 1"), std::string::npos);
    CGR_EXPECT_OK(cgr_ranks_barrier(ranks, "both have read it"));
    if (rank == 1)
      cgr__fault_set(device, nullptr);
    CGR_EXPECT_OK(cgr_ranks_destroy(ranks));
  });
}

} // namespace
} // namespace cgr_test
