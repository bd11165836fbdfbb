import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "check_chat_template.py"
SHARED = Path(os.environ.get("LAPIDARY_SHARED") or ROOT.parent / "shared")
PROGRAM = os.environ.get("LAPIDARY_PROGRAM", ROOT / "build/release/bin/lapidary")


class CheckChatTemplateTest(unittest.TestCase):
    def check(self, program, templates):
        command = [sys.executable, TOOL, "--lapidary", program, "--templates", templates, "--count", "150"]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True)

    def test_random_conversations_agree(self):
        result = self.check(PROGRAM, SHARED / "reference/chat_template")
        if result.returncode == 77:
            self.skipTest(result.stdout.strip())
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("300 prompts agree", result.stdout)

    def test_says_so_when_there_is_nothing_to_compare_with(self):
        result = self.check(PROGRAM, ROOT / "no such folder")
        self.assertEqual(result.returncode, 77)
        self.assertIn("skipped", result.stdout)


if __name__ == "__main__":
    unittest.main()
