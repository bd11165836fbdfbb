// lapidary inspect on the committed checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "run_program.h"

namespace lapidary {
namespace {

TEST(InspectCommand, TellsWhatWouldBeLoaded) {
  const ProgramResult result = RunProgram({"inspect", "-m", DataFolder("e2b-mini"), "--json", "--ctx", "1000"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json json = ParseJson(result.out, "inspect");
  EXPECT_EQ(json["config"]["hidden_size"], 96);
  EXPECT_EQ(json["layers"].size(), 10u);
  EXPECT_EQ(json["layers"][9]["writes_kv"], false);
  EXPECT_EQ(json["layers"][9]["kv_source"], 4);
  EXPECT_EQ(json["layers"][9]["ffn_width"], 320);
  int64_t used = 0, ignored = 0;
  for (const Json& tensor : json["tensors"]) {
    (tensor["used"].get<bool>() ? used : ignored) += tensor["bytes"].get<int64_t>();
    const auto name = tensor["name"].get<std::string>();
    if (name.find("layers.9.self_attn.k_proj") != std::string::npos) {
      EXPECT_FALSE(tensor["used"].get<bool>());
    }
  }
  EXPECT_EQ(json["totals"]["used"]["bytes"], used);
  EXPECT_EQ(json["totals"]["ignored"]["bytes"], ignored);
  EXPECT_GT(used, 0);
  EXPECT_EQ(json["memory"]["weights_mapped_bytes"], used);
  EXPECT_EQ(json["memory"]["per_layer_table_bytes"], 1024 * 10 * 16 * 2);
  // One full layer with K/V of its own: 1 head of 64, K and V.
  EXPECT_EQ(json["memory"]["kv"]["f32"]["bytes_per_token"], 2 * 64 * 4);
  EXPECT_EQ(json["memory"]["kv"]["bf16"]["bytes_per_token"], 2 * 64 * 2);
  EXPECT_EQ(json["memory"]["ctx"], 1000);
}

TEST(InspectCommand, HasATextForEveryShape) {
  for (const char* name : {"e2b-mini", "e4b-mini", "dense-mini", "moe-mini"}) {
    const ProgramResult result = RunProgram({"inspect", "-m", DataFolder(name)});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, ::testing::HasSubstr("embed_tokens.weight BF16 [1024,"));
    EXPECT_THAT(result.out, ::testing::HasSubstr("K/V in bf16"));
  }
  ExpectError(RunProgram({"inspect", "-m", DataFolder("e2b-mini"), "--ctx", "100000"}), 1, "4096");
}

}  // namespace
}  // namespace lapidary
