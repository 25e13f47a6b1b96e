# SPDX-License-Identifier: GPL-2.0-only
"""Builds the initramfs of a guest, in three pieces laid end to end.

The base (busybox, util-linux, ndctl, their libraries) and the modules of a kernel are kept
in the cache; the piece of a run (module under test, tools, selftests, the script) is built
each time.  What runs in the guest is in guest/.
"""

import hashlib
import lzma
import os
import re
import stat
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))

# From util-linux, coreutils and others, because busybox's own are simpler than what users
# have: mount(8) must know helpers, losetup and findmnt real options.  The shell is dash, as
# in Debian: busybox's would run its own applets whatever PATH says.
PROGRAMS = """
dash bash mount umount findmnt losetup blkid setpriv unshare nsenter mountpoint flock fallocate
ndctl daxctl
cat cp dd df ln ls mkdir mkfifo mktemp mv rm rmdir sha256sum sort stat sync tail timeout touch
truncate chmod chown chgrp realpath readlink seq od cksum env nice id expr find xargs filefrag
""".split()

MODULES = """
virtio_pci virtio_blk virtio_console
libnvdimm nfit nd_pmem nd_btt dax device_dax dax_pmem fsdev_dax
ext4 crc32c_generic loop
""".split()


class Missing(Exception):
    """Something that a guest needs is not there; the text says what to do."""


# --- cpio ------------------------------------------------------------------------------

class Tree:
    """Files of an archive by their path in the guest, without the leading slash."""

    def __init__(self):
        self.entries = {}

    def _put(self, path, mode, data):
        path = path.strip("/")
        # a merged /usr, as on the machines of the users
        first, _, rest = path.partition("/")
        if rest and first in ("bin", "sbin", "lib", "lib64"):
            path = "usr/" + path
        self.directory(os.path.dirname(path))
        self.entries[path] = (mode, data)

    def directory(self, path, mode=0o755):
        path = path.strip("/")
        if path and path not in self.entries:
            self.directory(os.path.dirname(path))
            self.entries[path] = (stat.S_IFDIR | mode, b"")

    def symlink(self, path, target):
        self._put(path, stat.S_IFLNK | 0o777, target.encode())

    def data(self, path, data, mode=0o644):
        if isinstance(data, str):
            data = data.encode()
        self._put(path, stat.S_IFREG | mode, data)

    def file(self, path, source, mode=None):
        with open(source, "rb") as f:
            data = f.read()
            if mode is None:
                mode = os.fstat(f.fileno()).st_mode & 0o777
        self.data(path, data, mode)

    def write(self, out):
        for ino, (path, (mode, data)) in enumerate(sorted(self.entries.items()), 1):
            self._record(out, ino, path, mode, data)
        self._record(out, 0, "TRAILER!!!", 0, b"")
        out.write(b"\0" * (-out.tell() % 512))

    @staticmethod
    def _record(out, ino, path, mode, data):
        name = path.encode() + b"\0"
        nlink = 2 if stat.S_ISDIR(mode) else 1
        fields = (ino, mode, 0, 0, nlink, 0, len(data), 0, 0, 0, 0, len(name), 0)
        out.write(b"070701" + b"".join(b"%08X" % x for x in fields) + name)
        out.write(b"\0" * (-out.tell() % 4))
        out.write(data)
        out.write(b"\0" * (-out.tell() % 4))


# --- programs --------------------------------------------------------------------------

def which(name):
    if "/" in name:
        if os.access(name, os.X_OK) and os.path.isfile(name):
            return os.path.abspath(name)
    else:
        for folder in "/usr/bin /usr/sbin /bin /sbin /usr/local/bin".split():
            if os.access(f"{folder}/{name}", os.X_OK):
                return f"{folder}/{name}"
    raise Missing(f"no such program on this machine: {name}")


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def libraries(programs):
    """The shared libraries that the programs load, as paths on this machine."""
    programs = [p for p in programs if is_elf(p)]
    if not programs:
        return []
    text = subprocess.run(["ldd", *programs], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False).stdout
    lost = re.findall(r"^\s*(\S+) => not found", text, re.M)
    if lost:
        raise Missing("libraries not found: " + " ".join(sorted(set(lost))))
    return sorted(set(re.findall(r"(/\S+) \(0x", text)))


def add_programs(tree, programs):
    """programs: {path in the guest: path here}"""
    for path, source in programs.items():
        tree.file(path, source, 0o755)
    for lib in libraries(programs.values()):
        tree.file(lib, lib, 0o755)


# --- cached pieces ---------------------------------------------------------------------

def stamp(paths):
    """Changes when one of the files does."""
    out = []
    for path in paths:
        st = os.stat(path)
        out.append(f"{path} {st.st_size} {st.st_mtime_ns}")
    return "\n".join(out)


def cached(cache, name, key, build):
    """The file of a cached piece; build(tree) fills it when the key is new."""
    folder = os.path.join(cache, "initramfs")
    path = os.path.join(folder, f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.cpio")
    try:
        os.utime(path)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
        for old in os.listdir(folder):          # what nobody used for a week goes
            old = os.path.join(folder, old)
            try:
                if os.path.getmtime(old) < time.time() - 7 * 86400:
                    os.unlink(old)
            except FileNotFoundError:
                pass                            # another run was faster
        tree = Tree()
        build(tree)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as out:
            tree.write(out)
        os.replace(out.name, path)
    return path


PASSWD = """root:x:0:0:root:/root:/bin/sh
user:x:1000:1000:user:/tmp:/bin/sh
nobody:x:65534:65534:nobody:/:/usr/sbin/nologin
"""
GROUP = """root:x:0:
user:x:1000:
nogroup:x:65534:
"""


def base(cache):
    busybox = which("busybox")
    programs = {}
    for name in PROGRAMS:
        path = which(name)
        programs[path] = path
    guest = sorted(os.path.join(HERE, "guest", f) for f in os.listdir(f"{HERE}/guest"))

    def build(tree):
        for d in "dev proc sys run tmp mnt root etc usr/bin usr/sbin usr/lib usr/lib64 var".split():
            tree.directory(d)
        for d in "bin", "sbin", "lib", "lib64":
            tree.symlink(d, f"usr/{d}")
        tree.symlink("var/run", "/run")
        tree.symlink("var/tmp", "/tmp")
        tree.symlink("etc/mtab", "/proc/self/mounts")
        tree.data("etc/passwd", PASSWD)
        tree.data("etc/group", GROUP)
        tree.data("etc/fstab", "")
        tree.data("etc/nsswitch.conf", "passwd: files\ngroup: files\n")
        tree.file("usr/bin/busybox", busybox, 0o755)
        out = subprocess.run([busybox, "--list-full"], stdout=subprocess.PIPE, text=True,
                             check=True).stdout
        for applet in out.split():
            name = os.path.basename(applet)
            if name not in PROGRAMS and name not in ("busybox", "sh"):
                folder = "sbin" if "sbin/" in applet else "bin"
                tree.symlink(f"usr/{folder}/{name}", "/usr/bin/busybox")
        tree.symlink("usr/bin/sh", "dash")
        add_programs(tree, programs)
        for path in guest:
            name = os.path.basename(path)
            if name == "init":
                tree.file("init", path, 0o755)
            else:
                tree.file(f"usr/bin/{name}", path, 0o755)

    key = stamp([busybox, *programs.values(), *libraries(programs.values()), *guest, __file__])
    return cached(cache, "base", key, build)


class Kernel:
    """A guest kernel in the cache (see fetch-kernel)."""

    def __init__(self, series, folder):
        self.series = series
        self.folder = folder
        with open(f"{folder}/release", encoding="ascii") as f:
            self.release = f.read().strip()
        self.vmlinuz = os.path.realpath(f"{folder}/vmlinuz")
        self.tree = os.path.realpath(f"{folder}/modules")
        self.deps = {}
        self.path = {}
        with open(f"{self.tree}/modules.dep", encoding="ascii") as f:
            for line in f:
                path, _, deps = line.partition(":")
                name = self.name(path)
                self.path[name] = path
                self.deps[name] = [self.name(d) for d in deps.split()]
        self.builtin = set()
        with open(f"{self.tree}/modules.builtin", encoding="ascii") as f:
            for line in f:
                self.builtin.add(self.name(line.strip()))

    @staticmethod
    def name(path):
        return os.path.basename(path).split(".ko")[0].replace("-", "_")

    def closure(self, names):
        """The modules and all they need, each after what it needs."""
        order = []

        def visit(name):
            if name in order:
                return
            for dep in self.deps[name]:
                visit(dep)
            order.append(name)

        for name in names:
            name = name.replace("-", "_")
            if name in self.path:
                visit(name)
            elif name not in self.builtin:
                raise Missing(f"kernel {self.release} has no module {name}")
        return order

    def modules(self, cache, extra):
        """The piece with the modules, and their names in the order of loading."""
        # "dax" and others are built in on some kernels and modules on others
        wanted = [m for m in MODULES if m.replace("-", "_") in self.path]
        order = self.closure(wanted + extra)

        def build(tree):
            root = f"usr/lib/modules/{self.release}"
            dep = []
            for name in order:
                path = self.path[name]
                with open(f"{self.tree}/{path}", "rb") as f:
                    data = f.read()
                if path.endswith(".xz"):
                    data = lzma.decompress(data)
                tree.data(f"{root}/{self.plain(name)}", data)
                # modprobe loads the last named first
                needs = [self.plain(d) for d in reversed(self.closure([name])[:-1])]
                dep.append(f"{self.plain(name)}: {' '.join(needs)}".rstrip() + "\n")
            tree.data(f"{root}/modules.dep", "".join(dep))
            tree.file(f"{root}/modules.builtin", f"{self.tree}/modules.builtin")
            aliases = []
            with open(f"{self.tree}/modules.alias", encoding="ascii") as f:
                for line in f:
                    words = line.split()
                    if words[0] == "alias" and words[2] in order:
                        aliases.append(line)
            tree.data(f"{root}/modules.alias", "".join(aliases))

        key = "\n".join([self.folder, " ".join(order), stamp([__file__, f"{self.tree}/modules.dep"])])
        return cached(cache, f"modules-{self.release}", key, build), order

    def plain(self, name):
        path = self.path[name]
        return path[:-3] if path.endswith(".xz") else path


def module_needs(path):
    """The modules that a .ko says it depends on."""
    with open(path, "rb") as f:
        found = re.search(rb"(?:^|\0)depends=([^\0]*)\0", f.read())
    return [d for d in found.group(1).decode().split(",") if d] if found else []
