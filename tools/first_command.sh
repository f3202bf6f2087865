#!/usr/bin/env bash
# Times what a new user does first: from a fresh clone of this repository and an empty cache to the first token of the example, and to
# the end of the tests. The machine should be idle, and the packages that bazelw wants should be there: otherwise their installation is
# timed, too.
#
#   tools/first_command.sh [--example] [--tests] [--against REF] [--debian RELEASE]
#
# --example and --tests choose one of the two (default: both). --against also runs the tests of another commit, without CUDA, and
# prints the ratio. --debian runs everything in a new, bare Debian of that release (bookworm, trixie), made by debootstrap; this needs
# root, and a network that serves Debian's packages.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
repository=$PWD
example=0 tests=0 against='' debian=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --example) example=1 ;;
    --tests) tests=1 ;;
    --against) against=${2:?--against needs a commit} && shift ;;
    --debian) debian=${2:?--debian needs a release} && shift ;;
    *) echo "first_command: $1 is no option, expected --example, --tests, --against REF or --debian RELEASE" >&2 && exit 2 ;;
  esac
  shift
done
if [[ $example == 0 && $tests == 0 ]]; then example=1 tests=1; fi
work=$(mktemp -d)
failed=0

# Where the user's shell is: this machine, or the new Debian. Bazel's cache is in $HOME, so each has an empty one.
in_shell() { # folder, command ...
  local folder=$1
  shift
  if [[ -n $debian ]]; then
    chroot "$work/debian" env -i HOME="/tmp/$folder/home" PATH=/usr/sbin:/usr/bin:/sbin:/bin USER=root bash -c "cd /tmp/$folder/cgr && $*"
  else
    (cd "$work/$folder/cgr" && HOME=$work/$folder/home bash -c "$*")
  fi
}

tmp() { [[ -n $debian ]] && echo "$work/debian/tmp" || echo "$work"; }

clone() { # folder, commit
  mkdir -p "$(tmp)/$1/home"
  git clone -q --no-local "$repository" "$(tmp)/$1/cgr" && git -C "$(tmp)/$1/cgr" checkout -q "$2"
}

now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }

# The example writes to standard output, Bazel to standard error: the first empty line ends what the example says of itself, and the
# next one has the first tokens.
time_example() {
  local start line state=before
  clone example HEAD || exit 1
  start=$(now)
  while IFS= read -r line; do
    case $state in
      before) echo "first output: $(since "$start") s" && state=heading ;;
      heading) [[ -n $line ]] || state=text ;;
      text) echo "first token: $(since "$start") s" && state=after ;;
    esac
  done < <(in_shell example "./bazelw run //examples/llama" 2> "$work/example.log"; echo "status $?" > "$work/example.status")
  echo "end of the example: $(since "$start") s, $(cat "$work/example.status")"
  [[ $(cat "$work/example.status") == "status 0" ]] || { failed=1 && tail -n 20 "$work/example.log" >&2; }
}

time_tests() { # folder, commit, flags
  local start status seconds
  clone "$1" "$2" || exit 1
  start=$(now)
  in_shell "$1" "./bazelw test $3 //..." > "$work/$1.log" 2>&1
  status=$?
  seconds=$(since "$start")
  echo "tests of $2: $seconds s, status $status: $(tail -n 1 "$work/$1.log")"
  [[ $status == 0 ]] || { failed=1 && tail -n 40 "$work/$1.log" >&2; }
  in_shell "$1" "bazel shutdown" > /dev/null 2>&1
  last_seconds=$seconds
}

make_debian() {
  debootstrap --variant=minbase "$debian" "$work/debian" > "$work/debootstrap.log" 2>&1 ||
    { tail -n 5 "$work/debootstrap.log" >&2 && exit 1; }
  cp /etc/resolv.conf "$work/debian/etc/" 2> /dev/null
  for place in proc sys dev; do mount --rbind "/$place" "$work/debian/$place"; done
}

clean() {
  for folder in example tests against; do
    [[ ! -d $(tmp)/$folder/cgr ]] || in_shell "$folder" "bazel shutdown" > /dev/null 2>&1
  done
  if [[ -n $debian ]]; then umount -lR "$work"/debian/{proc,sys,dev} 2> /dev/null; fi
  chmod -R u+w "$work" && rm -rf --one-file-system "$work"
}
trap clean EXIT

[[ -z $debian ]] || make_debian
echo "commit $(git rev-parse --short HEAD), $(nproc) cores, load $(cut -d ' ' -f 1 /proc/loadavg)${debian:+, Debian $debian}"
[[ $example == 0 ]] || time_example
if [[ $tests == 1 ]]; then
  time_tests tests HEAD ""
  own=$last_seconds
  if [[ -n $against ]]; then
    time_tests against "$against" --config=nocuda
    awk -v a="$own" -v b="$last_seconds" 'BEGIN { printf "ratio: %.2f\n", a / b }'
  fi
fi
exit "$failed"
