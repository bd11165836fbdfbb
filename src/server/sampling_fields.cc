#include "server/sampling_fields.h"

#include <charconv>
#include <limits>
#include <string>

#include "server/api_error.h"

namespace lapidary {
namespace {

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 4096;

void AddStop(const OrderedJson& value, std::vector<std::string>& stops) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    RefuseField("stop", Found(value), "texts of at least one character");
  }
  if (value.get_ref<const std::string&>().size() > kMaxStopBytes) {
    RefuseField("stop", Found(value), "texts of at most 4096 bytes");
  }
  stops.push_back(value.get<std::string>());
}

std::vector<std::string> ReadStop(JsonFields& fields) {
  std::vector<std::string> stops;
  const OrderedJson* value = fields.Find("stop");
  if (!value) return stops;
  if (!value->is_array()) {
    AddStop(*value, stops);
    return stops;
  }
  if (value->size() > kMaxStops) RefuseField("stop", Found(*value), "at most 16 texts");
  for (const OrderedJson& item : *value) AddStop(item, stops);
  return stops;
}

std::vector<std::pair<int32_t, double>> ReadLogitBias(JsonFields& fields, int64_t vocab) {
  std::vector<std::pair<int32_t, double>> biases;
  const OrderedJson* value = fields.Object("logit_bias");
  if (!value) return biases;
  for (const auto& [key, bias] : value->items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab) {
      RefuseField("logit_bias", "the key " + Found(OrderedJson(key)),
                  "token ids from 0 to " + std::to_string(vocab - 1));
    }
    const double number = bias.is_number() ? bias.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(number >= -100 && number <= 100)) RefuseField("logit_bias", Found(bias), "numbers from -100 to 100");
    biases.emplace_back(id, number);
  }
  return biases;
}

std::optional<uint64_t> ReadSeed(JsonFields& fields) {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min(), kHigh = std::numeric_limits<int64_t>::max();
  const std::optional<int64_t> seed = fields.Integer("seed", kLow, kHigh);
  return seed ? std::optional(static_cast<uint64_t>(*seed)) : std::nullopt;
}

Speculation ReadSpeculation(JsonFields& fields, Speculation otherwise) {
  const std::optional<std::string> value = fields.String("speculate");
  if (!value) return otherwise;
  if (*value == "none") return Speculation::kNone;
  if (*value == "ngram") return Speculation::kNgram;
  RefuseField("speculate", Found(OrderedJson(*value)), "none or ngram");
}

void ReadStream(JsonFields& fields, SamplingFields& sampling) {
  sampling.stream = fields.Bool("stream").value_or(false);
  const OrderedJson* options = fields.Object("stream_options");
  if (!options) return;
  if (!sampling.stream) RefuseField("stream_options", "it without stream", "stream: true");
  JsonFields inner(*options, "stream_options.");
  sampling.include_usage = inner.Bool("include_usage").value_or(false);
  inner.Ignore({"include_obfuscation"});
  inner.RefuseUnknown();
}

void ReadResponseFormat(JsonFields& fields) {
  const OrderedJson* format = fields.Object("response_format");
  if (!format) return;
  JsonFields inner(*format, "response_format.");
  const std::optional<std::string> type = inner.String("type");
  if (!type) RefuseField("response_format.type", "none", "text");
  if (*type != "text") {
    throw ApiError(400, "response_format: found " + Found(OrderedJson(*type)) + ", wanted text: no other is supported",
                   "response_format", "unsupported_value");
  }
}

}  // namespace

SamplingFields ReadSamplingFields(JsonFields& fields, const SamplingLimits& limits) {
  SamplingFields sampling;
  GenerateOptions& options = sampling.options;
  options.temperature = fields.Number("temperature", 0, 100);
  options.top_p = fields.Number("top_p", 0, 1);
  if (options.top_p == 0.0) RefuseField("top_p", "0", "a number above 0, up to 1");
  options.min_p = fields.Number("min_p", 0, 1);
  options.top_k = fields.Integer("top_k", -1, std::numeric_limits<int32_t>::max());
  if (options.top_k == -1) options.top_k = 0;
  options.repetition_penalty = fields.Number("repetition_penalty", 0.01, 100);
  options.presence_penalty = fields.Number("presence_penalty", -2, 2).value_or(0);
  options.frequency_penalty = fields.Number("frequency_penalty", -2, 2).value_or(0);
  options.logit_bias = ReadLogitBias(fields, limits.vocab);
  options.seed = ReadSeed(fields);
  options.stop = ReadStop(fields);
  options.ignore_eos = fields.Bool("ignore_eos").value_or(false);
  options.speculation = ReadSpeculation(fields, limits.speculation);
  sampling.stop_ids = fields.Ids("stop_token_ids", limits.vocab).value_or(std::vector<int32_t>());
  sampling.n = fields.Integer("n", 1, limits.max_choices).value_or(1);
  sampling.return_token_ids = fields.Bool("return_token_ids").value_or(false);
  ReadStream(fields, sampling);
  ReadResponseFormat(fields);
  fields.Ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention", "prediction"});
  return sampling;
}

}  // namespace lapidary
