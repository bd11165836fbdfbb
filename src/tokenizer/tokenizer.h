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
  bool add_bos = false;       // prepend bos_id(), if there is one
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

  // O(n log n) in the length of `text`. Bytes that are not UTF-8 read as one U+FFFD for each maximal subpart of an
  // ill-formed sequence. Throws Error kInvalidArgument from 2 GiB on.
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {}) const;
  // The text of `ids`, always UTF-8: a run of byte tokens that is not UTF-8 becomes one U+FFFD a byte. An id that no
  // token has is passed over. Throws Error kInvalidArgument for an id outside [0, size()).
  std::string Decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // One more than the largest id, added tokens included.
  int32_t size() const;
  // What the post-processor puts before a text or, when it puts nothing, the token <bos>.
  std::optional<int32_t> bos_id() const;
  // The id of an exact token text, added tokens included.
  std::optional<int32_t> Find(std::string_view token) const;
  // These throw Error kInvalidArgument for an id outside [0, size()).
  bool IsSpecial(int32_t id) const;
  // Whether the token is <0xXX>, one byte of a text.
  bool IsByte(int32_t id) const;
  // The bytes a token stands for inside a text: U+2581 as a space, <0xXX> as that byte. Valid as long as the tokenizer.
  std::string_view Piece(int32_t id) const;

  struct Data;

 private:
  explicit Tokenizer(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

// Decodes ids one at a time without ever giving out part of a UTF-8 sequence. Not thread-safe; the tokenizer must
// outlive it.
//
// The joined pieces equal Tokenizer::Decode of all ids, with one exception that no streaming can avoid. In Decode, as
// in the reference, a run of neighbouring byte tokens that is not UTF-8 as a whole becomes one U+FFFD a byte. Here a
// character is given out with its last byte, before the run's end is known. If the run turns out not to be UTF-8 after
// that, the characters already given stand, and only its other bytes become one U+FFFD each.
class IncrementalDecoder {
 public:
  explicit IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special = true);

  // The text that is now certain; may be empty. Throws Error kInvalidArgument for an id outside [0, size()), which
  // changes nothing.
  std::string Push(int32_t id);
  // The rest, with U+FFFD for bytes that never became a character. Starts over.
  std::string Finish();

 private:
  std::string PushByte(std::string_view byte);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool run_is_invalid_ = false;  // the run of byte tokens that is being read is not UTF-8
  std::string pending_;          // the bytes of a character that is not whole yet
};

}  // namespace lapidary
