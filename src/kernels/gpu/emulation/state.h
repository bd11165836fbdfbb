#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/gpu/emulation/collectives.h"
#include "kernels/gpu/emulation/fiber.h"
#include "kernels/gpu/emulation/shared_memory.h"
#include "kernels/gpu/runtime.h"

// What an OS thread that runs grids knows of the one it runs. Shared by grid.cc and collectives.cc.
namespace lapidary::gpu::emulation {

struct Block;
struct Warp;

struct CopiedPiece {
  void* to;
  const void* from;
  unsigned bytes;
};

struct Thread {
  Index3 index;
  Block* block = nullptr;
  Warp* warp = nullptr;
  Fiber* fiber = nullptr;           // while it has begun and not ended
  const char* waits_for = nullptr;  // while it is in a WaitList or at an mbarrier
  Thread* next = nullptr;           // in a WaitList or the ready list
  bool ended = false;
  // CpAsync16: the pieces under way, oldest first, and how many of them each committed group ends with.
  std::vector<CopiedPiece> pieces;
  std::vector<size_t> groups;
};

class ThreadList {
 public:
  bool empty() const { return head_ == nullptr; }
  void Push(Thread* thread) {
    thread->next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = thread;
    tail_ = thread;
  }
  Thread* Pop() {
    Thread* thread = head_;
    head_ = thread->next;
    return thread;
  }
  void Append(ThreadList& other) {
    if (other.empty()) return;
    (head_ == nullptr ? head_ : tail_->next) = other.head_;
    tail_ = other.tail_;
    other.Clear();
  }
  void Clear() { head_ = nullptr; }

 private:
  Thread* head_ = nullptr;
  Thread* tail_ = nullptr;
};

struct Warp {
  unsigned lanes = 0;
  const char* collective = nullptr;  // the one that lanes wait in
  unsigned arrived = 0;
  unsigned turn = 0;  // which exchange: a fast lane may begin the next collective before slow ones have read this one's
  ThreadList waiting;
  WarpExchange exchanges[2];
};

struct Barrier {
  int expected = 0;
  int arrived = 0;
  ThreadList waiting;
};

struct BulkCopyUnderWay {
  CopiedPiece piece;
  uint64_t* barrier;
  const Thread* issuer;
  bool expected;  // by MbarrierArriveExpectTx
};

struct MbarrierWaiter {
  const uint64_t* barrier;
  Thread* thread;
};

struct Block {
  Index3 index;
  unsigned cluster_rank = 0;
  std::vector<Thread> threads;
  std::vector<std::unique_ptr<Warp>> warps;
  Barrier barriers[16];
  SharedMemory shared;
  std::vector<BulkCopyUnderWay> bulk_copies;
  std::vector<MbarrierWaiter> mbarrier_waiters;
};

// Thrown through threads that have begun when the grid has failed.
struct Abandoned {};

class Grid {
 public:
  const char* what = nullptr;
  LaunchShape shape;
  Index3 block_size, grid_size;
  SharedLayout layout;
  Thread* current = nullptr;
  std::vector<std::unique_ptr<Block>> blocks;  // the first `together` of them run together
  ThreadList ready;
  Barrier cluster_barrier;
  bool waited_for_earlier = false;
  unsigned together = 1;  // blocks of a cluster, or all of a resident grid

  void Run(const char* name, const std::function<void()>& thread, const LaunchShape& launch_shape);
  // The current thread waits: others go on. Returns when something has put the thread on the ready list.
  void Wait(const char* waits_for);
  // Others go on that can, before the current thread does.
  void Yield();
  int64_t spins = 0;

 private:
  void Begin(const char* name, const std::function<void()>& thread, const LaunchShape& launch_shape);
  void RunTogether(Index3 first);
  void BeginBlock(Block& block, unsigned rank, Index3 index);
  void EndBlock(Block& block);
  bool HasUnbegun() const { return next_block_ < together; }
  void RunNextUnbegun(Fiber* fiber);
  void Work();  // never returns
  static void WorkerEntry(void* grid) { static_cast<Grid*>(grid)->Work(); }
  Fiber* IdleWorker();
  void SwitchTo(Fiber* to);
  void SetCurrent(Thread* thread);
  // Notes the first error.
  void Stop(const std::string& message);
  std::string DescribeDeadlock() const;
  std::string Place(const Block& block) const;
  // Ends all threads that have begun.
  void Unwind();

  const std::function<void()>* body_ = nullptr;
  size_t next_block_ = 0, next_thread_ = 0;  // the first thread that has not begun
  size_t live_threads_ = 0;
  Fiber host_;
  Fiber* running_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> workers_;
  std::vector<Fiber*> idle_;  // workers that run no thread
  bool stopping_ = false;
  std::string error_;
};

// Of the calling OS thread, which has run RunGrid.
extern constinit thread_local Grid* this_grid;
inline Grid& ThisGrid() { return *this_grid; }

}  // namespace lapidary::gpu::emulation
