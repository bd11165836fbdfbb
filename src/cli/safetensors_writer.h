#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace lapidary {

struct OutputTensor {
  std::string name;
  std::vector<int64_t> shape;
};

// Writes float32 tensors of known shapes to a safetensors file, piece by piece. The file gets its name when it is
// complete; an unfinished one is removed. A link is followed; anything but a regular file is refused.
class SafetensorsWriter {
 public:
  // Throws Error kInvalidArgument when the file cannot be made.
  SafetensorsWriter(const std::string& path, const std::vector<OutputTensor>& tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Elements [first, first + values.size()) of a tensor, by its index in the constructor's list.
  void Write(size_t tensor, int64_t first, std::span<const float> values);
  // Throws Error kOutOfMemory when the bytes did not reach the disk.
  void Finish();

 private:
  std::string path_;        // as given, for errors
  std::string final_path_;  // behind links
  std::string part_path_;
  std::ofstream file_;
  std::vector<int64_t> offsets_;  // of each tensor's bytes in the file
  bool finished_ = false;
};

}  // namespace lapidary
