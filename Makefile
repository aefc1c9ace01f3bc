# SPDX-FileCopyrightText: The nodeagent Authors
# SPDX-License-Identifier: Apache-2.0

# `make demo` and `make test` need Go and make; all of the tests need root on Debian 12. They install everything else, into .lab
# and from Debian. Every target can be repeated at any time.

MODULE   := github.com/seed81659283/nodeagent
LAB      := .lab/bin/lab
RACE     := $(if $(shell command -v gcc),-race)
TIMEOUT  ?= 20m
FUZZTIME ?= 10s
DEMOTIME ?= 30s

UML      := $(CURDIR)/hack/vm/uml
QEMU     := $(CURDIR)/hack/vm/qemu

.PHONY: demo random-operations attacks test test-root test-rootless test-vm test-numa conformance csi-sanity kernel-model node-cost node-model soak soak-vm lab lab-down lab-status lint lint-tools vet-other vuln \
	bench bench-agent bench-api bench-cluster bench-nodes kubelet metrics cluster changeover cluster-tools fuzz clean $(LAB)

# Runs pods from manifests on the embedded runtime for DEMOTIME and prints a line per change.
demo: $(LAB)
	@command -v busybox >/dev/null || $(LAB) deps busybox-static
	@echo "make: build examples/minimal and run it for $(DEMOTIME) on examples/minimal/manifests, no containerd needed"
	@go build -buildvcs=false -o .lab/bin/minimal ./examples/minimal
	@timeout --signal=TERM --kill-after=30s $(DEMOTIME) .lab/bin/minimal -manifests examples/minimal/manifests \
		-state $(CURDIR)/.lab/demo/state -logs $(CURDIR)/.lab/demo/logs -stop-on-exit || test $$? = 124

# A hundred thousand random operations on pods: containers die, calls fail, specs change, agents are killed. Takes some minutes.
random-operations:
	@NODEAGENT_WALKS=500 go test -count=1 -timeout=60m -run='^TestRandomOperations$$' ./lifecycle

# Longer versions of the tests with random cases, kills and files, for which `make test` has no time.
soak: $(LAB)
	@$(LAB) deps
	@NODEAGENT_SOAK=1 go test -count=1 -timeout=60m $$(grep -rl --include='*_test.go' --exclude='cluster_*' NODEAGENT_SOAK . | xargs -n1 dirname | sort -u)
	@$(MAKE) --no-print-directory soak-vm

# Hostile pods, objects and clients attack an agent whose cgroup has 256 MiB. A normal pod beside them must run undisturbed. Takes some seven minutes.
attacks: export NODEAGENT_LAB = required
attacks: $(LAB)
	@$(LAB) deps
	@NODEAGENT_ATTACKS=1 go test -v -count=1 -timeout=20m -run='^TestIntegrationHostileAgentIn256MiB$$' ./examples/agent

# Nodes run out of memory, disk and process IDs, in both kernels of hack/vm. Takes half an hour.
soak-vm: export NODEAGENT_LAB = required
soak-vm: export NODEAGENT_PROGRAM = $(CURDIR)/.lab/vm/agent
soak-vm: export VM_TIMEOUT = 3600
soak-vm: $(LAB)
	@$(LAB) deps
	@$(LAB) tools
	@$(UML) true && $(QEMU) true
	@go build -buildvcs=false -o .lab/vm/agent ./examples/agent
	@NODEAGENT_ROUNDS=10 go test -v -count=1 -timeout=60m -exec $(UML) -run='^TestIntegration(Memory|Disk|PID)Pressure' ./examples/agent
	@NODEAGENT_ROUNDS=10 go test -v -count=1 -timeout=60m -exec $(QEMU) -run='^TestIntegrationMemoryPressure$$' ./examples/agent

# All tests except cluster, random-operations, attacks and soak. As root they run with a containerd of their own; without root, tests that need root are skipped.
test:
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory test-root; else $(MAKE) --no-print-directory test-rootless; fi

test-root: $(LAB)
	@echo "make: install missing Debian packages, build the pinned tools and the test images"
	@$(LAB) deps
	@command -v google-chrome >/dev/null || $(LAB) deps chromium
	@$(LAB) tools
	@echo "make: go vet ./..."
	@go vet ./...
	@echo "make: go test -race ./... with a containerd of its own"
	@$(LAB) exec go test -race -count=1 -timeout=$(TIMEOUT) $$(go list ./... | grep -v /hack/vm$$)
	@echo "make: hack/bench, a module of its own"
	@go vet -C hack/bench ./...
	@$(LAB) exec go test -C hack/bench -race -count=1 -timeout=$(TIMEOUT) ./...
	@echo "make: cost of hostile manifests, without the race detector, which adds memory and time"
	@go test -count=1 -timeout=$(TIMEOUT) ./internal/expand ./internal/safeyaml ./lifecycle/objects ./lifecycle/podapi ./internal/lifecycle/podenv ./lifecycle/podspec ./lifecycle/podstore ./lifecycle/source
	@$(MAKE) --no-print-directory test-vm
	@$(MAKE) --no-print-directory conformance INPUTS=20000
	@$(MAKE) --no-print-directory csi-sanity
	@test -x .lab/bin/kube-apiserver || echo "make: tests that need a control plane or a kubelet were skipped; make cluster builds both"

# Tests of cgroup v2, in kernels that hack/vm starts; Debian on amd64 only. User Mode Linux is fast but has no -race, cpuset, huge
# pages, PSI and NUMA nodes: these run under qemu.
test-vm: export NODEAGENT_LAB = required
test-vm: $(LAB)
	@if ! grep -qx ID=debian /etc/os-release || [ "$$(uname -m)" != x86_64 ]; then \
		echo "make: not Debian on amd64, so no cgroup v2 in hack/vm"; exit 0; fi; set -e; \
	$(LAB) deps; $(LAB) tools; $(UML) true; $(QEMU) true; \
	echo "make: hack/vm itself"; \
	go test -race -count=1 -timeout=$(TIMEOUT) ./hack/vm; \
	echo "make: cgroup v2 in User Mode Linux"; \
	go test -count=1 -timeout=$(TIMEOUT) -exec $(UML) ./cgroups/driver/... ./cgroups/podtree; \
	go build -buildvcs=false -o .lab/vm/agent ./examples/agent; \
	NODEAGENT_PROGRAM=$(CURDIR)/.lab/vm/agent go test -count=1 -timeout=$(TIMEOUT) -exec $(UML) -run='^TestIntegration(Cgroups|MemoryPressure)$$' ./examples/agent; \
	go test -count=1 -timeout=$(TIMEOUT) -exec $(UML) -run='^TestIntegrationResizeV2$$' ./lifecycle; \
	go test -count=1 -timeout=$(TIMEOUT) -exec $(UML) -run='^TestIntegration(Cgroup|OOMKilled|Mounts$$)' ./cri/process; \
	echo "make: mounts, and files in volumes, on an older kernel"; \
	go test -count=1 -timeout=$(TIMEOUT) -exec $(UML) ./cri/process/internal/mountns ./internal/mount ./volume/atomicwriter ./volume/fsgroup ./volume/subpath; \
	echo "make: project quotas"; \
	go test -count=1 -timeout=$(TIMEOUT) -exec $(UML) -run='^TestIntegrationQuota' ./internal/projquota ./volume/intree; \
	echo "make: NFS volumes of the kernel's own server, which then hangs"; \
	go test -count=1 -timeout=$(TIMEOUT) -exec $(UML) -run='^TestIntegrationNFS' ./volume; \
	echo "make: systemd as the driver of cgroups"; \
	go test -count=1 -timeout=$(TIMEOUT) -exec $(CURDIR)/hack/vm/systemd.sh -run='^TestIntegrationSystemd' ./cgroups/driver/...; \
	echo "make: cpuset, huge pages and PSI of cgroup v2 under qemu"; \
	go test -count=1 -timeout=$(TIMEOUT) -exec $(QEMU) -run='^TestIntegration(Conformance|Cpuset|Hugetlb|Pressure|V2|Tree)' \
		./cgroups/driver ./cgroups/podtree; \
	VM_MACHINE="1 socket 1 node 2 cores 1 thread 512 MiB" go test -count=1 -timeout=$(TIMEOUT) -exec $(QEMU) -run='^TestIntegrationCgroup(Cpusets|Update)$$' ./cri/process; \
	echo "make: devices of two NUMA nodes under qemu"; \
	go build -buildvcs=false -o .lab/vm/deviceplugin ./hack/deviceplugin; \
	VM_MACHINE="2 sockets 2 nodes 1 core 1 thread 512 MiB" NODEAGENT_PROGRAM=$(CURDIR)/.lab/vm/agent NODEAGENT_DEVICEPLUGIN=$(CURDIR)/.lab/vm/deviceplugin \
		go test -count=1 -timeout=$(TIMEOUT) -exec $(QEMU) -run='^TestIntegrationDevicesOfNUMANodes$$' ./examples/agent

# Exclusive CPUs and memory on two NUMA nodes, in containers of containerd under qemu, and three boots of such a machine. Takes 25 minutes.
test-numa: export NODEAGENT_LAB = required
test-numa: export VM_TIMEOUT = 1200
test-numa: export NODEAGENT_PROGRAM = $(CURDIR)/.lab/vm/agent
test-numa: $(LAB)
	@$(LAB) deps
	@$(LAB) tools
	@$(QEMU) true
	@go build -buildvcs=false -o .lab/vm/agent ./examples/agent
	@VM_MACHINE="2 sockets 2 nodes 2 cores 1 thread 768 MiB" \
		go test -count=1 -timeout=$(TIMEOUT) -exec $(QEMU) -run='^TestIntegrationMemory(OfNUMANodes|AndCPUsOfOneNUMANode)$$' ./examples/agent
	@VM_MACHINE="2 sockets 2 nodes 2 cores 2 threads 512 MiB" \
		go test -count=1 -timeout=$(TIMEOUT) -exec $(QEMU) -run='^TestIntegration(ExclusiveCPUsOfNUMANodes|ContainersDivideTheCPUsOfTheirPod|ResizesMoveNoContainer)$$' ./examples/agent
	@rm -rf .lab/vm/boots; mkdir -p .lab/vm/boots; set -e; for sockets in "2 sockets 2 nodes" "2 sockets 2 nodes" "1 socket 1 node"; do \
		VM_MACHINE="$$sockets 2 cores 2 threads 512 MiB" VM_RW=$(CURDIR)/.lab/vm/boots NODEAGENT_BOOTS=$(CURDIR)/.lab/vm/boots \
			go test -count=1 -timeout=$(TIMEOUT) -exec $(QEMU) -run='^TestIntegrationExclusiveCPUsSurviveBoots$$' ./examples/agent; \
	done

# Compares the model of a kernel in nodetest/machine with a real one on generated scenarios: CPU shares, throttling, OOM killer, memory.high. Takes
# five minutes.
kernel-model: export VM_CLOCK = own
kernel-model: $(LAB)
	@$(LAB) deps; $(UML) true; \
	go test -count=1 -timeout=$(TIMEOUT) -exec $(UML) -v -run='^TestIntegrationKernel' ./nodetest/machine

# Compares a simulated node of nodetest with an agent on a real kernel, with its own processes as pods: victims of evictions, their times, OOM kills,
# CPU time and throttled time. Takes twenty minutes on an idle host; NODETEST_FIRST=20 runs 20 other scenarios. Replay the scenarios in .lab/vm/files with
# NODETEST_REPLAY and TestNodeAgreesWithRecords.
node-model: export VM_TIMEOUT = 10800
node-model: export VM_CLOCK = own
node-model: export VM_RW = $(CURDIR)/.lab/vm/files
node-model: export NODETEST_FILES = $(CURDIR)/.lab/vm/files
node-model: $(LAB)
	@mkdir -p .lab/vm/files; $(LAB) deps; $(UML) true; \
	go test -count=1 -timeout=180m -exec $(UML) -v -run='^TestIntegrationNode' ./nodetest

# Simulates clusters of 10 to 1,000 nodes and draws the CPU time over the number of events into nodetest/cost.svg. Takes three minutes.
node-cost:
	@NODETEST_COST=$(CURDIR)/nodetest/cost.svg go test -count=1 -timeout=60m -v -run='^TestCostIsLinearInEvents$$' ./nodetest

# Compares the kubelet's code with this library on generated pods. Builds much of the kubelet, which takes minutes the first time.
conformance:
	@echo "make: conformance with kubelet 1.37.1"
	@$(MAKE) --no-print-directory -C conformance test

# Runs csi-test of Kubernetes against the CSI driver that the tests use.
csi-sanity:
	@echo "make: hack/csidriver under csi-test"
	@cd hack/csidriver/sanity && go vet ./... && go test -count=1 -timeout=$(TIMEOUT) ./...

test-rootless:
	@echo "make: not root, so no containerd: tests that need one are skipped in"
	@go list -f '{{$$p := .ImportPath}}{{range .TestImports}}{{if eq . "$(MODULE)/internal/lab"}}  {{$$p}}{{"\n"}}{{end}}{{end}}{{range .XTestImports}}{{if eq . "$(MODULE)/internal/lab"}}  {{$$p}}{{"\n"}}{{end}}{{end}}' ./... | sort -u | sed '/^$$/d'
	@echo "make: single tests that need root are skipped too, with the reason in go test -v; make test as root runs all"
	@go vet ./...
	@go test $(RACE) -timeout=$(TIMEOUT) ./...
	@go test -C hack/bench $(RACE) -timeout=$(TIMEOUT) ./...

$(LAB):
	@mkdir -p .lab/bin
	@go build -buildvcs=false -trimpath -o $(LAB) ./hack/lab

# Starts a containerd that keeps running; `go test ./...` and the examples use it.
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

# The library compiles on systems without a kubelet; there, parts that need Linux return errors.ErrUnsupported.
vet-other:
	@for os in linux darwin windows; do echo "make: GOOS=$$os go vet ./..."; GOOS=$$os CGO_ENABLED=0 go vet ./... || exit 1; done

vuln: lint-tools
	@.lab/bin/govulncheck ./...

bench:
	@go test -run='^$$' -bench=. -benchmem ./...
	@$(MAKE) --no-print-directory -C conformance bench speed

# Measures the agent on a real containerd, beside bare CRI calls and, with KUBELET=path (`make kubelet` builds one), beside a kubelet.
# BENCHFLAGS are flags of `bench static`, such as -n 30,100 -repeat 3.
bench-agent: $(LAB)
	@$(LAB) deps
	@$(LAB) tools
	@KUBELET=$(KUBELET) $(LAB) exec hack/bench/run.sh static $(BENCHFLAGS)

# Measures the agent as a node of a real control plane: pods bound at once, requests, memory, and the time until a dead container is
# reported. Takes half an hour per agent, 15 minutes of them idle. BENCHFLAGS are flags of `bench cluster`, such as -n 10 -rest 10s -kills 3 -services 100.
bench-cluster: $(LAB)
	@$(LAB) deps
	@$(LAB) tools
	@$(LAB) cluster-tools
	@KUBELET=$(KUBELET) $(LAB) exec hack/bench/run.sh cluster $(BENCHFLAGS)

# Measures the agent's HTTP API: logs, exec, port-forward, scrapes and idle sessions, beside bare CRI calls and, with KUBELET=path, a
# kubelet. Takes some ten minutes per agent. BENCHFLAGS are flags of `bench api`, such as -n 5 -log 64 -settle 2s -rest 5s.
bench-api: $(LAB)
	@$(LAB) deps
	@$(LAB) tools
	@KUBELET=$(KUBELET) $(LAB) exec hack/bench/run.sh api $(BENCHFLAGS)

# Measures simulated nodes of a real control plane: examples/virtualnode beside KWOK 0.8, which this target builds. Takes half an hour.
# BENCHFLAGS are flags of `bench nodes`, such as -nodes 100 -rest 1m -repeat 3.
bench-nodes: $(LAB)
	@$(LAB) deps
	@$(LAB) cluster-tools
	@hack/bench/kwok.sh
	@KWOK=.lab/bin/kwok STAGES=.lab/kwok-stages.yaml hack/bench/run.sh nodes $(BENCHFLAGS)

kubelet:
	@hack/bench/kubelet.sh

# Scrapes the metrics pages of a kubelet, on this machine and in a kernel with cgroup v2, and updates the lists of families that tests
# compare ours with.
metrics: kubelet $(LAB)
	@$(LAB) deps
	@$(LAB) tools
	@rm -rf .lab/metrics && mkdir -p .lab/metrics/host .lab/metrics/v2
	@CGO_ENABLED=0 go build -o .lab/metrics/values ./hack/metrics/values
	@VALUES=.lab/metrics/values $(LAB) exec hack/metrics/scrape.sh .lab/metrics/host
	@VALUES=.lab/metrics/values SETTLE=240 VM_RW=$(CURDIR)/.lab/metrics/v2 VM_MEM=3072 VM_TIMEOUT=1800 $(QEMU) $(LAB) exec hack/metrics/scrape.sh .lab/metrics/v2
	@go run ./hack/metrics internal/promtest/kubelet .lab/metrics/host .lab/metrics/v2

# Builds a control plane of Kubernetes from its modules into .lab. Takes many minutes the first time.
cluster-tools: $(LAB)
	@$(LAB) deps
	@$(LAB) cluster-tools

# Tests with the control plane that kubeadm writes, run by examples/agent on a containerd of its own, and with clusters that kubeadm makes of
# examples/kubelet. Takes forty minutes, most of it waiting for a token refresh, which CLUSTERFLAGS=-short skips. A fault lasts 5 s;
# NODEAGENT_FAULTS=1m prolongs faults, NODEAGENT_SOAK=1 to ten minutes, with a hundred kills of the agent, which takes two hours.
cluster: export NODEAGENT_CLUSTER = required
cluster: export NODEAGENT_LAB = required
cluster: cluster-tools kubelet
	@$(LAB) tools
	@go test $(RACE) -count=1 -timeout=$(TIMEOUT) ./internal/controlplane
	@go test -v $(RACE) -count=1 -timeout=$(TIMEOUT) -run='^TestCluster' ./internal/kubeapi ./apiserver
	@go test -v $(RACE) -count=1 -timeout=$(TIMEOUT) $(CLUSTERFLAGS) -run='^TestCluster' ./apiserver/cert
	@go test -v $(RACE) -count=1 -timeout=$(TIMEOUT) -run='^TestCluster' ./nodestatus/heartbeat
	@go test -v $(RACE) -count=1 -timeout=$(TIMEOUT) -run='^TestCluster' ./examples/virtualnode
	@go test -v $(RACE) -count=1 -timeout=$(if $(NODEAGENT_SOAK),150m,60m) $(CLUSTERFLAGS) -run='^TestCluster' ./examples/agent
	@go test -v $(RACE) -count=1 -timeout=$(TIMEOUT) -run='^TestCluster' ./examples/kubelet
	@go test -v $(RACE) -count=1 -timeout=$(TIMEOUT) -run='^TestIntegrationKubelet' ./examples/runtime
	@go test -C hack/bench -v $(RACE) -count=1 -timeout=$(TIMEOUT) -run='^TestCluster' ./internal/api ./internal/cluster

# Changes a node with thirty pods ten times between a kubelet and the agent, under load and with kills at random moments, which takes half an hour.
# NODEAGENT_SEED=N repeats the moments of a run, NODEAGENT_ROUNDS=N the number of changes. `make cluster` has four changes.
changeover: export NODEAGENT_CLUSTER = required
changeover: export NODEAGENT_LAB = required
changeover: export NODEAGENT_ROUNDS ?= 10
changeover: cluster-tools kubelet
	@$(LAB) tools
	@$(LAB) exec go test -v -count=1 -timeout=90m -run='^TestClusterChangeOver' ./examples/agent

# Runs every fuzz test for FUZZTIME.
fuzz:
	@go list ./... | while read -r pkg; do \
		for name in $$(go test -list='^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "make: $$pkg $$name for $(FUZZTIME)"; \
			go test -run='^$$' -fuzz="^$$name$$" -fuzztime=$(FUZZTIME) $$pkg </dev/null || exit 1; \
		done; \
	done
	@$(MAKE) --no-print-directory -C conformance fuzz FUZZTIME=$(FUZZTIME)

# Removes .lab, that is all built and downloaded files except the caches of Go and Debian.
clean:
	@if [ -x $(LAB) ]; then $(LAB) down; $(LAB) controlplane down || true; fi
	@rm -rf .lab
