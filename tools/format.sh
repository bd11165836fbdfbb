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
differing=$(printf '%s\0' "${existing[@]}" | xargs -0 -n 32 -P "$(nproc)" clang-format-16 --dry-run 2>&1 |
  sed -n 's/^\(.*\):[0-9]*:[0-9]*: warning: .*/\1/p' | sort -u)
[ -z "$differing" ] || { echo "not formatted, run tools/format.sh:"; echo "$differing"; exit 1; }
