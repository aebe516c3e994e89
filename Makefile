# SPDX-License-Identifier: BSD-2-Clause
# make		build/ptwatch, and ptwatch.ko for the running kernel when its headers are installed
# make demo	the whole story in a virtual machine whose CPU has Intel PT
# make check	every test this machine can run
# make bench	what a watch's hit and a traced context switch cost, how fast traces are decoded
# make bench-peers	what others' ways of watching cost, in executed instructions
# make check-debug	the module on a kernel that looks for faults
# make help	the rest
TOP := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
OUT ?= $(TOP)/build

KERNELRELEASE ?= $(shell uname -r)
KDIR ?= /lib/modules/$(KERNELRELEASE)/build

# Kbuild writes beside its sources: it gets a copy, so that the tree stays clean.
MODULE_SOURCES := $(wildcard Kbuild module/*.c module/*.h module/compat/* uapi/linux/*)

all: $(OUT)/ptwatch $(if $(wildcard $(KDIR)/Makefile),module,no-headers)

# Always asked: the program's own makefile knows what is out of date.
$(OUT)/ptwatch build/ptwatch: FORCE
	$(MAKE) -C userspace OUT=$(OUT)

userspace: $(OUT)/ptwatch

module:
	@test -e $(KDIR)/Makefile || { echo "make: there are no kernel headers at $(KDIR);" \
		"install linux-headers-$(KERNELRELEASE), or say KDIR=…" >&2; exit 1; }
	@mkdir -p $(OUT)/module
	cp -pr --parents $(MODULE_SOURCES) $(OUT)/module/
	$(MAKE) -C $(KDIR) M=$(OUT)/module modules
	cp -p $(OUT)/module/ptwatch.ko $(OUT)/ptwatch.ko

no-headers:
	@echo "note: no headers for kernel $(KERNELRELEASE), so ptwatch.ko was not built;" \
	      "install linux-headers-$(KERNELRELEASE), or say KDIR=…"

emulator:
	$(MAKE) -C tests/emulator OUT=$(OUT)/emulator

demo:
	tests/vm/demo

check:
	tests/check

bench:
	for bench in tests/bench/*.sh; do $$bench || exit 1; done

bench-peers:
	tests/bench/peers

check-debug:
	PTWATCH_TEST_DEBUG=1 tests/check vm/t/debug

install: $(OUT)/ptwatch
	$(MAKE) -C userspace OUT=$(OUT) install

modules_install: module
	$(MAKE) -C $(KDIR) M=$(OUT)/module modules_install

clean:
	rm -rf $(OUT)

help:
	@echo "make                   build/ptwatch; ptwatch.ko for the running kernel when its headers are installed"
	@echo "make demo              a watched variable, a frozen trace and the path that led there, in a virtual machine"
	@echo "make check             every test this machine can run, with a count at the end"
	@echo "make bench             what a hit and a traced context switch cost, how fast traces are decoded"
	@echo "make bench-peers        what others' ways of watching a store cost, in executed instructions"
	@echo "make check-debug       the module on a kernel that looks for faults, which is built first: a quarter of an hour"
	@echo "make install           the program, its man pages and bash completion (PREFIX=, DESTDIR=)"
	@echo "make modules_install   ptwatch.ko for the running kernel (or KDIR=)"
	@echo "make clean             remove build/"
	@echo "tests/vm/cache clean   remove what demo and check prepared outside the tree"

FORCE:

.PHONY: all userspace module no-headers emulator demo check bench bench-peers check-debug install modules_install clean help FORCE
