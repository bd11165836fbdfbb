#include "server/sampling_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "expect_refusal.h"

namespace lapidary {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

SamplingFields Read(const char* text, bool all = true) {
  const OrderedJson object = OrderedJson::parse(text);
  JsonFields fields(object, "");
  SamplingFields sampling = ReadSamplingFields(fields, {.vocab = 100});
  if (all) fields.RefuseUnknown();
  return sampling;
}

TEST(SamplingFields, ReadsEveryName) {
  const SamplingFields s = Read(R"({
    "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "repetition_penalty": 1.2, "presence_penalty": -1,
    "frequency_penalty": 1, "logit_bias": {"5": -100, "7": 2.5}, "seed": -3, "stop": ["a", "b"], "ignore_eos": true,
    "stop_token_ids": [9], "n": 3, "stream": true, "stream_options": {"include_usage": true}, "speculate": "ngram",
    "return_token_ids": true, "response_format": {"type": "text"}, "user": "me", "store": false, "metadata": {}})");
  EXPECT_EQ(s.options.temperature, 0.5);
  EXPECT_EQ(s.options.top_p, 0.9);
  EXPECT_EQ(s.options.top_k, 40);
  EXPECT_EQ(s.options.min_p, 0.1);
  EXPECT_EQ(s.options.repetition_penalty, 1.2);
  EXPECT_EQ(s.options.presence_penalty, -1);
  EXPECT_EQ(s.options.frequency_penalty, 1);
  EXPECT_THAT(s.options.logit_bias, ElementsAre(Pair(5, -100), Pair(7, 2.5)));
  EXPECT_EQ(s.options.seed, static_cast<uint64_t>(-3));
  EXPECT_THAT(s.options.stop, ElementsAre("a", "b"));
  EXPECT_TRUE(s.options.ignore_eos && s.stream && s.include_usage && s.return_token_ids);
  EXPECT_THAT(s.stop_ids, ElementsAre(9));
  EXPECT_EQ(s.n, 3);
  EXPECT_EQ(s.options.speculation, Speculation::kNgram);
}

TEST(SamplingFields, WhatIsNotGivenStaysUnset) {
  const SamplingFields s = Read(R"({"temperature": null, "stop": null})");
  EXPECT_FALSE(s.options.temperature || s.options.top_k || s.options.seed);
  EXPECT_EQ(s.n, 1);
  EXPECT_FALSE(s.stream);
  EXPECT_EQ(Read(R"({"top_k": -1})").options.top_k, 0);
  EXPECT_THAT(Read(R"({"stop": "x"})").options.stop, ElementsAre("x"));
}

TEST(SamplingFields, RefusesWrongValues) {
  for (const auto& [param, text] : std::vector<std::pair<const char*, const char*>>{
           {"temperature", R"({"temperature": -0.1})"},
           {"temperature", R"({"temperature": true})"},
           {"top_p", R"({"top_p": 0})"},
           {"top_k", R"({"top_k": -2})"},
           {"n", R"({"n": 129})"},
           {"stop", R"({"stop": ""})"},
           {"stop", R"({"stop": [["a"]]})"},
           {"logit_bias", R"({"logit_bias": {"-1": 1}})"},
           {"logit_bias", R"({"logit_bias": {"1x": 1}})"},
           {"logit_bias", R"({"logit_bias": {"100": 1}})"},
           {"logit_bias", R"({"logit_bias": {"1": "x"}})"},
           {"logit_bias", R"({"logit_bias": [1]})"},
           {"stop_token_ids", R"({"stop_token_ids": [100]})"},
           {"stream_options", R"({"stream_options": {}})"},
           {"stream_options.other", R"({"stream": true, "stream_options": {"other": 1}})"},
           {"response_format", R"({"response_format": {"type": "json_object"}})"},
           {"response_format.type", R"({"response_format": {}})"},
           {"speculate", R"({"speculate": "magic"})"}}) {
    ExpectRefusal(param, [&, t = text] { Read(t); });
  }
}

}  // namespace
}  // namespace lapidary
