#include "kernels/gpu/emulation/collectives.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <string>

#include "base/error.h"
#include "kernels/gpu/emulation/state.h"

namespace lapidary::gpu::emulation {
namespace {

// So that a wait for ever is given up after seconds.
constexpr int64_t kCyclesOfSpin = 256;

[[noreturn]] void Refuse(const std::string& message) { Throw(ErrorKind::kDevice, message); }

// Waits until `expected` threads have come.
void Arrive(Barrier& barrier, int expected, const char* name, bool wait) {
  Grid& grid = ThisGrid();
  if (barrier.arrived == 0) barrier.expected = expected;
  if (barrier.expected != expected) {
    Refuse(std::string(name) + " for " + std::to_string(expected) + " threads, others came to it for " +
           std::to_string(barrier.expected));
  }
  if (++barrier.arrived == expected) {
    barrier.arrived = 0;
    grid.ready.Append(barrier.waiting);
  } else if (wait) {
    barrier.waiting.Push(grid.current);
    grid.Wait(name);
  }
}

constexpr const char* kNamedBarriers[16] = {"__syncthreads",   "NamedBarrier 1",  "NamedBarrier 2",  "NamedBarrier 3",
                                            "NamedBarrier 4",  "NamedBarrier 5",  "NamedBarrier 6",  "NamedBarrier 7",
                                            "NamedBarrier 8",  "NamedBarrier 9",  "NamedBarrier 10", "NamedBarrier 11",
                                            "NamedBarrier 12", "NamedBarrier 13", "NamedBarrier 14", "NamedBarrier 15"};

float Low(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
float High(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

struct MmaOperands {
  float d[4];
  uint32_t a[4], b[2];
};
struct MmaResult {
  float d[4];
};

// Fragments as in device/mma.h.
void MultiplyFragments(const MmaOperands* in, MmaResult* out) {
  float a[16][16], b[16][8], d[16][8];  // [m, k], [k, n], [m, n]
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = 2 * (lane % 4);
    for (int i = 0; i < 4; ++i) {
      const int row = g + i % 2 * 8;
      a[row][t + i / 2 * 8] = Low(in[lane].a[i]);
      a[row][t + i / 2 * 8 + 1] = High(in[lane].a[i]);
      d[g + i / 2 * 8][t + i % 2] = in[lane].d[i];
    }
    for (int i = 0; i < 2; ++i) {
      b[t + i * 8][g] = Low(in[lane].b[i]);
      b[t + i * 8 + 1][g] = High(in[lane].b[i]);
    }
  }
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < 16; ++k) {
      for (int n = 0; n < 8; ++n) d[m][n] += a[m][k] * b[k][n];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) out[lane].d[i] = d[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
  }
}

struct MatrixRows {
  uint32_t r[4];
};

}  // namespace

constinit thread_local Indices current_indices;

void* DynamicShared() {
  Grid& grid = ThisGrid();
  return grid.current->block->shared.data() + grid.layout.variables().front().offset;
}

void* StaticShared(const void* key, size_t bytes) {
  Grid& grid = ThisGrid();
  const size_t known = grid.layout.variables().size();
  const size_t offset = grid.layout.Place(key, bytes);
  if (grid.layout.variables().size() > known) {
    for (unsigned rank = 0; rank < grid.together; ++rank) {
      grid.blocks[rank]->shared.AddVariable(grid.layout.variables().back());
    }
  }
  return grid.current->block->shared.data() + offset;
}

void CheckAligned16(const char* what, const void* address) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  if (value % 16 != 0)
    Refuse(std::string(what) + ": an address is " + std::to_string(value % 16) + " beyond a multiple of 16");
}

int64_t Spin() {
  Grid& grid = ThisGrid();
  grid.Yield();
  return ++grid.spins * kCyclesOfSpin;
}

int64_t Nanoseconds() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void SyncThreads() {
  Grid& grid = ThisGrid();
  Arrive(grid.current->block->barriers[0], static_cast<int>(grid.shape.block), kNamedBarriers[0], /*wait=*/true);
}

void NamedBarrier(int id, int threads, bool wait) {
  Grid& grid = ThisGrid();
  if (id < 1 || id > 15) Refuse("NamedBarrier " + std::to_string(id) + ": wanted is 1 to 15");
  if (threads <= 0 || threads % 32 != 0 || threads > static_cast<int>(grid.shape.block)) {
    Refuse(std::string(kNamedBarriers[id]) + " for " + std::to_string(threads) +
           " threads: wanted is a multiple of 32 up to " + std::to_string(grid.shape.block));
  }
  Arrive(grid.current->block->barriers[id], threads, kNamedBarriers[id], wait);
}

WarpExchange& BeginCollective(const char* name, unsigned* lane) {
  const Thread& thread = *ThisGrid().current;
  Warp& warp = *thread.warp;
  if (warp.lanes != 32)
    Refuse(std::string(name) + ": the warp has " + std::to_string(warp.lanes) + " threads, wanted are 32");
  if (warp.collective == nullptr) {
    warp.collective = name;
  } else if (warp.collective != name && std::strcmp(warp.collective, name) != 0) {
    Refuse(std::string(name) + ": other threads of the warp are at " + warp.collective);
  }
  *lane = thread.index.x % 32;
  return warp.exchanges[warp.turn];
}

bool ArriveAtCollective() {
  Grid& grid = ThisGrid();
  Warp& warp = *grid.current->warp;
  if (++warp.arrived == warp.lanes) return true;
  warp.waiting.Push(grid.current);
  grid.Wait(warp.collective);
  return false;
}

void CompleteCollective() {
  Grid& grid = ThisGrid();
  Warp& warp = *grid.current->warp;
  warp.arrived = 0;
  warp.collective = nullptr;
  warp.turn ^= 1;
  grid.ready.Append(warp.waiting);
}

void WarpSync() {
  Warp& warp = *ThisGrid().current->warp;
  if (warp.collective != nullptr && std::strcmp(warp.collective, "WarpSync") != 0) {
    Refuse(std::string("WarpSync: other threads of the warp are at ") + warp.collective);
  }
  warp.collective = "WarpSync";
  if (ArriveAtCollective()) CompleteCollective();
}

uint32_t Ballot(bool predicate) {
  return Collective<uint32_t>("Ballot", predicate, [](const bool* in, uint32_t* out) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; ++i) bits |= uint32_t{in[i]} << i;
    std::fill_n(out, 32, bits);
  });
}

void Mma16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const MmaOperands operands = {{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  const auto result = Collective<MmaResult>("Mma16816", operands, MultiplyFragments);
  std::copy_n(result.d, 4, d);
}

void LoadMatrix(uint32_t* r, int matrices, const void* shared_row, bool transposed) {
  const char* name = matrices == 4 ? "LoadMatrixX4" : "LoadMatrixX2";
  if (static_cast<int>(ThisGrid().current->index.x % 32) < 8 * matrices) CheckAligned16(name, shared_row);
  const auto loaded = Collective<MatrixRows>(name, shared_row, [&](const void* const* rows, MatrixRows* out) {
    for (int m = 0; m < matrices; ++m) {
      uint16_t matrix[8][8];
      for (int row = 0; row < 8; ++row) std::memcpy(matrix[row], rows[8 * m + row], sizeof(matrix[row]));
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = 2 * (lane % 4);
        const uint32_t first = transposed ? matrix[t][g] : matrix[g][t];
        const uint32_t second = transposed ? matrix[t + 1][g] : matrix[g][t + 1];
        out[lane].r[m] = first | second << 16;
      }
    }
  });
  std::copy_n(loaded.r, matrices, r);
}

void WaitForEarlierKernels() { ThisGrid().waited_for_earlier = true; }

unsigned ClusterRank() { return ThisGrid().current->block->cluster_rank; }

void ClusterSync() {
  Grid& grid = ThisGrid();
  Arrive(grid.cluster_barrier, static_cast<int>(grid.shape.block * grid.shape.cluster), "ClusterSync", /*wait=*/true);
}

void* ClusterShared(void* shared, unsigned rank) {
  Grid& grid = ThisGrid();
  const SharedMemory& own = grid.current->block->shared;
  if (rank >= grid.shape.cluster) {
    Refuse("ClusterShared: rank " + std::to_string(rank) + " of " + std::to_string(grid.shape.cluster) + " blocks");
  }
  if (!own.Contains(shared)) Refuse("ClusterShared: the address is not in shared memory");
  return grid.blocks[rank]->shared.data() + (static_cast<unsigned char*>(shared) - own.data());
}

}  // namespace lapidary::gpu::emulation
