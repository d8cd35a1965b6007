# `make run` starts the service, `make test` runs all tests, and `make` lists the rest.
# They need Go, git and make; `make test` installs what else the tests need.

GO          ?= go
PKG         ?= ./...
BENCH       ?= .
FUZZTIME    ?= 20s
DURATION    ?= 10m
# Options of the comparison and of its curves: bench/main.go lists them.
BENCHFLAGS  ?= -rounds 3 -time 1s
CURVEFLAGS  ?= -rounds 1 -time 1s
# Packages whose Go benchmarks docs/PERFORMANCE.md shows.
GATES        = $(addprefix ./storagegate/,sqlgate/pgxgate sqlgate redisgate boltgate memgate)
PARTS        = ./fencing/... ./raftstore/machine ./redlockadapter/quorum ./internal/wire ./telemetry/metrics ./internal/server/metrics
# Timeout of the tests of one package. Several packages and tests run at once, since tests with servers mostly wait.
TESTTIMEOUT ?= 15m
# The packages that take longest begin first; storagegate/objectgate compiles an S3 server. lint has run go vet.
SLOW         = .*/leased/(cmd/leased/e2e|redlockadapter|lease/postgres|storagegate/sqlgate|internal/server|raftstore|internal/abuse|client|sdk/conformance|proptest/.*|storagegate/objectgate)
# Packages without goroutines of their own, and tests of programs that they start: the race detector would only slow
# them down. In proptest/virtual the detector of Go 1.26 crashes now and then, in runtime.(*timer).maybeRunChan of a
# synctest bubble. make race runs them all with it.
PLAIN        = .*/leased/(api.*|cmd/.*|examples.*|internal/(abuse|browser|clientcore|golden|logtest|openapi|screenshots|secret|server/dashboard|tidy|wire)|lease/engine|proptest/(model|mutants|prop|property|redisnode|redlock|sim|torture|virtual)|raftstore/(lessor|machine|proposer)|redlockadapter/(quorum|recovery|scripts)|sdk/.*|storagegate/(recipes|sqlgate.*)|telemetry/(metrics|tracing))
# Packages whose tests need processes or minutes. Elsewhere such tests are skipped by -short.
PROCESSES    = .*/leased/(client|cmd/.*|examples.*|internal/(abuse|browser|screenshots|server|server/dashboard)|lease/postgres|proptest/(mutants|prop|redisnode|redlock|sim|torture|virtual)|storagegate/(sqlgate.*|objectgate|recipes))
# Packages with tests in real time: of processes, servers and connections. scripts/test-packages repeats one or two failed
# tests of them, unless STRICT=1.
export REALTIME = .*/leased/(client|cmd/.*|examples.*|integrations/.*|internal/(abuse|browser|remote|server.*)|lease/postgres|proptest/(redisnode|torture)|raftstore|raftstore/transport|redlockadapter|sdk/.*|storagegate/.*)
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null)

# The compiler and staticcheck take a third less processor time if they collect garbage less often. These settings
# apply to the Go tools only, not to the tests.
LAZY = env GOGC=400 GOMEMLIMIT=2GiB
ifeq ($(MAKELEVEL),0)
export GOFLAGS := $(shell $(GO) env GOFLAGS) "-toolexec=$(LAZY)"
endif

# staticcheck has its own module, so that go.mod does not contain it.
STATICCHECK  = tool -modfile=tools/go.mod staticcheck

.DEFAULT_GOAL := help
.PHONY: help build release notice run test quick fuzz bench bench-gates bench-report microbench prop soak shuffle mutants screenshots lint fmt clean deps gofmt vet staticcheck manifests bench-module release-test plain-test race race-test sdk-test typescript wheel integrations-test tofu-test kube-test kubernetes binary bench-sdk

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the programs into bin/, for a release
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/ ./cmd/...
	@ls -l bin

release: ## Build the archives of a release into out/release/ (VERSION=v1.2.3; RELEASEFLAGS=-allow-dirty for a trial)
	cd tools && $(GO) run ./release -root .. -out ../out/release -go $(GO) -version "$(VERSION)" $(RELEASEFLAGS)

run: ## Run the whole service on this machine, to try it out
	@echo "building leased; the first build downloads modules and takes some minutes, later ones a second"
	@mkdir -p out
	@$(GO) build -o out/leased ./cmd/leased
	@out/leased dev

test: ## Run all checks and tests (installs missing servers)
	# vet compiles what the next steps would compile side by side. Without a C compiler it waits for one.
	$(MAKE) --no-print-directory --output-sync=target $(if $(shell command -v cc),-j2) deps vet
	$(MAKE) --no-print-directory --output-sync=target -j3 sdk-test lint bench-module integrations-test # sdk-test mostly waits
	$(MAKE) --no-print-directory race-test
	$(MAKE) --no-print-directory plain-test

quick: ## Run the tests that start no process, in about a minute
	$(GO) test -short -vet=off $$($(GO) list ./... | grep -vxE '$(PROCESSES)')

fuzz: ## Fuzz every target for FUZZTIME (20s)
	@grep -rHo --include='*_test.go' --exclude-dir=testdata --exclude-dir=bench '^func Fuzz[A-Za-z0-9_]*' . | \
	while IFS=: read -r file func; do \
		set -- $(GO) test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")"; \
		echo "$$@"; "$$@" || exit 1; \
	done

bench: ## Compare leased with other lock services and write docs/PERFORMANCE.md, in half an hour (BENCHFLAGS, CURVEFLAGS)
	scripts/install-bench-peers
	@mkdir -p out/bench
	rm -f out/bench/*.json out/bench/*.txt
	-cd bench && $(GO) run . $(BENCHFLAGS) -out ../out/bench/results.json
	-cd bench && $(GO) run . -only nodes $(BENCHFLAGS) -out ../out/bench/nodes.json
	-cd bench && $(GO) run . -only waiters,batch,sessions,leases $(CURVEFLAGS) -out ../out/bench/curves.json
	-cd bench && $(GO) run . -only profile -rounds 1 -time 10s -out ../out/bench/profiles.json
	-$(MAKE) bench-gates
	$(MAKE) bench-report

bench-gates: ## Run the benchmarks of gates and parts for docs/PERFORMANCE.md
	@scripts/install-test-deps
	@mkdir -p out/bench
	$(GO) test -run '^$$' -bench . -skip Signed -benchtime 2000x -timeout 30m $(GATES) > out/bench/gates.txt
	$(GO) test -run '^$$' -bench . -skip 'Memory|Image|Bulk' -benchtime 200ms -benchmem -timeout 30m $(PARTS) > out/bench/parts.txt

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

mutants: deps kubernetes ## Check that the tests catch every known bug (RUN=regexp for some of them)
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

race: deps ## Run all tests with the race detector, also those of programs
	CGO_ENABLED=1 $(GO) test -race -vet=off -p 3 -timeout 30m $(PKG)

# Steps of the targets above.

# Without debugging information a test links in half the time.
NODWARF = -ldflags=-w

ordered = $$(echo "$$packages" | grep -xE '$(SLOW)') $$(echo "$$packages" | grep -vxE '$(SLOW)')

plain-test: typescript
	@packages=$$($(GO) list $(PKG) | grep -xE '$(PLAIN)' | grep -v '/server/dashboard$$') && set -x && \
	scripts/test-packages 4 $(GO) test -vet=off $(NODWARF) -parallel 4 -skip '^Test(Python|TypeScript)$$' -timeout $(TESTTIMEOUT) $(ordered)

race-test:
	@packages=$$($(GO) list $(PKG) | grep -vxE '$(PLAIN)') && set -x && \
	CGO_ENABLED=1 scripts/test-packages 3 $(GO) test -race -vet=off $(NODWARF) -timeout $(TESTTIMEOUT) $(ordered)

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
	$(LAZY) $(GO) $(STATICCHECK) $(PKG)

# The manifests are checked by a program in the module of the tools, so that go.mod does not contain Kubernetes. make
# release-test runs the tests of tools that are left out here.
manifests:
	cd tools && $(GO) vet ./... && $(GO) test -skip '^TestRelease$$' ./... && $(GO) run ./manifests ../deploy/kubernetes

release-test: ## Build the release of this platform twice, compare, and run the quick start with it
	cd tools && $(GO) test -count=1 -timeout $(TESTTIMEOUT) ./release

binary:
	$(GO) build -o out/leased ./cmd/leased

# The clients in other languages, against the real binary. The tests of the dashboard run with them, since Chromium gives
# up its requests whenever a network interface appears or disappears, as they do in the tests of plain-test.
sdk-test: export TEST_BINARY = $(CURDIR)/out/leased
sdk-test: export GATE_WRITER = $(CURDIR)/out/gatewriter
sdk-test: binary typescript
	$(GO) build -o out/ ./sdk/conformance/gatewriter
	cd sdk/python && /usr/bin/python3 -m flake8 src tests && /usr/bin/python3 -m mypy
	scripts/test-packages 2 $(GO) test -vet=off -count=1 -v -skip '^TestClientsBehaveAlike$$' -timeout $(TESTTIMEOUT) \
		./sdk/conformance ./internal/server/dashboard

typescript: sdk/typescript/dist/index.js

sdk/typescript/dist/index.js: sdk/typescript/package.json $(wildcard sdk/typescript/src/*.ts)
	cd sdk/typescript && npm install --no-audit --no-fund --ignore-scripts && npx tsc && touch dist/index.js

# Ratios to redis-py, etcd's and ZooKeeper's clients, for docs/PYTHON.md and docs/TYPESCRIPT.md.
bench-sdk: binary typescript
	scripts/install-bench-peers sdk
	cd sdk/typescript && npm install --no-save --no-audit --no-fund --ignore-scripts etcd3@1.1.2
	cd sdk/python && PYTHONPATH=src:tests /usr/bin/python3 tests/bench.py $(CURDIR)/out/leased

wheel: ## Build the Python package into out/
	@mkdir -p out && rm -rf out/wheel && cp -r sdk/python out/wheel && cp LICENSE out/wheel
	/usr/bin/python3 -m pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir out out/wheel
	@ls out/leased-*.whl

# The integrations are separate modules, so that nobody who imports leased downloads what they adapt.
# make kube-test covers kubelock: client-go takes minutes to compile.
INTEGRATIONS = gooselock gocronlock certmagicstore

integrations-test: binary ## Run the tests of the integrations
	@set -ex; for module in $(INTEGRATIONS); do cd $(CURDIR)/integrations/$$module; $(GO) vet ./...; $(GO) tool -modfile=../../tools/go.mod staticcheck ./...; \
		TEST_BINARY=$(CURDIR)/out/leased ../../scripts/test-packages 2 $(GO) test -timeout $(TESTTIMEOUT) ./...; done

tofu-test: binary ## Build OpenTofu, and run it against leased gate tfstate (the first build takes many minutes)
	cd integrations/tfstate/tofu && $(GO) build -o $(CURDIR)/out/tofu github.com/opentofu/opentofu/cmd/tofu
	cd integrations/tfstate && $(GO) vet ./... && TOFU=$(CURDIR)/out/tofu TEST_BINARY=$(CURDIR)/out/leased $(GO) test -count=1 -v ./...

# kube-apiserver and etcd for tests; make rebuilds them only for another version.
kubernetes: out/kube-apiserver
out/kube-apiserver: integrations/kubelock/apiserver/go.mod
	@mkdir -p out
	cd integrations/kubelock/apiserver && CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o $(CURDIR)/out/etcd go.etcd.io/etcd/server/v3
	cd integrations/kubelock/apiserver && CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o $(CURDIR)/out/ k8s.io/kubernetes/cmd/kube-apiserver

kube-test: binary kubernetes ## Build kube-apiserver and etcd, and run controllers against them (the first build takes many minutes)
	cd integrations/kubelock && $(GO) vet ./... && $(GO) tool -modfile=../../tools/go.mod staticcheck ./... && $(GO) test ./...
	cd integrations/kubelock/e2e && $(GO) vet ./... && TEST_BINARY=$(CURDIR)/out/leased $(GO) test -count=1 -timeout $(TESTTIMEOUT) ./...

# bench is a separate module, which ./... does not include.
bench-module:
	@if [ -f bench/go.mod ]; then set -ex; \
		cd bench; $(GO) vet ./...; $(GO) tool -modfile=../tools/go.mod staticcheck ./...; $(GO) test -timeout $(TESTTIMEOUT) ./...; \
	fi
