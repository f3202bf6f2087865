# shellcheck shell=bash
# For bazelw: Bazel, a compiler, and the libraries that the build takes from the system. On Debian and Ubuntu those that are missing
# are installed from the distribution's own packages.

find_bazel() { command -v bazel || command -v bazelisk; }

# Bazel 7 and later take everything from MODULE.bazel; older ones need the packages behind WORKSPACE.
# Debian's binary calls itself "bazel no_version"; bazelisk without a .bazelversion runs the latest.
uses_modules() {
  local version
  [[ $(basename "$1") == bazelisk ]] && return 0
  version=$("$1" --version 2>/dev/null | sed -n 's/^bazel \([0-9][0-9]*\)\..*/\1/p')
  [[ -n $version && $version -ge 7 ]]
}

has_gcc() { command -v gcc >/dev/null && command -v g++ >/dev/null; }

missing_packages() {
  local bazel
  has_gcc || echo g++
  if bazel=$(find_bazel); then
    uses_modules "$bazel" && return
  else
    echo bazel-bootstrap
  fi
  [[ -d /usr/share/bazel/rules/java ]] || echo bazel-rules-java
  [[ -d /usr/share/bazel/rules/proto ]] || echo bazel-rules-proto
  [[ -d /usr/share/bazel/tools/skylib ]] || echo bazel-skylib
  [[ -d /usr/share/bazel/tools/platforms ]] || echo bazel-platforms
  [[ -f /usr/src/googletest/googletest/src/gtest-all.cc ]] || echo googletest
  [[ -f /usr/include/cjson/cJSON.h ]] || echo libcjson-dev
}

say() { echo "bazelw: $*" >&2; }

# What an installation would take, in apt's own words: packages, download, disk. Nothing if apt does not find them yet. It takes
# no lock, which only root may, as it installs nothing.
cost() {
  LC_ALL=C apt-get -o Debug::NoLocking=1 install --assume-no --no-install-recommends "$@" 2>/dev/null |
    sed -n -e 's/^.*, 1 newly installed,.*/1 package/p' -e 's/^.*, \([0-9]*\) newly installed,.*/\1 packages/p' \
      -e 's/^Need to get \(.*\) of archives\.$/\1 to download/p' \
      -e 's/^After this operation, \(.*\) of additional disk space will be used\.$/\1 on disk/p' | paste -sd, | sed 's/,/, /g'
}

# At a terminal the user decides. Elsewhere there is no one to ask, so it installs.
may_install() {
  local answer
  case ${BAZELW_INSTALL:-} in
    1) return 0 ;;
    0) return 1 ;;
    '') ;;
    *)
      say "BAZELW_INSTALL is $BAZELW_INSTALL, expected 0 (never install), 1 (install without asking) or nothing"
      exit 2
      ;;
  esac
  [[ -t 0 && -t 2 ]] || return 0
  read -rp "bazelw: install them? [y/N] " answer || answer=
  [[ $answer == [yY] || $answer == [yY][eE][sS] ]]
}

# Root, or a sudo that needs no password or asks for it at a terminal.
can_be_root() {
  [[ $(id -u) == 0 ]] && return
  command -v sudo >/dev/null || return
  sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; }
}

as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi; }

# Reads apt's output: its status lines (pmstatus:package:percent:text, or dlstatus for downloads) become one line that is rewritten
# at a terminal; the others go to a log.
show_progress() { # log
  local line kind name percent
  while IFS= read -r line; do
    IFS=: read -r kind name percent _ <<< "$line"
    case $kind in
      dlstatus) line="downloading ${percent%.*}%" ;;
      pmstatus) line="installing ${percent%.*}% $name" ;;
      *)
        echo "$line" >> "$1"
        continue
        ;;
    esac
    [[ ! -t 2 ]] || printf '\rbazelw: %s\e[K' "$line" >&2
  done
  [[ ! -t 2 ]] || printf '\r\e[K' >&2
}

# Runs apt-get as root without its log, whose end is shown when it fails.
quiet_apt() {
  local log status=0
  log=$(mktemp)
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o APT::Status-Fd=1 "$@" 2>&1 | show_progress "$log" || status=$?
  if [[ $status != 0 ]]; then
    say "apt-get $1 ended with status $status:"
    tail -n 5 "$log" | sed 's/^/    /' >&2
  fi
  rm -f "$log"
  [[ $status != 130 ]] || exit 130 # interrupted
  return "$status"
}

install_packages() {
  # The package lists may be too old for what they name.
  quiet_apt install -y --no-install-recommends "$@" ||
    { quiet_apt update && quiet_apt install -y --no-install-recommends "$@"; }
}

# The command for installing them by hand.
say_command() { # why, size, packages ...
  local why=$1 size=$2 line sudo=
  shift 2
  if [[ $(id -u) != 0 ]] && command -v sudo >/dev/null; then sudo="sudo "; fi
  line="${sudo}apt-get install --no-install-recommends $*"
  [[ -n $size ]] || line="${sudo}apt-get update && $line"
  say "$why, so they are not installed. To install them$([[ -n $sudo || $(id -u) == 0 ]] || echo ", as root"):"
  echo "    $line" >&2
}

install_missing() {
  local size
  size=$(cost "$@" || true)
  say "the build needs packages that are not here: $*${size:+ ($size)}"
  if ! may_install; then
    say_command "that was declined" "$size" "$@"
  elif ! can_be_root; then
    say_command "this is not root" "$size" "$@"
  else
    if [[ -z $size ]]; then # there may be no package lists yet
      quiet_apt update || true
      size=$(cost "$@" || true)
    fi
    say "installing them (${size:-apt does not say how much that is})"
    install_packages "$@" || say "could not install: $*"
  fi
}

require_packages() {
  local missing
  read -ra missing <<< "$(missing_packages | paste -sd ' ')"
  [[ ${#missing[@]} -gt 0 ]] || return 0
  trap 'exit 130' INT # also where apt-get ends with a status of its own
  if command -v apt-get >/dev/null; then install_missing "${missing[@]}"; fi
  trap - INT
  if ! find_bazel >/dev/null || ! has_gcc; then
    cat >&2 <<MESSAGE
bazelw: the build needs Bazel and a C and C++ compiler. Install one of
  - these packages of Debian or Ubuntu: ${missing[*]}
  - bazelisk (https://github.com/bazelbuild/bazelisk) or Bazel 7 or later, and gcc and g++
or build with CMake, which needs no Bazel (and libcjson-dev for the example): cmake --preset try && cmake --build --preset try
MESSAGE
    exit 1
  fi
}
