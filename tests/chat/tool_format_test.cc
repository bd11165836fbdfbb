#include "chat/tool_format.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lapidary {
namespace {

// Quote markers as one character, to be read at a glance.
std::string Short(const ChatPrompt& prompt) {
  std::string text = prompt.Text();
  for (size_t at = 0; (at = text.find("<|\"|>", at)) != std::string::npos;) text.replace(at, 5, 1, '\'');
  return text;
}

std::string Declare(const std::string& function) {
  ChatPrompt prompt;
  AddToolDeclaration(prompt, ParseOrderedJson("{\"function\": " + function + "}", "tool"), "tools[0]");
  return Short(prompt);
}

std::string DeclareProperties(const std::string& properties) {
  const std::string text = Declare(R"({"name": "f", "parameters": {"properties": )" + properties + "}}");
  const std::string begin = "<|tool>declaration:f{description:'',parameters:{properties:{", end = "},}<tool|>";
  EXPECT_TRUE(text.starts_with(begin) && text.ends_with(end)) << text;
  return text.substr(begin.size(), text.size() - begin.size() - end.size());
}

// The expected texts of this file were printed by Jinja 3.1 from Google's template.
TEST(ToolFormat, DeclaresProperties) {
  EXPECT_EQ(
      DeclareProperties(R"({"b": {"type": "integer", "nullable": true}, "A": {"type": "string", "enum": ["x", 1]}})"),
      "A:{enum:['x',1],type:'STRING'},b:{nullable:true,type:'INTEGER'}");
  EXPECT_EQ(
      DeclareProperties(R"({"a": {"type": "array", "description": "d", "items": {"type": "string", "minimum": null,
                                 "enum": ["x"]}}})"),
      "a:{description:'d',items:{enum:['x'],type:'STRING'},type:'ARRAY'}");
  EXPECT_EQ(
      DeclareProperties(R"({"o": {"type": "object", "properties": {"p": {"type": "number"}}, "required": ["p"]}})"),
      "o:{properties:{p:{type:'NUMBER'}},required:['p'],type:'OBJECT'}");
  EXPECT_EQ(DeclareProperties(R"({"o": {"type": "object", "additionalProperties": false}})"),
            "o:{properties:{additionalProperties:{type:''}},type:'OBJECT'}");
  EXPECT_EQ(DeclareProperties(R"({"u": {"type": ["string", "null"]}, "n": {}})"),
            "n:{type:''},u:{type:'['STRING', 'NULL']'}");
  EXPECT_EQ(DeclareProperties(R"({"l": {"type": "array", "items": {"type": ["string", "null"], "required": ["a", "b"],
                                 "properties": {"a": {"type": "string"}}}}})"),
            "l:{items:{properties:{a:{type:'STRING'}},required:['a','b'],type:['STRING','NULL']},type:'ARRAY'}");
}

TEST(ToolFormat, DeclaresTheRest) {
  EXPECT_EQ(Declare(R"({"name": "f", "description": "d", "response": {"description": "r", "type": "object"}})"),
            "<|tool>declaration:f{description:'d',response:{description:'r',type:'OBJECT'}}<tool|>");
  EXPECT_EQ(Declare(R"({"name": "f", "description": null, "parameters": {"type": "object", "required": ["a"]}})"),
            "<|tool>declaration:f{description:'None',parameters:{required:['a'],type:'OBJECT'}}<tool|>");
}

TEST(ToolFormat, WritesArguments) {
  ChatPrompt prompt;
  AddArguments(prompt, ParseOrderedJson(R"({"s": "x", "l": [1, 2.0, true, null, {"B": 1, "a": []}], "o": {}})", "o"));
  EXPECT_EQ(Short(prompt), "l:[1,2.0,true,null,{a:[],B:1}],o:{},s:'x'");
  ChatPrompt quoted;
  const OrderedJson value = ParseOrderedJson(R"({"k": {"x": false}})", "o");
  AddArgument(quoted, &value, true);
  EXPECT_EQ(Short(quoted), "{'k':{'x':false}}");
}

TEST(ToolFormat, RefusesWhatTheTemplateRefuses) {
  EXPECT_THROW(DeclareProperties("[1]"), Error);
  EXPECT_THROW(DeclareProperties(R"({"o": {"type": "object", "required": 1}})"), Error);
  EXPECT_THROW(DeclareProperties(R"({"l": {"type": "array", "items": {"type": 1}}})"), Error);
  EXPECT_THROW(Declare("[]"), Error);
}

}  // namespace
}  // namespace lapidary
