#include "backends/gpu/weight_upload.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {
namespace {

constexpr size_t kBufferBytes = size_t{16} << 20;
constexpr size_t kBuffersPerThread = 2;
constexpr unsigned kMostThreads = 8;

// What the threads share: the buffers' worth of work, taken in order.
class Upload {
 public:
  explicit Upload(std::span<const UploadPiece> pieces) {
    for (const UploadPiece& piece : pieces) {
      for (size_t at = 0; at < piece.bytes; at += kBufferBytes) {
        const size_t bytes = std::min(kBufferBytes, piece.bytes - at);
        parts_.push_back({piece.to + at, static_cast<const std::byte*>(piece.from) + at, bytes});
        total_ += bytes;
      }
    }
  }

  size_t parts() const { return parts_.size(); }

  // One thread's work: a part is read into a buffer once the copy that last used it has been sent.
  void Work() {
    try {
      struct Buffer {
        PinnedMemory memory{kBufferBytes};
        Event sent;
      };
      const Stream stream;
      std::array<Buffer, kBuffersPerThread> buffers;
      UploadPiece part{};
      for (size_t i = 0; Take(part); ++i) {
        Buffer& buffer = buffers[i % kBuffersPerThread];
        if (i >= kBuffersPerThread) buffer.sent.Synchronize();
        std::memcpy(buffer.memory.data(), part.from, part.bytes);
        CopyToDevice(part.to, buffer.memory.data(), part.bytes, stream.get());
        buffer.sent.Record(stream.get());
        Report(part.bytes);
      }
      Synchronize(stream.get());
    } catch (...) {
      Fail(std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    ++finished_;
    changed_.notify_all();
  }

  // Until all threads are done; passes on the first failure.
  void WatchOver(size_t threads, const ProgressFn& progress) {
    std::unique_lock lock(mutex_);
    while (finished_ < threads) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      const uint64_t done = done_;
      if (!progress || failure_) continue;
      lock.unlock();
      try {
        progress("loading", done, total_);
      } catch (...) {
        Fail(std::current_exception());
      }
      lock.lock();
    }
  }

  void Rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  bool Take(UploadPiece& part) {
    const std::lock_guard lock(mutex_);
    if (failure_ || next_ == parts_.size()) return false;
    part = parts_[next_++];
    return true;
  }

  void Report(size_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
  }

  void Fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }

  std::vector<UploadPiece> parts_;
  uint64_t total_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_ = 0, finished_ = 0;  // guarded, as all below
  uint64_t done_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

void UploadWeights(std::span<const UploadPiece> pieces, const ProgressFn& progress) {
  Upload upload(pieces);
  const size_t threads = std::clamp<size_t>(std::min(std::thread::hardware_concurrency(), kMostThreads), 1,
                                            std::max<size_t>(1, upload.parts()));
  {
    std::vector<std::jthread> workers;
    for (size_t i = 0; i < threads; ++i) workers.emplace_back([&upload] { upload.Work(); });
    upload.WatchOver(threads, progress);
  }
  upload.Rethrow();
}

}  // namespace lapidary::gpu
