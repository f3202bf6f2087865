#!/usr/bin/env bash
# Sums up the cases of the test.xml files named on standard input, one per line: "N passed, N failed, N skipped", and before that why
# cases were skipped. A test that wrote no cases counts as one. The exit status is 1 if anything failed.
set -uo pipefail

# Each case is a <testcase>; what it holds, up to the next one, says how it went.
awk -v apostrophe="'" '
  function end_case() {
    if (!in_case) return
    if (bad) failed++
    else if (skip) { skipped++; reasons[reason]++ }
    else passed++
    in_case = bad = skip = 0
    reason = ""
  }
  function read_file(file,   line, status, cases) {
    while ((status = (getline line < file)) > 0) {
      if (line ~ /<testcase[ >]/) {
        end_case()
        in_case = 1
        cases++
        if (line ~ /result="skipped"|status="notrun"/) skip = 1
      }
      if (line ~ /<(failure|error)[ >]/) bad = 1
      if (line ~ /<skipped[ >\/]/) {
        skip = 1
        if (match(line, /message="[^"]*"/)) reason = substr(line, RSTART + 9, RLENGTH - 10)
      }
    }
    end_case()
    close(file)
    if (status < 0) { print file ": not there"; failed++ }
    else if (cases == 0) passed++
  }
  {
    read_file($0)
  }
  END {
    for (r in reasons) {
      text = r
      sub(/^[^ ]*:[0-9]+(&#x0A;|&#10;)/, "", text) # where in the test
      gsub(/&#x0A;|&#10;/, " ", text)
      gsub(/&apos;/, apostrophe, text)
      gsub(/&quot;/, "\"", text)
      gsub(/&lt;/, "<", text)
      gsub(/&gt;/, ">", text)
      gsub(/&amp;/, "\\&", text)
      sub(/ +$/, "", text)
      totals[text] += reasons[r]
    }
    sorted = "sort -k2,2nr -k3" # the most frequent reason first
    for (text in totals) printf "skipped %d: %s\n", totals[text], text == "" ? "(no reason given)" : text | sorted
    close(sorted)
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit failed > 0
  }'
