#!/usr/bin/env bash
# Formats every C++ source in place; --check only names those that differ (exit 1).
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.cc' '*.h' | sort -u)
existing=()
for file in "${files[@]}"; do
  [ ! -e "$file" ] || existing+=("$file")
done
if [ "${1:-}" != --check ]; then
  exec clang-format-16 -i "${existing[@]}"
fi
differ=0
for file in "${existing[@]}"; do
  clang-format-16 "$file" | cmp -s - "$file" || { echo "$file: not formatted, run tools/format.sh"; differ=1; }
done
exit "$differ"
