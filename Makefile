# Copyright The Sandlot Authors.
# SPDX-License-Identifier: Apache-2.0

# Everything needs Go and git only. "make test" adds the race detector where a C
# compiler is found, because the detector is linked by one.

.DEFAULT_GOAL := help
SHELL := /bin/bash

# Without cgo our programs are static, and the build, the generators and the
# linter share what they compile.
export CGO_ENABLED := 0

# Running the preprocessor finds out about the C library's headers as well.
RACE ?= $(shell $$(go env CC) -E -include stdlib.h - </dev/null >/dev/null 2>&1 && echo -race)
# More arguments of go test, such as TESTARGS='-v -run TestClaim'.
TESTARGS ?=
PACKAGES ?= ./...
# What a release calls itself; any other build knows its commit.
VERSION ?=
# Arguments of the benchmark and of sandlot up.
BENCHARGS ?=
RUNARGS ?=

##@ Use

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build all programs of cmd/ into bin/
	@mkdir -p bin
	@go build $(if $(VERSION),-ldflags "-X github.com/sandlot-io/sandlot/pkg/version.version=$(VERSION)") -o bin/ ./cmd/...

.PHONY: demo
demo: build ## Start a server on a temporary folder, claim sandboxes, stop it
	@go build -o bin/ ./artifacts/example
	@hack/demo.sh

.PHONY: run
run: build kubectl ## Start a server that stays up, data in _output/run (RUNARGS=flags of sandlot up)
	@hack/run.sh $(RUNARGS)

.PHONY: bench
bench: build ## Measure claims against plain creates, a line of JSON a case (BENCHARGS=flags)
	@go run ./hack/bench $(BENCHARGS)

##@ Test

.PHONY: test
test: kubectl ## Run all tests, with -race where there is a C compiler (TESTARGS, PACKAGES)
	@$(if $(RACE),,echo "No C compiler found: testing without -race.")
	CGO_ENABLED=$(if $(RACE),1,0) KUBECTL=$(CURDIR)/bin/kubectl go test $(RACE) -timeout 20m $(TESTARGS) $(PACKAGES)

.PHONY: test-race
test-race: kubectl ## Run all tests with -race, fail without a C compiler
	CGO_ENABLED=1 KUBECTL=$(CURDIR)/bin/kubectl go test -race -timeout 20m $(TESTARGS) $(PACKAGES)

.PHONY: test-unit
test-unit: ## Run the tests beside the code, without -race and without whole servers
	go test $(TESTARGS) $$(go list ./... | grep -Ev '/pkg/(integration|e2e)(/|$$)')

##@ Develop

.PHONY: generate
generate: ## Regenerate deepcopy, defaults, OpenAPI and clients
	hack/update-codegen.sh

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

.PHONY: kubectl
kubectl: ## Build the pinned kubectl into bin/
	@hack/tool.sh kubectl >/dev/null

.PHONY: clean
clean: ## Remove bin/ and _output/
	rm -rf bin _output
