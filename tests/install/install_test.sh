#!/usr/bin/env bash
# install_test.sh BUILD SOURCE COMPILER: installs BUILD to a temporary prefix, runs the installed program, and builds and
# runs SOURCE/examples against the installed package.
set -euo pipefail
build=$1 source=$2 compiler=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix="$work/prefix"

cmake --install "$build" --prefix "$prefix" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# Moved, so that nothing can rest on where it was installed to.
mv "$prefix" "$work/moved" && prefix="$work/moved"

expect_paris() {  # expect_paris TEXT WHERE
  case "$1" in
    *Paris*) ;;
    *) echo "$2: expected Paris in '$1'"; exit 1 ;;
  esac
}

demo="$prefix/share/lapidary/models/demo"
ls "$demo/config.json" "$demo/tokenizer.json"
cd "$work"
used=$("$prefix/bin/lapidary" inspect --json)
case "$used" in
  *"$demo"*) ;;
  *) echo "the installed program does not use the installed demo model: $used"; exit 1 ;;
esac
expect_paris "$("$prefix/bin/lapidary" generate -n 8 --temp 0 "The capital of France is")" "installed lapidary"

cmake -S "$source/examples" -B "$work/examples" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$compiler" \
      -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 && cmake --build "$work/examples" >>"$work/log" 2>&1 ||
  { tail -n 40 "$work/log"; exit 1; }
expect_paris "$("$work/examples/embed" "$demo" "The capital of France is")" "embed"
if "$work/examples/embed" "$work/nowhere" "x" 2>"$work/error"; then echo "embed accepts a missing folder"; exit 1; fi
cat "$work/error"
