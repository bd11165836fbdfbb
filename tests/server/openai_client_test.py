"""The official openai client from PyPI, unchanged, in a virtual environment of its own. Skipped when it cannot be had."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

from lapidary_server import Server, WEATHER_TOOL

# The tests below run again inside the environment, where the client is.
ENVIRONMENT = pathlib.Path(os.environ["LAPIDARY_TEST_VENV"])


def python_with_client():
    """The environment's interpreter, made when missing; None when it cannot be made."""
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "complete").exists():
        commands = [[sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)],
                    [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1",
                     "--timeout", "20", "openai"]]
        for command in commands:
            try:
                subprocess.run(command, capture_output=True, timeout=300, check=True)
            except subprocess.SubprocessError:
                return None
        (ENVIRONMENT / "complete").touch()
    return python


class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from openai import OpenAI
        cls.server = Server("--api-key", "sesame", "--served-name", "demo")
        cls.client = OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="sesame", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0

    def chat(self, text, **fields):
        return self.client.chat.completions.create(model="demo", messages=[{"role": "user", "content": text}], **fields)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["demo"])
        self.assertEqual(self.client.models.retrieve("demo").id, "demo")

    def test_chat(self):
        answer = self.chat("What is the capital of France?", temperature=0, max_completion_tokens=50, seed=1)
        self.assertIn("Paris", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertGreaterEqual(answer.usage.prompt_tokens_details.cached_tokens, 0)

    def test_streaming(self):
        chunks = list(self.chat("What is the capital of France?", stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertIn("Paris", text)
        self.assertEqual(chunks[-1].choices, [])
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)
        self.assertIsNone(chunks[0].usage)

    def test_several_answers(self):
        answer = self.chat("Hi", n=3, temperature=0.8, seed=5, max_tokens=8)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])

    def test_tools_round_trip(self):
        messages = [{"role": "user", "content": "What is the weather in Tokyo?"}]
        answer = self.client.chat.completions.create(model="demo", messages=messages, tools=[WEATHER_TOOL])
        choice = answer.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        (call,) = choice.message.tool_calls
        self.assertEqual(json.loads(call.function.arguments), {"location": "Tokyo"})
        # The client's own message object goes back as it is.
        messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "15C"}]
        answer = self.client.chat.completions.create(model="demo", messages=messages, tools=[WEATHER_TOOL])
        self.assertIn("15C", answer.choices[0].message.content)
        with self.client.chat.completions.stream(model="demo", messages=messages[:1], tools=[WEATHER_TOOL]) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.tool_calls[0].function.name, "get_weather")

    def test_logprobs(self):
        answer = self.chat("Hi", logprobs=True, top_logprobs=4)
        tokens = answer.choices[0].logprobs.content
        self.assertEqual("".join(t.token for t in tokens), answer.choices[0].message.content)
        self.assertTrue(all(len(t.top_logprobs) == 4 for t in tokens))

    def test_thinking(self):
        answer = self.chat("What is 4 + 5?", reasoning_effort="high")
        self.assertIn("9", answer.choices[0].message.content)
        self.assertTrue(answer.choices[0].message.reasoning_content)
        self.assertGreater(answer.usage.completion_tokens_details.reasoning_tokens, 0)

    def test_completions(self):
        answer = self.client.completions.create(model="demo", prompt="The capital of France is", max_tokens=4,
                                                temperature=0, logprobs=2, echo=True)
        choice = answer.choices[0]
        self.assertTrue(choice.text.startswith("The capital of France is Paris"))
        self.assertEqual(len(choice.logprobs.tokens), len(choice.logprobs.token_logprobs))
        self.assertIsNone(choice.logprobs.token_logprobs[0])
        for token, offset in zip(choice.logprobs.tokens[1:], choice.logprobs.text_offset[1:]):
            self.assertTrue(choice.text[offset:].startswith(token), (token, offset))
        several = self.client.completions.create(model="demo", prompt=["1, 2,", [2, 500]], max_tokens=2, n=2)
        self.assertEqual(len(several.choices), 4)
        chunks = list(self.client.completions.create(model="demo", prompt="1, 2,", max_tokens=4, stream=True))
        self.assertTrue("".join(c.choices[0].text for c in chunks))

    def test_errors(self):
        import openai
        with self.assertRaises(openai.BadRequestError) as failure:
            self.chat("Hi", temperature=-1)
        self.assertEqual(failure.exception.param, "temperature")
        self.assertEqual(failure.exception.type, "invalid_request_error")
        with self.assertRaises(openai.BadRequestError) as failure:
            self.chat("word " * 20_000)
        self.assertEqual(failure.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.NotFoundError):
            self.client.chat.completions.create(model="other", messages=[{"role": "user", "content": "Hi"}])
        wrong = self.client.with_options(api_key="wrong")
        with self.assertRaises(openai.AuthenticationError):
            wrong.models.list()
        self.assertTrue(self.chat("Hi").choices[0].message.content)


def main():
    if os.environ.get("LAPIDARY_INSIDE_VENV"):
        unittest.main()
    python = python_with_client()
    if python is None:
        print("the openai client cannot be installed here")
        sys.exit(77)  # skipped
    sys.exit(subprocess.run([python, *sys.argv], env={**os.environ, "LAPIDARY_INSIDE_VENV": "1"}).returncode)


if __name__ == "__main__":
    main()
