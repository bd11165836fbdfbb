#include "chat/tool_format.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "chat/markers.h"

namespace lapidary {
namespace {

constexpr std::array<std::string_view, 5> kStandardKeys = {"description", "type", "properties", "required", "nullable"};

std::string UpperOf(TemplateValue value) { return Upper(PythonStr(value)); }

// <|"|>a<|"|>,<|"|>b<|"|>
void AddQuotedList(ChatPrompt& out, TemplateValue list, const std::string& where) {
  if (!IsIterable(list)) ThrowTemplateError(where, list, "an array");
  bool first = true;
  for (const OrderedJson& item : Items(list)) {
    if (!first) out.AddText(",");
    first = false;
    AddQuoted(out, PythonStr(&item));
  }
}

// Writes a comma before each entry but the first.
class Entries {
 public:
  explicit Entries(ChatPrompt& out) : out_(out) {}
  ChatPrompt& Next(std::string_view text) {
    if (any_) out_.AddText(",");
    any_ = true;
    out_.AddText(text);
    return out_;
  }

 private:
  ChatPrompt& out_;
  bool any_ = false;
};

// The template's format_parameters and what it calls.
class Parameters {
 public:
  Parameters(ChatPrompt& out, const std::string& where) : out_(out), where_(where) {}

  void Add(TemplateValue properties, bool skip_standard_keys) {
    if (!IsMapping(properties)) ThrowTemplateError(where_, properties, "an object of properties");
    Entries entries(out_);
    for (const auto* member : SortedMembers(*properties)) {
      const std::string& key = member->first;
      if (skip_standard_keys && std::find(kStandardKeys.begin(), kStandardKeys.end(), key) != kStandardKeys.end()) {
        continue;
      }
      entries.Next(key);
      out_.AddText(":{");
      AddProperty(&member->second);
      out_.AddText("}");
    }
  }

 private:
  void AddProperty(TemplateValue value) {
    Entries entries(out_);
    if (IsTruthy(Member(value, "description"))) {
      AddQuoted(entries.Next("description:"), PythonStr(Member(value, "description")));
    }
    const std::string type = UpperOf(Member(value, "type"));
    if (type == "STRING" && IsTruthy(Member(value, "enum"))) {
      AddArgument(entries.Next("enum:"), Member(value, "enum"), true);
    }
    if (type == "ARRAY" && IsMapping(Member(value, "items")) && IsTruthy(Member(value, "items"))) {
      entries.Next("items:{");
      AddItems(*Member(value, "items"));
      out_.AddText("}");
    }
    if (IsTruthy(Member(value, "nullable"))) entries.Next("nullable:true");
    if (type == "OBJECT") AddObject(value, entries);
    AddQuoted(entries.Next("type:"), type);
  }

  void AddObject(TemplateValue value, Entries& entries) {
    entries.Next("properties:{");
    const TemplateValue properties = Member(value, "properties");
    const bool declared = IsMapping(properties);
    // Without properties of its own the object's other keys count as such.
    Add(declared ? properties : value, !declared);
    out_.AddText("}");
    const TemplateValue required = Member(value, "required");
    if (!IsTruthy(required)) return;
    entries.Next("required:[");
    AddQuotedList(out_, required, where_);
    out_.AddText("]");
  }

  void AddItems(const OrderedJson& items) {
    Entries entries(out_);
    for (const auto* member : SortedMembers(items)) {
      const std::string& key = member->first;
      const TemplateValue value = &member->second;
      if (IsNone(value)) continue;
      if (key == "properties") {
        entries.Next("properties:{");
        if (IsMapping(value)) Add(value, false);
        out_.AddText("}");
      } else if (key == "required") {
        entries.Next("required:[");
        AddQuotedList(out_, value, where_);
        out_.AddText("]");
      } else if (key == "type") {
        entries.Next("type:");
        AddItemType(value);
      } else {
        entries.Next(key);
        AddArgument((out_.AddText(":"), out_), value, true);
      }
    }
  }

  void AddItemType(TemplateValue type) {
    if (IsString(type)) {
      AddQuoted(out_, Upper(StringOf(type)));
      return;
    }
    if (!IsIterable(type)) ThrowTemplateError(where_, type, "a type name or an array of them");
    out_.AddText("[");
    AddTypes(Items(type));
    out_.AddText("]");
  }

  void AddTypes(const std::vector<OrderedJson>& types) {
    Entries entries(out_);
    for (const OrderedJson& type : types) AddQuoted(entries.Next(""), UpperOf(&type));
  }

  ChatPrompt& out_;
  const std::string& where_;
};

// The declaration's end is as the template has it: parameters without a type are not closed.
void AddParameters(ChatPrompt& out, TemplateValue parameters, const std::string& where) {
  out.AddText(",parameters:{");
  const TemplateValue properties = Member(parameters, "properties");
  if (IsTruthy(properties)) {
    out.AddText("properties:{");
    Parameters(out, where).Add(properties, false);
    out.AddText("},");
  }
  if (IsTruthy(Member(parameters, "required"))) {
    out.AddText("required:[");
    AddQuotedList(out, Member(parameters, "required"), where);
    out.AddText("],");
  }
  if (IsTruthy(Member(parameters, "type"))) {
    out.AddText("type:");
    AddQuoted(out, UpperOf(Member(parameters, "type")));
    out.AddText("}");
  }
}

void AddResponse(ChatPrompt& out, TemplateValue response) {
  out.AddText(",response:{");
  if (IsTruthy(Member(response, "description"))) {
    out.AddText("description:");
    AddQuoted(out, PythonStr(Member(response, "description")));
    out.AddText(",");
  }
  if (UpperOf(Member(response, "type")) == "OBJECT") {
    out.AddText("type:");
    AddQuoted(out, "OBJECT");
    out.AddText("}");
  }
}

}  // namespace

void ThrowTemplateError(const std::string& where, TemplateValue found, const std::string& wanted) {
  Throw(ErrorKind::kInvalidArgument, Printable(where, 200) + ": found " +
                                         (found == nullptr ? "nothing" : std::string(found->type_name())) +
                                         ", wanted " + wanted);
}

void AddQuoted(ChatPrompt& out, std::string_view text) {
  out.AddMarker(marker::kQuote);
  out.AddText(text);
  out.AddMarker(marker::kQuote);
}

void AddArgument(ChatPrompt& out, TemplateValue value, bool quote_keys) {
  if (value == nullptr) {
    out.AddText("[]");  // undefined is an empty sequence
  } else if (value->is_null()) {
    out.AddText("null");
  } else if (value->is_string()) {
    AddQuoted(out, StringOf(value));
  } else if (value->is_boolean()) {
    out.AddText(value->get<bool>() ? "true" : "false");
  } else if (value->is_object()) {
    out.AddText("{");
    Entries entries(out);
    for (const auto* member : SortedMembers(*value)) {
      entries.Next(quote_keys ? std::string_view() : member->first);
      if (quote_keys) AddQuoted(out, member->first);
      out.AddText(":");
      AddArgument(out, &member->second, quote_keys);
    }
    out.AddText("}");
  } else if (value->is_array()) {
    out.AddText("[");
    Entries entries(out);
    for (const OrderedJson& item : *value) AddArgument(entries.Next(""), &item, quote_keys);
    out.AddText("]");
  } else {
    out.AddText(PythonStr(value));
  }
}

void AddArguments(ChatPrompt& out, const OrderedJson& object) {
  Entries entries(out);
  for (const auto* member : SortedMembers(object)) {
    entries.Next(member->first);
    out.AddText(":");
    AddArgument(out, &member->second, false);
  }
}

void AddToolDeclaration(ChatPrompt& out, const OrderedJson& tool, const std::string& where) {
  const TemplateValue function = Member(&tool, "function");
  if (!IsMapping(function)) ThrowTemplateError(where + ".function", function, "an object");
  out.AddMarker(marker::kToolOpen);
  out.AddText("declaration:");
  out.AddText(PythonStr(Member(function, "name")));
  out.AddText("{description:");
  AddQuoted(out, PythonStr(Member(function, "description")));
  const TemplateValue parameters = Member(function, "parameters");
  if (IsTruthy(parameters)) AddParameters(out, parameters, where + ".function.parameters");
  if (const TemplateValue response = Member(function, "response")) AddResponse(out, response);
  out.AddText("}");
  out.AddMarker(marker::kToolClose);
}

}  // namespace lapidary
