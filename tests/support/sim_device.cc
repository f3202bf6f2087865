#include "tests/support/sim_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cgr_test {

namespace {

SimDevice *SimOf(cgr_device *dev) { return static_cast<SimDevice *>(dev); }
SimStream *StreamOf(cudaStream_t stream) { return reinterpret_cast<SimStream *>(stream); }
SimEvent *EventOf(cgr__event *event) { return reinterpret_cast<SimEvent *>(event); }
SimGraph *GraphOf(cgr__graph *graph) { return reinterpret_cast<SimGraph *>(graph); }
SimGraph *GraphOf(cgr__exec *exec) { return reinterpret_cast<SimGraph *>(exec); }

void Add(std::vector<uint64_t> *to, const std::vector<uint64_t> &ids) {
  for (uint64_t id : ids)
    if (std::find(to->begin(), to->end(), id) == to->end())
      to->push_back(id);
}

SimWork WorkOf(void (*function)(const void *), const void *args, size_t bytes) {
  SimWork work;
  const unsigned char *from = static_cast<const unsigned char *>(args);
  work.function = function;
  work.copy = std::make_shared<std::vector<unsigned char>>(from, from + bytes);
  work.args = work.copy->data();
  return work;
}

struct CopyArgs {
  void *dst;
  const void *src;
  size_t bytes;
};
void Copy(const void *raw) {
  const CopyArgs &a = *static_cast<const CopyArgs *>(raw);
  std::memmove(a.dst, a.src, a.bytes);
}

struct FillArgs {
  void *dst;
  uint64_t value;
  size_t width, count;
};
void Fill(const void *raw) {
  const FillArgs &a = *static_cast<const FillArgs *>(raw);
  for (size_t i = 0; i < a.count; i++)
    std::memcpy(static_cast<unsigned char *>(a.dst) + i * a.width, &a.value, a.width); // little-endian
}

// ---------------------------------------------------------------------------------------------------------------- the table

int MemAlloc(cgr_device *dev, size_t bytes, enum cgr__memory_kind kind, void **ptr) {
  cgr_device *inner = SimOf(dev)->inner;
  return inner->ops->mem_alloc(inner, bytes, kind, ptr);
}
int MemFree(cgr_device *dev, void *ptr, enum cgr__memory_kind kind) {
  cgr_device *inner = SimOf(dev)->inner;
  return inner->ops->mem_free(inner, ptr, kind);
}
int MemFind(cgr_device *dev, const void *address, const void **base, size_t *bytes) {
  cgr_device *inner = SimOf(dev)->inner;
  return inner->ops->mem_find(inner, address, base, bytes);
}
int StreamCreate(cgr_device *, enum cgr__stream_priority, cudaStream_t *stream) {
  *stream = reinterpret_cast<cudaStream_t>(new SimStream);
  return CGR__DEVICE_OK;
}
int StreamSync(cgr_device *dev, cudaStream_t stream) {
  SimOf(dev)->Finish(StreamOf(stream)->tail);
  return CGR__DEVICE_OK;
}
int StreamDestroy(cgr_device *dev, cudaStream_t stream) {
  StreamSync(dev, stream);
  delete StreamOf(stream);
  return CGR__DEVICE_OK;
}
// A query runs one operation, the oldest, so that a caller that only polls gets to the end.
int StreamQuery(cgr_device *dev, cudaStream_t stream) {
  const SimStream *s = StreamOf(stream);
  if (!SimOf(dev)->IsDone(s->tail))
    SimOf(dev)->RunOldest();
  return SimOf(dev)->IsDone(s->tail) ? CGR__DEVICE_OK : CGR__DEVICE_NOT_READY;
}
int EventCreate(cgr_device *, cgr__event **event) {
  *event = reinterpret_cast<cgr__event *>(new SimEvent);
  return CGR__DEVICE_OK;
}
int EventDestroy(cgr_device *, cgr__event *event) {
  delete EventOf(event);
  return CGR__DEVICE_OK;
}
int EventRecord(cgr_device *dev, cgr__event *event, cudaStream_t stream) { return SimOf(dev)->Record(event, stream); }
int EventWait(cgr_device *dev, cgr__event *event, cudaStream_t stream) { return SimOf(dev)->Wait(event, stream); }
int EventSync(cgr_device *dev, cgr__event *event) {
  SimOf(dev)->Finish(EventOf(event)->tail);
  return CGR__DEVICE_OK;
}
int EventQuery(cgr_device *dev, cgr__event *event) {
  return SimOf(dev)->IsDone(EventOf(event)->tail) ? CGR__DEVICE_OK : CGR__DEVICE_NOT_READY;
}
// Work is run only when it is asked for, so no thread may sleep until it has been: a wait runs one operation, as a query does.
int WaiterCreate(cgr_device *, uint64_t *word, cgr__waiter **waiter) {
  *waiter = reinterpret_cast<cgr__waiter *>(word);
  return CGR__DEVICE_OK;
}
int WaiterDestroy(cgr_device *, cgr__waiter *) { return CGR__DEVICE_OK; }
int WaiterWait(cgr_device *dev, cgr__waiter *waiter, uint64_t value, uint64_t) {
  const uint64_t *word = reinterpret_cast<const uint64_t *>(waiter);
  if (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value)
    SimOf(dev)->RunOldest();
  return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= value ? CGR__DEVICE_OK : CGR__DEVICE_NOT_READY;
}
int EnqueueCopy(cgr_device *dev, void *dst, const void *src, size_t bytes, cudaStream_t stream) {
  const CopyArgs args = { dst, src, bytes };
  return SimOf(dev)->Enqueue(stream, WorkOf(Copy, &args, sizeof args));
}
int EnqueueFill(cgr_device *dev, void *dst, uint64_t value, size_t width, size_t count, cudaStream_t stream) {
  const FillArgs args = { dst, value, width, count };
  return SimOf(dev)->Enqueue(stream, WorkOf(Fill, &args, sizeof args));
}
int Launch(cgr_device *dev, const cgr__kernel *kernel, const void *args, cudaStream_t stream) {
  return SimOf(dev)->Enqueue(stream, WorkOf(kernel->host, args, kernel->args_size));
}
int HostCall(cgr_device *dev, cgr_host_function function, const void *args, size_t args_size, cudaStream_t stream) {
  return SimOf(dev)->Enqueue(stream, WorkOf(function, args, args_size));
}
int Preload(cgr_device *, const cgr__kernel *) { return CGR__DEVICE_OK; }
int CaptureBegin(cgr_device *dev, cudaStream_t stream) { return SimOf(dev)->BeginCapture(stream); }
int CaptureEnd(cgr_device *dev, cudaStream_t stream, cgr__graph **graph) {
  *graph = reinterpret_cast<cgr__graph *>(SimOf(dev)->EndCapture(stream).release());
  return CGR__DEVICE_OK;
}
int CaptureNodes(cgr_device *, cudaStream_t, const void **, size_t, size_t *) { return CGR__DEVICE_UNSUPPORTED; }
int CaptureStatus(cgr_device *, cudaStream_t stream, int *capturing) {
  *capturing = StreamOf(stream)->capturing;
  return CGR__DEVICE_OK;
}
int GraphDestroy(cgr_device *, cgr__graph *graph) {
  delete GraphOf(graph);
  return CGR__DEVICE_OK;
}
int GraphWalk(cgr_device *, cgr__graph *, cgr__node_visitor, void *) { return CGR__DEVICE_UNSUPPORTED; }
int Instantiate(cgr_device *, cgr__graph *graph, cgr__exec **exec, cgr__graph_info *info) {
  if (info != nullptr)
    *info = { int64_t(GraphOf(graph)->nodes.size()), 1, 0, 0, int64_t(GraphOf(graph)->nodes.size()) };
  *exec = reinterpret_cast<cgr__exec *>(new SimGraph(*GraphOf(graph)));
  return CGR__DEVICE_OK;
}
int ExecLaunch(cgr_device *dev, cgr__exec *exec, cudaStream_t stream) { return SimOf(dev)->Launch(exec, stream); }
int ExecDestroy(cgr_device *dev, cgr__exec *exec) {
  SimOf(dev)->RunAll();
  delete GraphOf(exec);
  return CGR__DEVICE_OK;
}
int Info(cgr_device *dev, cgr_device_info *info) {
  cgr_device *inner = SimOf(dev)->inner;
  return inner->ops->info(inner, info);
}
int Close(cgr_device *dev) {
  cgr_device *inner = SimOf(dev)->inner;
  SimOf(dev)->RunAll();
  delete SimOf(dev);
  return inner->ops->close(inner);
}

cgr__device_ops MakeOps() {
  cgr__device_ops ops = {};
  ops.capture_status = CaptureStatus;
  ops.exec_launch = ExecLaunch;
  ops.mem_alloc = MemAlloc;
  ops.mem_free = MemFree;
  ops.mem_find = MemFind;
  ops.stream_create = StreamCreate;
  ops.stream_destroy = StreamDestroy;
  ops.stream_sync = StreamSync;
  ops.stream_query = StreamQuery;
  ops.event_create = EventCreate;
  ops.event_destroy = EventDestroy;
  ops.event_record = EventRecord;
  ops.event_wait = EventWait;
  ops.event_query = EventQuery;
  ops.event_sync = EventSync;
  ops.waiter_create = WaiterCreate;
  ops.waiter_destroy = WaiterDestroy;
  ops.waiter_wait = WaiterWait;
  ops.copy = EnqueueCopy;
  ops.fill = EnqueueFill;
  ops.launch = Launch;
  ops.host_call = HostCall;
  ops.preload = Preload;
  ops.capture_begin = CaptureBegin;
  ops.capture_end = CaptureEnd;
  ops.capture_nodes = CaptureNodes;
  ops.graph_destroy = GraphDestroy;
  ops.graph_walk = GraphWalk;
  ops.instantiate = Instantiate;
  ops.exec_destroy = ExecDestroy;
  ops.info = Info;
  ops.close = Close;
  return ops;
}
const cgr__device_ops kOps = MakeOps();

} // namespace

SimDevice::SimDevice(cgr_device *inner_device, uint64_t seed) : cgr_device(), inner(inner_device), random_(seed) {
  ops = &kOps;
  magic = CGR__DEVICE_MAGIC;
  kind = inner->kind;
}

// ------------------------------------------------------------------------------------------------------------------ running

bool SimDevice::IsDone(const std::vector<uint64_t> &tail) const {
  return std::all_of(tail.begin(), tail.end(), [this](uint64_t id) { return IsDone(id); });
}

bool SimDevice::IsReady(const Op &op) const { return !op.done && IsDone(op.deps); }

void SimDevice::Run(Op *op) {
  const SimWork work = op->work;
  running_ = true;
  if (before)
    before(work);
  const auto run = std::exchange(run_with, nullptr);
  if (run)
    run(work);
  else if (std::find(skipped.begin(), skipped.end(), work.function) == skipped.end())
    work.function(work.args);
  running_ = false;
  op->done = true;
  num_pending_--;
  while (!ops_.empty() && ops_.front().done) {
    ops_.pop_front();
    first_id_++;
  }
  if (after)
    after(work);
}

// An operation comes after those that it waits for, so the oldest is always ready.
bool SimDevice::RunOldest() {
  if (num_pending_ == 0 || running_)
    return false;
  Run(&ops_.front());
  return true;
}

bool SimDevice::RunAny() {
  size_t count = 0;
  Op *picked = nullptr;
  for (Op &op : ops_)
    if (!running_ && IsReady(op) && random_.Pick(0, int64_t(count++)) == 0)
      picked = &op;
  if (picked == nullptr)
    return false;
  Run(picked);
  return true;
}

void SimDevice::RunAll() {
  while (RunAny())
    continue;
}

bool SimDevice::CanRun(void (*function)(const void *)) const {
  return !running_ &&
         std::any_of(ops_.begin(), ops_.end(), [&](const Op &op) { return op.work.function == function && IsReady(op); });
}

bool SimDevice::RunKernel(void (*function)(const void *)) {
  for (Op &op : ops_)
    if (!running_ && op.work.function == function && IsReady(op)) {
      Run(&op);
      return true;
    }
  return false;
}

void SimDevice::Finish(const std::vector<uint64_t> &tail) {
  const std::vector<uint64_t> ids = tail;
  const bool early = random_.OneIn(2);
  while (!IsDone(ids))
    early ? RunAny() : RunOldest();
}

// ---------------------------------------------------------------------------------------------------------------- enqueuing

int SimDevice::Judge(bool *passes) {
  *passes = true;
  if (fault.after < 0 || fault.after-- > 0)
    return CGR__DEVICE_OK;
  fired = true;
  *passes = fault.has_effect;
  return fault.error;
}

uint64_t SimDevice::Push(const SimWork &work, std::vector<uint64_t> deps) {
  const uint64_t id = first_id_ + ops_.size();
  ops_.push_back({ id, work, std::move(deps), false });
  num_pending_++;
  return id;
}

int SimDevice::Enqueue(cudaStream_t handle, const SimWork &work) {
  SimStream *stream = StreamOf(handle);
  if (stream->capturing) {
    captured_->nodes.push_back({ work, stream->tail });
    stream->tail = { captured_->nodes.size() - 1 };
    return CGR__DEVICE_OK;
  }
  bool passes;
  if (enqueued)
    enqueued(work);
  if (moment)
    moment();
  const int error = Judge(&passes);
  if (passes)
    stream->tail = { Push(work, stream->tail) };
  if (moment)
    moment();
  return error;
}

int SimDevice::Launch(cgr__exec *exec, cudaStream_t handle) {
  SimStream *stream = StreamOf(handle);
  const SimGraph &graph = *GraphOf(exec);
  bool passes;
  for (const SimGraph::Node &node : graph.nodes)
    if (enqueued)
      enqueued(node.work);
  if (moment)
    moment();
  const int error = Judge(&passes);
  if (passes) {
    const uint64_t first = first_id_ + ops_.size();
    std::vector<uint64_t> all;
    for (const SimGraph::Node &node : graph.nodes) {
      std::vector<uint64_t> deps = node.deps.empty() ? stream->tail : node.deps;
      for (uint64_t &dep : deps)
        dep += node.deps.empty() ? 0 : first;
      all.push_back(Push(node.work, std::move(deps)));
    }
    if (!all.empty())
      stream->tail = all;
  }
  if (moment)
    moment();
  return error;
}

int SimDevice::Record(cgr__event *event, cudaStream_t handle) {
  const SimStream *stream = StreamOf(handle);
  bool passes = true;
  const int error = stream->capturing ? int{ CGR__DEVICE_OK } : Judge(&passes);
  if (passes)
    *EventOf(event) = { stream->capturing, stream->tail };
  return error;
}

// A stream that waits for an event of a capture joins it.
int SimDevice::Wait(cgr__event *handle, cudaStream_t stream_handle) {
  SimStream *stream = StreamOf(stream_handle);
  const SimEvent *event = EventOf(handle);
  if (event->captured) {
    if (!stream->capturing) {
      capturing_.push_back(stream);
      stream->capturing = true;
      stream->tail.clear();
    }
    Add(&stream->tail, event->tail);
    return CGR__DEVICE_OK;
  }
  bool passes;
  const int error = Judge(&passes);
  if (passes)
    Add(&stream->tail, event->tail);
  return error;
}

// Everything has run by then, so a stream has nothing to wait for when its capture ends.
int SimDevice::BeginCapture(cudaStream_t handle) {
  RunAll();
  captured_ = std::make_unique<SimGraph>();
  capturing_ = { StreamOf(handle) };
  StreamOf(handle)->capturing = true;
  StreamOf(handle)->tail.clear();
  return CGR__DEVICE_OK;
}

std::unique_ptr<SimGraph> SimDevice::EndCapture(cudaStream_t) {
  for (SimStream *stream : capturing_) {
    stream->capturing = false;
    stream->tail.clear();
  }
  return std::move(captured_);
}

} // namespace cgr_test
