#include "kernels/gpu/emulation/grid.h"

#include <algorithm>
#include <exception>
#include <map>

#include "base/error.h"
#include "kernels/gpu/emulation/state.h"

// Threads are run by workers, fibers that outlive them. A worker goes from a thread that ended straight to the next, so
// that threads which never wait cost no switch; only one that waits keeps its worker.
namespace lapidary::gpu::emulation {
namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxCluster = 8;
constexpr unsigned kMaxResident = 256;

std::string ToString(const Index3& index) {
  std::string text(1, '(');
  text.append(std::to_string(index.x)).append(", ").append(std::to_string(index.y)).append(", ");
  return text.append(std::to_string(index.z)).append(")");
}

void CheckShape(const LaunchShape& shape) {
  const auto refuse = [](const std::string& what) { Throw(ErrorKind::kDevice, what); };
  if (shape.block == 0 || shape.block > kMaxThreads) {
    refuse("wanted " + std::to_string(shape.block) + " threads in a block, allowed are 1 to " +
           std::to_string(kMaxThreads));
  }
  if (shape.grid_x == 0 || shape.grid_y == 0 || shape.grid_z == 0 || shape.grid_y > 65535 || shape.grid_z > 65535 ||
      shape.grid_x > 0x7fffffffu) {
    refuse("no grid can be of the size " + ToString({shape.grid_x, shape.grid_y, shape.grid_z}));
  }
  if (shape.cluster == 0 || shape.cluster > kMaxCluster || shape.grid_x % shape.cluster != 0) {
    refuse("clusters of " + std::to_string(shape.cluster) + " blocks, wanted 1 to " + std::to_string(kMaxCluster) +
           " that divide the grid's " + std::to_string(shape.grid_x));
  }
  if (shape.resident && (shape.cluster != 1 || shape.grid_x > kMaxResident || shape.grid_y != 1 || shape.grid_z != 1)) {
    refuse("a resident grid " + ToString({shape.grid_x, shape.grid_y, shape.grid_z}) + ", wanted at most " +
           std::to_string(kMaxResident) + " blocks in x and no clusters");
  }
}

}  // namespace

constinit thread_local Grid* this_grid = nullptr;

void RunGrid(const char* what, const std::function<void()>& thread, const LaunchShape& shape) {
  static thread_local Grid grid;
  this_grid = &grid;
  grid.Run(what, thread, shape);
}

void Grid::Run(const char* name, const std::function<void()>& thread, const LaunchShape& launch_shape) {
  if (current != nullptr) Throw(ErrorKind::kDevice, std::string(name) + ": a kernel launched a kernel");
  try {
    Begin(name, thread, launch_shape);
  } catch (const Error& error) {
    Throw(error.kind(), std::string(name) + ": " + error.what());
  }
  for (unsigned z = 0; z < shape.grid_z; ++z) {
    for (unsigned y = 0; y < shape.grid_y; ++y) {
      for (unsigned x = 0; x < shape.grid_x; x += together) RunTogether({x, y, z});
    }
  }
  if (shape.dependent && !waited_for_earlier) {
    Throw(ErrorKind::kDevice,
          std::string(name) + ": launched as dependent, but no thread called WaitForEarlierKernels");
  }
}

void Grid::Begin(const char* name, const std::function<void()>& thread, const LaunchShape& launch_shape) {
  CheckShape(launch_shape);
  what = name;
  body_ = &thread;
  shape = launch_shape;
  block_size = {shape.block, 1, 1};
  grid_size = {shape.grid_x, shape.grid_y, shape.grid_z};
  current_indices.block_size = &block_size;
  current_indices.grid_size = &grid_size;
  layout.Reset(shape.shared_bytes);
  waited_for_earlier = false;
  together = shape.resident ? shape.grid_x : shape.cluster;
  while (blocks.size() < together) blocks.push_back(std::make_unique<Block>());
  const size_t warps = (shape.block + 31) / 32;
  for (unsigned rank = 0; rank < together; ++rank) {
    Block& block = *blocks[rank];
    block.threads.resize(shape.block);
    while (block.warps.size() < warps) block.warps.push_back(std::make_unique<Warp>());
    for (unsigned i = 0; i < shape.block; ++i) {
      Thread& one = block.threads[i];
      one.index = {i, 0, 0};
      one.block = &block;
      one.warp = block.warps[i / 32].get();
      one.fiber = nullptr;
    }
  }
}

void Grid::BeginBlock(Block& block, unsigned rank, Index3 index) {
  block.index = index;
  block.cluster_rank = rank;
  for (size_t i = 0; i < (shape.block + 31) / 32; ++i) {
    Warp& warp = *block.warps[i];
    warp.lanes = static_cast<unsigned>(std::min<size_t>(32, shape.block - 32 * i));
    warp.collective = nullptr;
    warp.arrived = 0;
    warp.waiting.Clear();
  }
  for (Barrier& barrier : block.barriers) barrier = Barrier();
  block.shared.BeginBlock(layout);
  block.bulk_copies.clear();
  block.mbarrier_waiters.clear();
}

void Grid::RunTogether(Index3 first) {
  for (unsigned rank = 0; rank < together; ++rank) BeginBlock(*blocks[rank], rank, {first.x + rank, first.y, first.z});
  cluster_barrier = Barrier();
  ready.Clear();
  next_block_ = next_thread_ = 0;
  live_threads_ = size_t{shape.block} * together;
  stopping_ = false;
  running_ = &host_;
  SwitchTo(IdleWorker());
  if (stopping_) Unwind();
  current = nullptr;
  if (stopping_) Throw(ErrorKind::kDevice, error_);
  for (unsigned rank = 0; rank < together; ++rank) EndBlock(*blocks[rank]);
}

void Grid::EndBlock(Block& block) {
  try {
    if (!block.bulk_copies.empty()) Throw(ErrorKind::kDevice, "ended while a bulk copy was under way");
    for (const Barrier& barrier : block.barriers) {
      if (barrier.arrived > 0) Throw(ErrorKind::kDevice, "ended while a named barrier waited for more threads");
    }
    block.shared.CheckGaps(layout);
  } catch (const Error& error) {
    Throw(ErrorKind::kDevice, Place(block) + ": " + error.what());
  }
}

void Grid::RunNextUnbegun(Fiber* fiber) {
  Block& block = *blocks[next_block_];
  Thread& thread = block.threads[next_thread_];
  if (++next_thread_ == shape.block) {
    next_thread_ = 0;
    ++next_block_;
  }
  thread.fiber = fiber;
  thread.waits_for = nullptr;
  SetCurrent(&thread);
  try {
    (*body_)();
  } catch (const Abandoned&) {
  } catch (const std::exception& error) {
    Stop(Place(block) + ", thread " + std::to_string(thread.index.x) + ": " + error.what());
  }
  if (!thread.pieces.empty()) thread.pieces.clear();
  if (!thread.groups.empty()) thread.groups.clear();
  thread.fiber = nullptr;
  --live_threads_;
}

void Grid::Work() {
  Fiber* self = running_;
  for (;;) {
    // In a resident grid threads that are ready may spin until others have begun.
    const bool begin_first = shape.resident && HasUnbegun();
    if (!stopping_ && !ready.empty() && !begin_first) {
      idle_.push_back(self);
      SwitchTo(ready.Pop()->fiber);
    } else if (!stopping_ && HasUnbegun()) {
      RunNextUnbegun(self);
    } else {
      if (!stopping_ && live_threads_ > 0) Stop(DescribeDeadlock());
      idle_.push_back(self);
      SwitchTo(&host_);
    }
  }
}

void Grid::Wait(const char* waits_for) {
  Thread* thread = current;
  thread->waits_for = waits_for;
  if (!ready.empty()) {
    SwitchTo(ready.Pop()->fiber);
  } else if (HasUnbegun()) {
    SwitchTo(IdleWorker());
  } else {
    Stop(DescribeDeadlock());
    SwitchTo(&host_);
  }
  SetCurrent(thread);
  thread->waits_for = nullptr;
  if (stopping_) throw Abandoned();
}

void Grid::Yield() {
  Thread* thread = current;
  Fiber* next = nullptr;
  if (HasUnbegun()) {
    next = IdleWorker();
  } else if (!ready.empty()) {
    next = ready.Pop()->fiber;
  } else {
    return;
  }
  thread->waits_for = "a spin";
  ready.Push(thread);
  SwitchTo(next);
  SetCurrent(thread);
  thread->waits_for = nullptr;
  if (stopping_) throw Abandoned();
}

Fiber* Grid::IdleWorker() {
  if (idle_.empty()) {
    workers_.push_back(std::make_unique<Fiber>(&Grid::WorkerEntry, this));
    idle_.push_back(workers_.back().get());
  }
  Fiber* worker = idle_.back();
  idle_.pop_back();
  return worker;
}

void Grid::SetCurrent(Thread* thread) {
  current = thread;
  current_indices.thread = &thread->index;
  current_indices.block = &thread->block->index;
}

void Grid::SwitchTo(Fiber* to) {
  Fiber* from = running_;
  running_ = to;
  from->SwitchTo(*to);
}

void Grid::Stop(const std::string& message) {
  if (!stopping_) error_ = message;
  stopping_ = true;
}

void Grid::Unwind() {
  for (unsigned rank = 0; rank < together; ++rank) {
    for (Thread& thread : blocks[rank]->threads) {
      if (thread.fiber != nullptr) SwitchTo(thread.fiber);
    }
  }
}

std::string Grid::Place(const Block& block) const { return std::string(what) + ", block " + ToString(block.index); }

std::string Grid::DescribeDeadlock() const {
  std::map<std::string, size_t> counts;
  size_t ended = 0;
  for (unsigned rank = 0; rank < together; ++rank) {
    for (const Thread& thread : blocks[rank]->threads) {
      if (thread.fiber == nullptr) {
        ++ended;
      } else {
        ++counts[thread.waits_for];
      }
    }
  }
  std::string message = Place(*blocks[0]) + ": deadlock:";
  for (const auto& [name, count] : counts) {
    message.append(1, ' ').append(std::to_string(count)).append(" wait at ").append(name).append(",");
  }
  return message.append(1, ' ').append(std::to_string(ended)).append(" have ended");
}

}  // namespace lapidary::gpu::emulation
