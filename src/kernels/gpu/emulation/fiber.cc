#include "kernels/gpu/emulation/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <boost/context/detail/fcontext.hpp>
#include <string>

#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define LAPIDARY_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LAPIDARY_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define LAPIDARY_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define LAPIDARY_TSAN 1
#endif
#if defined(LAPIDARY_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(LAPIDARY_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace lapidary::gpu::emulation {
namespace {

namespace context = boost::context::detail;

#if defined(LAPIDARY_ASAN)
constexpr size_t kStackBytes = 256 << 10;
#else
constexpr size_t kStackBytes = 64 << 10;
#endif

// Stacks all begin at the same place of a page: without a shift of each, all would share a few sets of the CPU's
// caches.
size_t NextShift() {
  static std::atomic<size_t> count = 0;
  return count++ % 64 * (5 * 64);
}

}  // namespace

struct Fiber::Impl {
  context::fcontext_t resume = nullptr;
  void* mapping = nullptr;  // a page without access, then the stack
  size_t mapping_bytes = 0;
  const void* stack = nullptr;  // lowest address
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // of the address sanitizer
  void* tsan_fiber = nullptr;
  void (*entry)(void*) = nullptr;
  void* argument = nullptr;

  void MapStack();
  // Notes where `from`, which switched to this one, is to be resumed.
  void Arrive(const context::transfer_t& from);
  static void Enter(context::transfer_t from);
};

void Fiber::Impl::MapStack() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t shift = NextShift();
  mapping_bytes = kStackBytes + (shift + page - 1) / page * page + page;
  mapping = mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    mapping = nullptr;
    Throw(ErrorKind::kOutOfMemory,
          "out of memory: wanted " + std::to_string(mapping_bytes) + " bytes for the stack of a fiber");
  }
  mprotect(mapping, page, PROT_NONE);
  stack = static_cast<char*>(mapping) + page;
  stack_bytes = mapping_bytes - page - shift;
}

void Fiber::Impl::Arrive(const context::transfer_t& from) {
  auto* other = static_cast<Impl*>(from.data);
  other->resume = from.fctx;
#if defined(LAPIDARY_ASAN)
  __sanitizer_finish_switch_fiber(fake_stack, &other->stack, &other->stack_bytes);
#endif
}

void Fiber::Impl::Enter(context::transfer_t from) {
  // The first switch to a fiber carries both ends.
  auto** ends = static_cast<Impl**>(from.data);
  Impl* self = ends[1];
  self->Arrive({from.fctx, ends[0]});
  self->entry(self->argument);
}

Fiber::Fiber() : impl_(std::make_unique<Impl>()) {
#if defined(LAPIDARY_TSAN)
  impl_->tsan_fiber = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(void (*entry)(void*), void* argument) : impl_(std::make_unique<Impl>()) {
  impl_->MapStack();
  impl_->entry = entry;
  impl_->argument = argument;
#if defined(LAPIDARY_TSAN)
  impl_->tsan_fiber = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (impl_->mapping == nullptr) return;
#if defined(LAPIDARY_TSAN)
  __tsan_destroy_fiber(impl_->tsan_fiber);
#endif
#if defined(LAPIDARY_ASAN)
  // The frames of a function that never returned are still marked, whatever is mapped there next.
  __asan_unpoison_memory_region(impl_->mapping, impl_->mapping_bytes);
#endif
  munmap(impl_->mapping, impl_->mapping_bytes);
}

void Fiber::SwitchTo(Fiber& to) {
  Impl* from = impl_.get();
  Impl* target = to.impl_.get();
  void* data = from;
  Impl* ends[2] = {from, target};
  if (target->resume == nullptr) {
    target->resume = context::make_fcontext(static_cast<char*>(const_cast<void*>(target->stack)) + target->stack_bytes,
                                            target->stack_bytes, &Impl::Enter);
    data = static_cast<void*>(ends);
  }
#if defined(LAPIDARY_ASAN)
  __sanitizer_start_switch_fiber(&from->fake_stack, target->stack, target->stack_bytes);
#endif
#if defined(LAPIDARY_TSAN)
  __tsan_switch_to_fiber(target->tsan_fiber, 0);
#endif
  from->Arrive(context::jump_fcontext(target->resume, data));
}

}  // namespace lapidary::gpu::emulation
