import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "check_layers.py"

RULES = """# comment
base:
kv: base
backends: base kv
backends/cpu: base backends/backend.h
engine: backends/backend.h  # that header alone
/apps: engine
"""


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        self.write("docs/layers.txt", RULES)
        self.write("src/base/error.h", "#pragma once\n")
        self.write("src/kv/pool.h", '#include "base/error.h"\n')
        self.write("src/backends/backend.h", '#include <vector>\n#include "kv/pool.h"\n')
        self.write("src/backends/other.h", "\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def check(self):
        result = subprocess.run([sys.executable, TOOL, self.root], capture_output=True, text=True)
        self.assertEqual(result.stderr, "")
        lines = result.stdout.splitlines()
        self.assertEqual(result.returncode, 1 if lines else 0)
        return lines

    def test_accepts_what_is_listed(self):
        self.write("src/backends/cpu/cpu.cc", '#include "backends/backend.h"\n#include "hwy/highway.h"\n')
        self.write("src/engine/engine.cc", '#include "backends/backend.h"\n#include "engine/own.h"\n')
        self.write("src/engine/own.h", "")
        self.write("apps/main.cc", '#include "local.h"\n#include "engine/own.h"\n')
        self.write("apps/local.h", "")
        self.assertEqual(self.check(), [])

    def test_refuses_upwards(self):
        self.write("src/base/bad.cc", '\n#include "kv/pool.h"\n')
        self.assertEqual(self.check(), ["src/base/bad.cc:2: base may not include kv/pool.h"])

    def test_a_header_rule_admits_only_that_header(self):
        self.write("src/engine/engine.cc", '#include "backends/backend.h"\n  # include "backends/other.h"\n')
        self.assertEqual(self.check(), ["src/engine/engine.cc:2: engine may not include backends/other.h"])

    def test_a_parent_folder_is_not_its_child(self):
        self.write("src/backends/cpu/cpu.h", "")
        self.write("src/backends/bad.cc", '#include "backends/cpu/cpu.h"\n')
        self.assertEqual(self.check(), ["src/backends/bad.cc:1: backends may not include backends/cpu/cpu.h"])

    def test_apps_are_checked_too(self):
        self.write("apps/main.cc", '#include "base/error.h"\n')
        self.assertEqual(self.check(), ["apps/main.cc:1: /apps may not include base/error.h"])

    def test_finds_cycles(self):
        self.write("src/kv/a.h", '#include "kv/b.h"\n')
        self.write("src/kv/b.h", '\n\n#include "kv/a.h"\n')
        self.assertEqual(self.check(), ["src/kv/b.h:3: cycle: kv/a.h -> kv/b.h -> kv/a.h"])

    def test_names_missing_headers_and_unlisted_folders(self):
        self.write("src/kv/a.cc", '#include "kv/nowhere.h"\n')
        self.write("src/newfolder/a.cc", "")
        self.assertEqual(
            self.check(),
            [
                'src/kv/a.cc:1: "kv/nowhere.h" is not below src/ (system headers take <>)',
                "src/newfolder/a.cc:1: its folder is not in docs/layers.txt",
            ],
        )

    def test_rules_must_make_sense(self):
        self.write("docs/layers.txt", "base: nowhere\n")
        self.assertEqual(len(self.check()), 1)
        self.write("docs/layers.txt", "base:\nbase:\n")
        self.assertIn("layers.txt:2: expected one", self.check()[0])

    def test_this_project_keeps_its_layers(self):
        result = subprocess.run([sys.executable, TOOL, ROOT], capture_output=True, text=True)
        self.assertEqual(result.stdout + result.stderr, "")
        self.assertEqual(result.returncode, 0)


if __name__ == "__main__":
    unittest.main()
