# shellcheck shell=bash disable=SC2154
# For bazelw: Bazel says which test programs passed; this says how many cases, and why cases were skipped.

# Where Bazel writes its events: of the options that say so the last one holds, and the caller's come later.
events_file() {
  local file=$own_events
  while [[ $# -gt 0 && $1 != -- ]]; do
    case $1 in
      --build_event_json_file=*) file=${1#*=} ;;
      --build_event_json_file) file=${2:-$file} ;;
    esac
    shift
  done
  echo "$file"
}

# The results that are on this machine, as paths. Results in a remote cache are no files.
local_results() {
  local path
  sed -n 's#^file://##p' | while IFS= read -r path; do
    path=${path//\\/\\\\}
    printf '%b\n' "${path//%/\\x}" # %20 is a space
  done
}

result_uris() { [[ ! -f $events ]] || grep -o '"name":"test.xml","uri":"[^"]*"' "$events" | sed 's#.*"uri":"##; s#"$##'; }

sum_up() {
  local uris=() elsewhere
  mapfile -t uris < <(result_uris)
  if [[ ${#uris[@]} == 0 ]]; then
    echo "bazelw: $events names no results of tests, so cases are not counted"
    [[ $events != "$own_events" ]] # the caller's file may be anything; this one Bazel has written for us
    return
  fi
  elsewhere=$(printf '%s\n' "${uris[@]}" | grep -vc '^file://' || true)
  [[ $elsewhere == 0 ]] || echo "bazelw: the results of $elsewhere of ${#uris[@]} tests are not on this machine, so their cases are not counted"
  [[ $elsewhere == "${#uris[@]}" ]] || printf '%s\n' "${uris[@]}" | local_results | "$root/tools/count_tests.sh"
}

# After Ctrl-C: what had been tested by then.
sum_up_interrupted() {
  local ended all
  ended=$(result_uris | grep -c . || true)
  all=$(grep -o '"targetKind":"[a-z_]*_test rule"' "$events" 2>/dev/null | grep -c . || true)
  echo "bazelw: interrupted after $ended of $all test programs"
  result_uris | local_results | "$root/tools/count_tests.sh"
}

# Bazel ends with 0 when all passed, with 3 when tests failed and with 8 when it was interrupted; otherwise it did not get as far
# as testing.
test_and_count() {
  local status=0
  own_events=$(mktemp)
  trap 'rm -f "$own_events"' EXIT
  events=$(events_file "$@")
  trap ':' INT # Bazel ends by itself, and then the cases are counted
  "$(find_bazel)" "${@:1:command_at+1}" --build_event_json_file="$own_events" "${@:command_at+2}" || status=$?
  case $status in
    0 | 3) sum_up || status=3 ;;
    8) sum_up_interrupted || true ;;
    *)
      echo "bazel test ended with status $status: no results"
      echo "0 passed, 0 failed, 0 skipped"
      ;;
  esac
  exit "$status"
}
