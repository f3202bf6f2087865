#!/usr/bin/env python3
"""Sums up the cases of the JUnit-style files named on standard input: "N passed, N failed, N skipped".

A test that wrote no cases counts as one. The exit status is 1 if anything failed.
"""
import sys
import xml.etree.ElementTree as ElementTree


def verdict(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("result") == "skipped" or case.get("status") == "notrun":
        return "skipped"
    return "passed"


def verdicts(path):
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        print(f"{path}: {error}")
        return ["failed"]
    return [verdict(case) for case in root.iter("testcase")] or ["passed"]


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in sys.stdin.read().split():
        for word in verdicts(path):
            counts[word] += 1
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return 1 if counts["failed"] else 0


sys.exit(main())
