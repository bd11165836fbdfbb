#include "server/logprobs_json.h"

#include <gtest/gtest.h>

#include <limits>

namespace lapidary {
namespace {

// The demo model's: byte tokens begin at 238.
const Tokenizer& DemoTokenizer() {
  static const Tokenizer tokenizer = Tokenizer::Load(LAPIDARY_SOURCE_DIR "/models/demo/tokenizer.json");
  return tokenizer;
}

TEST(LogprobsJson, ATokenIsAlwaysUtf8) {
  const Tokenizer& tokenizer = DemoTokenizer();
  EXPECT_EQ(TokenText(&tokenizer, *tokenizer.Find("<0xEA>")), "<0xEA>");
  EXPECT_EQ(TokenText(&tokenizer, *tokenizer.Find("<0x0D>")), "\r");
  EXPECT_EQ(TokenText(&tokenizer, 106), "<turn|>");
  EXPECT_EQ(TokenText(&tokenizer, 1 << 20), "token_id:1048576");
  EXPECT_EQ(TokenText(nullptr, 5), "token_id:5");
}

// Field reports 7 and 34.
TEST(LogprobsJson, BytesAreExactAndNumbersFinite) {
  const Tokenizer& tokenizer = DemoTokenizer();
  const float never = -std::numeric_limits<float>::infinity();
  const std::vector<int32_t> ids = {*tokenizer.Find("<0xEA>")};
  const std::vector<TokenLogprobs> logprobs = {{.logprob = never, .top = {{.id = 106, .logprob = -0.5f}}}};
  const OrderedJson content = ChatLogprobs(&tokenizer, ids, logprobs);
  EXPECT_EQ(content[0]["bytes"], OrderedJson::array({0xEA}));
  EXPECT_EQ(content[0]["logprob"], -9999);
  EXPECT_EQ(content[0]["top_logprobs"][0]["token"], "<turn|>");
  EXPECT_EQ(content[0]["top_logprobs"][0]["logprob"], -0.5);
}

TEST(LogprobsJson, OffsetsCountCharactersOverAllPieces) {
  const Tokenizer& tokenizer = DemoTokenizer();
  CompletionLogprobs logprobs(&tokenizer, true);
  std::vector<int32_t> ids = {2};
  for (const int32_t id : tokenizer.Encode("é 깰 red")) ids.push_back(id);
  const std::vector<TokenLogprobs> values(ids.size() - 1,
                                          TokenLogprobs{.logprob = -1, .top = {{.id = 5, .logprob = -1}}});
  const OrderedJson first = logprobs.Next(ids, values);
  EXPECT_TRUE(first["token_logprobs"][0].is_null());
  EXPECT_TRUE(first["top_logprobs"][0].is_null());
  EXPECT_EQ(first["token_logprobs"][1], -1);
  EXPECT_EQ(first["text_offset"][0], 0);
  const OrderedJson second =
      logprobs.Next(std::vector<int32_t>{1}, std::vector<TokenLogprobs>{{.logprob = -2, .top = {}}});
  EXPECT_EQ(second["text_offset"][0], 7);  // "é 깰 red"
  CompletionLogprobs without(&tokenizer, false);
  EXPECT_TRUE(without.Next(ids, values)["top_logprobs"].is_null());
}

}  // namespace
}  // namespace lapidary
