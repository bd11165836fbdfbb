#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/ordered_json.h"

namespace lapidary {

// How Jinja (3.1, on Python 3) treats JSON values, as far as the chat template needs it. A null pointer is Jinja's
// undefined.
using TemplateValue = const OrderedJson*;

// value[key]: undefined where there is none.
TemplateValue Member(TemplateValue value, const char* key);

bool IsString(TemplateValue value);
bool IsMapping(TemplateValue value);
bool IsNone(TemplateValue value);
// What Jinja iterates over: arrays, strings (by character), objects (their keys) and undefined (nothing).
bool IsIterable(TemplateValue value);
bool IsTruthy(TemplateValue value);
const std::string& StringOf(TemplateValue value);  // of a string

// What {{ value }} prints: strings as they are, undefined nothing, the rest as Python's str().
std::string PythonStr(TemplateValue value);

// The items that a loop over an iterable value goes through, as {{ item }} prints them when they are strings.
std::vector<OrderedJson> Items(TemplateValue value);

// The members of an object in the order of `dictsort`: by key in lower case, then as they came.
std::vector<const OrderedJson::object_t::value_type*> SortedMembers(const OrderedJson& object);

// Python's str.strip() and str.upper() of UTF-8 text.
std::string_view Trim(std::string_view text);
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);

}  // namespace lapidary
