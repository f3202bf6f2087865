// NCCL's functions over ranks on host devices: collectives that really exchange data, through memory that all ranks share, in
// threads of one process or in processes that it has forked. As with NCCL's, a collective waits on the device for all ranks, for
// as long as it takes, or until its communicator is aborted; and it waits for no rank when it is enqueued.
#pragma once

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <vector>

#include "cgr/interop/nccl.h"

namespace cgr_test {

class FakeNccl {
public:
  enum { kMaxRanks = 8, kBytes = 1 << 16, kMailBytes = 1 << 13, kMails = 4, kPatienceSeconds = 60 };

  // What a rank asks of a collective, and its data.
  struct Operation {
    int32_t kind, dtype, op, peer; // kind: cgr_nccl_kind; peer: root of a broadcast, or the other rank
    uint64_t count;
    const void *send;
    void *recv;
  };
  // A letter from one rank to another.
  struct Mailbox {
    std::atomic<uint64_t> sent, taken;
    unsigned char letter[kMails][kMailBytes];
  };
  struct Place {
    std::atomic<uint64_t> posted, taken; // numbers of the last collective that it has given its data to, and read
    Operation operation;
    unsigned char data[kBytes];
  };
  // Shared by all ranks.
  struct World {
    std::atomic<int> joined;
    Place place[kMaxRanks];
    Mailbox mail[kMaxRanks][kMaxRanks]; // from, to
  };
  struct Comm {
    World *world;
    cgr_device *device;
    int rank, num_ranks;
    uint64_t number = 0;             // of its last collective; of the stream's thread
    std::atomic<int> aborted{ 0 };   // collectives give up
    std::atomic<int> held{ 0 };      // as graphs hold NCCL's: neither destroying nor aborting ends before it is 0
    std::atomic<int> running{ 0 };   // collectives under way
    std::atomic<int> error{ 0 };     // that ncclCommGetAsyncError tells
    std::atomic<int> fail_next{ 0 }; // result of the next call
    std::atomic<int> ends{ 0 };      // how often it was destroyed or aborted
    std::atomic<int> calls{ 0 };     // collectives that were enqueued
    std::vector<Operation> group;
    cudaStream_t group_stream = nullptr;
  };

  // Of ranks that share memory, also over fork().
  explicit FakeNccl(int num_ranks) : num_ranks_(num_ranks) {
    void *memory = mmap(nullptr, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    world_ = memory == MAP_FAILED ? nullptr : new (memory) World();
  }
  ~FakeNccl() {
    if (world_)
      munmap(world_, sizeof(World));
  }
  FakeNccl(const FakeNccl &) = delete;
  FakeNccl &operator=(const FakeNccl &) = delete;

  ncclComm_t NewComm(int rank, cgr_device *device) {
    return reinterpret_cast<ncclComm_t>(MakeComm(world_, rank, num_ranks_, device));
  }
  static Comm *Of(ncclComm_t comm) { return reinterpret_cast<Comm *>(comm); }

  // For cgr_nccl_create without a communicator: of the calling thread, as a thread has a current CUDA device.
  void MakeCurrent(cgr_device *device) { Current() = { world_, device }; }

  static cgr_nccl_functions Functions() {
    cgr_nccl_functions f = CGR_NCCL_FUNCTIONS_INIT;
    f.get_version = [](int *version) { return *version = 22999, 0; };
    f.get_unique_id = [](cgr_nccl_id *id) { return std::memset(id->internal, 'i', sizeof id->internal), 0; };
    f.comm_init_rank = [](ncclComm_t *comm, int num_ranks, cgr_nccl_id id, int rank) { return Init(comm, num_ranks, id, rank); };
    f.comm_destroy = [](ncclComm_t comm) { return End(Of(comm)); };
    f.comm_abort = [](ncclComm_t comm) { return Of(comm)->aborted = 1, End(Of(comm)); };
    f.comm_get_async_error = [](ncclComm_t comm, int *error) { return *error = Of(comm)->error, 0; };
    f.comm_count = [](const ncclComm_t comm, int *count) { return *count = Of(comm)->num_ranks, 0; };
    f.comm_user_rank = [](const ncclComm_t comm, int *rank) { return *rank = Of(comm)->rank, 0; };
    f.get_error_string = [](int result) { return result == 6 ? "remote process exited" : "fake error"; };
    f.get_last_error = [](ncclComm_t) { return "told by the fake"; };
    f.group_start = [] { return ++Depth(), 0; };
    f.group_end = [] { return --Depth() > 0 ? 0 : Flush(); };
    f.all_reduce = [](const void *send, void *recv, size_t count, int dtype, int op, ncclComm_t comm, cudaStream_t s) {
      return Enqueue(Of(comm), { CGR_NCCL_ALL_REDUCE, dtype, op, 0, count, send, recv }, s);
    };
    f.all_gather = [](const void *send, void *recv, size_t count, int dtype, ncclComm_t comm, cudaStream_t s) {
      return Enqueue(Of(comm), { CGR_NCCL_ALL_GATHER, dtype, 0, 0, count, send, recv }, s);
    };
    f.reduce_scatter = [](const void *send, void *recv, size_t count, int dtype, int op, ncclComm_t comm, cudaStream_t s) {
      return Enqueue(Of(comm), { CGR_NCCL_REDUCE_SCATTER, dtype, op, 0, count, send, recv }, s);
    };
    f.broadcast = [](const void *send, void *recv, size_t count, int dtype, int root, ncclComm_t comm, cudaStream_t s) {
      return Enqueue(Of(comm), { CGR_NCCL_BROADCAST, dtype, 0, root, count, send, recv }, s);
    };
    f.send = [](const void *send, size_t count, int dtype, int peer, ncclComm_t comm, cudaStream_t s) {
      return Enqueue(Of(comm), { CGR_NCCL_SEND, dtype, 0, peer, count, send, nullptr }, s);
    };
    f.recv = [](void *recv, size_t count, int dtype, int peer, ncclComm_t comm, cudaStream_t s) {
      return Enqueue(Of(comm), { CGR_NCCL_RECV, dtype, 0, peer, count, nullptr, recv }, s);
    };
    f.comm_register = [](const ncclComm_t, void *base, size_t, void **handle) { return *handle = base, 0; };
    f.comm_deregister = [](const ncclComm_t, void *) { return 0; };
    return f;
  }

private:
  struct CurrentDevice {
    World *world = nullptr;
    cgr_device *device = nullptr;
  };
  static CurrentDevice &Current() {
    static thread_local CurrentDevice current;
    return current;
  }
  static int &Depth() {
    static thread_local int depth = 0;
    return depth;
  }
  static Comm *&Grouped() {
    static thread_local Comm *comm = nullptr;
    return comm;
  }
  static Comm *MakeComm(World *world, int rank, int num_ranks, cgr_device *device) {
    static std::mutex lock;
    static std::deque<Comm> comms;
    std::lock_guard<std::mutex> guard(lock);
    Comm *comm = &comms.emplace_back();
    comm->world = world, comm->device = device, comm->rank = rank, comm->num_ranks = num_ranks;
    comm->number = world->place[rank].taken; // goes on where a communicator before it has ended
    return comm;
  }
  static int Init(ncclComm_t *comm, int num_ranks, const cgr_nccl_id &id, int rank) {
    if (id.internal[0] != 'i' || !Current().world)
      return 4;
    Current().world->joined++;
    while (Current().world->joined < num_ranks)
      usleep(100);
    *comm = reinterpret_cast<ncclComm_t>(MakeComm(Current().world, rank, num_ranks, Current().device));
    return 0;
  }
  static int End(Comm *comm) {
    comm->ends++;
    while (comm->held > 0 || comm->running > 0)
      usleep(100);
    return 0; // kept: collectives of an aborted step may still follow on its stream
  }

  /* -------------------------------------------------------------------------------------------------------- enqueuing */

  struct Work {
    Comm *comm;
    int32_t count, reserved;
    Operation operation[24];
  };
  static int Launch(Comm *comm, const std::vector<Operation> &operations, cudaStream_t stream) {
    Work work = {};
    work.comm = comm;
    work.count = int32_t(operations.size());
    if (operations.size() > sizeof work.operation / sizeof work.operation[0])
      return 4;
    std::copy(operations.begin(), operations.end(), work.operation);
    comm->calls++;
    return cgr_launch_host(comm->device, Run, &work, sizeof work, stream) == CGR_OK ? 0 : 1;
  }
  static int Enqueue(Comm *comm, const Operation &operation, cudaStream_t stream) {
    const int fails = comm->fail_next.exchange(0);
    if (fails)
      return fails;
    if (Depth() == 0)
      return Launch(comm, { operation }, stream);
    Grouped() = comm;
    comm->group.push_back(operation);
    comm->group_stream = stream;
    return 0;
  }
  static int Flush() {
    Comm *comm = Grouped();
    Grouped() = nullptr;
    if (!comm)
      return 0;
    std::vector<Operation> operations;
    operations.swap(comm->group);
    return Launch(comm, operations, comm->group_stream);
  }

  /* ---------------------------------------------------------------------------------------------------- on the device */

  static void Run(const void *args) {
    const Work &work = *static_cast<const Work *>(args);
    Comm *comm = work.comm;
    comm->running++;
    bool done = true;
    for (int32_t i = 0; i < work.count && done; i++) // letters first, so that no two ranks wait for each other's
      if (work.operation[i].kind == CGR_NCCL_SEND)
        done = Send(comm, work.operation[i]);
    for (int32_t i = 0; i < work.count && done; i++)
      if (work.operation[i].kind == CGR_NCCL_RECV)
        done = Receive(comm, work.operation[i]);
      else if (work.operation[i].kind != CGR_NCCL_SEND)
        done = Collective(comm, work.operation[i]);
    comm->running--;
  }
  // False: the communicator was aborted, or the test's patience is over.
  template <typename Condition> static bool WaitFor(Comm *comm, Condition condition) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; !condition(); i++) {
      if (comm->aborted)
        return false;
      if (i < 100)
        sched_yield();
      else
        usleep(50);
      if (i % 1000 == 999 && std::chrono::steady_clock::now() - begin > std::chrono::seconds(kPatienceSeconds))
        return comm->error = 6, false;
    }
    return true;
  }
  static size_t SizeOf(int32_t dtype) {
    static const size_t sizes[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };
    return sizes[dtype];
  }
  static bool Send(Comm *comm, const Operation &o) {
    Mailbox &box = comm->world->mail[comm->rank][o.peer];
    if (!WaitFor(comm, [&] { return box.sent - box.taken < kMails; }))
      return false;
    std::memcpy(box.letter[box.sent % kMails], o.send, std::min<size_t>(o.count * SizeOf(o.dtype), kMailBytes));
    box.sent++;
    return true;
  }
  static bool Receive(Comm *comm, const Operation &o) {
    Mailbox &box = comm->world->mail[o.peer][comm->rank];
    if (!WaitFor(comm, [&] { return box.sent > box.taken; }))
      return false;
    std::memcpy(o.recv, box.letter[box.taken % kMails], std::min<size_t>(o.count * SizeOf(o.dtype), kMailBytes));
    box.taken++;
    return true;
  }
  // How many elements a rank gives.
  static size_t Given(const Comm *comm, const Operation &o) {
    return o.kind == CGR_NCCL_REDUCE_SCATTER ? o.count * size_t(comm->num_ranks) : o.count;
  }
  static bool Collective(Comm *comm, const Operation &o) {
    World *world = comm->world;
    const uint64_t number = ++comm->number;
    const auto all = [&](std::atomic<uint64_t> Place::*word, uint64_t least) {
      return WaitFor(comm, [&, word, least] {
        for (int r = 0; r < comm->num_ranks; r++)
          if (world->place[r].*word < least)
            return false;
        return true;
      });
    };
    if (!all(&Place::taken, number - 1))
      return false;
    Place &own = world->place[comm->rank];
    own.operation = o;
    if (o.send)
      std::memcpy(own.data, o.send, std::min<size_t>(Given(comm, o) * SizeOf(o.dtype), kBytes));
    own.posted = number;
    if (!all(&Place::posted, number))
      return false;
    Finish(comm, o);
    own.taken = number;
    return true;
  }
  static void Finish(Comm *comm, const Operation &o) {
    const World *world = comm->world;
    const size_t size = SizeOf(o.dtype);
    unsigned char *out = static_cast<unsigned char *>(o.recv);
    if (o.kind == CGR_NCCL_BROADCAST)
      std::memcpy(out, world->place[o.peer].data, o.count * size);
    for (int r = 0; r < comm->num_ranks && o.kind == CGR_NCCL_ALL_GATHER; r++)
      std::memcpy(out + size_t(r) * o.count * size, world->place[r].data, o.count * size);
    if (o.kind != CGR_NCCL_ALL_REDUCE && o.kind != CGR_NCCL_REDUCE_SCATTER)
      return;
    const size_t first = o.kind == CGR_NCCL_REDUCE_SCATTER ? size_t(comm->rank) * o.count : 0;
    if (o.dtype == 7)
      Reduce<float>(comm, o, first);
    else if (o.dtype == 2)
      Reduce<int32_t>(comm, o, first);
    else if (o.dtype == 4)
      Reduce<int64_t>(comm, o, first);
  }
  // In the order of ranks, so that all get the same bits.
  template <typename T> static void Reduce(Comm *comm, const Operation &o, size_t first) {
    for (size_t i = 0; i < o.count; i++) {
      T sum = At<T>(comm, 0, first + i);
      for (int r = 1; r < comm->num_ranks; r++) {
        const T other = At<T>(comm, r, first + i);
        if (o.op == CGR_NCCL_SUM || o.op == CGR_NCCL_AVERAGE)
          sum = T(sum + other);
        else if (o.op == CGR_NCCL_PRODUCT)
          sum = T(sum * other);
        else
          sum = o.op == CGR_NCCL_MAX ? std::max(sum, other) : std::min(sum, other);
      }
      if (o.op == CGR_NCCL_AVERAGE)
        sum = T(sum / T(comm->num_ranks));
      std::memcpy(static_cast<unsigned char *>(o.recv) + i * sizeof(T), &sum, sizeof sum);
    }
  }
  template <typename T> static T At(const Comm *comm, int rank, size_t i) {
    T value;
    std::memcpy(&value, comm->world->place[rank].data + i * sizeof(T), sizeof value);
    return value;
  }

  int num_ranks_;
  World *world_;
};

} // namespace cgr_test
