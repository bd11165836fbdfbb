#!/usr/bin/env bash
# Installs the Debian packages that the project needs and the machine lacks. Does nothing, at once, when all are there.
#   tools/install_deps.sh [build] [test] [dev]     groups; without any: build test
#   LAPIDARY_SKIP_DEPS=1                           takes whatever is there (not Debian, or no right to install)
set -euo pipefail

build_packages=(
  g++                   # GCC 12: C++20
  cmake                 # 3.25 or later
  ninja-build           # the generator that the presets name
  libhwy-dev            # SIMD kernels with run-time dispatch
  libsimdjson-dev       # tokenizer.json: 30 MB of JSON in a fraction of a second
  nlohmann-json3-dev    # small JSON: config, headers, results
  libcli11-dev          # command line
  libspdlog-dev         # log
  libfmt-dev            # text formatting
  libcurl4-openssl-dev  # downloads
  libboost-context1.81-dev  # fibers: a GPU's threads in the kernels' emulation on the host
  libssl-dev            # sha256 of downloads, comparison of API keys
  libboost1.81-dev      # HTTP server: Asio and Beast, headers alone
  prometheus-cpp-dev    # metrics in Prometheus' text format
)
test_packages=(
  libgtest-dev          # tests
  libgmock-dev          # matchers
  libbenchmark-dev      # micro-benchmarks, built by the same presets
  python3               # tests of the tools and of the server
  haproxy               # the test of deploy/haproxy
  chromium              # the tests of the web page
  chromium-driver       # drives it
)
dev_packages=(
  git                   # which files to check
  clang-16              # second compiler
  libclang-rt-16-dev    # its sanitizers and libFuzzer
  llvm-16               # names in sanitizer reports
  clang-tidy-16         # lint, pinned
  clang-format-16       # format, pinned
  ccache                # the same file is compiled once for all build folders
)

say() { echo "install_deps: $*" >&2; }

packages=()
[ $# -gt 0 ] || set -- build test
for group in "$@"; do
  case "$group" in
    build) packages+=("${build_packages[@]}") ;;
    test) packages+=("${test_packages[@]}") ;;
    dev) packages+=("${dev_packages[@]}") ;;
    *) say "unknown group '$group': expected build, test or dev"; exit 2 ;;
  esac
done

[ -z "${LAPIDARY_SKIP_DEPS:-}" ] || exit 0
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  say "this system has no apt. Install these yourself, then set LAPIDARY_SKIP_DEPS=1: ${packages[*]}"
  exit 1
fi

installed=" $(dpkg-query -W -f '${db:Status-Status}=${Package} ' "${packages[@]}" 2>/dev/null || true)"
missing=()
for package in "${packages[@]}"; do
  [[ "$installed" == *" installed=$package "* ]] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    say "missing packages, and neither root nor sudo to install them. Run as root: apt-get install ${missing[*]}"
    exit 1
  fi
  as_root=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 "$@" </dev/null >>"$log" 2>&1; }

say "installing with apt: ${missing[*]}"
# A failed update may still leave lists that are good enough.
apt update || say "apt-get update failed, going on with the package lists at hand"
if ! apt install -y --no-install-recommends "${missing[@]}"; then
  tail -n 15 "$log" >&2
  say "apt could not install them. Wanted: apt-get install ${missing[*]}"
  exit 1
fi
