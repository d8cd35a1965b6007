# Two commands do everything: `make run` and `make test`. `make` alone lists the rest.
# It needs Go, git and make; the tests bring what else they need.

GO          ?= go
PKG         ?= ./...
BENCH       ?= .
FUZZTIME    ?= 20s
DURATION    ?= 10m
# Per package. Several run at once, since those with real servers mostly wait.
TESTTIMEOUT ?= 15m

# staticcheck has a module of its own, so that go.mod stays free of it.
STATICCHECK  = tool -modfile=tools/go.mod staticcheck

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build run test quick fuzz bench prop soak shuffle mutants lint fmt clean deps gofmt vet staticcheck bench-module

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Compile everything; programs go to bin/
	$(GO) build ./...
	@if [ -d cmd ]; then mkdir -p bin && set -x && $(GO) build -o bin/ ./cmd/...; fi

run: ## Run the main job: the whole service on this machine, to try it out
	$(GO) run ./cmd/leased dev

test: deps lint bench-module ## Install what the tests need, check the code, run all tests with the race detector
	CGO_ENABLED=1 $(GO) test -race -p 3 -timeout $(TESTTIMEOUT) $(PKG)
	$(MAKE) prop

quick: ## Run the tests that need no server, without the race detector
	$(GO) test $$($(GO) list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' $(PKG) | \
		grep -v /internal/testserver | cut -d ' ' -f 1)

fuzz: ## Fuzz every target for FUZZTIME (20s each)
	@grep -rHo --include='*_test.go' --exclude-dir=testdata --exclude-dir=bench '^func Fuzz[A-Za-z0-9_]*' . | \
	while IFS=: read -r file func; do \
		set -- $(GO) test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")"; \
		echo "$$@"; "$$@" || exit 1; \
	done

bench: ## Run the Go benchmarks whose name matches BENCH (all)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 30m $(PKG)

prop: ## Hold the promises against the code with the larger budget, and print how much was checked; SEED=n for other seeds
	$(GO) run ./proptest/prop $(if $(SEED),-seed $(SEED))

soak: deps ## The same with new seeds until DURATION (10m; 90s, 2h) has passed, with a leg of real processes
	$(GO) run ./proptest/prop -duration $(DURATION) -seed $(or $(SEED),$$(date +%s))

shuffle: deps ## Repeat all tests in random order until one fails
	while CGO_ENABLED=1 $(GO) test -race -count=1 -shuffle=on -timeout 30m $(PKG); do :; done

mutants: deps ## Break the code in every known way and see that a test notices; RUN=regexp for some
	$(GO) run ./proptest/mutants $(if $(RUN),-run '$(RUN)')

lint: gofmt vet staticcheck ## Check format, go vet and staticcheck

fmt: ## Format the code
	"$$($(GO) env GOROOT)/bin/gofmt" -w .

clean: ## Remove what make built
	rm -rf bin out

# The steps of the above.

deps:
	@scripts/install-test-deps

gofmt:
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; fi >&2

vet:
	$(GO) vet $(PKG)

staticcheck:
	@$(GO) $(STATICCHECK) -version >/dev/null || { \
		echo "staticcheck cannot be built. It comes through the module proxy, GOPROXY=$$($(GO) env GOPROXY): is that within reach?" >&2; \
		echo "Its version is in tools/go.mod; 'go -C tools mod download' fetches it for later use without a network." >&2; \
		exit 1; }
	$(GO) $(STATICCHECK) $(PKG)

# bench is a module of its own, which ./... does not reach.
bench-module:
	@if [ -f bench/go.mod ]; then set -ex; \
		cd bench; $(GO) vet ./...; $(GO) tool -modfile=../tools/go.mod staticcheck ./...; $(GO) test -timeout $(TESTTIMEOUT) ./...; \
	fi
