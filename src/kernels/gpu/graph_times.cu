#include <algorithm>

#include "kernels/gpu/runtime.h"

namespace lapidary::gpu {
namespace {

GraphTimes* active = nullptr;

}  // namespace

GraphTimes::~GraphTimes() { active = nullptr; }

void GraphTimes::Start(gpuStream stream) {
  active = this;
  stamps_.emplace_back().RecordInGraph(stream);
  Stamp("", stream);
}

void GraphTimes::Stamp(const char* name, gpuStream stream) {
  stamps_.emplace_back().RecordInGraph(stream);
  entries_.push_back({name, 0, 0});
}

std::vector<GraphTimes::Entry> GraphTimes::Read() const {
  std::vector<Entry> entries = entries_;
  for (size_t i = 0; i < entries.size(); ++i) {
    const double ms = stamps_[i + 1].ElapsedMs(stamps_[i]);
    entries[i].ms = i == 0 ? ms : std::max(0.0, ms - entries[0].ms);
  }
  // The first is the time between two stamps.
  if (!entries.empty()) entries.erase(entries.begin());
  return entries;
}

void NoteWork(const char* name, gpuStream stream) {
  if (active != nullptr) active->Stamp(name, stream);
}

void NoteBytes(int64_t bytes) {
  if (active != nullptr && !active->entries_.empty()) active->entries_.back().bytes = bytes;
}

}  // namespace lapidary::gpu
