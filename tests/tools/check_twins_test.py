import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "check_twins.py"


class CheckTwinsTest(unittest.TestCase):
    def check(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            result = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True)
        self.assertEqual(result.stderr, "")
        lines = result.stdout.splitlines()
        self.assertEqual(result.returncode, 1 if lines else 0)
        return lines

    def test_pairs_are_fine(self):
        files = {name: "" for name in ("src/kv/a.cc", "tests/kv/a_test.cc", "src/kv/b.h", "tests/kv/b_test.cc",
                                       "apps/c.cc", "tests/apps/c_test.cc", "tests/golden/all_test.cc")}
        self.assertEqual(self.check(files), [])

    def test_missing_twins_are_named(self):
        files = {"src/kv/a.cc": "", "tests/kv/old_test.cc": ""}
        self.assertEqual(self.check(files), ["src/kv/a.cc: has no tests/kv/a_test.cc",
                                             "tests/kv/old_test.cc: no source of that name"])

    def test_exceptions_need_a_reason_and_a_use(self):
        self.assertEqual(self.check({"src/a.cc": "", "tools/twins.txt": "src/a.cc: by b_test # why\n"}), [])
        self.assertEqual(len(self.check({"src/a.cc": "", "tools/twins.txt": "src/a.cc:\n"})), 1)
        self.assertEqual(self.check({"src/a.cc": "", "tests/a_test.cc": "", "tools/twins.txt": "src/a.cc: x\nsrc/b.cc: y\n"}),
                         ["tools/twins.txt: src/a.cc has a test, take it off the list",
                          "tools/twins.txt: src/b.cc does not exist"])


if __name__ == "__main__":
    unittest.main()
