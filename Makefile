# `make run` starts the service, `make test` runs all tests, and `make` lists the rest.
# They need Go, git and make; `make test` installs what else the tests need.

GO          ?= go
PKG         ?= ./...
BENCH       ?= .
FUZZTIME    ?= 20s
DURATION    ?= 10m
# Options of the comparison and of its curves: bench/main.go and bench/curves/main.go list them.
BENCHFLAGS  ?= -rounds 5 -time 2s
CURVEFLAGS  ?= -rounds 3 -time 1s
# Packages whose Go benchmarks docs/PERFORMANCE.md shows.
GATES        = $(addprefix ./storagegate/,sqlgate/pgxgate sqlgate redisgate boltgate memgate)
PARTS        = ./fencing ./raftstore/machine ./redlockadapter/quorum ./lease/remote/wire ./telemetry/metrics ./internal/server/metrics
# Timeout of the tests of one package. Three packages run at once, since tests
# with servers mostly wait.
TESTTIMEOUT ?= 15m
# The packages that take longest begin first.
SLOW         = .*/leased/(cmd/leased/e2e|redlockadapter|storagegate/sqlgate|internal/server|raftstore|internal/abuse|client|proptest/.*)
# Tests on one goroutine, which the race detector would only slow down.
SEQUENTIAL   = .*/leased/(internal/tidy|proptest|proptest/(redisnode|redlock|sim))
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null)

# staticcheck has its own module, so that go.mod does not contain it.
STATICCHECK  = tool -modfile=tools/go.mod staticcheck

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build release notice run test quick fuzz bench bench-gates bench-report microbench prop soak shuffle mutants screenshots lint fmt clean deps gofmt vet staticcheck manifests bench-module release-test

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the programs into bin/, for a release
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/ ./cmd/...
	@ls -l bin

release: ## Build the archives of a release into out/release/ (VERSION=v1.2.3; RELEASEFLAGS=-allow-dirty for a trial)
	cd tools && $(GO) run ./release -root .. -out ../out/release -go $(GO) -version "$(VERSION)" $(RELEASEFLAGS)

run: ## Run the whole service on this machine, to try it out
	$(GO) run ./cmd/leased dev

test: deps lint bench-module release-test ## Run all checks and tests, with the race detector (installs missing servers)
	packages=$$($(GO) list $(PKG) | grep -vxE '$(SEQUENTIAL)') && \
	CGO_ENABLED=1 $(GO) test -race -p 3 -timeout $(TESTTIMEOUT) $$(echo "$$packages" | grep -xE '$(SLOW)') $$(echo "$$packages" | grep -vxE '$(SLOW)')
	$(GO) test -timeout $(TESTTIMEOUT) $$($(GO) list ./... | grep -xE '$(SEQUENTIAL)')
	$(GO) run ./proptest/prop -mutants=false

quick: ## Run the tests that start no server, in less than a minute
	$(GO) test -vet=off $$(GO=$(GO) scripts/quick-packages) ./internal/tidy

fuzz: ## Fuzz every target for FUZZTIME (20s)
	@grep -rHo --include='*_test.go' --exclude-dir=testdata --exclude-dir=bench '^func Fuzz[A-Za-z0-9_]*' . | \
	while IFS=: read -r file func; do \
		set -- $(GO) test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")"; \
		echo "$$@"; "$$@" || exit 1; \
	done

bench: ## Compare leased with other lock services and write docs/PERFORMANCE.md, in about an hour (BENCHFLAGS, CURVEFLAGS)
	scripts/install-bench-peers
	@mkdir -p out/bench
	rm -f out/bench/*.json out/bench/*.txt
	-cd bench && $(GO) run . $(BENCHFLAGS) -out ../out/bench/results.json
	-cd bench && $(GO) run ./curves $(CURVEFLAGS) -out ../out/bench/curves.json
	-cd bench && $(GO) run ./profiles -out ../out/bench/profiles.json
	-$(MAKE) bench-gates
	$(MAKE) bench-report

bench-gates: ## Run the benchmarks of gates and parts for docs/PERFORMANCE.md
	@scripts/install-test-deps
	@mkdir -p out/bench
	$(GO) test -run '^$$' -bench . -skip Signed -benchtime 2000x -timeout 30m $(GATES) > out/bench/gates.txt
	$(GO) test -run '^$$' -bench . -skip 'Memory|Image' -benchtime 200ms -benchmem -timeout 30m $(PARTS) > out/bench/parts.txt

bench-report: ## Write docs/PERFORMANCE.md again from the results of the last make bench
	cd bench && $(GO) run ./report -docs ../docs $$(ls ../out/bench/*.json ../out/bench/*.txt 2>/dev/null)

microbench: ## Run the Go benchmarks that match BENCH (all)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 30m $(PKG)

prop: ## Check the promises by simulation and print how much was checked (SEED=n for other seeds)
	$(GO) run ./proptest/prop $(if $(SEED),-seed $(SEED))

soak: deps ## Attack a server with 10,000 clients, then check the promises for DURATION (10m)
	$(GO) test -count=1 -v -timeout $(TESTTIMEOUT) ./internal/abuse -args -scale=10000
	$(GO) run ./proptest/prop -duration $(DURATION) -seed $(or $(SEED),$$(date +%s))

shuffle: deps ## Repeat all tests in random order until one fails
	while CGO_ENABLED=1 $(GO) test -race -count=1 -shuffle=on -timeout 30m $(PKG); do :; done

mutants: deps ## Check that the tests catch every known bug (RUN=regexp for some of them)
	$(GO) run ./proptest/mutants $(if $(RUN),-run '$(RUN)')

lint: gofmt vet staticcheck manifests ## Run gofmt, go vet and staticcheck, and check the Kubernetes manifests

screenshots: ## Take pictures of the dashboard of a real cluster into out/screenshots (needs chromium and redis-server)
	$(GO) run ./internal/screenshots
	cp out/screenshots/locks-laptop-light.png docs/images/dashboard.png

notice: ## Update NOTICE, the licences of the linked modules
	GO=$(GO) scripts/notice > NOTICE.new && mv NOTICE.new NOTICE

fmt: ## Format the code
	"$$($(GO) env GOROOT)/bin/gofmt" -w .

clean: ## Remove build output
	rm -rf bin out

# Steps of the targets above.

deps:
	@scripts/install-test-deps

gofmt:
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "these files are not formatted; run make fmt:"; echo "$$unformatted"; exit 1; fi >&2

vet:
	$(GO) vet $(PKG)

staticcheck:
	@$(GO) $(STATICCHECK) -version >/dev/null || { \
		echo "staticcheck cannot be built; check that the module proxy GOPROXY=$$($(GO) env GOPROXY) can be reached" >&2; \
		echo "'go -C tools mod download' downloads the version in tools/go.mod for later use without a network" >&2; \
		exit 1; }
	$(GO) $(STATICCHECK) $(PKG)

# The manifests are checked by a program in the module of the tools, so that go.mod does not contain Kubernetes.
manifests:
	cd tools && $(GO) vet ./manifests && $(GO) test ./manifests && $(GO) run ./manifests ../deploy/kubernetes

# The program that builds a release builds the one of this platform twice, and compares.
release-test:
	cd tools && $(GO) vet ./release && $(GO) test -count=1 -timeout $(TESTTIMEOUT) ./release

# bench is a separate module, which ./... does not include.
bench-module:
	@if [ -f bench/go.mod ]; then set -ex; \
		cd bench; $(GO) vet ./...; $(GO) tool -modfile=../tools/go.mod staticcheck ./...; $(GO) test -timeout $(TESTTIMEOUT) ./...; \
	fi
