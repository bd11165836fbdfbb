#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

// What the emulated form of device/ calls. A block's threads are fibers of one OS thread, so that plain memory
// operations are atomic; a call that waits for other threads switches to them. Misuse throws Error (kDevice), which
// ends the launch.
namespace lapidary::gpu::emulation {

struct Index3 {
  unsigned x, y, z;
};
// Of the thread that runs. (The address of a thread_local is the same in all fibers of an OS thread.)
struct Indices {
  const Index3* thread = nullptr;
  const Index3* block = nullptr;
  const Index3* block_size = nullptr;
  const Index3* grid_size = nullptr;
};
extern constinit thread_local Indices current_indices;
inline const Index3& ThreadIndex() { return *current_indices.thread; }
inline const Index3& BlockIndex() { return *current_indices.block; }
inline const Index3& BlockSize() { return *current_indices.block_size; }
inline const Index3& GridSize() { return *current_indices.grid_size; }

void* DynamicShared();
// The block's variable known by `key`, made at the first call.
void* StaticShared(const void* key, size_t bytes);

void CheckAligned16(const char* what, const void* address);

// Lets the other threads go on; a clock that rises with each call.
int64_t Spin();
// A steady clock.
int64_t Nanoseconds();

void SyncThreads();
void NamedBarrier(int id, int threads, bool wait);

// ---- Warps ----

// A warp's exchange: each lane puts in its slot, the last lane to come computes what every lane takes out.
struct WarpExchange {
  static constexpr size_t kSlotBytes = 48;
  alignas(16) unsigned char in[32 * kSlotBytes];
  alignas(16) unsigned char out[32 * kSlotBytes];
};
// Where the caller's collective is exchanged. Throws when the warp's lanes differ in `name`.
WarpExchange& BeginCollective(const char* name, unsigned* lane);
// True in the last lane to come, which then computes and calls CompleteCollective. The others return (false) after
// that.
bool ArriveAtCollective();
void CompleteCollective();

// Combine(const In* in, Out* out): from 32 lanes' values to 32 lanes' results.
template <typename Out, typename In, typename Combine>
Out Collective(const char* name, const In& in, const Combine& combine) {
  static_assert(std::is_trivially_copyable_v<In> && sizeof(In) <= WarpExchange::kSlotBytes);
  static_assert(std::is_trivially_copyable_v<Out> && sizeof(Out) <= WarpExchange::kSlotBytes);
  unsigned lane;
  WarpExchange& exchange = BeginCollective(name, &lane);
  std::memcpy(exchange.in + lane * sizeof(In), &in, sizeof(In));
  if (ArriveAtCollective()) {
    combine(reinterpret_cast<const In*>(exchange.in), reinterpret_cast<Out*>(exchange.out));
    CompleteCollective();
  }
  Out out;
  std::memcpy(&out, exchange.out + lane * sizeof(Out), sizeof(Out));
  return out;
}

void WarpSync();
uint32_t Ballot(bool predicate);

template <typename T>
struct ShuffleRequest {
  T value;
  int lane;
};
template <typename T>
T Shuffle(const char* name, T value, int lane) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "__shfl_sync takes 4 or 8 bytes");
  return Collective<T>(name, ShuffleRequest<T>{value, lane}, [](const ShuffleRequest<T>* in, T* out) {
    for (int i = 0; i < 32; ++i) out[i] = in[in[i].lane & 31].value;
  });
}

template <typename T, typename Operation>
T Reduce(const char* name, T value, const Operation& operation) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "__shfl_sync takes 4 or 8 bytes");
  return Collective<T>(name, value, [&](const T* in, T* out) {
    T values[32];
    std::memcpy(values, in, sizeof(values));
    for (int mask = 16; mask > 0; mask /= 2) {
      for (int i = 0; i < 32; ++i) out[i] = operation(values[i], values[i ^ mask]);
      std::memcpy(values, out, sizeof(values));
    }
  });
}

void Mma16816(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void LoadMatrix(uint32_t* r, int matrices, const void* shared_row, bool transposed);

// ---- Copies beside the threads ----
// The destination is poisoned at once, and written when the copy is waited for: who reads early, or overwrites early,
// is found.

void MbarrierInit(uint64_t* barrier, uint32_t arrivals);
void MbarrierArrive(uint64_t* barrier);
void MbarrierArriveExpectTx(uint64_t* barrier, uint32_t bytes);
void MbarrierWait(uint64_t* barrier, uint32_t parity);
void BulkCopy(void* shared, const void* global, uint32_t bytes, uint64_t* barrier);

// `bytes` from `global`, then zeros up to 16.
void CpAsync16(void* shared, const void* global, unsigned bytes);
void CpAsyncCommit();
void CpAsyncWait(int pending);

// ---- Launches and clusters ----

void WaitForEarlierKernels();
unsigned ClusterRank();
void ClusterSync();
void* ClusterShared(void* shared, unsigned rank);

template <typename T>
T FetchAdd(T* address, T value) {
  const T before = *address;
  *address = static_cast<T>(before + value);
  return before;
}
template <typename T>
T FetchMax(T* address, T value) {
  const T before = *address;
  if (value > before) *address = value;
  return before;
}

}  // namespace lapidary::gpu::emulation
