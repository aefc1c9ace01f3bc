# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0

# `make demo` and `make test` need Go, make and, for all of the tests, root on Debian 12; the rest they get
# themselves, into .lab and from Debian. Everything here can be run again at any time.

MODULE   := github.com/seed81659283/nodeagent
LAB      := .lab/bin/lab
RACE     := $(if $(shell command -v gcc),-race)
TIMEOUT  ?= 10m
FUZZTIME ?= 10s
DEMOTIME ?= 30s

.PHONY: demo test test-root test-rootless lab lab-down lab-status lint lint-tools vet-other vuln bench bench-agent kubelet fuzz clean $(LAB)

# The main job on the embedded runtime, for DEMOTIME: pods from manifests, a line for each change.
demo: $(LAB)
	@command -v busybox >/dev/null || $(LAB) deps busybox-static
	@echo "make: build examples/minimal and run it for $(DEMOTIME) on examples/minimal/manifests, no containerd needed"
	@go build -buildvcs=false -o .lab/bin/minimal ./examples/minimal
	@timeout --signal=TERM --kill-after=30s $(DEMOTIME) .lab/bin/minimal -manifests examples/minimal/manifests \
		-state $(CURDIR)/.lab/demo/state -logs $(CURDIR)/.lab/demo/logs -stop-on-exit || test $$? = 124

# Every test. As root with a containerd that is started for it; otherwise what needs no root.
test:
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory test-root; else $(MAKE) --no-print-directory test-rootless; fi

test-root: $(LAB)
	@echo "make: install missing Debian packages, build the pinned tools and the test images"
	@$(LAB) deps
	@$(LAB) tools
	@echo "make: go vet ./..."
	@go vet ./...
	@echo "make: go test -race ./... with a containerd of its own"
	@$(LAB) exec go test -race -count=1 -timeout=$(TIMEOUT) ./...

test-rootless:
	@echo "make: not root, so no containerd: tests that need one are skipped in"
	@go list -f '{{$$p := .ImportPath}}{{range .TestImports}}{{if eq . "$(MODULE)/internal/lab"}}  {{$$p}}{{"\n"}}{{end}}{{end}}{{range .XTestImports}}{{if eq . "$(MODULE)/internal/lab"}}  {{$$p}}{{"\n"}}{{end}}{{end}}' ./... | sort -u | sed '/^$$/d'
	@echo "make: and single tests that need root say so with go test -v; all of them run with \`make test\` as root"
	@go vet ./...
	@go test $(RACE) -timeout=$(TIMEOUT) ./...

$(LAB):
	@mkdir -p .lab/bin
	@go build -buildvcs=false -trimpath -o $(LAB) ./hack/lab

# A containerd that stays: `go test ./...` and examples find it.
lab: $(LAB)
	@$(LAB) deps
	@$(LAB) tools
	@$(LAB) up
	@$(LAB) status

lab-down: $(LAB)
	@$(LAB) down

lab-status: $(LAB)
	@$(LAB) status

lint-tools: $(LAB)
	@$(LAB) lint-tools

lint: lint-tools vet-other
	@echo "make: gofumpt, golangci-lint"
	@unformatted=$$(.lab/bin/gofumpt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
		if [ -n "$$unformatted" ]; then echo "not formatted with gofumpt:"; echo "$$unformatted"; exit 1; fi
	@.lab/bin/golangci-lint run ./...

# The library compiles where the kubelet does not run: what needs Linux says so with an error.
vet-other:
	@for os in linux darwin windows; do echo "make: GOOS=$$os go vet ./..."; GOOS=$$os CGO_ENABLED=0 go vet ./... || exit 1; done

vuln: lint-tools
	@.lab/bin/govulncheck ./...

bench:
	@go test -run='^$$' -bench=. -benchmem ./...

# Figures of the agent on a real containerd, beside bare CRI calls and, with KUBELET=path (`make kubelet` builds one),
# beside a kubelet. BENCHFLAGS are those of hack/bench, such as -n 30,100 -repeat 3.
bench-agent: $(LAB)
	@$(LAB) deps
	@$(LAB) tools
	@KUBELET=$(KUBELET) $(LAB) exec hack/bench/run.sh $(BENCHFLAGS)

kubelet:
	@hack/bench/kubelet.sh

# Every fuzz test for FUZZTIME.
fuzz:
	@go list ./... | while read -r pkg; do \
		for name in $$(go test -list='^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "make: $$pkg $$name for $(FUZZTIME)"; \
			go test -run='^$$' -fuzz="^$$name$$" -fuzztime=$(FUZZTIME) $$pkg </dev/null || exit 1; \
		done; \
	done

# All that was built and downloaded goes, but what Go and Debian keep.
clean:
	@if [ -x $(LAB) ]; then $(LAB) down; fi
	@rm -rf .lab
