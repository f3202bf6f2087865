#include "tests/emulation/block.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/emulation/shared_memory.h"

namespace cgr_emulation {

__thread Builtins builtins;

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 256 * 1024;
#else
constexpr size_t kStackBytes = 128 * 1024;
#endif
constexpr uint32_t kHandOverIn = 1000, kHandOverAtBarrierIn = 16; // of meetings of a warp, and of the block

std::string Text(Site site) {
  const char *name = std::strstr(site.file, "kernels/cuda/");
  return std::string(name != nullptr ? name : site.file) + ":" + std::to_string(site.line);
}

std::string Hex(uint32_t mask) {
  char text[16];
  snprintf(text, sizeof text, "%#x", mask);
  return text;
}

// Thrown to take a lane out of a failed kernel.
struct Abandoned {};

bool SamePlace(Site a, Site b) { return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0); }

} // namespace

// ---------------------------------------------------------------------------------------------------------------- the block

void Block::Run(uint3 index) {
  Prepare(index);
  BeginSharedMemory(Running().shared);
  SwitchTo(Next());
  bool good = EndSharedMemory(Running().shared);
  if (HasFailed())
    return;
  if (num_exited_ != num_threads_)
    SetFailure("block (" + std::to_string(index.x) + ", " + std::to_string(index.y) + "): deadlock; " + Waiting());
  else if (!good)
    SetFailure("block (" + std::to_string(index.x) + ", " + std::to_string(index.y) +
               ") wrote after its dynamic shared memory of " + std::to_string(Running().shared) + " bytes");
}

void Block::Prepare(uint3 index) {
  const Launch &launch = Running();
  index_ = index;
  num_threads_ = int(launch.block.x * launch.block.y * launch.block.z);
  num_exited_ = at_barrier_ = 0;
  order_ = Order(Random().Below(3));
  while (int(lanes_.size()) < num_threads_) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->fiber = std::make_unique<Fiber>(kStackBytes, lanes_.size() - 1);
  }
  warps_.assign(size_t(num_threads_ + 31) / 32, Warp());
  ready_.Clear();
  for (int i = 0; i < num_threads_; i++) {
    Lane &lane = *lanes_[size_t(i)];
    unsigned n = unsigned(i);
    lane.index = { n % launch.block.x, n / launch.block.x % launch.block.y, n / launch.block.x / launch.block.y };
    lane.number = i;
    lane.exited = false;
    lane.site = Site(nullptr, 0);
    lane.copies.clear();
    lane.first_copy = 0;
    lane.groups = 0;
    lane.fiber->Begin(Enter);
    WarpOf(lane).there |= 1u << (i % 32);
    ready_.PushBack(&lane);
  }
  ready_.Shuffle();
  builtins.block = this;
  builtins.block_index = index;
  builtins.block_size = { launch.block.x, launch.block.y, launch.block.z };
  builtins.grid_size = { launch.grid.x, launch.grid.y, launch.grid.z };
  lane_ = nullptr;
}

void Block::Enter() {
  Fiber::Entered();
  Block *block = builtins.block;
  try {
    Running().call(Running().kernel, Running().args);
    block->Exit();
  } catch (const Abandoned &) {
  }
  block->Wait(true);
}

void Block::Exit() {
  Lane &me = *lane_;
  Warp &warp = WarpOf(me);
  uint32_t bit = 1u << (me.number % 32);
  if (!me.copies.empty())
    Fail("exits while asynchronous copies are under way");
  for (const Meeting &meeting : warp.meetings)
    if (meeting.mask & bit)
      Fail("exits while others of its warp wait for it, mask " + Hex(meeting.mask) + ", in " + meeting.operation->name,
           meeting.site);
  if (at_barrier_ > 0)
    Fail("exits while others of its block wait for it at a barrier; " + Waiting());
  me.exited = true;
  warp.exited |= bit;
  num_exited_++;
}

// ---------------------------------------------------------------------------------------------------------------- turns

Lane *Block::Next() {
  if (ready_.size() == 0)
    return nullptr;
  if (order_ == Order::kFirstReady)
    return ready_.PopFront();
  if (order_ == Order::kRandom)
    std::swap(ready_.At(Random().Below(ready_.size())), ready_.At(ready_.size() - 1));
  return ready_.PopBack();
}

// Switches to a lane, or to the runner if there is none.
void Block::SwitchTo(Lane *lane, bool forever) {
  Fiber *from = lane_ != nullptr ? lane_->fiber.get() : &home_, *to = lane != nullptr ? lane->fiber.get() : &home_;
  if (from == to)
    return;
  lane_ = lane;
  if (lane != nullptr)
    builtins.thread_index = lane->index;
  to->SwitchFrom(from, forever);
}

void Block::Wait(bool forever) { SwitchTo(Next(), forever); }

void Block::Leave() {
  ready_.Clear();
  throw Abandoned();
}

void Block::GiveWay() {
  ready_.PushFront(lane_);
  Wait();
  HandOver();
  if (HasFailed())
    Leave();
}

void Block::Sleep(Site site) {
  if (!MaySleep())
    Fail("waits too long: no other thread does anything that it could wait for", site);
  GiveWay();
}

void Block::GiveWayAtTimes() {
  if (Random().Below(4) == 0)
    GiveWay();
}

// ------------------------------------------------------------------------------------------------------------- meetings

// Every lane of the mask exists and can still come: it does not wait elsewhere for one that has arrived here.
void Block::CheckElsewhere(const Warp &warp, uint32_t mask, uint32_t arrived, const Meeting *joined, const char *name,
                           Site site) {
  uint32_t elsewhere = 0;
  const Meeting *where = nullptr;
  for (const Meeting &other : warp.meetings)
    if (&other != joined && (other.arrived & mask) && (other.mask & arrived)) {
      elsewhere = other.arrived & mask;
      where = &other;
    }
  if (!(mask & (~warp.there | warp.exited | warp.at_barrier)) && where == nullptr)
    return;
  const std::string of = std::string(name) + " with mask " + Hex(mask) + " names lanes that ";
  if (mask & ~warp.there)
    Fail(of + "the warp does not have", site);
  if (mask & warp.exited)
    Fail(of + "have exited: " + Hex(mask & warp.exited), site);
  if (mask & warp.at_barrier)
    Fail(of + "wait at a barrier of the block: " + Hex(mask & warp.at_barrier), site);
  Fail(of + "wait elsewhere: " + Hex(elsewhere) + " in " + where->operation->name + " at " + Text(where->site), site);
}

void Block::MeetWarp(const WarpOperation &operation, uint32_t mask, void *operand, Site site) {
  Lane &me = *lane_;
  Warp &warp = WarpOf(me);
  uint32_t bit = 1u << (me.number % 32);
  if (!(mask & bit))
    Fail(std::string(operation.name) + " with mask " + Hex(mask) + " does not name the lane itself", site);
  size_t at = 0;
  while (at < warp.meetings.size() && !(warp.meetings[at].operation == &operation && warp.meetings[at].mask == mask &&
                                        (operation.any_line || SamePlace(warp.meetings[at].site, site))))
    at++;
  if (at == warp.meetings.size())
    warp.meetings.push_back({ &operation, mask, 0, site });
  warp.meetings[at].arrived |= bit;
  if (warp.meetings.size() > 1 || (mask & (~warp.there | warp.exited | warp.at_barrier)))
    CheckElsewhere(warp, mask, warp.meetings[at].arrived, &warp.meetings[at], operation.name, site);
  me.operand = operand;
  me.site = site;
  if (warp.meetings[at].arrived != mask) {
    Wait();
    return;
  }
  warp.meetings.erase(warp.meetings.begin() + std::ptrdiff_t(at));
  void *operands[32] = {};
  const size_t first = size_t(me.number / 32 * 32);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    Lane &lane = *lanes_[first + size_t(__builtin_ctz(left))];
    operands[__builtin_ctz(left)] = lane.operand;
    ready_.PushBack(&lane);
  }
  if (operation.combine != nullptr)
    operation.combine(operands, mask);
  if (Random().Below(kHandOverIn) == 0)
    HandOver();
  if (HasFailed())
    Leave();
  Wait();
}

void Block::MeetBlock(int vote, int *count, int *threads, Site site) {
  Lane &me = *lane_;
  Warp &warp = WarpOf(me);
  uint32_t bit = 1u << (me.number % 32);
  if (num_exited_ > 0)
    Fail("waits at a barrier for lanes that have exited", site);
  for (const Meeting &meeting : warp.meetings)
    if (meeting.mask & bit)
      Fail("waits at a barrier of the block, but is named by mask " + Hex(meeting.mask) + " of " + meeting.operation->name +
               " at " + Text(meeting.site),
           site);
  me.vote = vote;
  me.site = site;
  warp.at_barrier |= bit;
  if (++at_barrier_ == num_threads_) {
    int votes = 0;
    for (int i = 0; i < num_threads_; i++)
      votes += lanes_[size_t(i)]->vote != 0;
    for (int i = 0; i < num_threads_; i++) {
      lanes_[size_t(i)]->vote = votes;
      ready_.PushBack(lanes_[size_t(i)].get());
    }
    for (Warp &one : warps_)
      one.at_barrier = 0;
    at_barrier_ = 0;
    if (order_ != Order::kFirstReady)
      ready_.Shuffle();
    if (Random().Below(kHandOverAtBarrierIn) == 0)
      HandOver();
    if (HasFailed())
      Leave();
  }
  Wait();
  *count = me.vote;
  *threads = num_threads_;
}

// --------------------------------------------------------------------------------------------------------------- copies

// The source is read at the issue or when the copy is waited for, at random. The destination holds poison until then.
void Block::CopyAsync(void *to, const void *from, size_t size) {
  static const std::array<uint16_t, 8> poison = [] {
    std::array<uint16_t, 8> made;
    made.fill(kPoison);
    return made;
  }();
  std::memcpy(to, poison.data(), sizeof poison);
  AsyncCopy copy = { to, from, from != nullptr ? size : 0, from != nullptr && Random().Below(2) == 0, {}, lane_->groups };
  if (copy.is_read)
    std::memcpy(copy.data, from, copy.size);
  lane_->copies.push_back(copy);
}

void Block::WaitForCopies(uint64_t pending) {
  Lane &me = *lane_;
  for (; me.first_copy < me.copies.size() && me.copies[me.first_copy].group + pending < me.groups; me.first_copy++) {
    const AsyncCopy &copy = me.copies[me.first_copy];
    std::memset(copy.to, 0, sizeof copy.data);
    if (copy.size > 0)
      std::memcpy(copy.to, copy.is_read ? copy.data : copy.from, copy.size);
  }
  if (me.first_copy == me.copies.size()) {
    me.copies.clear();
    me.first_copy = 0;
  }
}

// -------------------------------------------------------------------------------------------------------------- failures

std::string Block::Name(const Lane &lane) const {
  return "block (" + std::to_string(index_.x) + ", " + std::to_string(index_.y) + "), thread " + std::to_string(lane.number);
}

void Block::Fail(const std::string &text) {
  SetFailure(Name(*lane_) + ": " + text);
  Leave();
}

void Block::Fail(const std::string &text, Site site) { Fail(Text(site) + ": " + text); }

// Which lanes wait where, grouped by place.
std::string Block::Waiting() const {
  std::string text;
  std::vector<std::pair<Site, int>> places;
  int num_waiting = 0;
  for (int i = 0; i < num_threads_; i++) {
    const Lane &lane = *lanes_[size_t(i)];
    if (lane.exited || lane.site.file == nullptr || &lane == lane_)
      continue;
    num_waiting++;
    auto same = std::find_if(places.begin(), places.end(), [&](const auto &place) { return SamePlace(place.first, lane.site); });
    if (same == places.end())
      places.push_back({ lane.site, 1 });
    else
      same->second++;
  }
  for (const auto &[site, count] : places)
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " lanes wait at " + Text(site);
  return std::to_string(num_exited_) + " of " + std::to_string(num_threads_) + " have exited, " + text;
}

} // namespace cgr_emulation
