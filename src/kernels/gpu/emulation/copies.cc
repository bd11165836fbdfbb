#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/gpu/emulation/collectives.h"
#include "kernels/gpu/emulation/state.h"

// Copies beside the threads, and the barriers in memory that tell of them.
namespace lapidary::gpu::emulation {
namespace {

[[noreturn]] void Refuse(const std::string& message) { Throw(ErrorKind::kDevice, message); }

constexpr uint32_t kMaxArrivals = 0xffff;

// What the 8 bytes of an Mbarrier hold here.
struct MbarrierState {
  uint16_t pending;   // arrivals that the phase still needs
  uint16_t expected;  // of each phase
  uint32_t mark;      // kMark + the phase's parity
  static constexpr uint32_t kMark = 0x6d626172;
};

MbarrierState Load(const uint64_t* barrier, const char* what) {
  if (reinterpret_cast<uintptr_t>(barrier) % 8 != 0)
    Refuse(std::string(what) + ": the barrier is not aligned to 8 bytes");
  MbarrierState state;
  std::memcpy(&state, barrier, sizeof(state));
  if ((state.mark & ~1u) != MbarrierState::kMark) Refuse(std::string(what) + ": the barrier has not been initialized");
  return state;
}
void Store(uint64_t* barrier, const MbarrierState& state) { std::memcpy(barrier, &state, sizeof(state)); }

// All arrivals have come: does the copies, and ends the phase.
void EndPhase(uint64_t* barrier, MbarrierState& state) {
  Grid& grid = ThisGrid();
  Block& block = *grid.current->block;
  std::erase_if(block.bulk_copies, [&](const BulkCopyUnderWay& copy) {
    if (copy.barrier != barrier || !copy.expected) return false;
    std::memcpy(copy.piece.to, copy.piece.from, copy.piece.bytes);
    return true;
  });
  state.pending = state.expected;
  state.mark ^= 1;
  Store(barrier, state);
  std::erase_if(block.mbarrier_waiters, [&](const MbarrierWaiter& waiter) {
    if (waiter.barrier == barrier) grid.ready.Push(waiter.thread);
    return waiter.barrier == barrier;
  });
}

bool HasWaiters(const Block& block, const uint64_t* barrier) {
  return std::any_of(block.mbarrier_waiters.begin(), block.mbarrier_waiters.end(),
                     [&](const MbarrierWaiter& waiter) { return waiter.barrier == barrier; });
}

bool HasCopies(const Block& block, const uint64_t* barrier) {
  return std::any_of(block.bulk_copies.begin(), block.bulk_copies.end(),
                     [&](const BulkCopyUnderWay& copy) { return copy.barrier == barrier && copy.expected; });
}

void ArriveAt(uint64_t* barrier, const char* what) {
  const Block& block = *ThisGrid().current->block;
  MbarrierState state = Load(barrier, what);
  // A phase whose copies no one has waited for yet.
  if (state.pending == 0) EndPhase(barrier, state);
  --state.pending;
  Store(barrier, state);
  if (state.pending == 0 && (HasWaiters(block, barrier) || !HasCopies(block, barrier))) EndPhase(barrier, state);
}

void Perform(const CopiedPiece& piece) {
  if (piece.bytes > 0) std::memcpy(piece.to, piece.from, piece.bytes);
  std::memset(static_cast<char*>(piece.to) + piece.bytes, 0, 16 - piece.bytes);
}

}  // namespace

void MbarrierInit(uint64_t* barrier, uint32_t arrivals) {
  if (reinterpret_cast<uintptr_t>(barrier) % 8 != 0) Refuse("MbarrierInit: the barrier is not aligned to 8 bytes");
  if (arrivals == 0 || arrivals > kMaxArrivals) Refuse("MbarrierInit: " + std::to_string(arrivals) + " arrivals");
  const auto count = static_cast<uint16_t>(arrivals);
  Store(barrier, {count, count, MbarrierState::kMark});
}

void MbarrierArrive(uint64_t* barrier) { ArriveAt(barrier, "MbarrierArrive"); }

void MbarrierArriveExpectTx(uint64_t* barrier, uint32_t bytes) {
  const Grid& grid = ThisGrid();
  uint64_t given = 0;
  for (BulkCopyUnderWay& copy : grid.current->block->bulk_copies) {
    if (copy.barrier != barrier || copy.issuer != grid.current || copy.expected) continue;
    copy.expected = true;
    given += copy.piece.bytes;
  }
  if (given != bytes) {
    Refuse("MbarrierArriveExpectTx: expects " + std::to_string(bytes) +
           " bytes, the thread's bulk copies before it have " + std::to_string(given));
  }
  ArriveAt(barrier, "MbarrierArriveExpectTx");
}

void MbarrierWait(uint64_t* barrier, uint32_t parity) {
  Grid& grid = ThisGrid();
  if (parity > 1) Refuse("MbarrierWait: parity " + std::to_string(parity));
  for (;;) {
    MbarrierState state = Load(barrier, "MbarrierWait");
    if ((state.mark & 1) != parity) return;
    if (state.pending == 0) {
      EndPhase(barrier, state);
      return;
    }
    grid.current->block->mbarrier_waiters.push_back({barrier, grid.current});
    grid.Wait("MbarrierWait");
  }
}

void BulkCopy(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  const Grid& grid = ThisGrid();
  Block& block = *grid.current->block;
  Load(barrier, "BulkCopy");
  CheckAligned16("BulkCopy", shared);
  CheckAligned16("BulkCopy", global);
  if (bytes == 0 || bytes % 16 != 0)
    Refuse("BulkCopy: " + std::to_string(bytes) + " bytes, wanted is a multiple of 16");
  if (block.shared.Contains(global)) Refuse("BulkCopy: copies from shared memory");
  std::memset(shared, 0xff, bytes);
  block.bulk_copies.push_back({{shared, global, bytes}, barrier, grid.current, /*expected=*/false});
}

void CpAsync16(void* shared, const void* global, unsigned bytes) {
  CheckAligned16("CpAsync16", shared);
  CheckAligned16("CpAsync16", global);
  std::memset(shared, 0xff, 16);
  ThisGrid().current->pieces.push_back({shared, global, bytes});
}

void CpAsyncCommit() {
  Thread& thread = *ThisGrid().current;
  thread.groups.push_back(thread.pieces.size());
}

void CpAsyncWait(int pending) {
  Thread& thread = *ThisGrid().current;
  const auto keep = static_cast<size_t>(pending);
  if (thread.groups.size() <= keep) return;
  const auto done = static_cast<ptrdiff_t>(thread.groups.size() - keep);
  const size_t end = thread.groups[static_cast<size_t>(done) - 1];
  std::for_each_n(thread.pieces.begin(), end, Perform);
  thread.pieces.erase(thread.pieces.begin(), thread.pieces.begin() + static_cast<ptrdiff_t>(end));
  thread.groups.erase(thread.groups.begin(), thread.groups.begin() + done);
  for (size_t& group : thread.groups) group -= end;
}

}  // namespace lapidary::gpu::emulation
