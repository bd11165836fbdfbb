#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "hub/descriptor.h"
#include "hub/listing.h"
#include "hub/range_set.h"

namespace lapidary {

// A file under way: FOLDER/NAME.part holds the bytes at their places, FOLDER/NAME.part.json says which of them are
// there. The state counts only together with the same etag and size. A part without a hash is taken up for the same
// commit only. Thread-safe once allocated.
class PartFile {
 public:
  // Opens or makes the part. Throws Error kInvalidArgument, kOutOfMemory.
  PartFile(std::string folder, RemoteFile file, std::string commit);

  // Disk space that Allocate() will take.
  int64_t BytesToAllocate() const;
  // Reserves the whole file on disk. Throws Error kOutOfMemory.
  void Allocate();

  // Stores the bytes at `offset`; they lie inside the file.
  void Write(int64_t offset, std::string_view bytes);

  int64_t CoveredBytes() const;
  std::vector<ByteRange> Missing() const;  // ascending

  // Writes down which bytes are there, so that another run goes on from them.
  void SaveState();
  // Forgets all bytes, keeps the space.
  void Reset();
  // Gives the complete file its name, durably.
  void Publish();
  // Removes the part and its state.
  void Delete();

  const RemoteFile& file() const { return file_; }
  const std::string& path() const { return path_; }

 private:
  void LoadState();
  void ReadState(const std::string& text);
  std::string StatePath() const { return path_ + ".json"; }

  const std::string folder_;
  const RemoteFile file_;
  const std::string identity_;  // hash, or the commit where no hash is stated
  const std::string commit_;
  const std::string path_;
  Descriptor descriptor_;

  mutable std::mutex mutex_;  // guards finished_
  RangeSet finished_;
  std::mutex save_mutex_;  // one writer of the state at a time; taken before mutex_
};

}  // namespace lapidary
