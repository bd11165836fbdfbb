#!/usr/bin/env python3
"""Checks every #include "..." of src/, apps/ and examples/ against docs/layers.txt, and that no includes form a cycle.

    tools/check_layers.py [ROOT]

Exit status 1 and one `file:line: what` for each breach. The rules' format is told at the top of docs/layers.txt.
"""

import re
import sys
from pathlib import Path

from breaches import main as run

SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
EXTERNAL = ("hwy/",)  # Highway's own way is quotes
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def read_rules(path):
    """{folder: set of allowed folders and headers}; raises ValueError with file:line."""
    rules = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        folder, colon, allowed = line.partition(":")
        if not colon or folder in rules:
            raise ValueError(f"{path}:{number}: expected one `folder: folders` for each folder, found '{line}'")
        rules[folder.strip()] = set(allowed.split())
    for folder, allowed in rules.items():
        for name in allowed:
            if Path(name).suffix not in SUFFIXES and name not in rules:
                raise ValueError(f"{path}: '{folder}' allows '{name}', which has no line of its own")
    return rules


def folder_of(name, rules):
    """The longest folder of the rules that holds `name` ('kv/block_pool.h', '/apps/lapidary.cc'), or None."""
    parts = name.split("/")
    for length in range(len(parts) - 1, 0, -1):
        folder = "/".join(parts[:length])
        if folder in rules:
            return folder
    return None


def layer_name(path, root):
    """How the rules spell a file: below src/ without it, elsewhere with a leading slash."""
    name = path.relative_to(root).as_posix()
    return name.removeprefix("src/") if name.startswith("src/") else "/" + name


def includes_of(path):
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def resolve(include, source, root):
    """The included file: below src/, else beside the including file; None when there is neither."""
    for candidate in (root / "src" / include, source.parent / include):
        if candidate.is_file():
            return candidate.resolve()
    return None


def find_cycles(graph):
    """One line for each include that closes a cycle. graph: {name: [(line, name)]}."""
    breaches, done = [], set()
    for start in sorted(graph):
        if start in done:
            continue
        trail, stack = [start], [iter(graph[start])]
        while stack:
            line, target = next(stack[-1], (0, None))
            if target is None:
                stack.pop()
                done.add(trail.pop())
            elif target in trail:
                breaches.append((trail[-1], line, "cycle: " + " -> ".join(trail[trail.index(target):] + [target])))
            elif target not in done:
                trail.append(target)
                stack.append(iter(graph.get(target, [])))
    return breaches


def check(root):
    """All breaches below `root` as 'file:line: what'."""
    root = root.resolve()
    rules = read_rules(root / "docs" / "layers.txt")
    breaches, graph, path_of = [], {}, {}
    for top in ("src", "apps", "examples"):
        for path in sorted(p for p in (root / top).rglob("*") if p.suffix in SUFFIXES):
            name = layer_name(path, root)
            path_of[name] = path.relative_to(root).as_posix()
            folder = folder_of(name, rules)
            if folder is None:
                breaches.append(f"{path_of[name]}:1: its folder is not in docs/layers.txt")
                continue
            edges = graph.setdefault(name, [])
            for line, include in includes_of(path):
                if include.startswith(EXTERNAL):
                    continue
                target = resolve(include, path, root)
                where = f"{path_of[name]}:{line}"
                if target is None:
                    breaches.append(f'{where}: "{include}" is not below src/ (system headers take <>)')
                    continue
                target_name = layer_name(target, root)
                target_folder = folder_of(target_name, rules)
                edges.append((line, target_name))
                if target_folder != folder and not {target_folder, target_name} & rules[folder]:
                    breaches.append(f"{where}: {folder} may not include {target_name}")
    breaches += [f"{path_of[name]}:{line}: {what}" for name, line, what in find_cycles(graph)]
    return breaches


if __name__ == "__main__":
    sys.exit(run(check))
