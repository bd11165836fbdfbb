#include "model/config.h"

#include <gtest/gtest.h>

#include <string>

#include "../checkpoint/checkpoint_files.h"

namespace lapidary {
namespace {

using Ids = std::vector<int32_t>;

// A small valid text-only config; tests change single keys of it.
Json Small() {
  return Json::parse(R"({
    "model_type": "gemma4_text", "vocab_size": 100, "hidden_size": 16, "intermediate_size": 32,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16,
    "sliding_window": 7, "vocab_size_per_layer_input": 100, "hidden_size_per_layer_input": 4,
    "num_kv_shared_layers": 2, "max_position_embeddings": 64, "final_logit_softcapping": 30.0,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})");
}

Config Parse(const Json& json) { return ParseConfig(json.dump(), "config.json"); }

// `patch` is merged over Small(); null removes a key.
Config ParseSmallWith(const std::string& patch) {
  Json json = Small();
  json.merge_patch(Json::parse(patch));
  return Parse(json);
}

TEST(ConfigTest, ReadsEveryKeyOfTheTextOnlyForm) {
  const Config config = LoadConfig(MiniFolder("moe-mini"));
  EXPECT_EQ(config.model_type, "gemma4_text");
  EXPECT_EQ(config.tensor_prefix, "model.");
  EXPECT_EQ(config.vocab_size, 1024);
  EXPECT_EQ(config.hidden_size, 96);
  EXPECT_EQ(config.intermediate_size, 160);
  EXPECT_EQ(config.num_hidden_layers, 6);
  EXPECT_EQ(config.num_attention_heads, 4);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.num_global_key_value_heads, 1);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.global_head_dim, 64);
  EXPECT_TRUE(config.attention_k_eq_v);
  ASSERT_EQ(config.layer_types.size(), 6u);
  EXPECT_EQ(config.layer_types[4], AttentionType::kSliding);
  EXPECT_EQ(config.layer_types[5], AttentionType::kFull);
  EXPECT_EQ(config.sliding_window, 16);
  EXPECT_EQ(config.rope_sliding.type, RopeType::kDefault);
  EXPECT_EQ(config.rope_sliding.theta, 10000.0);
  EXPECT_EQ(config.rope_full.type, RopeType::kProportional);
  EXPECT_EQ(config.rope_full.theta, 1000000.0);
  EXPECT_EQ(config.rope_full.partial_rotary_factor, 0.25);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.final_logit_softcapping, 30.0);
  EXPECT_EQ(config.hidden_size_per_layer_input, 0);
  EXPECT_EQ(config.num_kv_shared_layers, 0);
  EXPECT_FALSE(config.use_double_wide_mlp);
  EXPECT_TRUE(config.enable_moe_block);
  EXPECT_EQ(config.num_experts, 8);
  EXPECT_EQ(config.top_k_experts, 2);
  EXPECT_EQ(config.moe_intermediate_size, 48);
  EXPECT_EQ(config.max_position_embeddings, 4096);
  EXPECT_EQ(config.eos_token_ids, Ids{1});
  EXPECT_EQ(config.bos_token_id, 2);
  EXPECT_EQ(config.pad_token_id, 0);
}

TEST(ConfigTest, ReadsTheMultimodalForm) {
  const Config config = LoadConfig(MiniFolder("e2b-mini"));
  EXPECT_EQ(config.model_type, "gemma4");
  EXPECT_EQ(config.tensor_prefix, "model.language_model.");
  EXPECT_EQ(config.num_hidden_layers, 10);
  EXPECT_EQ(config.num_kv_shared_layers, 4);
  EXPECT_TRUE(config.use_double_wide_mlp);
  EXPECT_EQ(config.hidden_size_per_layer_input, 16);
  EXPECT_EQ(config.vocab_size_per_layer_input, 1024);
}

TEST(ConfigTest, AbsentKeysGetTheDefaultsOfTheReference) {
  const Config config = Parse({{"model_type", "gemma4_text"}});
  EXPECT_EQ(config.vocab_size, 262144);
  EXPECT_EQ(config.hidden_size, 2304);
  EXPECT_EQ(config.intermediate_size, 9216);
  EXPECT_EQ(config.num_hidden_layers, 30);
  EXPECT_EQ(config.num_attention_heads, 8);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.global_head_dim, 512);
  EXPECT_EQ(config.sliding_window, 512);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_EQ(config.hidden_size_per_layer_input, 256);
  EXPECT_EQ(config.vocab_size_per_layer_input, 262144);
  EXPECT_FALSE(config.final_logit_softcapping.has_value());
  for (size_t i = 0; i < 30; ++i) EXPECT_EQ(config.layer_types[i] == AttentionType::kFull, i % 6 == 5) << i;
  EXPECT_EQ(config.rope_full.partial_rotary_factor, 0.25);
  EXPECT_EQ(config.eos_token_ids, Ids{1});

  const Config unified = Parse({{"model_type", "gemma4_unified_text"}});
  EXPECT_EQ(unified.hidden_size_per_layer_input, 0);
  EXPECT_EQ(unified.sliding_window, 1024);
  EXPECT_EQ(unified.max_position_embeddings, 262144);
}

TEST(ConfigTest, TheLastLayerIsAlwaysFull) {
  const Config config = ParseSmallWith(
      R"({"layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]})");
  EXPECT_EQ(config.layer_types.back(), AttentionType::kFull);
  EXPECT_EQ(config.layer_types.front(), AttentionType::kFull);
}

TEST(ConfigTest, NullCountsAsAbsent) {
  const std::string text =
      R"({"model_type":"gemma4_text","num_experts":null,"final_logit_softcapping":null,"rope_parameters":null,)"
      R"("num_global_key_value_heads":null,"attention_k_eq_v":true,"use_bidirectional_attention":null,)"
      R"("hidden_size_per_layer_input":null,"eos_token_id":null,"bos_token_id":null,"layer_types":null})";
  const Config config = ParseConfig(text, "config.json");
  EXPECT_EQ(config.num_global_key_value_heads, 0);
  EXPECT_EQ(config.hidden_size_per_layer_input, 0);
  EXPECT_TRUE(config.eos_token_ids.empty());
  EXPECT_FALSE(config.bos_token_id.has_value());
  EXPECT_EQ(config.pad_token_id, 0);
}

TEST(ConfigTest, EosIdsOfBothLevelsAreMerged) {
  const auto eos = [](const std::string& top, const std::string& text) {
    return ParseConfig(R"({"model_type":"gemma4")" + top + R"(,"text_config":{"num_hidden_layers":1)" + text + "}}",
                       "c")
        .eos_token_ids;
  };
  EXPECT_EQ(eos("", ""), Ids{1});
  EXPECT_EQ(eos(R"(,"eos_token_id":[106,1])", ""), (Ids{1, 106}));
  EXPECT_EQ(eos(R"(,"eos_token_id":[1,106])", R"(,"eos_token_id":7)"), (Ids{1, 7, 106}));
  EXPECT_EQ(eos("", R"(,"eos_token_id":106)"), Ids{106});
}

// transformers 5.17 saves the settings of full layers this way instead of global_head_dim.
TEST(ConfigTest, ReadsPerLayerOverrides) {
  const Config config = ParseSmallWith(
      R"({"global_head_dim": null, "per_layer_config": {"1": {"head_dim": 24, "num_key_value_heads": 1},
                                                        "3": {"head_dim": 24, "num_key_value_heads": 1}}})");
  EXPECT_EQ(config.global_head_dim, 24);
  EXPECT_EQ(config.num_global_key_value_heads, 1);
  const Config same = ParseSmallWith(R"({"global_head_dim": null, "per_layer_config": {}})");
  EXPECT_EQ(same.global_head_dim, 8);
  for (const char* patch :
       {R"({"per_layer_config": {"1": {"head_dim": 24}, "3": {"head_dim": 32}}})",
        R"({"per_layer_config": {"0": {"head_dim": 24}}})", R"({"per_layer_config": {"0": {"sliding_window": 3}}})"}) {
    SCOPED_TRACE(patch);
    ExpectError(ErrorKind::kUnsupported, {"per_layer_config"}, [&] { ParseSmallWith(patch); });
  }
}

TEST(ConfigTest, GlobalHeadsCountOnlyWhenKeysAreValues) {
  EXPECT_EQ(ParseSmallWith(R"({"num_global_key_value_heads": 1})").num_global_key_value_heads, 0);
  EXPECT_EQ(ParseSmallWith(R"({"num_global_key_value_heads": 1, "attention_k_eq_v": true})").num_global_key_value_heads,
            1);
}

TEST(ConfigTest, RopeForms) {
  const Config config = ParseSmallWith(
      R"({"rope_parameters": {"sliding_attention": {"rope_theta": 500, "partial_rotary_factor": 1.0},
                              "full_attention": {"rope_type": "proportional", "rope_theta": 1e6}}})");
  EXPECT_EQ(config.rope_sliding.type, RopeType::kDefault);
  EXPECT_EQ(config.rope_sliding.theta, 500.0);
  EXPECT_EQ(config.rope_full.partial_rotary_factor, 1.0);
}

struct Bad {
  const char* patch;
  ErrorKind kind;
  std::vector<std::string> parts;
};

TEST(ConfigTest, BadSettingsNameTheKeyFoundAndWanted) {
  const ErrorKind corrupt = ErrorKind::kCorruptFile, bounds = ErrorKind::kInvalidArgument;
  const ErrorKind unsupported = ErrorKind::kUnsupported;
  const std::vector<Bad> all = {
      {R"({"vocab_size": -1})", bounds, {"vocab_size: found -1"}},
      {R"({"vocab_size": 0})", bounds, {"vocab_size: found 0"}},
      {R"({"vocab_size": 1e9})", corrupt, {"vocab_size"}},
      {R"({"vocab_size": 18446744073709551615})", bounds, {"18446744073709551615"}},
      {R"({"hidden_size": "96"})", corrupt, {"hidden_size: found \"96\""}},
      {R"({"hidden_size": 1.5})", corrupt, {"hidden_size: found 1.5"}},
      {R"({"hidden_size": 9223372036854775807})", bounds, {"hidden_size"}},
      {R"({"num_hidden_layers": 0})", bounds, {"num_hidden_layers"}},
      {R"({"num_hidden_layers": 1000000})", bounds, {"num_hidden_layers: found 1000000"}},
      {R"({"num_hidden_layers": 5})", bounds, {"layer_types: found 4 entries, wanted 5"}},
      {R"({"layer_types": ["sliding_attention", "linear", "full_attention", "full_attention"]})",
       unsupported,
       {"layer_types: found \"linear\""}},
      {R"({"layer_types": [1, 2, 3, 4]})", unsupported, {"layer_types: found 1"}},
      {R"({"layer_types": "full_attention"})", corrupt, {"layer_types"}},
      {R"({"num_attention_heads": 0})", bounds, {"num_attention_heads"}},
      {R"({"num_key_value_heads": 3})", bounds, {"num_key_value_heads", "found 3", "4"}},
      {R"({"num_global_key_value_heads": 3, "attention_k_eq_v": true})", bounds, {"found 3"}},
      {R"({"head_dim": 7})", unsupported, {"head_dim", "found 7", "even"}},
      {R"({"head_dim": 1000000})", bounds, {"head_dim"}},
      {R"({"sliding_window": 0})", bounds, {"sliding_window"}},
      {R"({"sliding_window": -512})", bounds, {"sliding_window: found -512"}},
      {R"({"num_kv_shared_layers": 4})", bounds, {"num_kv_shared_layers: found 4", "0 to 3"}},
      {R"({"num_kv_shared_layers": -1})", bounds, {"num_kv_shared_layers"}},
      {R"({"rms_norm_eps": 0})", bounds, {"rms_norm_eps"}},
      {R"({"rms_norm_eps": "small"})", corrupt, {"rms_norm_eps"}},
      {R"({"final_logit_softcapping": 0})", bounds, {"final_logit_softcapping"}},
      {R"({"final_logit_softcapping": -30})", bounds, {"final_logit_softcapping"}},
      {R"({"max_position_embeddings": 0})", bounds, {"max_position_embeddings"}},
      {R"({"hidden_activation": "silu"})", unsupported, {"hidden_activation: found \"silu\"", "gelu_pytorch_tanh"}},
      {R"({"hidden_activation": 3})", unsupported, {"hidden_activation"}},
      {R"({"attention_bias": true})", unsupported, {"attention_bias: found true"}},
      {R"({"tie_word_embeddings": false})", unsupported, {"tie_word_embeddings"}},
      {R"({"use_bidirectional_attention": "all"})", unsupported, {"use_bidirectional_attention"}},
      {R"({"attention_k_eq_v": "yes"})", corrupt, {"attention_k_eq_v", "true or false"}},
      {R"({"vocab_size_per_layer_input": 99})", bounds, {"vocab_size_per_layer_input: found 99", "100"}},
      {R"({"hidden_size_per_layer_input": -4})", bounds, {"hidden_size_per_layer_input"}},
      {R"({"enable_moe_block": true})", corrupt, {"num_experts"}},
      {R"({"enable_moe_block": true, "num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 8})",
       bounds,
       {"top_k_experts: found 5"}},
      {R"({"rope_parameters": []})", corrupt, {"rope_parameters"}},
      {R"({"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}})", corrupt, {"sliding_attention"}},
      {R"({"rope_parameters": {"sliding_attention": {"rope_type": "yarn", "rope_theta": 1e4}, "full_attention": {}}})",
       unsupported,
       {"rope_type: found \"yarn\""}},
      {R"({"rope_parameters": {"sliding_attention": {"rope_theta": 500, "partial_rotary_factor": 0.5}}})",
       unsupported,
       {"partial_rotary_factor: found 0.5"}},
      {R"({"rope_parameters": {"sliding_attention": {}, "full_attention": {}}})", corrupt, {"rope_theta"}},
      {R"({"rope_parameters": {"sliding_attention": {"rope_theta": 0}, "full_attention": {}}})",
       bounds,
       {"rope_theta"}},
      {R"({"rope_parameters": {"sliding_attention": {"rope_type": "proportional", "rope_theta": 10, "factor": 8}}})",
       unsupported,
       {"factor: found 8"}},
      {R"({"rope_parameters": {"sliding_attention": {"rope_type": "proportional", "rope_theta": 10,
                                                      "partial_rotary_factor": 1.5}}})",
       bounds,
       {"partial_rotary_factor: found 1.5"}},
      {R"({"eos_token_id": -1})", bounds, {"eos_token_id: found -1"}},
      {R"({"eos_token_id": ["x"]})", corrupt, {"eos_token_id"}},
      {R"({"eos_token_id": [4294967296]})", bounds, {"eos_token_id"}},
      {R"({"model_type": "llama"})", unsupported, {"model_type: found \"llama\""}},
      {R"({"model_type": "gemma4"})", corrupt, {"text_config"}},
      {R"({"model_type": "gemma4_assistant"})", unsupported, {"gemma4_assistant"}},
      {R"({"model_type": null})", corrupt, {"model_type"}},
      {R"({"text_config": []})", unsupported, {"model_type"}},
      {R"({"model_type": "gemma4", "text_config": 7})", corrupt, {"text_config", "number"}},
  };
  for (const Bad& bad : all) {
    SCOPED_TRACE(bad.patch);
    ExpectError(bad.kind, bad.parts, [&] { ParseSmallWith(bad.patch); });
  }
}

TEST(ConfigTest, ThingsThatAreNotConfigs) {
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("null"),
                                  std::string("\xff\xfe"), std::string(10'000, '['), std::string(R"({"a":1,"a":2})"),
                                  R"({"model_type":")" + std::string(100'000, 'x') + "\"}"}) {
    SCOPED_TRACE(text.substr(0, 20));
    EXPECT_THROW(ParseConfig(text, "config.json"), Error);
  }
  const TempFolder folder;
  ExpectError(ErrorKind::kNotFound, {"config.json"}, [&] { LoadConfig(folder.path()); });
  ExpectError(ErrorKind::kNotFound, {"config.json"}, [&] { LoadConfig(folder.File("nowhere")); });
}

TEST(GenerationConfigTest, ReadsWhatChatModelsShip) {
  const GenerationConfig config = ParseGenerationConfig(
      R"({"bos_token_id": 2, "do_sample": true, "eos_token_id": [1, 106, 50], "pad_token_id": 0, "temperature": 1.0,
          "top_k": 64, "top_p": 0.95, "suppress_tokens": [258883, 258882], "transformers_version": "5.17.0"})",
      "generation_config.json");
  EXPECT_EQ(config.eos_token_ids, (Ids{1, 50, 106}));
  EXPECT_EQ(config.suppress_tokens, (Ids{258882, 258883}));
  EXPECT_EQ(config.bos_token_id, 2);
  EXPECT_EQ(config.temperature, 1.0);
  EXPECT_EQ(config.top_k, 64);
  EXPECT_EQ(config.top_p, 0.95);
  EXPECT_EQ(config.do_sample, true);
  EXPECT_FALSE(config.min_p.has_value());
  EXPECT_FALSE(config.repetition_penalty.has_value());
  Config model;
  model.eos_token_ids = {1, 106};
  EXPECT_EQ(EosTokenIds(model, config), (Ids{1, 50, 106}));
  EXPECT_EQ(EosTokenIds(model, {}), (Ids{1, 106}));
}

TEST(GenerationConfigTest, AFolderWithoutOneGivesEmptyDefaults) {
  const GenerationConfig config = LoadGenerationConfig(MiniFolder("e2b-mini"));
  EXPECT_TRUE(config.eos_token_ids.empty());
  EXPECT_FALSE(config.temperature.has_value());
  const TempFolder folder;
  folder.Write("generation_config.json", R"({"eos_token_id": 106})");
  EXPECT_EQ(LoadGenerationConfig(folder.path()).eos_token_ids, Ids{106});
}

TEST(GenerationConfigTest, BadValuesNameTheKey) {
  for (const auto& [text, part] :
       {std::pair(R"({"temperature": -1})", "temperature: found -1"),
        std::pair(R"({"top_p": 1.5})", "top_p: found 1.5"), std::pair(R"({"top_k": -1})", "top_k: found -1"),
        std::pair(R"({"min_p": 2})", "min_p"), std::pair(R"({"repetition_penalty": 0})", "repetition_penalty"),
        std::pair(R"({"suppress_tokens": [-5]})", "suppress_tokens: found -5")}) {
    ExpectError(ErrorKind::kInvalidArgument, {"generation_config.json", part},
                [&, json = text] { ParseGenerationConfig(json, "generation_config.json"); });
  }
  ExpectError(ErrorKind::kCorruptFile, {"do_sample"}, [] { ParseGenerationConfig(R"({"do_sample": 1})", "g"); });
  ExpectError(ErrorKind::kCorruptFile, {"object"}, [] { ParseGenerationConfig("[]", "g"); });
}

}  // namespace
}  // namespace lapidary
