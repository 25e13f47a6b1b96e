# SPDX-License-Identifier: GPL-2.0-only
"""Builds everything and runs all tests: the body of tools/check.

Every build step counts as one test; of the others each TAP point does.  A step that fails
is counted and the rest goes on where it can.  Nothing here looks at how long things take;
time limits only end what hangs.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

TOOLS = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(TOOLS)
sys.dont_write_bytecode = True
sys.path.insert(0, TOOLS)
import tap                                                          # noqa: E402

KERNELS = ["6.1", "6.12", "7.3"]
# Where the guest tests run: kernel and backing (see tools/vm/run). FULL: with --full too.
SINGLE = [("6.12", "pmem"), ("6.12", "devdax"), ("6.1", "devdax"), ("7.3", "devdax"), ("6.1", "pmem")]
SINGLE_FULL = [("7.3", "pmem")]
# Tests that have their say on one backing, and would do the same or nothing on another.
BELONG = {"t_device.sh": ["devdax"], "t_limits.sh": ["pmem"], "t_namespace.sh": ["pmem"]}
# The tools, at length: they do the same on a devdax, where 7.3 has them; the others with --full.
LONG = ["t_cmd.sh", "t_cp.sh", "t_kills.sh"]
LONG_FULL = [("6.12", "devdax"), ("6.1", "devdax")]
CXL = [("6.12", "cxl-ram"), ("7.3", "cxl-ram"), ("6.1", "cxl-pmem"), ("6.12", "cxl-pmem"), ("7.3", "cxl-pmem")]
# Tests of the device itself are all that CXL memory gets; everything else is as on devdax.
CXL_TESTS = ["t_cxl.sh", "t_kernel", "t_user.sh"]
DOUBLE = [(["6.12", "6.1"], "pmem")]
# On a devdax of two kernels each has another driver; and the h2 tests are about the log.
DOUBLE_BASIC = [(["6.12", "7.3"], "devdax")]
DOUBLE_FULL = [(["6.12", "7.3"], "devdax"), (["6.1", "6.12"], "devdax"), (["7.3", "6.1"], "devdax"),
               (["6.12", "7.3"], "pmem"), (["7.3", "6.1"], "pmem")]
DOUBLE_CXL = [(["6.12", "7.3"], "cxl-ram"), (["6.1", "7.3"], "cxl-pmem")]
BASIC = ["h2_basic.sh"]
DEBUG_KERNELS = ["6.12-kasan", "6.12-lockdep"]
# They check every access and every lock, in emulation: several times as slow, and hungry.
DEBUG_OPTIONS = ["--ram", "3G", "--timeout", "7200", "--env", "TEST_TIMEOUT=3600"]
BUILD = os.path.abspath(os.environ.get("O") or f"{TOP}/build")
LOGS = f"{BUILD}/check-logs"
START = time.monotonic()


class Count:
    """What passed and failed so far; steps run in several threads."""

    def __init__(self):
        self.lock = threading.Lock()
        self.passed = self.skipped = 0
        self.failures = []          # (where, text)

    def add(self, where, result):
        with self.lock:
            self.passed += result.passed
            self.skipped += result.skipped
            self.failures += [(where, text) for text in result.failures]

    def one(self, where, failure=None):
        r = tap.Result()
        if failure is None:
            r.passed = 1
        else:
            r.failures.append(failure)
        self.add(where, r)


COUNT = Count()
PRINT = threading.Lock()


def say(text):
    with PRINT:
        print(f"[{int(time.monotonic() - START):4d}s] {text}", flush=True)


def show(lines):
    with PRINT:
        for line in lines:
            print("        " + line.rstrip("\n"), flush=True)


def run(name, command, env=None):
    """Runs a command with its output in a log; returns exit status and the log's lines."""
    log = f"{LOGS}/{name}.log"
    os.makedirs(os.path.dirname(log), exist_ok=True)
    with open(log, "wb") as out:
        code = subprocess.run(command, cwd=TOP, stdin=subprocess.DEVNULL, stdout=out,
                              stderr=subprocess.STDOUT, env={**os.environ, "O": BUILD, **(env or {})},
                              check=False).returncode
    with open(log, errors="replace") as f:
        return code, f.readlines()


def step(name, command, env=None):
    """A build step: one test."""
    say(name)
    code, lines = run(name, command, env)
    if code:
        say(f"{name}: FAILED")
        show(lines[-25:])
        COUNT.one(name, f"exit status {code}: see {LOGS}/{name}.log")
    else:
        COUNT.one(name)
    return code == 0


def report(where, result):
    """Counts the result of a test program and says how it went."""
    COUNT.add(where, result)
    text = tap.summary(result.passed, result.failed, result.skipped)
    say(f"{where}: {text}")
    show(result.failures[:20])
    return not result.failed


# --- steps -----------------------------------------------------------------------------

def unit(name, command):
    """The unit tests: TAP of one program after the other, with headers."""
    say(name)
    code, lines = run(name, command)
    programs = {}
    current = None
    result = tap.Result()
    for line in lines:
        found = re.match(r"# (test_\w+)(: exit \d+)?$", line)
        if found and not found.group(2):
            current = programs.setdefault(found.group(1), [])
        elif found or "ERROR: AddressSanitizer" in line or "runtime error:" in line:
            result.failures.append(line.strip())
        elif current is not None:
            current.append(line)
    for program, output in programs.items():
        r = tap.parse(output)
        result.passed += r.passed
        result.skipped += r.skipped
        result.failures += [f"{program}: {text}" for text in r.failures]
    if code and not result.failures:
        result.failures.append(f"exit status {code}")
    if not programs:
        result.failures.append("no test ran")
    if not report(name, result):
        show(lines[-25:])


def host_tests(name, *command):
    """A test that runs on this machine and prints TAP."""
    say(name)
    code, lines = run(name, command)
    if not report(name, tap.parse(lines, code)):
        show([x for x in lines if not x.startswith("ok ")][-40:])


def crash(full):
    """The crash explorer: nothing to find as it is, and each planted fault found."""
    for plant in "", "1":
        name = "crash-explore" + ("-plant" if plant else "")
        if not step(name, ["make", "-j2", "-C", "tools/crash", "CC=gcc", f"PLANT={plant}", "WERROR=1"]):
            return
    step("crash-clean", [f"{BUILD}/crash/gcc/explore", "--max-ops", "3" if full else "2"])
    say("crash-faults")
    code, lines = run("crash-faults", [f"{BUILD}/crash/gcc-plant/explore", "--faults"])
    with open(f"{TOP}/user/lib/planted.h", encoding="ascii") as f:
        names = re.findall(r"^\tFAULT\(\w+, \"([a-z-]+)\"", f.read(), re.M)
    found = {m.group(1) for m in (re.match(r"found ([a-z-]+): ", x) for x in lines) if m}
    result = tap.Result()
    for name in names:
        if name in found:
            result.passed += 1
        else:
            result.failures.append(f"planted fault {name}: not found")
    if not names or (code and not result.failures):
        result.failures.append(f"exit status {code}")
    report("crash-faults", result)


def split_tests(lines):
    """The output of run-tests as {test: (lines, exit status or None)}."""
    tests = {}
    current = None
    for line in lines:
        words = line.split()
        if words[:2] == ["#", "test"] and len(words) == 3:
            current = words[2]
            tests[current] = ([], None)
        elif current and words[:3] == ["#", "exit", current] and len(words) == 4:
            tests[current] = (tests[current][0], int(words[3]))
            current = None
        elif current:
            tests[current][0].append(line)
    return tests


def guests(name, kernels, tests, options=()):
    """Runs the tests in guests with these kernels, all in one boot."""
    logs = f"{LOGS}/{name}"
    shutil.rmtree(logs, ignore_errors=True)
    say(f"{name}: {len(tests)} test programs")
    code, lines = run(name, [f"{TOOLS}/vm/run", "--kernel", ",".join(kernels), "--hosts", str(len(kernels)),
                             "--size", "1G", "--timeout", "1800", "--logs", logs,
                             "--env", "RUN_TESTS=" + " ".join(tests), *options,
                             f"{TOOLS}/vm/guest/run-tests"])
    ok = True
    for host, kernel in enumerate(kernels):
        prefix = f"host{host}| "
        found = split_tests([x[len(prefix):] for x in lines if x.startswith(prefix)])
        for test in tests:
            where = f"{name} {test}" + (f" host{host} ({kernel})" if len(kernels) > 1 else "")
            if test not in found:
                COUNT.one(where, "did not run")
                say(f"{where}: did not run")
                ok = False
                continue
            output, status = found[test]
            result = tap.parse(output, status if status is not None else 255)
            if status is None:
                result.failures.append("did not end")
            if not report(where, result):
                show(output[-40:])
                ok = False
    # A kernel report fails the run whatever the tests say; a mere exit status they said already.
    if code >= 122 or (code and ok):
        text = [x.strip() for x in lines if x.startswith("run: ")]
        COUNT.one(name, f"runner: exit status {code}: " + "; ".join(text[-3:]))
        say(f"{name}: runner: exit status {code}")
        show(text)
        show(reports(logs))
    else:
        COUNT.one(name)             # no report in the kernel log


def reports(logs):
    """The part of the kernel logs around the first report."""
    out = []
    for log in sorted(os.listdir(logs)) if os.path.isdir(logs) else []:
        if not log.endswith(".console"):
            continue
        done = subprocess.run([f"{TOOLS}/vm/run", "--scan", f"{logs}/{log}"], stderr=subprocess.PIPE,
                              text=True, check=False)
        if not done.returncode:
            continue
        first = done.stderr.splitlines()[0].split(f"{log}: ", 1)[1]
        with open(f"{logs}/{log}", errors="replace") as f:
            lines = f.read().splitlines()
        at = next((i for i, x in enumerate(lines) if x.rstrip() == first), 0)
        marks = [x for x in lines[:at] if "tarnfs-test: " in x]
        out += [f"--- {log}", *marks[-1:], *lines[at:at + 40]]
    return out


def debug(on, wanted):
    """The guest tests on the debug kernels: all that --debug does."""
    step("user", ["make", "-j2", "user", "WERROR=1"])
    step("selftests", ["make", "-j2", "selftests", "WERROR=1"])
    runs = []
    for backing in "pmem", "devdax":
        single = [t for t in selftests("t_") if backing in BELONG.get(t, [backing]) and t != "t_cxl.sh"]
        double = selftests("h2_") if backing == "pmem" else BASIC
        for k in DEBUG_KERNELS:
            runs.append((f"guest-{k}-{backing}", [k], single, ["--backing", backing]))
            runs.append((f"two-hosts-{k}-{backing}", [k, k], double, ["--backing", backing]))
    runs = [(name, kernels, [t for t in tests if wanted(t) or wanted(name)], options)
            for name, kernels, tests, options in runs if on(name)]
    # a kernel of these is built only for who runs something on it
    needed = [k for k in DEBUG_KERNELS if any(k in kernels and tests for _, kernels, tests, _ in runs)]
    kernels = [k for k in needed if step(f"kernel-{k}", [f"{TOOLS}/vm/fetch-kernel", k])]
    built = [k for k in kernels if step(f"module-{k}", ["make", "-j2", "modules", f"KVER={k}", "WERROR=1"])]
    # one at a time: each has the memory of three
    for name, kernels, tests, options in runs:
        if tests and all(k in built for k in kernels):
            guests(name, kernels, tests, options + DEBUG_OPTIONS)
    return end()


def selftests(prefix):
    """The guest tests whose name begins so: scripts of the tree and programs built."""
    names = []
    for folder in f"{TOP}/selftests", f"{BUILD}/selftests":
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            path = f"{folder}/{name}"
            if name.startswith(prefix) and os.path.isfile(path) and (
                    name.endswith(".sh") if folder.startswith(TOP + "/selftests") else os.access(path, os.X_OK)):
                names.append(name)
    return sorted(set(names))


def end():
    """Says what came out, and returns the exit status."""
    if COUNT.failures:
        say("failed:")
        show(f"{where}: {text}" for where, text in COUNT.failures)
        show([f"logs in {os.path.relpath(LOGS)}"])
    say("done")
    print(tap.summary(COUNT.passed, len(COUNT.failures), COUNT.skipped), flush=True)
    return 1 if COUNT.failures or not COUNT.passed else 0


def plan(full, on, wanted):
    """What to run in guests: [(name, kernels, backing, tests)], of one host and of two."""
    single = selftests("t_")
    double = selftests("h2_")
    runs = [], []

    def add(where, name, kernels, backing, tests):
        tests = [t for t in tests if wanted(t) or wanted(name)]
        if tests and on(name):
            where.append((name, kernels, backing, tests))

    for kernel, backing in SINGLE + (SINGLE_FULL if full else []):
        add(runs[0], f"guest-{kernel}-{backing}", [kernel], backing,
            [t for t in single if backing in BELONG.get(t, [backing]) and t != "t_cxl.sh"
             and (full or t not in LONG or (kernel, backing) not in LONG_FULL)])
    for kernel, backing in CXL if full else []:
        add(runs[0], f"guest-{kernel}-{backing}", [kernel], backing, [t for t in CXL_TESTS if t in single])
    pairs = [(d, double) for d in DOUBLE]
    if full:
        pairs += [(d, double) for d in DOUBLE_FULL] + [(d, BASIC) for d in DOUBLE_CXL]
    else:
        pairs += [(d, BASIC) for d in DOUBLE_BASIC]
    for (kernels, backing), tests in pairs:
        add(runs[1], f"two-hosts-{'-'.join(kernels)}-{backing}", kernels, backing, tests)
    return runs


def main():
    p = argparse.ArgumentParser(prog="check", description="Builds everything and runs all tests.")
    p.add_argument("--full", action="store_true", help="also what takes long: checkpatch, arm64, each cache operation removed once, "
                                                           "each planted fault in the unit tests, three operations in the crash "
                                                           "explorer, 1,000,000 executions of each fuzzer, 7.3 on pmem, "
                                                           "each pair of kernels, and CXL memory, emulated")
    p.add_argument("--debug", action="store_true", help="the guest tests instead on two kernels of our own, which "
                   "look for errors of memory and of locks; the first time these are built, which takes long "
                   "(tools/vm/debug-kernel)")
    p.add_argument("--only", metavar="PATTERN", help="only steps and guest tests that match the regular "
                                                     "expression; what they need is built all the same")
    p.add_argument("--on", metavar="PATTERN", default="",
                   help="of the runs in guests only those whose name matches: guest-7.3-devdax, two-hosts-6.12-6.1-pmem...")
    a = p.parse_args()
    if a.debug and a.full:
        p.error("--debug and --full: one after the other")
    only, on = re.compile(a.only or ""), re.compile(a.on)

    def wanted(name):
        return bool(only.search(name))

    # Whoever starts this in the background may have it ignored, and so would what is tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    shutil.rmtree(LOGS, ignore_errors=True)
    os.makedirs(LOGS)

    if a.debug:
        return debug(lambda name: bool(on.search(name)), wanted)

    # The build of the tests shows which there are, and so which kernels are wanted.
    step("user", ["make", "-j2", "user", "WERROR=1"])
    step("selftests", ["make", "-j2", "selftests", "WERROR=1"])
    single, double = plan(a.full, lambda name: bool(on.search(name)), wanted)
    if not a.only and not a.on and not single:
        COUNT.one("selftests", "there are no guest tests")
    needed = [k for k in KERNELS if wanted(f"kernel-{k}") or wanted(f"module-{k}") or wanted(f"sparse-{k}")
              or any(k in run[1] for run in single + double)]
    kernels = [k for k in needed if step(f"kernel-{k}", [f"{TOOLS}/vm/fetch-kernel", k])]
    built = [k for k in kernels if step(f"module-{k}", ["make", "-j2", "modules", f"KVER={k}", "WERROR=1"])]

    def in_guests(name, kernels, backing, tests):
        lost = [k for k in kernels if k not in built]
        if lost:
            COUNT.one(name, f"there is no module for {' and '.join(lost)}")
            say(f"{name}: not run, there is no module for {' and '.join(lost)}")
        else:
            guests(name, kernels, tests, ["--backing", backing])

    runner = [x for x in sorted(os.listdir(f"{TOP}/selftests/runner")) if x.startswith("t_")]
    # scripts that test on this machine, without a guest: selftests/NAME/run.sh
    local = [x for x in sorted(os.listdir(f"{TOP}/selftests"))
             if os.access(f"{TOP}/selftests/{x}/run.sh", os.X_OK) and wanted(f"local-{x}")]

    # Two guests at a time is what two processors bear; the long ones first.
    jobs = [lambda run=run: in_guests(*run) for run in single]
    for compiler in "gcc", "clang":
        if wanted(f"unit-{compiler}"):
            jobs.append(lambda c=compiler: unit(f"unit-{c}", ["make", "-k", "check-unit", f"CC={c}",
                                                              "SAN=1", "WERROR=1"]))
    if wanted("fuzz"):
        jobs.append(lambda: host_tests("fuzz", "make", "-s", "-C", "selftests/fuzz", "run", "WERROR=1",
                                       "EXECUTIONS=1000000" if a.full else "SECONDS=10"))
    for x in local:
        jobs.append(lambda x=x: host_tests(f"local-{x}", f"{TOP}/selftests/{x}/run.sh"))
    for k in kernels:
        if wanted(f"sparse-{k}"):
            jobs.append(lambda k=k: step(f"sparse-{k}", ["make", "sparse", f"KVER={k}"]))
    if wanted("crash"):
        jobs.append(lambda: crash(a.full))
    if a.full and wanted("planted-unit"):
        jobs.append(lambda: host_tests("planted-unit", f"{TOP}/selftests/unit/planted.sh"))
    if a.full and wanted("checkpatch"):
        jobs.append(lambda: step("checkpatch", [f"{TOOLS}/checkpatch"]))
    if a.full and wanted("mutate-cacheops"):
        jobs.append(lambda: step("mutate-cacheops",
                                 [f"{TOP}/selftests/unit/mutate-cacheops.sh", "-j", "1"]))
    if a.full and wanted("arm64"):
        jobs.append(lambda: unit("arm64", [f"{TOOLS}/arm64"]))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for done in concurrent.futures.as_completed([pool.submit(j) for j in jobs]):
            done.result()
    for run in double:
        in_guests(*run)
    for script in runner:
        if wanted(f"runner {script}"):
            host_tests(f"runner-{script}", f"{TOP}/selftests/runner/{script}")

    if not a.only and not a.on:
        with open(f"{TOP}/selftests/minimum", encoding="ascii") as f:
            minimum = int(f.read().split("#")[0])
        if COUNT.passed < minimum:
            COUNT.one("minimum", f"{COUNT.passed} passed, but selftests/minimum says {minimum}")

    return end()


if __name__ == "__main__":
    sys.exit(main())
