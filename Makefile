# Makefile - build, serve, test and install Porter; `make help` lists the targets.
#
# Settings are taken from the command line (make EMACS=emacs-29 check), from the environment, or
# from config.mk, which git ignores.  Nothing outside this directory is written, except by
# `install`, by `check-matrix` (its cache), and by .ci/setup, which adds missing packages for the
# targets that say so in their recipe.
#
# SPDX-License-Identifier: GPL-3.0-or-later

-include config.mk

EMACS ?= emacs
CFLAGS ?= -O2 -g
PORT ?= 8080
PREFIX ?= /usr/local
T ?=
N ?=
ALL ?=
WERROR ?=
FUZZ_TIME ?= 60
QUICK ?=
BLOCKS ?=
TEST_TIMEOUT ?= 600

# Seen by the scripts in .ci.
export EMACS CC T TEST_TIMEOUT

# Commands are shown in short; V=1 shows them whole.
V ?=
Q := $(if $V,,@)
say = $(if $V,,@printf '  %-5s %s\n' $1 '$2')

MAKEFLAGS += --no-print-directory --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all


# The same sources are built in several variants, each with its objects in a directory of its own:
# release (what users load), debug (the C tests), asan, tsan and fuzz.

VARIANT ?= release
B := build/$(VARIANT)

VARIANT_FLAGS.release :=
VARIANT_FLAGS.debug := -DPORTER_DEBUG
# Emacs's collector copies the stack whole, over what ASan puts between the variables of a module
# function below it: so the stack is left alone.  The fuzzers have it checked.
VARIANT_FLAGS.asan := -DPORTER_DEBUG -fsanitize=address,undefined -fno-omit-frame-pointer \
    --param asan-stack=0
VARIANT_FLAGS.tsan := -DPORTER_DEBUG -fsanitize=thread -fno-omit-frame-pointer
VARIANT_FLAGS.fuzz := -DPORTER_DEBUG -fsanitize=fuzzer-no-link,address,undefined

DARWIN := $(filter Darwin,$(shell uname -s))
SO := $(if $(DARWIN),.dylib,.so)
# Not named porter-module: beside porter-module.el, `require' would load it instead.
MODULE := $(if $(filter release,$(VARIANT)),module,$B)/porter-core$(SO)


# Libraries.  A missing one is reported by .ci/setup (see $B/requirements), in words that help.

PKG_CONFIG ?= pkg-config
pkg_exists = $(shell $(PKG_CONFIG) --exists $1 2>/dev/null && echo yes)
PKGS := libuv zlib

# Debian 12 has no libllhttp, but the C sources of llhttp in node-llhttp.
LLHTTP_SRC ?= /usr/share/llhttp
LLHTTP_INCLUDE ?= /usr/share/include/llhttp
export LLHTTP_SRC LLHTTP_INCLUDE
ifeq ($(call pkg_exists,libllhttp),yes)
PKGS += libllhttp
llhttp_sources :=
else
llhttp_sources := $(wildcard $(LLHTTP_SRC)/*.c)
LIB_CPPFLAGS += -I$(LLHTTP_INCLUDE)
endif

LIB_CPPFLAGS += $(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null)
# libwslay comes without a .pc file on Debian.
LIBS := $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null) -lwslay


# Flags.  CFLAGS, CPPFLAGS and LDFLAGS belong to the user; ours stand beside them.

WARNINGS := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes \
            -Werror=implicit -Werror=incompatible-pointer-types -Werror=int-conversion \
            $(if $(WERROR),-Werror)
OUR_CPPFLAGS := -D_GNU_SOURCE -Imodule $(LIB_CPPFLAGS)
OUR_CFLAGS := -std=c11 -fPIC -fvisibility=hidden -fstack-protector-strong -pthread \
              $(VARIANT_FLAGS.$(VARIANT))
COMPILE = $(CC) $(OUR_CPPFLAGS) $(CPPFLAGS) $(OUR_CFLAGS) -MMD -MP

# Export emacs_module_init and plugin_is_GPL_compatible, and bind everything else inside: symbols
# of our libraries must never meet those of another module or of Emacs.
ifneq ($(DARWIN),)
MODULE_LDFLAGS := -dynamiclib
else
MODULE_LDFLAGS := -shared -Wl,--version-script=module/module.map -Wl,-Bsymbolic \
                  -Wl,--exclude-libs,ALL -Wl,-z,relro,-z,now -Wl,-z,defs
endif


# What there is to build.  New files need no entry here.

sources := $(wildcard module/*.c)
objects := $(sources:module/%.c=$B/%.o)
llhttp_objects := $(llhttp_sources:$(LLHTTP_SRC)/%.c=$B/llhttp/%.o)
# The files that include emacs-module.h; all others link into the C tests and the fuzzers.
glue := $(filter %/module.o %/lisp.o %/glue.o $B/glue_%.o,$(objects))
core := $B/core.a

# test/c/NAME-test.c and test/fuzz/NAME-fuzz.c are programs; other files there are helpers of all.
c_tests := $(patsubst test/c/%.c,$B/c/%,$(wildcard test/c/*-test.c))
c_helpers := $(patsubst test/c/%.c,$B/c/%.o,$(filter-out %-test.c,$(wildcard test/c/*.c)))
fuzzers := $(patsubst test/fuzz/%.c,$B/fuzz/%,$(wildcard test/fuzz/*-fuzz.c))

lisp_sources := $(wildcard lisp/*.el)

.PHONY: all module lisp
all: module lisp  ## build the module and the byte code (the default)
module: $(MODULE)  ## build only the module; never installs anything
lisp: build/lisp.stamp


# The module.

# Linked under another name and renamed: overwriting the file would change the code under an Emacs
# that has mapped it.
$(MODULE): $(objects) $(llhttp_objects) module/module.map $B/flags
	$(call say,LINK,$@)
	$Q$(CC) $(OUR_CFLAGS) $(CFLAGS) $(MODULE_LDFLAGS) $(LDFLAGS) \
	    $(filter %.o,$^) $(LIBS) -o $@.new
	@mv -f $@.new $@

$(core): $(filter-out $(glue),$(objects)) $(llhttp_objects)
	@rm -f $@
	@$(AR) rcs $@ $^

$(glue): private OUR_CPPFLAGS += $(shell .ci/setup --emacs-include)

$B/%.o: module/%.c $B/flags | $B/requirements
	$(call say,CC,$<)
	$Q$(COMPILE) $(WARNINGS) $(CFLAGS) -c $< -o $@

$B/llhttp/%.o: $(LLHTTP_SRC)/%.c $B/flags | $B/requirements
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$Q$(COMPILE) $(CFLAGS) -w -c $< -o $@

# Before the first object: is everything here that a build needs?
$B/requirements:
	@.ci/setup --check build
	@mkdir -p $(@D)
	@touch $@

# Changes when the flags do, and so rebuilds what was made with others.
flags_now := $(CC) $(OUR_CPPFLAGS) $(CPPFLAGS) $(OUR_CFLAGS) $(WARNINGS) $(CFLAGS) $(LDFLAGS) $(LIBS)
$B/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(flags_now)) $(EMACS)' | cmp -s - $@ || \
	    echo '$(subst ','\'',$(flags_now)) $(EMACS)' >$@

.PHONY: FORCE
FORCE:

-include $(wildcard $B/*.d $B/*/*.d)


# Lisp.  All files at once, because macros and inline functions cross files.

BATCH := $(EMACS) -Q --batch

build/lisp.stamp: $(lisp_sources) build/emacs-version
	$(call say,ELC,$(lisp_sources))
	$Q$(if $(lisp_sources),$(BATCH) -L lisp -f batch-byte-compile $(lisp_sources))
	@touch $@

# Byte code of one Emacs may not load in another.
build/emacs-version: FORCE
	@mkdir -p $(@D)
	@$(BATCH) --eval '(princ emacs-version)' | cmp -s - $@ || \
	    $(BATCH) --eval '(princ emacs-version)' >$@

.PHONY: compile
compile:  ## byte-compile, warnings are errors; check the declare-function forms
	@rm -f lisp/*.elc build/lisp.stamp
	@$(BATCH) -L lisp -l .ci/lint.el -f lint-compile $(lisp_sources)


# Serve and check.  Both begin by installing what is missing, which may change what the variables
# above found; hence a second make for the rest.  Batch Emacs runs kill-emacs-hook on C-c.

.PHONY: serve
serve:  ## install what is missing, build, serve the demo on PORT (8080)
	@.ci/setup serve
	@$(MAKE) all
	@PORT='$(PORT)' exec $(BATCH) -L lisp -l porter-demo -f porter-demo-batch

.PHONY: check
check:  ## install what is missing, run all tests (T=REGEXP: some; ALL=1: heavy tools too)
	@.ci/setup $(if $(ALL),all,check)
	@$(MAKE) all
	@$(MAKE) VARIANT=debug c-tests
	@$(MAKE) VARIANT=debug run-tests PORTER_MODULE='$(CURDIR)/module/porter-core$(SO)'

# The suite on a stock Emacs, with the module and the C tests under a sanitizer.  Everything takes
# longer there, so the tests' deadlines are stretched.
.PHONY: asan tsan
asan: sanitizer_env = PORTER_TEST_PATIENCE=3 \
    ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 \
    UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
tsan: sanitizer_env = PORTER_TEST_PATIENCE=5 \
    TSAN_OPTIONS=exitcode=66:halt_on_error=0:second_deadlock_stack=1$(tsan_suppressions)
tsan_suppressions := $(addprefix :suppressions=,$(abspath $(wildcard test/tsan.supp)))
asan tsan:  ## all tests with the module under AddressSanitizer and UBSan / ThreadSanitizer
	@.ci/setup check
	@$(MAKE) lisp
	@$(MAKE) VARIANT=$@ module c-tests
	@$(sanitizer_env) PRELOAD=$$($(CC) -print-file-name=lib$@.so) \
	    $(MAKE) VARIANT=$@ run-tests PORTER_MODULE='$(CURDIR)/build/$@/porter-core$(SO)'

.PHONY: c-tests run-tests
c-tests: $(c_tests)

run-tests:
	@PORTER_MODULE='$(PORTER_MODULE)' OUT=$B/log .ci/test $(c_tests)

$B/c/%-test: $B/c/%-test.o $(c_helpers) $(core)
	$(call say,LINK,$@)
	$Q$(CC) $(OUR_CFLAGS) $(CFLAGS) $(LDFLAGS) $^ $(LIBS) -o $@

$B/c/%.o: test/c/%.c $B/flags | $B/requirements
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$Q$(COMPILE) $(WARNINGS) -Itest/c $(CFLAGS) -c $< -o $@

.SECONDARY:

.PHONY: check-matrix clean-matrix
check-matrix:  ## the suite on Emacs 27.1 and 30.1, in roots of Debian 11 and 13 (root only)
	@.ci/setup matrix
	@.ci/matrix run

clean-matrix:  ## remove those roots
	@.ci/matrix clean


# Lint, fuzz, bench.

.PHONY: lint
lint:  ## format, warnings, static analysis, include arrows, exports, checkdoc
	@.ci/setup lint
	@CPPFLAGS='$(OUR_CPPFLAGS) $(CPPFLAGS)' .ci/lint

.PHONY: fuzz run-fuzzers
fuzz:  ## libFuzzer over each test/fuzz/*-fuzz.c, FUZZ_TIME (60) seconds each
	@.ci/setup fuzz
	@$(MAKE) CC=clang VARIANT=fuzz run-fuzzers

# New inputs stay in build/fuzz/corpus; the ones in test/fuzz/corpus (or its subdirectory with the
# fuzzer's name) are only read.
run-fuzzers: $(fuzzers)
	@status=0; for fuzzer in $(fuzzers); do \
	    name=$$(basename $$fuzzer -fuzz); \
	    seeds=test/fuzz/corpus/$$name; test -d $$seeds || seeds=test/fuzz/corpus; \
	    mkdir -p $B/corpus/$$name $B/crashes; \
	    echo "== $$name"; \
	    $$fuzzer -max_total_time=$(FUZZ_TIME) -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
	        -artifact_prefix=$B/crashes/$$name- $B/corpus/$$name $$(ls -d $$seeds 2>/dev/null) \
	        >$B/$$name.log 2>&1 || { status=1; tail -n 40 $B/$$name.log; \
	        echo "$$name: failed; the input is in $B/crashes, for test/vectors once fixed"; }; \
	    grep -E 'number_of_executed_units|average_exec' $B/$$name.log; \
	done; exit $$status

$B/fuzz/%: test/fuzz/%.c $(core) $B/flags
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$Q$(COMPILE) $(WARNINGS) -Itest/fuzz -Itest/c $(CFLAGS) -fsanitize=fuzzer $(LDFLAGS) \
	    $< $(core) $(LIBS) -o $@

.PHONY: bench bench-readme ceiling
bench:  ## run the notebooks in bench/ (N=NAME BLOCKS='B...': some; QUICK=1: two minutes, on copies)
	@.ci/setup bench
	@$(MAKE) all ceiling
	@QUICK='$(QUICK)' BLOCKS='$(BLOCKS)' .ci/bench $(or $(N:%=bench/%.org),$(wildcard bench/*.org))

bench-readme:  ## the table and the plot of README.org, from bench/data
	@$(BATCH) -l bench/driver.el -f bench-readme

# What the notebooks compare with: the least that the same libraries can do.
ceiling: $B/bench/ceiling

$B/bench/ceiling: bench/ceiling.c $(llhttp_objects) $B/flags | $B/requirements
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$Q$(COMPILE) $(WARNINGS) $(CFLAGS) $(LDFLAGS) $(filter-out %/flags,$^) $(LIBS) -o $@


# Documentation, packaging.

VERSION = $(shell sed -n 's/^;; Version: *//p' lisp/porter.el)

.PHONY: doc
doc:  ## the manual, build/porter.info
	@.ci/setup doc
	@$(MAKE) build/porter.info

build/porter.info: doc/manual.org
	@mkdir -p build
	@cp $< build/porter.org
	@cd build && $(BATCH) -l ox-texinfo --visit porter.org -f org-texinfo-export-to-texinfo
	makeinfo --no-split -o $@ build/porter.texi

.PHONY: dist
dist:  ## the committed files as build/porter-VERSION.tar.gz
	@mkdir -p build
	git archive --prefix=porter-$(VERSION)/ -o build/porter-$(VERSION).tar.gz HEAD

lispdir ?= $(PREFIX)/share/emacs/site-lisp/porter
infodir ?= $(PREFIX)/share/info

.PHONY: install
install: all  ## copy Lisp, module and (after make doc) manual below PREFIX (/usr/local)
	install -d '$(DESTDIR)$(lispdir)'
	install -m 644 lisp/*.el lisp/*.elc '$(DESTDIR)$(lispdir)'
	install -m 755 $(MODULE) '$(DESTDIR)$(lispdir)'
	@if test -f build/porter.info; then \
	    install -d '$(DESTDIR)$(infodir)' && \
	    install -m 644 build/porter.info '$(DESTDIR)$(infodir)'; fi

.PHONY: clean
clean:  ## remove everything that was built
	rm -rf build
	rm -f lisp/*.elc test/*.elc module/porter-core.so module/porter-core.dylib module/*.new

.PHONY: help
help:  ## print this list
	@echo 'make TARGET [EMACS=...] [CC=...] [CFLAGS=...] [LDFLAGS=...]'
	@sed -n -E 's/^([a-z -]+):.*  ## (.*)/\1|\2/p' Makefile | \
	    while IFS='|' read -r target text; do printf '  %-14s %s\n' "$$target" "$$text"; done
