"""Compares two sets of results: every number that both hold."""

import dataclasses


@dataclasses.dataclass
class Change:
    kind: str
    case: str
    metric: str
    unit: str
    before: float
    after: float
    percent: float | None  # of the number before, without its sign; None where that is 0
    better: str
    tail: bool  # a 99th percentile

    def verdict(self, tolerance):
        """ "worse", "better", "moved" (neither is good) beyond the tolerance in percent; "" within it."""
        if (self.before == self.after) if self.percent is None else abs(self.percent) <= tolerance:
            return ""
        if not self.better:
            return "moved"
        return "worse" if (self.after > self.before) == (self.better == "lower") else "better"


def changes_of(kind, before, after):
    for old, new, tail in ((before.value, after.value, ""), (before.p99, after.p99, ", p99")):
        if old is not None and new is not None:
            percent = 0.0 if new == old else 100.0 * (new - old) / abs(old) if old else None
            yield Change(kind, after.name(), after.metric + tail, after.unit, old, new, percent, after.better, bool(tail))


def index(results):
    """Records by kind of file and key, each with its file; the first of a key counts."""
    records = [(result.kind, record, result.path) for result in results for record in result.records]
    return {(kind, record.key()): (record, path) for kind, record, path in reversed(records)}


def compare(before, after):
    """The changes from one set of results to another, the largest first; a file that is in both sets is left out."""
    old, changes = index(before), []
    for key, (record, path) in index(after).items():
        if key in old and old[key][1] != path:
            changes += changes_of(key[0], old[key][0], record)
    # What was 0 and is counted comes first, other numbers that were 0 last.
    return sorted(changes, key=lambda c: (c.percent is not None or c.unit != "count", c.percent is None, -abs(c.percent or 0.0)))


def regressions(changes, percent, tails=False):
    """What is worse by more than that, and counts (of failures, say) that were 0 and no longer are. Tails count only when asked
    for: they are few steps, on machines that are shared."""
    found = [c for c in changes if c.verdict(percent) == "worse" and (tails or not c.tail)]
    return [c for c in found if c.percent is not None or c.unit == "count"]


def table(changes, tolerance):
    """As text, for a terminal: what is beyond the tolerance."""
    lines = [f"{'change':>8}  {'before':>12}  {'after':>12}  unit   what"]
    for c in changes:
        if c.verdict(tolerance):
            percent = "" if c.percent is None else f"{c.percent:+.1f}%"
            what = ": ".join(part for part in (c.kind, c.case, c.metric) if part)
            lines.append(f"{percent:>8}  {c.before:>12g}  {c.after:>12g}  {c.unit:<6} {what} ({c.verdict(tolerance)})")
    return "\n".join(lines)
