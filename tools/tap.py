# SPDX-License-Identifier: GPL-2.0-only
"""Reads the Test Anything Protocol, as kselftest prints it.

Strict where it matters: there must be exactly one plan, it must agree with what ran, and
the numbers must be in order; anything else is a failure of its own, so that a test which
died half-way cannot pass for a short one.
"""

import re

PLAN = re.compile(r"1\.\.(\d+)(?:\s*#\s*SKIP\b\s*(.*))?\s*$", re.I)
POINT = re.compile(r"(not )?ok\b(?:\s+(\d+))?(.*)$")
SKIP = re.compile(r"#\s*SKIP\b", re.I)


class Result:
    """Counts of one test program; failures holds a text for each that failed."""

    def __init__(self):
        self.passed = 0
        self.skipped = 0
        self.failures = []

    @property
    def failed(self):
        return len(self.failures)


def parse(lines, code=0):
    """code: the exit status of the program; kselftest's 4 means skipped."""
    r = Result()
    plan = None
    seen = 0
    skip_all = False
    for line in lines:
        line = line.rstrip()
        found = PLAN.match(line)
        if found:
            if plan is not None:
                r.failures.append("a second plan: " + line)
            plan = int(found.group(1))
            skip_all = plan == 0
            continue
        found = POINT.match(line)
        if found:
            seen += 1
            if found.group(2) and int(found.group(2)) != seen:
                r.failures.append(f"test {seen} has the number {found.group(2)}")
            if found.group(1):
                r.failures.append(line)
            elif SKIP.search(found.group(3)):
                r.skipped += 1
            else:
                r.passed += 1
        elif line.startswith("Bail out!"):
            r.failures.append(line)
    if plan is None:
        r.failures.append("no plan")
    elif skip_all and not seen:
        r.skipped += 1
    elif plan != seen:
        r.failures.append(f"plan of {plan}, but {seen} ran")
    if code not in (0, 4) and not r.failures:
        r.failures.append(f"exit status {code}")
    return r


def summary(passed, failed, skipped):
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")
