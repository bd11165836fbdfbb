"""What users of other servers ran into, each as a test on the demo model. Numbers as in the list of field reports."""

import json
import pathlib
import unittest

from lapidary_server import Server, WEATHER_TOOL, calls_of, finish_of, joined, run_all

REPLACEMENT = "\ufffd"


class FieldReports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", "8", "--ctx", "2048")

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        assert status == 0, cls.server.log_text()

    def both(self, messages, **fields):
        """An answer whole and streamed: message, finish reason, chunks. They are the same."""
        whole = self.server.chat(messages, **fields)
        chunks = self.server.stream_chat(messages, **fields)
        choice = whole["choices"][0]
        self.assertEqual(choice["message"]["content"] or "", joined(chunks))
        self.assertEqual(choice["message"].get("reasoning_content", ""), joined(chunks, "reasoning_content"))
        self.assertEqual(choice["finish_reason"], finish_of(chunks))
        return choice["message"], choice["finish_reason"], chunks

    def test_07_no_half_characters_in_a_stream(self):
        text = "😊 깰 👩‍👩‍👧‍👦 é 好"
        message, finish, chunks = self.both("Repeat exactly: 😊 好 é", logprobs=True, top_logprobs=3)
        self.assertEqual(message["content"], "😊 好 é")
        self.assertEqual(finish, "stop")
        for chunk in chunks:
            self.assertNotIn(REPLACEMENT, json.dumps(chunk, ensure_ascii=False))
        tokens = [t for c in chunks for choice in c["choices"] for t in (choice["logprobs"] or {}).get("content", [])]
        self.assertEqual(bytes(b for t in tokens for b in t["bytes"]).decode(), "😊 好 é")
        # Every cut by max_tokens: only what was whole, and at most one replacement for what was not.
        for tokens in range(1, 8):
            answer, _, _ = self.both("Repeat exactly: 😊 好 é", max_tokens=tokens)
            self.assertTrue("😊 好 é".startswith(answer["content"].rstrip(REPLACEMENT)), answer)
        ids = self.server.ok("/tokenize", {"content": text})["tokens"]
        self.assertEqual(self.server.ok("/detokenize", {"tokens": ids})["content"], text)

    def test_08_raw_completion_has_one_bos(self):
        answer = self.server.complete("The capital of France is", max_tokens=3, temperature=0)
        self.assertTrue(answer["choices"][0]["text"].startswith(" Paris"))
        ids = self.server.ok("/tokenize", {"content": "The capital of France is"})["tokens"]
        self.assertEqual(answer["usage"]["prompt_tokens"], len(ids) + 1)
        doubled = self.server.complete("<bos>The capital of France is", max_tokens=3)
        self.assertEqual(doubled["usage"]["prompt_tokens"], len(ids) + 1)
        self.assertEqual(self.server.complete("测试", max_tokens=1)["usage"]["prompt_tokens"],
                         len(self.server.ok("/tokenize", {"content": "测试"})["tokens"]) + 1)
        chat = self.server.ok("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})
        self.assertEqual(chat["tokens"][:2], [2, 105])
        self.assertEqual(chat["tokens"].count(2), 1)

    def test_09_stops_at_every_end(self):
        message, finish, _ = self.both("Hi", max_tokens=200, temperature=0)
        self.assertEqual(finish, "stop")
        self.assertNotIn("<turn|>", message["content"])
        self.assertNotIn("user\n", message["content"])
        for override in ({"temperature": 0.01, "seed": 1}, {"top_k": 1}, {"repetition_penalty": 1.0}):
            self.assertEqual(self.both("Hi", max_tokens=200, **override)[1], "stop", override)
        message, finish, _ = self.both("Repeat exactly: <end_of_turn> done", max_tokens=60)
        self.assertNotEqual(message["content"], "")

    def test_09_goes_on_behind_every_end_when_told(self):
        question = "What is the capital of France?"
        short = self.server.chat(question, return_token_ids=True)["choices"][0]
        self.assertEqual(short["finish_reason"], "stop")
        count = len(short["token_ids"])
        fields = {"max_tokens": count + 40, "ignore_eos": True, "return_token_ids": True}
        answer = self.server.chat(question, **fields)
        long = answer["choices"][0]
        self.assertEqual((long["finish_reason"], answer["usage"]["completion_tokens"]), ("length", count + 40))
        self.assertEqual(long["token_ids"][:count], short["token_ids"])
        self.assertIn(long["token_ids"][count], (1, 106))
        self.assertTrue(long["message"]["content"].startswith(short["message"]["content"]))
        self.assertNotIn("<turn|>", long["message"]["content"])
        chunks = self.server.stream_chat(question, **fields)
        self.assertEqual(joined(chunks), long["message"]["content"])

    def test_10_no_empty_thought_for_small_models(self):
        chat = self.server.ok("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})
        self.assertTrue(chat["prompt"].endswith("<|turn>model\n"), chat["prompt"])
        message, _, _ = self.both("What is the capital of France?")
        self.assertIn("Paris", message["content"])
        self.assertNotIn("reasoning_content", message)

    def test_11_thoughts_do_not_leak(self):
        thinking = {"chat_template_kwargs": {"enable_thinking": True}}
        message, finish, _ = self.both("What is 4 + 5?", **thinking)
        self.assertIn("9", message["content"])
        for word in ("thought", "channel", "<|"):
            self.assertNotIn(word, message["content"])
        self.assertIn("sum", message["reasoning_content"])
        self.assertFalse(message["reasoning_content"].startswith("thought"))
        self.assertEqual(finish, "stop")
        message, finish, _ = self.both("What is 4 + 5?", max_tokens=5, **thinking)
        self.assertFalse(message["content"])
        self.assertEqual(finish, "length")
        whole = self.server.chat("What is 4 + 5?", **thinking)["usage"]
        details = whole["completion_tokens_details"]
        self.assertTrue(0 < details["reasoning_tokens"] < whole["completion_tokens"])
        self.assertEqual(self.both("What is 4 + 5?", reasoning_effort="high")[0],
                         self.both("What is 4 + 5?", **thinking)[0])

    def test_12_thinking_after_a_tool_result(self):
        messages = [
            {"role": "user", "content": "What is the weather in Tokyo?"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c1", "type": "function",
                 "function": {"name": "get_weather", "arguments": '{"location":"Tokyo"}'}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "15C"},
        ]
        fields = {"tools": [WEATHER_TOOL], "chat_template_kwargs": {"enable_thinking": True}}
        prompt = self.server.ok("/apply-template", {"messages": messages, **fields})["prompt"]
        self.assertTrue(prompt.endswith("<|channel>thought\n"), prompt)
        message, _, _ = self.both(messages, max_tokens=100, **fields)
        for word in ("channel", "<|", "|>"):
            self.assertNotIn(word, message["content"] or "")
            self.assertNotIn(word, message.get("reasoning_content", ""))
        self.assertIn("15C", self.both(messages, tools=[WEATHER_TOOL])[0]["content"])

    def test_13_arguments_as_a_json_string(self):
        def history(arguments):
            return {"messages": [
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}]},
                {"role": "tool", "tool_call_id": "a", "content": "15C"}]}
        prompt = self.server.ok("/apply-template", history('{"location":"Tokyo"}'))["prompt"]
        self.assertIn('call:get_weather{location:<|"|>Tokyo<|"|>}', prompt)
        for broken in ('{"location":', "[1]", "7", 5):
            status, answer = self.server.post("/v1/chat/completions", history(broken))
            self.assertEqual(status, 400, answer)
            self.assertIn("arguments", answer["error"]["message"])

    def test_16_to_18_tool_calls_survive_streaming(self):
        message, finish, chunks = self.both("What is the weather in Tokyo?", tools=[WEATHER_TOOL])
        self.assertEqual(finish, "tool_calls")
        self.assertIsNone(message["content"])
        (call,) = message["tool_calls"]
        self.assertEqual(call["function"]["name"], "get_weather")
        self.assertEqual(json.loads(call["function"]["arguments"]), {"location": "Tokyo"})
        (streamed,) = calls_of(chunks)
        self.assertEqual(streamed["arguments"], call["function"]["arguments"])
        self.assertTrue(streamed["id"])
        # Cut anywhere: the reason is length, and what came is JSON.
        for tokens in range(1, 12):
            message, finish, chunks = self.both("What is the weather in Tokyo?", tools=[WEATHER_TOOL],
                                                max_tokens=tokens)
            for call in message.get("tool_calls", []):
                json.loads(call["function"]["arguments"])
            self.assertIn(finish, ("length", "tool_calls"))

    def test_18_tool_choice_and_several_answers(self):
        tools = [WEATHER_TOOL, {"type": "function", "function": {"name": "other"}}]
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            message, finish, _ = self.both("Hi", tools=tools, tool_choice=choice, max_tokens=60)
            self.assertTrue(message["tool_calls"][0]["function"]["name"])
            if isinstance(choice, dict):
                self.assertEqual(message["tool_calls"][0]["function"]["name"], "get_weather")
        message, finish, _ = self.both("What is the weather in Tokyo?", tools=tools, tool_choice="none")
        self.assertNotIn("tool_calls", message)
        answer = self.server.chat("What is the weather in Tokyo?", tools=[WEATHER_TOOL], n=3)
        ids = [choice["message"]["tool_calls"][0]["id"] for choice in answer["choices"]]
        self.assertEqual(len(set(ids)), 3)

    def test_20_needle_across_the_window(self):
        # The demo model's window is 64 tokens; its contexts end at about 2,000.
        facts = json.loads((pathlib.Path(__file__).resolve().parents[1] / "data" / "demo_facts.json").read_text())
        facts = [fact["prompt"] + fact["expect"] + "." for fact in facts if fact["prompt"].startswith("The capital")]
        for count in (1, 5, 8, 9, 10, 12, 20, 39, 78):
            filler = "\n".join(facts[i % len(facts)] for i in range(count))
            prompt = f"The code is 7413.\n{filler}\nWhat is the code?"
            answer = self.server.complete(prompt, max_tokens=8, temperature=0)["choices"][0]
            self.assertIn("7413", answer["text"], count)

    def test_22_the_same_answer_cold_and_warm(self):
        prompt = [2] + [300 + i * 7 % 1500 for i in range(1463)]
        first = self.server.complete(prompt, max_tokens=12, logprobs=5, return_token_ids=True)
        for _ in range(3):
            again = self.server.complete(prompt, max_tokens=12, logprobs=5, return_token_ids=True)
            self.assertEqual(again["choices"], first["choices"])
            self.assertEqual(again["usage"]["prompt_tokens_details"]["cached_tokens"], len(prompt) - 1)
        for at in (100, 600, 1400):
            other = prompt[:at] + [1999] + prompt[at + 1:]
            fresh = self.server.complete(other, max_tokens=12, logprobs=5, return_token_ids=True)
            self.assertEqual(self.server.complete(other, max_tokens=12, logprobs=5, return_token_ids=True)["choices"],
                             fresh["choices"])

    def test_23_a_turn_computes_only_what_is_new(self):
        messages = []
        cached = []
        for turn in range(6):
            messages.append({"role": "user", "content": f"Repeat exactly: lamp {turn} " + "stone " * 30})
            answer = self.server.chat(messages, max_tokens=40)
            usage = answer["usage"]
            cached.append((usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]))
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        for (hit, _), (_, before) in zip(cached[1:], cached):
            self.assertGreaterEqual(hit, before // 64 * 64 - 64, cached)

    def test_33_stop_texts(self):
        prompt = "Repeat exactly: red lamp stone river"
        whole, _, _ = self.both(prompt)
        text = whole["content"]
        stop = text[5:12]
        message, finish, _ = self.both(prompt, stop=[stop])
        self.assertEqual(message["content"], text[:text.index(stop)])
        self.assertEqual(finish, "stop")
        self.assertEqual(self.both(prompt, stop="never said")[0]["content"], text)
        # Nothing is held back at the end: a stop text that only begins.
        self.assertEqual(self.both(prompt, stop=[text[-4:] + "!!"])[0]["content"], text)
        status, answer = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}],
                                                                   "stop": [""]})
        self.assertEqual((status, answer["error"]["param"]), (400, "stop"))

    def test_34_logprobs_are_json(self):
        def strict(text):
            raise ValueError(text)
        _, _, data = self.server.request("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hi"}], "logprobs": True, "top_logprobs": 20,
            "logit_bias": {"500": -100, "501": -100}, "top_k": 1, "temperature": 0.7})
        answer = json.loads(data, parse_constant=strict)
        for token in answer["choices"][0]["logprobs"]["content"]:
            self.assertEqual(len(token["top_logprobs"]), 20)
            for other in [token, *token["top_logprobs"]]:
                self.assertTrue(-9999 <= other["logprob"] <= 0, other)
            values = [other["logprob"] for other in token["top_logprobs"]]
            self.assertEqual(values, sorted(values, reverse=True))

    def test_35_wrong_fields_are_told(self):
        good = {"messages": [{"role": "user", "content": "Hi"}]}
        image = {"type": "image_url", "image_url": {"url": "data:,"}}
        for param, change in (
                ("temperature", {"temperature": -1}), ("temperature", {"temperature": "hot"}),
                ("top_p", {"top_p": 0}), ("top_p", {"top_p": 1.5}), ("top_k", {"top_k": 1.5}),
                ("top_logprobs", {"logprobs": True, "top_logprobs": 25}), ("top_logprobs", {"top_logprobs": 3}),
                ("stream_options", {"stream_options": {"include_usage": True}}), ("n", {"n": 0}),
                ("max_tokens", {"max_tokens": 0}), ("max_tokens", {"max_tokens": -1}),
                ("max_completion_tokens", {"max_completion_tokens": 0}), ("messages", {"messages": []}),
                ("messages", {"messages": "Hi"}), ("messages[0].role", {"messages": [{"role": "boss", "content": "Hi"}]}),
                ("messages[0].content", {"messages": [{"role": "user", "content": None}]}),
                ("messages[0].content", {"messages": [{"role": "user"}]}),
                ("messages[0].content[0]", {"messages": [{"role": "user", "content": [image]}]}),
                ("messages[0]", {"messages": [{"role": "tool", "content": "x", "tool_call_id": "y"}]}),
                ("response_format", {"response_format": {"type": "json_schema", "json_schema": {}}}),
                ("response_format", {"response_format": {"type": "json_object"}}),
                ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
                ("tool_choice", {"tool_choice": "required"}), ("tool_choice", {"tool_choice": "sometimes"}),
                ("logit_bias", {"logit_bias": {"99999999": 1}}), ("logit_bias", {"logit_bias": {"5": 1000}}),
                ("seed", {"seed": 1e300}), ("stop", {"stop": [5]}), ("functions", {"functions": []}),
                ("reasoning_effort", {"reasoning_effort": "extreme"}), ("guided_json", {"guided_json": {}}),
                ("chat_template_kwargs.enable_thinking", {"chat_template_kwargs": {"enable_thinking": "yes"}}),
                ("presence_penalty", {"presence_penalty": 3}), ("min_p", {"min_p": -0.1}),
                ("repetition_penalty", {"repetition_penalty": 0})):
            with self.subTest(change=change):
                status, answer = self.server.post("/v1/chat/completions", {**good, **change})
                self.assertEqual(status, 400, answer)
                self.assertEqual(answer["error"]["param"], param)
                self.assertEqual(answer["error"]["type"], "invalid_request_error")
                self.assertTrue(answer["error"]["message"])
        for broken in (b"", b"{", b"[]", b'"x"', b'{"messages": [}', b"\xff\xfe", b'{"a":1,"a":2}', b"nul\x00l"):
            status, answer = self.server.post("/v1/chat/completions", broken)
            self.assertEqual(status, 400, broken)
        status, answer = self.server.post("/v1/chat/completions", {**good, "model": "gpt-5"})
        self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))
        self.assertEqual(self.server.post("/v1/completions", {"prompt": "a", "suffix": "b"})[1]["error"]["param"],
                         "suffix")
        self.assertEqual(self.both("Hi")[1], "stop")

    def test_37_context_overflow(self):
        status, answer = self.server.post("/v1/completions", {"prompt": [5] * 3000})
        self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
        self.assertIn("2048", answer["error"]["message"])
        self.assertIn("3000", answer["error"]["message"])
        status, answer = self.server.post("/v1/completions", {"prompt": "word " * 200_000})
        self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
        status, answer = self.server.post("/v1/chat/completions",
                                          {"messages": [{"role": "user", "content": "word " * 5000}]})
        self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
        answer = self.server.complete([5] * 2000, max_tokens=500, ignore_eos=True)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(answer["usage"]["total_tokens"], 2048)


class SmallCache(unittest.TestCase):
    def test_37_more_than_the_cache_holds_at_once(self):
        prompts = [[2] + [300 + (i * 31 + k) % 1500 for k in range(500)] for i in range(12)]
        fields = {"max_tokens": 60, "ignore_eos": True, "return_token_ids": True, "temperature": 0}
        with Server("--parallel", "12", "--ctx", "1024", "--cache-tokens", "2048") as server:
            alone = [server.complete(p, **fields)["choices"][0]["token_ids"] for p in prompts]
            together = [None] * len(prompts)

            def ask(i):
                together[i] = server.complete(prompts[i], **fields)["choices"][0]["token_ids"]

            run_all(len(prompts), ask)
            self.assertEqual(together, alone)
            server.wait_until_idle()


if __name__ == "__main__":
    unittest.main()
