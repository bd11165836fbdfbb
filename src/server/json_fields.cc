#include "server/json_fields.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "base/json.h"
#include "server/api_error.h"

namespace lapidary {
namespace {

// A whole number that an int64_t holds, however it is written.
std::optional<int64_t> WholeNumber(const OrderedJson& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  constexpr double kExact = 9007199254740992.0;  // 2^53: every whole number up to here is a double
  if (std::abs(number) > kExact || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::string Range(int64_t low, int64_t high) {
  if (high == std::numeric_limits<int64_t>::max()) return fmt::format("a whole number of {} or more", low);
  return fmt::format("a whole number from {} to {}", low, high);
}

}  // namespace

std::string Found(const OrderedJson& value) {
  constexpr size_t kLimit = 60;
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_string()) return fmt::format("\"{}\"", Printable(value.get_ref<const std::string&>(), kLimit));
  return Printable(value.dump(), kLimit);
}

JsonFields::JsonFields(const OrderedJson& object, std::string path) : object_(object), path_(std::move(path)) {}

const OrderedJson* JsonFields::Find(const char* name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> JsonFields::Bool(const char* name) {
  const OrderedJson* value = Find(name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) RefuseField(Path(name), Found(*value), "true or false");
  return value->get<bool>();
}

std::optional<int64_t> JsonFields::Integer(const char* name, int64_t low, int64_t high) {
  const OrderedJson* value = Find(name);
  if (!value) return std::nullopt;
  const std::optional<int64_t> number = WholeNumber(*value);
  if (!number || *number < low || *number > high) RefuseField(Path(name), Found(*value), Range(low, high));
  return number;
}

std::optional<double> JsonFields::Number(const char* name, double low, double high) {
  const OrderedJson* value = Find(name);
  if (!value) return std::nullopt;
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (number >= low && number <= high) return number;
  }
  RefuseField(Path(name), Found(*value), fmt::format("a number from {} to {}", low, high));
}

std::optional<std::string> JsonFields::String(const char* name) {
  const OrderedJson* value = Find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) RefuseField(Path(name), Found(*value), "a string");
  return value->get<std::string>();
}

const OrderedJson* JsonFields::Object(const char* name) {
  const OrderedJson* value = Find(name);
  if (value && !value->is_object()) RefuseField(Path(name), Found(*value), "an object");
  return value;
}

const OrderedJson* JsonFields::Array(const char* name) {
  const OrderedJson* value = Find(name);
  if (value && !value->is_array()) RefuseField(Path(name), Found(*value), "an array");
  return value;
}

std::optional<std::vector<int32_t>> JsonFields::Ids(const char* name, int64_t vocab) {
  const OrderedJson* value = Array(name);
  if (!value) return std::nullopt;
  return ReadTokenIds(*value, Path(name), vocab);
}

void JsonFields::Ignore(std::initializer_list<const char*> names) {
  for (const char* name : names) known_.insert(name);
}

void JsonFields::Refuse(const char* name, const char* why) {
  const OrderedJson* value = Find(name);
  if (value) throw ApiError(400, Path(name) + ": " + why, Path(name), "unsupported_value");
}

void JsonFields::RefuseUnknown() const {
  for (const auto& [name, value] : object_.items()) {
    if (known_.contains(name) || value.is_null()) continue;
    const std::string shown = path_ + Printable(name, 60);
    throw ApiError(400, "Unrecognized request argument supplied: " + shown, shown, "unknown_parameter");
  }
}

std::vector<int32_t> ReadTokenIds(const OrderedJson& array, const std::string& param, int64_t vocab) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const OrderedJson& value : array) {
    const std::optional<int64_t> id = WholeNumber(value);
    if (!id || *id < 0 || *id >= vocab) {
      RefuseField(param, Found(value), fmt::format("token ids from 0 to {}", vocab - 1));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace lapidary
