# Every command that people and CI run. Plain `make` prints the list.
#
# No RUSTFLAGS are set anywhere here: they would be part of every build's key, and `make check`
# and `make test` would each build the dependencies anew. Tests name `--workspace` for the same
# reason: another selection of packages is another set of features.

CARGO  ?= cargo
PREFIX ?= /usr/local
TARGET ?= $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
CASES  ?= 20000
XTASK  := $(CARGO) xtask
# `cargo run` takes no --workspace, and would build the dependencies anew.
LAB    = $(CARGO) build --workspace --bin lab --locked && $(TARGET)/debug/lab
CLUSTER = $(CARGO) build --workspace --bins --locked && $(TARGET)/debug/cluster
# The tests on a real Kubernetes, without the slow one and the one that brings a cluster of its own.
CLUSTER_TESTS = $(filter-out cluster_faults cluster_store,$(basename $(notdir $(wildcard crates/hawser-live/tests/cluster_*.rs))))
# The features of the workspace that can be built alone, as PACKAGE/FEATURE.
FEATURES = $(shell sed -n '/^\[features\]/,/^\[/{s/^\([a-z0-9_-]*\) *=.*/\1/p}' crates/hawser-front/Cargo.toml | grep -v '^default$$')

.DEFAULT_GOAL := help
.PHONY: help demo up build install test check check-full fmt crash fuzz e2e e2e-sanity e2e-store e2e-cluster e2e-faults cluster-shell lab lab-core lab-soak lab-shell bench bench-core bench-connect bench-csi chart manifests packages clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## build, then show the whole life of a volume on this machine; cleans up
	@$(TARGET)/release/hawser demo

up: build ## build, then run the service here with one local class (Ctrl-C stops it)
	@$(TARGET)/release/hawser up

build: ## the release binary, target/release/hawser
	$(CARGO) build --release --locked

install: build ## install the binary, its manual pages, the systemd unit and the settings below PREFIX (/usr/local)
	install -D -m 0755 $(TARGET)/release/hawser $(DESTDIR)$(PREFIX)/bin/hawser
	install -D -m 0644 deploy/hawser.toml $(DESTDIR)$(PREFIX)/share/doc/hawser/hawser.toml
	install -D -m 0644 deploy/hawser.service $(DESTDIR)$(PREFIX)/lib/systemd/system/hawser.service
	sed -i 's|/usr/local/bin|$(PREFIX)/bin|' $(DESTDIR)$(PREFIX)/lib/systemd/system/hawser.service
	$(TARGET)/release/hawser man --dir $(DESTDIR)$(PREFIX)/share/man/man1

test: packages check ## everything a change must pass: check, all tests, the core of the lab, and the counts
	@$(XTASK) test
	@$(LAB) run --set core

check: ## format, clippy with warnings as errors, layers, tables, sizes, deps, words, changelog
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@# Those that do not run by themselves, as the lab's, are in no "all".
	$(CARGO) clippy --workspace --test '*' --locked -- -D warnings
	@$(XTASK) all

check-full: ## the documentation without warnings, and each feature alone
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	$(CARGO) check -p hawser-store --no-default-features --locked
	$(CARGO) check -p hawser-front --no-default-features --locked
	@set -e; for feature in $(FEATURES); do \
		echo "hawser-front with $$feature alone"; \
		$(CARGO) check -p hawser-front --no-default-features --features $$feature --locked; \
	done

fmt: ## format all code
	$(CARGO) fmt --all

crash: packages ## slow tier: kill the server 200 times at random moments, and at every fault point
	$(CARGO) build --workspace --bins --locked
	@$(XTASK) test --workspace --test crash --test fault_points

# The properties of the embedded store open a file and write it out in every case; they keep the
# number of cases that `make test` gives them. The contracts have no cases, and take their time.
fuzz: ## every parser, CASES (20000) times each: made-up input, and its corpus damaged
	@PROPTEST_CASES=$(CASES) $(XTASK) test --workspace --lib -- --skip embedded::tests --skip contract

e2e: packages ## tests against the real thing: loop devices, csi-sanity, a real Kubernetes; says which tiers exist
	@echo "loop_     real loop devices, file systems and mounts; needs root: runs now, and in make test"
	@echo "sanity    csi-sanity against our CSI driver; needs root and Go: runs now (make e2e-sanity)"
	@echo "cluster_  a real Kubernetes; needs root and Go: runs now (make e2e-store, e2e-cluster, e2e-faults)"
	@echo "vm_       real kernels and targets in a guest: make lab, make lab-core"
	@echo "svc_      etcd, Gluster, OpenStack on loopback: not there yet"
	@$(XTASK) test --workspace loop_
	@$(MAKE) --no-print-directory e2e-sanity
	@$(MAKE) --no-print-directory e2e-store
	@$(MAKE) --no-print-directory e2e-cluster
	@$(MAKE) --no-print-directory e2e-faults

# One test after the other: they share the loop devices of the machine, and its time.
e2e-sanity: packages ## csi-sanity against our CSI driver; builds it once, in a minute or two
	@$(CLUSTER) build csi-sanity hostpathplugin
	@$(XTASK) test --workspace --test sanity -- --test-threads=1

e2e-store: packages ## the contract of stores against a real API server
	@$(CLUSTER) build kube-apiserver kubectl
	@$(TARGET)/debug/cluster run $(XTASK) test --workspace --test cluster_store

e2e-cluster: packages ## tests on a real Kubernetes, built once, in about 10 minutes; NAME=cluster_x runs one file
	@$(CLUSTER) build
	@$(XTASK) test --workspace $(addprefix --test ,$(if $(NAME),$(NAME),$(CLUSTER_TESTS))) -- --test-threads=1

e2e-faults: packages ## controller and node killed at random on a real Kubernetes; HAWSER_FAULT_CLAIMS (200) claims
	@$(CLUSTER) build
	@$(XTASK) test --workspace --test cluster_faults -- --test-threads=1

cluster-shell: packages ## a shell beside a real Kubernetes; NODES=2 gives it two nodes
	@$(CLUSTER) shell $(if $(NODES),--nodes $(NODES))

lab: packages ## tests on real kernels and targets, in guests under QEMU; NAME=vm_x runs one suite
	@$(LAB) run $(if $(JOBS),--jobs $(JOBS)) $(if $(NAME),$(NAME),--set full)

lab-core: packages ## the short part of the lab, as make test runs it
	@$(LAB) run --set core

lab-soak: packages ## the lab's long runs
	@$(LAB) run --set soak

lab-shell: packages ## a shell in a guest; NAME=vm_x with the needs of that suite
	@$(LAB) shell $(NAME)

bench: bench-core bench-connect bench-csi ## all benches

bench-core: packages build ## creates and lists per second, restart, memory, start-up, copies
	$(CARGO) bench --locked -p hawser-live --bench core

bench-connect: packages ## iSCSI attach and detach against os-brick, in a guest; properties
	@$(LAB) bench connect

bench-csi: packages build ## claims, snapshots and pods on a real Kubernetes against csi-driver-host-path and the sidecars
	@$(CLUSTER) build
	$(CARGO) bench --locked -p hawser-live --bench csi

chart: ## the Helm chart: lint, many values, and deploy/kubernetes as it gives it; builds Helm with Go
	@tools/chart check

manifests: ## deploy/kubernetes, from the Helm chart
	@tools/chart write

packages:
	@tools/debian-packages

clean: ## remove what was built
	$(CARGO) clean
