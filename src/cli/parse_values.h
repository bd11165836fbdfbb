#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lapidary {

// Values of flags. What is wrong is said with `what`, found and wanted, as a UsageError.

// "2,651,9" or "[2, 651, 9]"; "" is no id. Ids are >= 0. Throws Error kInvalidArgument: the text may be from anywhere.
std::vector<int32_t> ParseIds(std::string_view text, const std::string& what);

// The same, or "@FILE" for a file with such a list, whose faults are an Error.
std::vector<int32_t> ReadIds(const std::string& text, const std::string& what);

// "512,2048": one or more numbers in [1, 2^31).
std::vector<int64_t> ParseCounts(std::string_view text, const std::string& what);

// "ID=VALUE" with a finite value.
std::pair<int32_t, double> ParseLogitBias(std::string_view text);

// "owner/name" of a repository -> name. Both are made of letters, digits, '.', '_' and '-'.
std::string RepositoryName(std::string_view repository);

}  // namespace lapidary
