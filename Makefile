# Millweir: `make help` lists the targets.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

RUN      := .run
BIN      := $(RUN)/bin
TAGS     := nomsgpack grpcnotrace
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
comma    := ,
LDFLAGS  := -s -w -X github.com/millweir/millweir/pkg/process.version=$(VERSION)
GOFLAGS_BUILD := -ldflags '$(LDFLAGS)'
# Every binary is a folder below services/ with a main.go.
BINARIES := $(patsubst services/%/main.go,%,$(wildcard services/*/main.go))
# Patterns of all modules in the workspace: ./... does not cross module borders.
MODULES  = $(shell go list -m -f '{{.Dir}}/...')
# Everything but the tests with the race detector is compiled alike, as the product is: each package once, not once per tool.
export GOFLAGS     := $(shell go env GOFLAGS) -trimpath -tags=$(subst $() ,$(comma),$(TAGS))
export CGO_ENABLED := 0
# Tests wait for servers more than they compute, so more of them run beside each other than there are cores.
TEST_FLAGS ?= -p 3 -parallel 4
# SQLite is C translated to Go, its driver compares each argument of a statement with all others, and wazero reads and compiles the PDF
# engine: with the race detector inside them tests of their callers take up to ten times as long. The callers are watched. No package
# that uses sync.Map or another generic type of the standard library may stand here: the linker keeps one copy of its code for all
# packages, and a copy without the detector makes races of what is ordered.
UNWATCHED = modernc.org/sqlite modernc.org/sqlite/lib modernc.org/libc modernc.org/memory \
	$(addprefix github.com/tetratelabs/wazero/internal/,engine/wazevo/ssa engine/wazevo/frontend engine/wazevo/backend/... leb128 wasm/binary)
RACE = -race $(foreach package,$(UNWATCHED),-gcflags=$(package)=-race=false)
# What the coverage counts (scripts/cover); the laboratory and the test packages are not instrumented.
COVERED = $(subst $() ,$(comma),$(shell go list $(MODULES) | grep -vE '/millweir/(scripts|pkg/labserver)(/|$$)|test$$'))
# The packages that take longest come first: go test starts them in this order. Vet is lint's. The end-to-end tests stay behind
# pkg/ingest/extract, which leaves the compiled reader of PDFs in the user's cache: under the race detector one compilation
# takes a core for a minute, and each program of an end-to-end test would begin its own.
LONG = ./services/ingest-api/gateway ./pkg/streammq ./pkg/taskrun
TEST_ALL = -vet=off -shuffle=on -timeout 30m $(TEST_FLAGS)
# What the race detector watches: the product, but for the readers and the splitter, which make text of bytes in one goroutine, the
# state searches, and what reads our own sources.
WATCHED = $(shell go list $(MODULES) | grep -vE '/millweir/(scripts/.*|pkg/(ingest/(extract/.+|split)|taskstate/spec.*|archtest))$$')
# What is tested as the product is built, and measured: all but the end-to-end tests, whose programs report no coverage.
PLAIN = $(shell go list $(MODULES) | grep -v '/millweir/services/millweir/e2e$$')

.PHONY: help env-example run build test test-quick test-mysql cover fuzz lint fmt deps screenshots services-up services-down services-status bench bench-peers drills drill soak crashpoints mutants vuln sbom repro image chart chart-settings ci clean FORCE

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: bin/millweir ## build and start everything in one process on embedded defaults, on :8081, data in ./data
	@exec bin/millweir dev $(if $(wildcard .env),--env-file .env)

# Two more lie below another: the command line without dev, and the reader of PDFs that PDF_ENGINE=native starts, on Linux.
build: ## bin/<service> for every service, bin/millweir, bin/millweir-cli without dev, and bin/pdf-reader
	go build $(GOFLAGS_BUILD) -o bin/ $(BINARIES:%=./services/%) ./services/millweir/millweir-cli $(if $(filter linux,$(shell go env GOOS)),./services/millweir/pdf-reader)

bin/millweir-cli bin/pdf-reader: bin/%: FORCE
	go build $(GOFLAGS_BUILD) -o $@ ./services/millweir/$*

bin/%: FORCE
	go build $(GOFLAGS_BUILD) -o $@ ./services/$*

# The heap of a test is small and the machine's memory is not: fewer collections take a sixth of the processor time less.
test: export GOGC = 400
test: deps ## install or start what the tests need, run them all with the race detector and as the product is built, check the coverage
	@mkdir -p $(RUN)
	@# Not at once: the counters of a coverage are atomic under the detector, which orders what it is to find unordered and takes
	@# up to five times its time. The detector waits a second at the end of each process unless it is told not to.
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 go test $(RACE) $(TEST_ALL) $(LONG) $(WATCHED)
	@# One room's tests are the tests of the rooms below it too.
	go test $(TEST_ALL) -covermode=set -coverpkg=$(COVERED) -coverprofile=$(RUN)/cover.out $(LONG) $(PLAIN)
	cd scripts/peers && GOWORK=off go test -vet=off -shuffle=on $(TEST_FLAGS) ./...
	go run ./scripts/cover $(RUN)/cover.out

test-quick: ## the tests that need no server
	go test -short -shuffle=on $(TEST_FLAGS) $(MODULES)

# The packages whose tests start a server, but for those of the lab, of the queue library and of whole installations.
ON_MYSQL = $(shell git grep -lE 'labserver|ingesttest' -- 'pkg/*_test.go' 'services/*_test.go' | xargs -n1 dirname | grep -vE 'labserver|streammq|e2e' | sort -u | sed 's,^,./,')
# Not in ci: what the unstable distribution holds on a day must not decide about a change.
test-mysql: export LAB_MYSQL ?= mysql
test-mysql: deps ## the tests that run on MariaDB, on MySQL of Debian's unstable distribution, or LAB_MYSQL=mariadb of it (root, 450 MB)
	@$(BIN)/services unstable
	go test -vet=off -shuffle=on -timeout 60m -p 2 $(ON_MYSQL)

cover: ## coverage per package of the last `make test`
	go run ./scripts/cover -v $(RUN)/cover.out

FUZZTIME ?= 30s
fuzz: ## fuzz every target one after another for FUZZTIME each (30s); TARGET=FuzzURL restricts
	@mkdir -p $(RUN)
	@failed=; while IFS=: read -r file name; do name=$${name#func }; dir=./$${file%/*}; \
		echo "fuzz $$dir $$name"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s -parallel 1 $$dir > $(RUN)/fuzz.log 2>&1 || failed="$$failed $$name"; \
		case "$$failed" in *" $$name") cat $(RUN)/fuzz.log;; *) tail -n 4 $(RUN)/fuzz.log | grep execs: | tail -n 1 || true;; esac; \
	done < <(git grep -oE '^func $(or $(TARGET),Fuzz[A-Za-z0-9_]+)\>' -- '*_test.go'); \
	if [ -n "$$failed" ]; then echo "failed:$$failed (their inputs are in testdata/fuzz)"; exit 1; fi

# One run over all modules of the workspace: it loads and checks what they share once, not once per module (cold, beside other
# work: 240 s, 130 s of them CPU; once per module took 590 s). The modules beside the workspace have a run each.
# golangci-lint runs every analyzer of go vet (its govet), but passes over generated files: proto gets go vet itself.
lint: $(BIN)/golangci-lint ## gofmt, vet and golangci-lint on every module
	@files=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$files" ]; then echo "gofmt: $$files"; exit 1; fi
	go vet ./proto/...
	$(BIN)/golangci-lint run --config .golangci.yml $(MODULES)
	@for dir in scripts/peers scripts/chart; do echo "lint $$dir"; \
		(cd $$dir && GOWORK=off $(CURDIR)/$(BIN)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...) || exit 1; done

fmt: ## format all Go files
	gofmt -w $$(git ls-files '*.go')

env-example: ## rewrite .env.example out of the services' settings (a test compares them)
	go test ./services/millweir/dev -run EnvExample -update

cli-docs: ## rewrite deploy/docs/cli.md out of the commands (a test compares them), and the man pages in .run/man
	go test -count=1 ./services/millweir -run CommandLine -update -man $(abspath $(RUN))/man

screenshots: deps ## look at every screen of the console in Chromium, into .run/console, and make the README's pictures of three
	cd services/millweir && go test -count=1 -run TestConsoleInChromium ./e2e
	command -v pngquant >/dev/null || apt-get install -y -q pngquant
	for name in home tasks task-dead; do pngquant --force --quality 50-90 --speed 1 --output deploy/docs/pictures/$$name.png $(RUN)/console/$$name-1280-light-en.png || exit 1; done

deps: $(BIN)/services ## install what `make test` needs (apt, PyPI, Maven); does nothing when it is there
	@$(BIN)/services deps

services-up: $(BIN)/services bin/millweir ## start MariaDB, Postgres, Redis, Chroma, Kafka, RabbitMQ and migrate; SERVICES="redis mariadb" restricts
	@$(BIN)/services up -dir $(RUN)
	@sed -n 's/^# *DATABASE_URL=/DATABASE_URL=/p; s/^MYSQL_DSN=/MYSQL_DSN=/p' $(RUN)/services.env | while read -r setting; do \
		(unset MYSQL_DSN DATABASE_URL; eval "export $$setting"; bin/millweir migrate up); done

services-down: $(BIN)/services ## stop them; WIPE=1 removes their data
	@$(BIN)/services down -dir $(RUN) $(if $(WIPE),-wipe)

services-status: $(BIN)/services ## say which of them answer
	@$(BIN)/services status -dir $(RUN)

bench: build $(if $(findstring mirror,$(BENCH)),$(BIN)/peers) ## measure, print a table and write .run/bench.json; fails on a missed figure unless ARGS=-report
	@mkdir -p $(RUN)
	go run ./scripts/lab bench -out $(RUN)/bench.json $(ARGS)

bench-peers: $(BIN)/peers ## measure other task systems beside ours in one run, print the ratios and write .run/peers.json; NAMES=prefix,… REPS=3 N=20000
	$(BIN)/peers -dir $(RUN)/peers -out $(RUN)/peers.json $(ARGS)

drills: build ## break real servers and processes and look at what is left; one line each; ARGS="-load 10s"
	go run ./scripts/lab drill -parallel 2 $(ARGS)

crashpoints: ## kill the processes at every marked point and judge what is left; NAME=prefix KIND=stop|error|sleep
	go run ./scripts/lab crash $(if $(NAME),-name '$(NAME)') $(if $(KIND),-kind $(KIND))

drill: build ## the drills whose names begin with NAME
	go run ./scripts/lab drill -name '$(NAME)' $(ARGS)

soak: ## half an hour of random faults on a whole installation, then every rule is judged; ARGS="-for 3m -seed N"
	go run ./scripts/lab soak -for 30m -transitions 200000 $(ARGS)

mutants: ## run the checks against bugs that were seeded on purpose: each must be found; NAME=m1,…
	go run ./scripts/lab mutants $(if $(NAME),-name '$(NAME)')

vuln: $(BIN)/govulncheck ## known vulnerabilities that our code reaches; VULNDB=DIR is an index or a clone of golang/vulndb
	go run ./scripts/vuln -govulncheck $(CURDIR)/$(BIN)/govulncheck -module services/millweir -tags '$(subst $() ,$(comma),$(TAGS))' \
		$(if $(VULNDB),-db '$(VULNDB)') -work $(RUN)/vulndb github.com/millweir/millweir/...

sbom: build ## what is in each binary, as CycloneDX JSON: .run/sbom/<service>.cdx.json
	go run ./scripts/sbom -out $(RUN)/sbom -version $(VERSION) $(BINARIES:%=bin/%) bin/millweir-cli bin/pdf-reader

ENGINE ?= docker
image: ## an image per service: millweir/<service>:VERSION (needs a container engine, ENGINE=docker)
	@$(ENGINE) info > /dev/null 2>&1 || { echo "make image: no container engine answers ('$(ENGINE) info'); nothing was built"; exit 1; }
	@$(foreach service,$(BINARIES),$(ENGINE) build -f deploy/Dockerfile --build-arg SERVICE=$(service) --build-arg VERSION=$(VERSION) -t millweir/$(service):$(VERSION) . && ) echo "images millweir/<service>:$(VERSION)"

# A module beside the workspace, as the peers are. Cold it compiles Helm's and Kubernetes' libraries: two minutes on two cores.
CHART_TEST = cd scripts/chart && GOWORK=off go test -count=1
chart: build ## lint and render the chart, judge it as the API server would, compare it with the services; manifests in .run/chart
	$(CHART_TEST) ./... -out $(CURDIR)/$(RUN)/chart

chart-settings: build ## rewrite the chart's list of settings and its schema out of the services' --help-env
	$(CHART_TEST) -run TestGeneratedFiles . -update

repro: ## build every binary twice, from two clones with caches of their own, and compare the sums
	@VERSION='$(VERSION)' scripts/repro.sh $(RUN)/repro $(BINARIES)

ci: ## what the checks run
	.ci/run

clean: ## remove what was built; data and servers stay
	rm -rf bin $(BIN)

$(BIN)/services: FORCE
	@go build -o $@ ./scripts/services

# A module beside the workspace: the libraries of other systems must not choose the versions of ours.
$(BIN)/peers: FORCE
	@cd scripts/peers && GOWORK=off go build -o $(CURDIR)/$@ .

# Built for this checkout, so that everybody has the same version.
GOLANGCI_VERSION := $(shell cat .ci/golangci-version)
$(BIN)/golangci-lint: .ci/golangci-version
	GOBIN=$(CURDIR)/$(BIN) GOFLAGS= CGO_ENABLED=0 go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@touch $@

# The last version that builds everywhere; it reads the code of newer Go all the same.
GOVULNCHECK_VERSION := v1.1.4
$(BIN)/govulncheck: Makefile
	GOBIN=$(CURDIR)/$(BIN) GOFLAGS= CGO_ENABLED=0 go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
	@touch $@

FORCE:
