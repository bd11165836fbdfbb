#pragma once

#include <cstdint>
#include <vector>

#include "chat/prompt.h"
#include "tokenizer/tokenizer.h"

namespace lapidary {

enum class SpecialText : uint8_t {
  kProtect,  // special tokens inside text pieces are ordinary text: nobody can forge a turn, a call or a result
  kMatch,    // as transformers does: whatever looks like a special token is one
};

// The ids of a prompt, <bos> included as the template begins with it: add no other. Both ways give the same ids when no
// text piece holds a special token. A marker that the tokenizer does not have is text.
std::vector<int32_t> EncodePrompt(const Tokenizer& tokenizer, const ChatPrompt& prompt,
                                  SpecialText special = SpecialText::kProtect);

}  // namespace lapidary
