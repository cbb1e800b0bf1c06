# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Everything needs Go and git only. "make test" adds the race detector where a C
# compiler is found, because the detector is linked by one.

.DEFAULT_GOAL := help
SHELL := /bin/bash

# Without cgo our programs are static, and the build, the generators and the
# linter share what they compile; without paths, so do the images.
export CGO_ENABLED := 0

# Running the preprocessor finds out about the C library's headers as well.
RACE ?= $(shell $$(go env CC) -E -include stdlib.h - </dev/null >/dev/null 2>&1 && echo -race)
# More arguments of go test, such as TESTARGS='-v -run TestClaim'.
TESTARGS ?=
# The root and the two modules that others import; go.work puts them together.
MODULES := ./... ./apis/... ./pkg/client/...
# With RERUN=1 a test that failed is run once more, as in CI: see hack/gotest.sh.
RERUN ?=
# $(call gotest,PACKAGES,FLAGS)
gotest = $(if $(RERUN),hack/gotest.sh "$(1)" $(2),go test $(2) $(1))
# The longest tests begin first: they wait more than they compute, and the others run beside them.
PACKAGES ?= ./pkg/e2e/cluster ./pkg/integration ./pkg/apiserver $(MODULES)
# The tests of these packages run our programs, or load a server as fast as they can. The race
# detector would see nothing of the programs, and slow the server down: they run without it.
PROGRAM_TESTS := /(pkg/e2e|artifacts/deploy)(/|$$)
# The minor of Kubernetes that control planes are of, such as 1.36: a folder of
# hack/controlplane. Without it, the newest.
KUBERNETES ?=
export KUBERNETES
# What test-older runs: the path of a claim, kubectl, policies, quotas, garbage collection.
OLDER ?= 1.36
OLDER_TESTS ?= TestMinorOfKubernetes|TestInstallIsValid|TestNothingIsMissing|TestClaimWithKubectl|TestClaimer|TestSetDeleted|TestClaimDeleted|TestNamespaceDeleted|TestOnlyDryRuns|TestQuotaOfClaims|TestResize|Test(Validat|Mutat)ingAdmissionPolicy|TestWebhooks
# What a release calls itself; any other build knows its commit.
VERSION ?=
# The vulnerability database to ask; the one that hack/vulncheck pins by default.
VULNDB ?=
# Arguments of the benchmark and of sandlot up.
BENCHARGS ?=
RUNARGS ?=
# The local cluster: two of them need two folders. A port of 0 is that of the last
# time or a free one; CLUSTER_CLEAN=1 removes the data, CLUSTERARGS=flags of
# hack/cluster, such as --overlay=single.
CLUSTER_DIR ?= _output/cluster
CLUSTER_PORT ?= 0
CLUSTER_ETCD_PORT ?= 0
CLUSTER_CLEAN ?=
# NODES=real starts nodes that run containers, on Linux as root, in place of simulated ones;
# REAL_NODES says how many. CLUSTERARGS=--nodes=4 has both kinds.
NODES ?= simulated
REAL_NODES ?= 1
CLUSTERARGS ?=
clusterflags = --dir=$(CLUSTER_DIR) --port=$(CLUSTER_PORT) --etcd-port=$(CLUSTER_ETCD_PORT) $(if $(CLUSTER_CLEAN),--clean) $(if $(filter real,$(NODES)),--real-nodes=$(REAL_NODES)) $(CLUSTERARGS)
# Such as MUTATIONARGS='-run etcdtxn'.
MUTATIONARGS ?=
# Such as IMAGEARGS='-platforms linux/arm64 -registry registry.example/team'.
IMAGEARGS ?=
# Such as RELEASEARGS='-key ../release.pem -registry registry.example/team'.
RELEASEARGS ?=

##@ Use

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Builds, tools, their tests and the linter compile with -trimpath, and so what they share
# only once.
.PHONY: build
build: ## Build all programs of cmd/ into bin/
	@mkdir -p bin
	@go build -trimpath $(if $(VERSION),-ldflags "-X github.com/sandlot-io/sandlot/pkg/version.version=$(VERSION)") -o bin/ ./cmd/...
	@ln -sf kubectl-sandlot bin/kubectl_complete-sandlot

.PHONY: demo
demo: ## Build and start a server on a temporary folder, claim sandboxes, stop it (minutes at first)
	@hack/demo.sh

.PHONY: demo-e2b
demo-e2b: build kubectl ## The same with the E2B SDK, which npm installs
	@hack/demo-e2b.sh

.PHONY: run
run: build kubectl ## Start a server that stays up, data in _output/run (RUNARGS=flags of sandlot up)
	@hack/run.sh $(RUNARGS)

.PHONY: cluster-time
cluster-time:
	@echo "Building what is missing of the control plane and Sandlot: about $(if $(filter real,$(NODES)),a quarter of an hour,ten minutes) the first time on two cores, then seconds."

.PHONY: cluster-up
cluster-up: cluster-time build controlplane $(if $(filter real,$(NODES)),node-tools) ## Start a local control plane with Sandlot in the background (CLUSTER_*, NODES=real)
	@go build -o bin/ ./hack/cluster
	@bin/cluster up $(clusterflags)

.PHONY: cluster-down
cluster-down: ## Stop it, data is kept (CLUSTER_DIR, CLUSTER_CLEAN=1 removes it)
	@go build -o bin/ ./hack/cluster
	@bin/cluster down $(clusterflags)

.PHONY: bench
bench: build ## Measure claims against plain creates, a line of JSON a case (BENCHARGS=flags)
	@go run ./hack/bench $(BENCHARGS)

.PHONY: bench-cluster
bench-cluster: build controlplane ## The same through the aggregator of a local control plane (BENCHARGS=flags)
	@go run ./hack/bench -cluster $(BENCHARGS)

.PHONY: bench-gateway
bench-gateway: build controlplane ## Measure creates and traffic through the E2B gateway (BENCHARGS=flags)
	@go run ./hack/bench -cluster -cases 'gateway/*' $(BENCHARGS)

.PHONY: image
image: ## Make the container images, some minutes the first time, into _output/image/sandlot.tar, and a kustomize component that names them (IMAGEARGS=flags of hack/image)
	@echo "Compiling the programs for each platform: some minutes the first time."
	@cd hack/image && GOWORK=off go run -trimpath . $(if $(VERSION),-version $(VERSION) -tag $(VERSION)) $(IMAGEARGS)

.PHONY: release
release: bin/release ## Make all that a release has into _output/release (VERSION, RELEASEARGS='-key FILE -registry NAME')
	@bin/release -root . -version '$(VERSION)' $(RELEASEARGS)

.PHONY: bin/release
bin/release:
	@cd hack/release && GOWORK=off CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$@ .

##@ Test

# While the tests of programs wait, what the others need is compiled, at the lowest priority.
.PHONY: test
test: controlplane ## Run all tests, with -race where there is a C compiler, but for those of programs (TESTARGS, PACKAGES, RERUN=1)
	@echo "All tests take about an hour on two cores once everything is compiled. PACKAGES=./pkg/x and TESTARGS='-run TestX' choose some."
	@$(if $(RACE),,echo "No C compiler found: testing without -race.")
	cd hack/promcheck && GOWORK=off go test -trimpath ./...
	@export KUBECTL=$(CURDIR)/bin/$(KUBERNETES)/kubectl; failed=0; \
	packages="$$(go list $(PACKAGES))" || exit; \
	programs="$$(grep -E '$(PROGRAM_TESTS)' <<<"$$packages" | xargs)"; \
	others="$$(grep -vE '$(PROGRAM_TESTS)' <<<"$$packages" | xargs)"; \
	if [[ -n $$programs && -n $$others ]]; then \
		CGO_ENABLED=$(if $(RACE),1,0) nice -n 19 go list -export -test -deps $(RACE) $$others >/dev/null 2>&1 & compiling=$$!; fi; \
	if [[ -n $$programs ]]; then $(call gotest,$$programs,-trimpath -timeout 60m $(TESTARGS)) || failed=1; fi; \
	if [[ -n $${compiling:-} ]]; then kill $$compiling 2>/dev/null; wait $$compiling; fi; \
	if [[ -n $$others ]]; then \
		CGO_ENABLED=$(if $(RACE),1,0) $(call gotest,$$others,$(RACE) -timeout 60m $(TESTARGS)) || failed=1; fi; \
	exit $$failed

.PHONY: test-long
test-long: ## Run all tests in their long form: more of everything, and what only repeats (TESTARGS)
	SANDLOT_TEST_LONG=1 $(MAKE) test TESTARGS='-timeout 80m $(TESTARGS)'

.PHONY: test-race
test-race: controlplane ## Run all tests with -race, fail without a C compiler
	CGO_ENABLED=1 KUBECTL=$(CURDIR)/bin/$(KUBERNETES)/kubectl go test -race -timeout 60m $(TESTARGS) $(PACKAGES)

.PHONY: test-e2e
test-e2e: build controlplane ## Run the tests of whole programs and of the local cluster (TESTARGS, KUBERNETES=1.36)
	KUBECTL=$(CURDIR)/bin/$(KUBERNETES)/kubectl go test -timeout 30m $(TESTARGS) ./pkg/e2e/... ./pkg/testutil/...

.PHONY: test-node
test-node: controlplane node-tools ## Run the tests on real nodes, on Linux as root (TESTARGS, KUBERNETES=1.36)
	SANDLOT_TEST_NODES=required go test -trimpath -timeout 15m $(TESTARGS) ./pkg/e2e/node ./pkg/e2e/installed

.PHONY: test-older
test-older: controlplane ## Run some tests in a cluster of an older minor of Kubernetes (OLDER, OLDER_TESTS, TESTARGS)
	@for tool in kube-apiserver kube-controller-manager kube-scheduler; do \
		KUBERNETES=$(OLDER) hack/tool.sh $$tool >/dev/null || exit; done
	KUBERNETES=$(OLDER) $(call gotest,./pkg/e2e/cluster,-trimpath -timeout 15m $(TESTARGS) -run '^($(OLDER_TESTS))$$')

.PHONY: test-abuse
test-abuse: ## Run abusive clients against a server and print the cost (TESTARGS; SANDLOT_ABUSE_DURATION=5m runs the etcd test longer)
	go test -v -count=1 -timeout 15m $(TESTARGS) ./pkg/e2e/abuse

.PHONY: test-robustness
test-robustness: controlplane ## Check API servers under faults, and that builds without a safety are found (TESTARGS; SANDLOT_ROBUSTNESS_DURATION=10m)
	SANDLOT_TEST_LONG=1 go test -v -count=1 -timeout 90m $(TESTARGS) ./pkg/e2e/robustness

.PHONY: test-unit
test-unit: ## Run the tests beside the code, without -race and without whole servers
	go test $(TESTARGS) $$(go list $(MODULES) | grep -Ev '/pkg/(certificates|integration|e2e|testutil)(/|$$)')

.PHONY: test-image
test-image: ## Make the container images, some minutes the first time, twice, look into them and run what they hold (SANDLOT_TEST_LONG=1: for all platforms)
	cd hack/image && GOWORK=off go test -trimpath -timeout 30m $(TESTARGS) ./...

.PHONY: test-release
test-release: ## Make a release twice, and look whether both are the same and what they should be
	cd hack/release && GOWORK=off go test -trimpath -timeout 30m $(TESTARGS) ./...

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities in what is shipped (VULNDB=https://vuln.go.dev for those of today)
	cd hack/vulncheck && GOWORK=off go test -trimpath $(TESTARGS) ./... && GOWORK=off go run -trimpath . $(if $(VULNDB),-db '$(VULNDB)')

##@ Develop

.PHONY: generate
generate: ## Regenerate deepcopy, defaults, OpenAPI, clients and the manifests of the Helm chart
	hack/update-codegen.sh

.PHONY: golden
golden: ## Keep a store of this version for the tests of later ones (VERSION=v0.1.0)
	@test -n "$(VERSION)" || { echo "make golden: VERSION=v0.1.0 is required" >&2; exit 2; }
	go test ./pkg/integration/golden -run '^TestMake$$' -count=1 -args -golden-version=$(VERSION)

.PHONY: lint
lint: ## Run golangci-lint
	hack/verify-lint.sh

.PHONY: verify
verify: ## Run every verify-* and require a clean tree without untracked files
	hack/verify.sh

.PHONY: verify-codegen
verify-codegen: ## Fail when generated files are not up to date
	hack/verify-codegen.sh

.PHONY: verify-imports
verify-imports: ## Fail when a package depends on what it must not
	hack/verify-imports.sh

.PHONY: verify-tidy
verify-tidy: ## Fail when a go.mod or go.sum is not tidy
	hack/verify-tidy.sh

.PHONY: verify-prose
verify-prose: ## Check the prose of docs, comments and messages, and subjects of commits
	hack/verify-prose.sh

.PHONY: mutations
mutations: ## Change the code where tests must notice, fail if they do not (minutes; MUTATIONARGS='-run name')
	@go run ./hack/mutations $(MUTATIONARGS)

.PHONY: controlplane
controlplane: ## Build the programs of a control plane into bin/ (minutes at first; KUBERNETES=1.36)
	@for tool in etcd etcdctl etcdutl kube-apiserver kube-controller-manager kube-scheduler kubectl kwok promcheck helm; do \
		hack/tool.sh $$tool >/dev/null || exit; done

.PHONY: node-tools
node-tools: ## Build what runs the containers of real nodes into bin/ (minutes at first; KUBERNETES=1.36)
	@for tool in kubelet containerd containerd-shim-runc-v2 ctr kube-network-policies; do hack/tool.sh $$tool >/dev/null || exit; done

.PHONY: kubectl
kubectl: ## Build the pinned kubectl into bin/
	@KUBERNETES= hack/tool.sh kubectl >/dev/null

.PHONY: clean
clean: ## Remove bin/ and _output/
	rm -rf bin _output
