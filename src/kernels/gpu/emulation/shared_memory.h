#pragma once

#include <cstddef>
#include <memory>
#include <vector>

// A block's shared memory: the dynamic part, then the static variables, with space between them that nothing may touch.
namespace lapidary::gpu::emulation {

// Where things lie; the same in all blocks of a grid.
class SharedLayout {
 public:
  // Forgets all variables.
  void Reset(size_t dynamic_bytes);
  // The offset of the variable, placed at its first call. Throws kDevice when shared memory is exhausted.
  size_t Place(const void* key, size_t bytes);

  struct Variable {
    const void* key;
    size_t offset, bytes;
  };
  // The dynamic part first.
  const std::vector<Variable>& variables() const { return variables_; }

 private:
  std::vector<Variable> variables_;
  size_t end_ = 0;
  size_t used_bytes_ = 0;
};

class SharedMemory {
 public:
  // Fills all variables of the layout with 0xff, and the gaps with a mark.
  void BeginBlock(const SharedLayout& layout);
  // The same for a variable placed since.
  void AddVariable(const SharedLayout::Variable& variable);
  // Throws kDevice when a gap was written to.
  void CheckGaps(const SharedLayout& layout) const;

  unsigned char* data() const { return data_.get(); }
  bool Contains(const void* address) const;

 private:
  struct Release {
    void operator()(unsigned char* data) const;
  };
  std::unique_ptr<unsigned char, Release> data_;
};

}  // namespace lapidary::gpu::emulation
