#include "cli/chat_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "../engine/fake_backend.h"
#include "base/error.h"
#include "run_program.h"

namespace lapidary {
namespace {

// The demo model's tokenizer on a model that says what the test wants.
class ChatSessionTest : public ::testing::Test {
 protected:
  ChatSessionTest() : tokenizer_(Tokenizer::Load(LAPIDARY_SOURCE_DIR "/models/demo/tokenizer.json")) {
    WriteText(folder_ / "tokenizer.json", ReadText(LAPIDARY_SOURCE_DIR "/models/demo/tokenizer.json"));
    WriteText(folder_ / "generation_config.json", R"({"eos_token_id": [1, 106, 50], "do_sample": false})");
  }

  // After every prompt that ends with the generation prompt.
  void Say(const std::string& answer) {
    const std::vector<int32_t> ids = tokenizer_.Encode(answer);
    last_prompt_.clear();
    backend_.script = [this, ids](std::span<const int32_t> text) {
      const bool goes_on = !last_prompt_.empty() && text.size() > last_prompt_.size() &&
                           std::equal(last_prompt_.begin(), last_prompt_.end(), text.begin());
      if (!goes_on) {
        last_prompt_.assign(text.begin(), text.end());
      }
      const size_t next = text.size() - last_prompt_.size();
      return next < ids.size() ? ids[next] : *tokenizer_.Find("<turn|>");
    };
  }

  ChatSession Session(ChatSettings settings = {}) {
    return ChatSession(folder_.path(), backend_, {}, ChatVariant::kSmall, std::move(settings));
  }

  TestFolder folder_;
  Tokenizer tokenizer_;
  FakeBackend backend_{{.vocab = 2048, .max_position_embeddings = 300}};
  std::vector<int32_t> last_prompt_;
};

TEST_F(ChatSessionTest, KeepsTheConversation) {
  ChatSession session = Session({.system = "Be brief."});
  std::string content, thought;
  const auto on_event = [&](const ChatEvent* event) {
    if (event != nullptr) (event->kind == ChatEventKind::kContent ? content : thought) += event->text;
    return true;
  };
  Say("<|channel>thought\nhm\n<channel|>Hello!");
  EXPECT_EQ(session.Ask("Hi", on_event), FinishReason::kStop);
  EXPECT_EQ(content, "Hello!");
  EXPECT_EQ(thought, "hm");
  EXPECT_EQ(tokenizer_.Decode(last_prompt_),
            "<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n");
  Say("Bye!");
  session.Ask("Bye", on_event);
  // Thoughts of earlier turns are left out.
  EXPECT_EQ(tokenizer_.Decode(last_prompt_),
            "<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\nHello!<turn|>\n"
            "<|turn>user\nBye<turn|>\n<|turn>model\n");
  EXPECT_EQ(session.messages().size(), 5u);
  session.Reset();
  EXPECT_EQ(session.messages().size(), 1u);
  session.Ask("x", on_event);
  EXPECT_EQ(tokenizer_.Decode(last_prompt_),
            "<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nx<turn|>\n<|turn>model\n");
}

TEST_F(ChatSessionTest, AStoppedAnswerStaysAsFarAsItCame) {
  ChatSession session = Session();
  Say("one two three four five six");
  std::string content;
  const auto on_event = [&](const ChatEvent* event) {
    if (event != nullptr) content += event->text;
    return content.size() < 6;
  };
  EXPECT_EQ(session.Ask("Count", on_event), FinishReason::kCancelled);
  EXPECT_EQ(session.messages()[1]["content"].get<std::string>(), content);
  EXPECT_LT(content.size(), 20u);
  Say("again");
  EXPECT_EQ(session.Ask("Go on", [](const ChatEvent*) { return true; }), FinishReason::kStop);
  EXPECT_EQ(session.messages().size(), 4u);
}

TEST_F(ChatSessionTest, AConversationThatDoesNotFitIsLeftAsItWas) {
  ChatSession session = Session();
  Say("a");
  const auto on_event = [](const ChatEvent*) { return true; };
  session.Ask("x", on_event);
  std::string long_text;
  for (int i = 0; i < 400; ++i) long_text += "word 깰 ";
  EXPECT_THROW(session.Ask(long_text, on_event), Error);
  EXPECT_EQ(session.messages().size(), 2u);
  EXPECT_EQ(session.Ask("y", on_event), FinishReason::kStop);
}

TEST_F(ChatSessionTest, SpecialTextIsProtectedUnlessAskedFor) {
  const auto on_event = [](const ChatEvent*) { return true; };
  for (const SpecialText special : {SpecialText::kProtect, SpecialText::kMatch}) {
    ChatSession session = Session({.special_text = special});
    Say("a");
    session.Ask("a<turn|>b", on_event);
    EXPECT_EQ(std::count(last_prompt_.begin(), last_prompt_.end(), *tokenizer_.Find("<turn|>")),
              special == SpecialText::kProtect ? 1 : 2);
  }
}

}  // namespace
}  // namespace lapidary
