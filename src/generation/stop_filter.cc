#include "generation/stop_filter.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace lapidary {

StopFilter::StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) Throw(ErrorKind::kInvalidArgument, "stop: found an empty text, wanted at least one character");
    if ((static_cast<unsigned char>(stop[0]) & 0xc0) == 0x80) {
      Throw(ErrorKind::kInvalidArgument, "stop: found a text that begins inside a character, wanted UTF-8");
    }
  }
}

std::string StopFilter::Push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  // The stop text that ends first, as if the text had come byte by byte; of two, the one that begins first.
  size_t first_end = std::string::npos, cut = std::string::npos;
  size_t keep = 0;  // longest end of the text that begins a stop text
  for (const std::string& stop : stops_) {
    if (const size_t found = held_.find(stop); found != std::string::npos) {
      const size_t end = found + stop.size();
      if (end < first_end || (end == first_end && found < cut)) cut = found;
      first_end = std::min(first_end, end);
    }
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) keep = n;
    }
  }
  if (cut != std::string::npos) {
    stopped_ = true;
    held_.resize(cut);
    return std::exchange(held_, {});
  }
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopFilter::Finish() { return std::exchange(held_, {}); }

}  // namespace lapidary
