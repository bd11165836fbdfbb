#!/usr/bin/env python3
"""Checks that tests mirror sources: src/x/y.cc <-> tests/x/y_test.cc, apps/y.cc <-> tests/apps/y_test.cc.

    tools/check_twins.py [ROOT]

Sources that are tested elsewhere stand in tools/twins.txt as `path: where and why`. Exit status 1 and one line for each
source without a test, test without a source (cross-cutting folders apart), and entry of the list that is not needed.
"""

import sys
from pathlib import Path

from breaches import main as run

# Tests of the whole, not of one source.
CROSS_CUTTING = {"consistency", "demo", "golden", "install", "tools", "support", "data", "fuzz"}


def test_of(source):
    """tests/x/y_test.cc for src/x/y.cc; sources of apps/ and tools' own folders keep their first folder."""
    parts = source.parts[1:] if source.parts[0] == "src" else source.parts
    return Path("tests", *parts[:-1], source.stem + "_test.cc")


def read_exceptions(path):
    exceptions = {}
    if not path.is_file():
        return exceptions
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        name, colon, reason = line.partition(":")
        if not colon or not reason.strip():
            raise ValueError(f"{path}:{number}: expected `path: where and why`, found '{line}'")
        exceptions[name.strip()] = reason.strip()
    return exceptions


def check(root):
    exceptions = read_exceptions(root / "tools" / "twins.txt")
    breaches, expected = [], set()
    sources = [p.relative_to(root) for top in ("src", "apps") for p in sorted((root / top).rglob("*.cc"))]
    headers = [p.relative_to(root) for p in sorted((root / "src").rglob("*.h"))]
    for source in sources:
        test = test_of(source)
        expected.add(test)
        has_test, excused = (root / test).is_file(), source.as_posix() in exceptions
        if not has_test and not excused:
            breaches.append(f"{source}: has no {test}")
        if has_test and excused:
            breaches.append(f"tools/twins.txt: {source} has a test, take it off the list")
    known = {source.as_posix() for source in sources}
    breaches += [f"tools/twins.txt: {name} does not exist" for name in sorted(exceptions.keys() - known)]
    # A header alone may have a test too.
    expected |= {test_of(header) for header in headers}
    for path in sorted((root / "tests").rglob("*_test.cc")):
        test = path.relative_to(root)
        if test.parts[1] not in CROSS_CUTTING and test not in expected:
            breaches.append(f"{test}: no source of that name")
    return breaches


if __name__ == "__main__":
    sys.exit(run(check))
