# SPDX-License-Identifier: GPL-2.0-only
#
# Front of the build; `make help` lists the targets. Everything generated goes to build/
# (or O=FOLDER). The module is built in a copy of kmod/, one copy a kernel, because the
# kernel's build system writes beside the sources.

O ?= build
override O := $(abspath $(O))
export O

# Which kernel: KVER=6.1, 6.12 or 7.3 is a Debian kernel fetched into the cache (tools/vm/fetch-kernel),
# KDIR= any prepared kernel folder, KERNEL= the release of an installed one.
KERNEL ?= $(shell uname -r)
KVER ?=
ifneq ($(KVER),)
ifeq ($(filter $(KVER),6.1 6.12 7.3 6.12-kasan 6.12-lockdep),)
$(error KVER=$(KVER): there are 6.1, 6.12 and 7.3, 6.12-kasan and 6.12-lockdep)
endif
# asked once, and only by a target that wants it
kdir = $(eval kdir := $$(shell tools/vm/fetch-kernel --offline $(KVER))/kdir)$(kdir)
name := $(KVER)
else
kdir_given := $(KDIR)
KDIR ?= /lib/modules/$(KERNEL)/build
kdir = $(KDIR)
name := $(KERNEL)
endif

# $(call kmake,FOLDER,ARGUMENTS): the kernel's make for the module in FOLDER.
# O= again: it takes that of the command line for a folder of its own.
ifeq ($(KVER),7.3)
kmake = tools/vm/trixie-make $1 $2
else
kmake = $(MAKE) -C $(kdir) O= M=$1 $2
endif

# The module builds for no other kernel, unless TARNFS_ANY_KERNEL=1 says to try.
TARNFS_ANY_KERNEL ?=

# WERROR=1: all warnings, and each is an error. For the project's own checks, not for users.
WERROR ?=
ifneq ($(WERROR),)
strict := W=1 KCFLAGS=-Werror
export WERROR
endif

.PHONY: all user modules selftests unit check-unit sparse install modules_install clean help
.DELETE_ON_ERROR:

all: user modules

# $(call part,FOLDER,ARGUMENTS): make in a folder that has its own Makefile
part = $(if $(wildcard $1/Makefile),$(MAKE) -C $1 O=$(O) $2,\
	@echo "$1/Makefile is missing: nothing to build there" >&2; exit 1)

user:
	+$(call part,user)

selftests: user
	+$(call part,selftests)

unit:
	+$(call part,selftests/unit)

check-unit:
	+$(call part,selftests/unit,check)

# $(call copy,FOLDER): kmod/ as it is now in FOLDER, files that did not change left alone
define copy
	@test -f kmod/Kbuild || { echo "kmod/Kbuild is missing: no module to build" >&2; exit 1; }
	@test -z '$(kdir_given)' || test -f '$(kdir)/Makefile' || { \
		echo "KDIR=$(kdir_given): no kernel headers there" >&2; exit 1; }
	@release=$$(cat '$(kdir)/include/config/kernel.release' 2>/dev/null) || release='$(or $(KVER:%=%.),$(KERNEL))'; \
	case $$release in 6.1.*|6.12.*|7.2.*|7.3.*) ;; *) \
		test -n '$(TARNFS_ANY_KERNEL)' || { \
		echo "tarnfs.ko builds for Debian's 6.1, 6.12, 7.2 and 7.3 only; this kernel is $$release;" \
			"make user builds the tools alone" >&2; exit 1; };; esac
	@test -f '$(kdir)/Makefile' || { echo "no kernel headers in '$(kdir)': install" \
		"linux-headers-$(KERNEL), or give KDIR=, or KVER=6.1, 6.12 or 7.3 for a guest's kernel" >&2; exit 1; }
	@mkdir -p $1
	@cd kmod && find . -name '*.[chS]' -o -name Kbuild | while read -r f; do \
		mkdir -p "$1/$${f%/*}"; cmp -s "$$f" "$1/$$f" || cp "$$f" "$1/$$f"; done
	@cd $1 && find . -name '*.[chS]' ! -name '*.mod.c' | while read -r f; do \
		test -e "$(CURDIR)/kmod/$$f" || rm -f "$$f"; done
endef

modules:
	$(call copy,$(O)/kmod-$(name))
	+$(call kmake,$(O)/kmod-$(name),$(strict) modules)

# Only warnings in our files count: the headers of old kernels have some of their own. Those
# of 7.3 lack the script that looks whether sparse is there, and then leave it out; and sparse
# lags behind them: it knows no __typeof_unqual__, and takes no length of a string for constant,
# an error after which it says no more about a file.
ifeq ($(KVER),7.3)
checker := KBUILD_CHECKSRC=2 C=2 \
	CF='-D__CHECK_ENDIAN__ -D__typeof_unqual__=__typeof__ -D"__builtin_strlen(x)=(sizeof(x)-1)"'
else
checker := C=2 CF=-D__CHECK_ENDIAN__
endif
sparse:
	$(call copy,$(O)/sparse-$(name))
	@echo "sparse on the module for $(name)"
	@find $(O)/sparse-$(name) -name '*.o' -delete
	+@$(call kmake,$(O)/sparse-$(name),$(checker) modules) \
		>$(O)/sparse-$(name).log 2>&1 || { tail -n 30 $(O)/sparse-$(name).log >&2; exit 1; }
	@if ! grep -q '^ *CHECK ' $(O)/sparse-$(name).log; then \
		echo "sparse did not run: see $(O)/sparse-$(name).log" >&2; exit 1; fi
	@if grep -E '^($(O)/sparse-$(name)/)?[^:/]+(/[^:/]+)?:[0-9:]+ (warning|error):' $(O)/sparse-$(name).log; then exit 1; fi

install: user
	+$(call part,user,install)

# without System.map, as in Debian's headers, the kernel's make leaves depmod out
modules_install: modules
	$(if $(filter 7.3,$(KVER)),@echo "KVER=7.3 is a guest's kernel: nothing is installed for it" >&2; exit 1)
	$(MAKE) -C $(kdir) O= M=$(O)/kmod-$(name) INSTALL_MOD_DIR=extra modules_install
	depmod $(if $(INSTALL_MOD_PATH),-b '$(INSTALL_MOD_PATH)') "$$(cat '$(kdir)/include/config/kernel.release')"

clean:
	rm -rf $(O)

help:
	@echo "all              the tools and the module for the running kernel"
	@echo "user             tarnfs, and mkfs, fsck, mount and umount of the type tarnfs"
	@echo "modules          tarnfs.ko for KERNEL=RELEASE, KDIR=FOLDER, or KVER=6.1|6.12|7.3 (a guest's kernel)"
	@echo "install          the tools and a rule for udev (DESTDIR=, PREFIX=, MOUNTDIR=, UDEVDIR=)"
	@echo "modules_install  tarnfs.ko into the kernel's module tree"
	@echo "selftests        programs that run in guests"
	@echo "unit, check-unit unit tests: built, run (CC=gcc|clang SAN=1)"
	@echo "sparse           sparse on the module (KVER=, KDIR= as above)"
	@echo "clean            removes $(O)"
	@echo "CROSS_COMPILE=PREFIX SYSROOT=FOLDER make it all for another machine; tools/arm64 does"
	@echo "O=FOLDER puts everything generated there; WERROR=1 makes warnings errors"
	@echo "tools/check runs all tests, tools/demo shows two hosts at work"
