#pragma once

#include <string>
#include <string_view>

#include "chat/prompt.h"
#include "chat/template_values.h"

namespace lapidary {

// The parts of Gemma 4's template that write values and tools. `where` names the place for errors; all throw Error
// kInvalidArgument where the template raises an exception.

[[noreturn]] void ThrowTemplateError(const std::string& where, TemplateValue found, const std::string& wanted);

// <|"|>text<|"|>
void AddQuoted(ChatPrompt& out, std::string_view text);

// A value: strings raw between quote markers, objects and arrays by their members. With `quote_keys` keys are quoted
// like strings.
void AddArgument(ChatPrompt& out, TemplateValue value, bool quote_keys);

// key:value,... of an object, keys bare.
void AddArguments(ChatPrompt& out, const OrderedJson& object);

// <|tool>declaration:...<tool|>
void AddToolDeclaration(ChatPrompt& out, const OrderedJson& tool, const std::string& where);

}  // namespace lapidary
