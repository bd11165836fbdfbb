#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lapidary {

struct EncodeOptions {
  bool add_bos = false;       // prepend the post-processor's <bos>
  bool match_special = true;  // false: added tokens that are `special` are treated as ordinary text
};

// Text <-> token ids by a `tokenizer.json` (BPE with byte fallback). Immutable after loading, any thread may call.
class Tokenizer {
 public:
  // Throws Error: kNotFound, kCorruptFile (JSON, missing or inconsistent parts), kUnsupported (another model type,
  // normalizer, pre-tokenizer or decoder than Gemma's).
  static Tokenizer Load(const std::string& path);
  static Tokenizer Parse(std::string_view json_text, const std::string& where);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // O(n log n) in the length of `text`. Bytes that are not UTF-8 are encoded as the reference does with U+FFFD.
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Throws Error kInvalidArgument for an id outside [0, size()).
  std::string Decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // One more than the largest id, added tokens included.
  int32_t size() const;
  std::optional<int32_t> bos_id() const;
  // The id of an exact token text, added tokens included.
  std::optional<int32_t> Find(std::string_view token) const;
  bool IsSpecial(int32_t id) const;
  // The bytes a token stands for inside a text: U+2581 as a space, <0xXX> as that byte. Valid as long as the tokenizer.
  std::string_view Piece(int32_t id) const;

 private:
  struct Data;
  explicit Tokenizer(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

// Decodes ids one at a time without ever giving out part of a UTF-8 sequence. The joined pieces equal
// Tokenizer::Decode of all ids. Not thread-safe; the tokenizer must outlive it.
class IncrementalDecoder {
 public:
  explicit IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special = true);

  // The text that is now certain; may be empty.
  std::string Push(int32_t id);
  // The rest, with U+FFFD for bytes that never became a character. Starts over.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;  // bytes of consecutive byte tokens not yet given out
};

}  // namespace lapidary
