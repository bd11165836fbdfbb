#!/usr/bin/env python3
"""Compares `lapidary template` with Jinja on random conversations.

    tools/check_chat_template.py [--lapidary build/release/bin/lapidary] [--templates ../shared/reference/chat_template]
                                 [--count 1000] [--seed 1]

The folder holds Google's small.jinja and large.jinja. Wants jinja2. For each conversation both must print the same
prompt, or both refuse it. Exit status 0: all agree; 1: one that differs is shown; 77: nothing to compare with.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ["f", "get_weather", "ns.get-it_2", "délai"]
KEYS = ["a", "A", "b", "B", "_x", "k1", "é", "É", "Zeta", "type", "items", "description", "properties", "x y"]
WORDS = ["Hi", "  padded \n", "\u3000wide\u00a0", "", " ", "a\n\nb", "깰 👩‍👩‍👧", "<turn|>", '<|"|>', "<|channel>thought\nsecret\n<channel|>seen",
         "left<channel|>right", "<|channel>open", '{"temp": 15}', "it's \"q\" \\ \t", "<eos>", "Ω ß ǆ", "{}", "None"]
NUMBERS = [0, 1, -7, 42, 2**63, 1.0, -0.5, 1e16, 1.5e-7, 123456.789, 1e22]


class Conversations:
    """Random requests: mostly what clients send, some that the template refuses."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, share):
        return self.random.random() < share

    def pick(self, options):
        return self.random.choice(options)

    def word(self):
        return self.pick(WORDS)

    def value(self, depth=0):
        kind = self.random.randrange(8 if depth < 3 else 5)
        if kind == 0:
            return None
        if kind == 1:
            return self.chance(0.5)
        if kind == 2:
            return self.pick(NUMBERS)
        if kind in (3, 4):
            return self.word()
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return self.mapping(depth + 1)

    def mapping(self, depth=0):
        keys = self.random.sample(KEYS, self.random.randrange(5))
        return {key: self.value(depth) for key in keys}

    def schema(self, depth=0):
        if self.chance(0.05):
            return self.pick([True, False, {}, None, "x"])
        schema = {"type": self.pick(["string", "integer", "number", "boolean", "array", "object", "STRING", ["string", "null"]])}
        if self.chance(0.6):
            schema["description"] = self.word()
        if self.chance(0.3):
            schema["enum"] = [self.pick([self.word(), self.pick(NUMBERS)]) for _ in range(self.random.randrange(3))]
        if self.chance(0.2):
            schema["nullable"] = self.chance(0.5)
        if self.chance(0.3):
            schema[self.pick(["format", "default", "additionalProperties", "minimum"])] = self.pick([self.value(2), self.schema(3)])
        if schema["type"] == "array" or self.chance(0.05):
            schema["items"] = self.schema(depth + 1) if depth < 3 else {"type": "string"}
        if schema["type"] == "object" or self.chance(0.05):
            if self.chance(0.8):
                schema["properties"] = self.properties(depth + 1)
            if self.chance(0.5):
                schema["required"] = self.random.sample(KEYS, self.random.randrange(3))
        if self.chance(0.02):
            del schema["type"]
        return schema

    def properties(self, depth=0):
        if depth > 3:
            return {}
        return {key: self.schema(depth) for key in self.random.sample(KEYS, self.random.randrange(4))}

    def tool(self):
        function = {"name": self.pick(NAMES)}
        if self.chance(0.9):
            function["description"] = self.pick([self.word(), self.word(), None])
        if self.chance(0.9):
            function["parameters"] = {"type": "object", "properties": self.properties()}
            if self.chance(0.5):
                function["parameters"]["required"] = self.random.sample(KEYS, self.random.randrange(3))
            if self.chance(0.1):
                del function["parameters"][self.pick(list(function["parameters"]))]
        if self.chance(0.1):
            function["response"] = self.pick([self.schema(), {"type": "object", "description": self.word()}])
        return {"type": "function", "function": function}

    def part(self):
        if self.chance(0.15):
            return {"type": self.pick(["image", "image_url", "audio", "input_audio", "video", "other"])}
        part = {"type": "text", "text": self.word()}
        if self.chance(0.03):
            del part["text"]
        return part

    def content(self):
        kind = self.random.random()
        if kind < 0.75:
            return self.word()
        if kind < 0.95:
            return [self.part() for _ in range(self.random.randrange(4))]
        return self.pick([None, 5, True])

    def call(self, number):
        arguments = self.mapping()
        if self.chance(0.05):
            arguments = self.pick([None, [1], 3])
        if self.chance(0.4):
            arguments = json.dumps(arguments)
        call = {"id": f"call_{number}", "type": "function", "function": {"name": self.pick(NAMES), "arguments": arguments}}
        if self.chance(0.1):
            del call["id"]
        if self.chance(0.01):
            del call["function"]["arguments"]
        return call

    def assistant(self, messages):
        message = {"role": self.pick(["assistant"] * 9 + ["model"])}
        if self.chance(0.9):
            message["content"] = self.content()
        if self.chance(0.3):
            message[self.pick(["reasoning", "reasoning_content"])] = self.word()
        messages.append(message)
        if not self.chance(0.5):
            return
        message["tool_calls"] = [self.call(i) for i in range(self.random.randrange(4))]
        if self.chance(0.15):
            message["tool_responses"] = [{"name": self.pick(NAMES + [""]), "response": self.value(1)} for _ in range(self.random.randrange(3))]
        for i in range(self.random.randrange(4)):
            messages.append(self.tool_message(i))

    def tool_message(self, number):
        message = {"role": "tool", "content": self.content()}
        if self.chance(0.8):
            message["tool_call_id"] = f"call_{self.pick([number, number, 7])}"
        if self.chance(0.3):
            message["name"] = self.pick(NAMES + [""])
        return message

    def request(self):
        messages = []
        if self.chance(0.4):
            messages.append({"role": self.pick(["system", "developer"]), "content": self.content()})
        for _ in range(self.random.randrange(5)):
            kind = self.random.random()
            if kind < 0.5:
                messages.append({"role": "user", "content": self.content()})
            elif kind < 0.92:
                self.assistant(messages)
            elif kind < 0.96:
                messages.append(self.tool_message(0))
            else:
                messages.append({"role": self.pick(["system", "narrator"]), "content": self.content()})
        request = {"messages": messages}
        if self.chance(0.5):
            request["tools"] = [self.tool() for _ in range(self.random.randrange(3))]
        for flag in ("enable_thinking", "add_generation_prompt", "preserve_thinking"):
            if self.chance(0.5):
                request[flag] = self.chance(0.5)
        return request


def with_decoded_arguments(request):
    """The template wants arguments as a mapping; lapidary reads OpenAI's string itself, and "" as none."""
    request = json.loads(json.dumps(request))
    for message in request["messages"]:
        for call in message.get("tool_calls") or []:
            function = call["function"]
            if isinstance(function.get("arguments"), str):
                function["arguments"] = json.loads(function["arguments"].strip() or "null")
    return request


def load_templates(folder):
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    # As transformers sets it up (utils/chat_template_utils.py).
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals["raise_exception"] = raise_exception
    return {name: environment.from_string((folder / f"{name}.jinja").read_text()) for name in ("small", "large")}


def expected(template, request):
    """The prompt, or None when the template refuses the request."""
    request = with_decoded_arguments(request)
    request.setdefault("add_generation_prompt", True)
    request.setdefault("tools", None)
    try:
        return template.render(bos_token="<bos>", **request)
    except Exception:  # the template raises whatever Python does with the values
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lapidary", default=ROOT / "build/release/bin/lapidary")
    parser.add_argument("--templates", type=Path, default=ROOT.parent / "shared/reference/chat_template")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        templates = load_templates(options.templates)
    except (ImportError, OSError) as error:
        print(f"skipped: {error}")
        return 77
    conversations = Conversations(options.seed)
    requests = [{**conversations.request(), "variant": name} for _ in range(options.count) for name in templates]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    result = subprocess.run([options.lapidary, "template", "--jsonl"], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    if len(answers) != len(requests):
        print(f"{len(requests)} requests, {len(answers)} answers")
        return 1
    refused = 0
    for request, answer in zip(requests, answers):
        variant = request.pop("variant")
        wanted = expected(templates[variant], request)
        refused += wanted is None
        if (answer if isinstance(answer, str) else None) != wanted:
            print(f"{variant}: {json.dumps(request)}\nlapidary: {json.dumps(answer)}\njinja2:   {json.dumps(wanted)}")
            return 1
    print(f"{len(requests)} prompts agree, {refused} of them refused by both")
    return 0


if __name__ == "__main__":
    sys.exit(main())
