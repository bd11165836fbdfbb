#!/usr/bin/env bash
# clang-tidy-16 over every source of src/ and apps/ that the compilation database names.
#   tools/tidy.sh [BUILD_FOLDER] [FILES...]     default: build/fuzz, all
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/fuzz}
shift || true
[ $# -gt 0 ] || mapfile -t files < <(git ls-files 'src/*.cc' 'apps/*.cc')
[ $# -eq 0 ] || files=("$@")
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy-16 -p "$build" --quiet --warnings-as-errors='*' 2> >(
  grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header' >&2 || true)
