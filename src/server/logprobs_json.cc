#include "server/logprobs_json.h"

#include <fmt/core.h>

#include <algorithm>

namespace lapidary {
namespace {

constexpr double kLeast = -9999;  // JSON has no infinity

double Finite(float logprob) { return std::max(kLeast, static_cast<double>(logprob)); }

bool IsKnown(const Tokenizer* tokenizer, int32_t id) { return tokenizer && id < tokenizer->size(); }

OrderedJson Bytes(const Tokenizer* tokenizer, int32_t id) {
  if (!IsKnown(tokenizer, id)) return nullptr;
  OrderedJson bytes = OrderedJson::array();
  for (const char c : tokenizer->Piece(id)) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

OrderedJson ChatToken(const Tokenizer* tokenizer, int32_t id, float logprob) {
  OrderedJson token;
  token["token"] = TokenText(tokenizer, id);
  token["logprob"] = Finite(logprob);
  token["bytes"] = Bytes(tokenizer, id);
  return token;
}

// Bytes that begin a character.
int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

std::string TokenText(const Tokenizer* tokenizer, int32_t id) {
  if (!IsKnown(tokenizer, id)) return fmt::format("token_id:{}", id);
  const std::string_view piece = tokenizer->Piece(id);
  if (!tokenizer->IsByte(id)) return std::string(piece);
  const auto byte = static_cast<unsigned char>(piece[0]);
  return byte < 0x80 ? std::string(piece) : fmt::format("<0x{:02X}>", byte);
}

OrderedJson ChatLogprobs(const Tokenizer* tokenizer, std::span<const int32_t> ids,
                         std::span<const TokenLogprobs> logprobs) {
  OrderedJson content = OrderedJson::array();
  for (size_t i = 0; i < ids.size(); ++i) {
    OrderedJson token = ChatToken(tokenizer, ids[i], logprobs[i].logprob);
    OrderedJson top = OrderedJson::array();
    for (const IdLogprob& other : logprobs[i].top) top.push_back(ChatToken(tokenizer, other.id, other.logprob));
    token["top_logprobs"] = std::move(top);
    content.push_back(std::move(token));
  }
  return content;
}

CompletionLogprobs::CompletionLogprobs(const Tokenizer* tokenizer, bool with_top)
    : tokenizer_(tokenizer), with_top_(with_top) {}

OrderedJson CompletionLogprobs::Next(std::span<const int32_t> ids, std::span<const TokenLogprobs> logprobs) {
  OrderedJson tokens = OrderedJson::array(), values = OrderedJson::array(), tops = OrderedJson::array(),
              offsets = OrderedJson::array();
  const size_t without = ids.size() - logprobs.size();
  for (size_t i = 0; i < ids.size(); ++i) {
    tokens.push_back(TokenText(tokenizer_, ids[i]));
    offsets.push_back(offset_);
    if (IsKnown(tokenizer_, ids[i]) && !tokenizer_->IsSpecial(ids[i])) {
      offset_ += CountCharacters(tokenizer_->Piece(ids[i]));
    }
    if (i < without) {
      values.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    const TokenLogprobs& token = logprobs[i - without];
    values.push_back(Finite(token.logprob));
    OrderedJson top = OrderedJson::object();
    for (const IdLogprob& other : token.top) top[TokenText(tokenizer_, other.id)] = Finite(other.logprob);
    tops.push_back(std::move(top));
  }
  OrderedJson out;
  out["tokens"] = std::move(tokens);
  out["token_logprobs"] = std::move(values);
  out["top_logprobs"] = with_top_ ? std::move(tops) : OrderedJson();
  out["text_offset"] = std::move(offsets);
  return out;
}

}  // namespace lapidary
