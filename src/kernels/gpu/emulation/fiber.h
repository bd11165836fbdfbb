#pragma once

#include <cstddef>
#include <memory>

// Contexts that one OS thread switches between, told to the address and thread sanitizers.
namespace lapidary::gpu::emulation {

class Fiber {
 public:
  // The OS thread itself, as it runs.
  Fiber();
  // Begins with entry(argument) at the first switch to it; entry never returns.
  Fiber(void (*entry)(void*), void* argument);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Goes on with `to`. Returns when something switches to this fiber, which is the one that runs.
  void SwitchTo(Fiber& to);

  // For SwitchTo and the first function of a fiber only.
  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace lapidary::gpu::emulation
