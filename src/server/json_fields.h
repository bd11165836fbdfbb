#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chat/ordered_json.h"

namespace lapidary {

// `value` as a short text for errors: the beginning of its JSON.
std::string Found(const OrderedJson& value);

// The fields of one JSON object from a client, each read once by its name and checked. A null counts as absent. All
// throw ApiError 400 that names the field, found and wanted. The object must outlive it.
class JsonFields {
 public:
  // `path` comes before the names in errors: "" or "stream_options.".
  JsonFields(const OrderedJson& object, std::string path);

  const OrderedJson* Find(const char* name);
  std::optional<bool> Bool(const char* name);
  // Whole numbers may be written as 5 or 5.0.
  std::optional<int64_t> Integer(const char* name, int64_t low, int64_t high);
  std::optional<double> Number(const char* name, double low, double high);
  std::optional<std::string> String(const char* name);
  const OrderedJson* Object(const char* name);
  const OrderedJson* Array(const char* name);
  // Token ids in [0, vocab).
  std::optional<std::vector<int32_t>> Ids(const char* name, int64_t vocab);

  // Names whose values change nothing here.
  void Ignore(std::initializer_list<const char*> names);
  // Refuses a name that is present with a value: `why` says what is not supported.
  void Refuse(const char* name, const char* why);
  // Refuses names that nobody asked for.
  void RefuseUnknown() const;

  std::string Path(const char* name) const { return path_ + name; }

 private:
  const OrderedJson& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

// Checked token ids of one JSON array. Throws ApiError 400.
std::vector<int32_t> ReadTokenIds(const OrderedJson& array, const std::string& param, int64_t vocab);

}  // namespace lapidary
