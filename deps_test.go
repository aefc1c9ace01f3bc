// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeagent_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/repocheck"
)

// policy says who may import whom. A new package needs a line here; the form is in the documentation of
// repocheck.Policy. "max" is the number of third-party packages, golang.org/x/sys apart, that a program gets by
// importing the package: zero is a promise, the others are what was measured and a little room.
const policy = `
SYS     = golang.org/x/sys/...
API     = k8s.io/api/... k8s.io/apimachinery/...
YAML    = sigs.k8s.io/yaml sigs.k8s.io/json go.yaml.in/yaml/v3
GRPC    = google.golang.org/grpc/... google.golang.org/protobuf/... k8s.io/cri-api/...
CLUSTER = k8s.io/client-go/...
OCI     = github.com/opencontainers/cgroups/... github.com/coreos/go-systemd/v22/dbus github.com/godbus/dbus/v5
CNI     = github.com/containernetworking/cni/...

ban:    k8s.io/kubernetes/... k8s.io/klog/... k8s.io/component-base/... github.com/google/cadvisor/...
named:  testing/... C unsafe

tests:                          github.com/stretchr/testify/assert github.com/stretchr/testify/require
tests:                          github.com/google/go-cmp/... golang.org/x/tools/txtar
tests:                          cri/critest internal/costtest internal/hostile internal/isolated internal/lab internal/mounttest internal/podtest internal/script internal/suite/suitetest
tests .:                        internal/repocheck
tests internal/lab:             GRPC
tests images/credential:         SYS
tests cri/process:              cri/logs
tests cri/remote:               cri/criserver
tests cri/criserver:            cri/remote GRPC
tests lifecycle/internal/mailbox: lifecycle/internal/podtest
tests lifecycle/plan:           lifecycle/internal/podtest lifecycle/podapi cgroups qos
tests lifecycle/podstatus:      lifecycle/internal/podtest
tests lifecycle/poddir:         lifecycle/internal/podtest SYS
tests lifecycle/podview:        lifecycle/internal/podtest
tests lifecycle/resize:         lifecycle/internal/podtest
tests lifecycle/executor:       lifecycle/internal/podtest lifecycle/lifecycletest
tests lifecycle:                lifecycle/internal/podtest lifecycle/lifecycletest lifecycle/resize cgroups images/credential qos pleg cri/remote cri/process cgroups/driver cgroups/cgroupstest cgroups/podtree
tests hack/bench:               API YAML
tests lifecycle/podenv:         lifecycle/podapi
tests lifecycle/podspec:        lifecycle/podapi
tests lifecycle/objects:        lifecycle/podenv lifecycle/podspec
tests volume:                   internal/mount internal/mounttest lifecycle/objects lifecycle/podspec volume/intree volume/volumetest SYS
tests volume/intree:            internal/mounttest lifecycle/objects volume/volumetest
tests volume/payload:           YAML
tests volume/volumetest:        volume/intree
tests lifecycle/podstore:       cri lifecycle/podapi pleg
tests cgroups/driver:           cgroups/cgroupstest
tests probe:                    SYS
tests probe/podprobe:           cri/remote cri/process
tests cgroups/podtree:          cgroups/cgroupstest cgroups/driver
tests cni:                      cni/cnitest API SYS
tests cni/netns internal/isolated: SYS

# The map has no code.
.                      max   0:

# Types and interfaces: the standard library and x/sys.
cri                    max   0: SYS

# Runtimes.
cri/critest            max   0: cri internal/sleep internal/suite testing
cri/process/...        max   0: cri cri/process/internal/... internal/... SYS
cri/remote             max 115: cri internal/cripb GRPC
cri/criserver          max 115: cri internal/cripb GRPC

# Log files of containers.
cri/logs               max   0: cri internal/backoff internal/runonce internal/sleep SYS

# Engines: no third-party package, and never each other.
pleg                   max   0: cri internal/backoff internal/listener internal/runonce internal/sleep

# Resources: what a pod may use, and the cgroups that enforce it.
cgroups                max   0: SYS
cgroups/cgroupstest    max   0: cgroups internal/suite testing
cgroups/driver         max  40: cgroups cgroups/driver/internal/... internal/backoff internal/sleep SYS OCI
cgroups/driver/internal/... max 40: cgroups internal/backoff internal/sleep SYS OCI
cgroups/podtree        max  75: cgroups qos internal/backoff API
qos                    max  75: cgroups cri internal/containers API

# Probes: the engine and its probers know neither pods nor gRPC.
probe                  max   0: internal/listener internal/probeconn internal/runonce
probe/httpprobe        max   0: probe internal/probeconn SYS
probe/grpcprobe        max 115: probe internal/probeconn GRPC
probe/podprobe         max  75: cri internal/containers internal/expand probe probe/httpprobe API

# Pods.
lifecycle              max  75: cri images internal/backoff internal/fielderr internal/sleep lifecycle/executor lifecycle/internal/callout lifecycle/internal/mailbox lifecycle/internal/startslots lifecycle/internal/turns lifecycle/plan lifecycle/podapi lifecycle/poddir lifecycle/podenv lifecycle/podset lifecycle/podspec lifecycle/podstatus lifecycle/podview probe probe/podprobe API
lifecycle/executor     max  75: cgroups cri images images/credential internal/containers internal/podip internal/rmtree lifecycle/hook lifecycle/internal/startslots lifecycle/plan lifecycle/poddir lifecycle/podenv lifecycle/podspec lifecycle/podstatus lifecycle/podview lifecycle/resize API
lifecycle/plan         max  75: cri internal/containers internal/sleep lifecycle/hook lifecycle/podspec lifecycle/podstatus lifecycle/podview lifecycle/resize probe probe/podprobe API
lifecycle/podstatus    max  75: cgroups cri internal/containers internal/podip lifecycle/podspec lifecycle/podview lifecycle/resize probe/podprobe qos API
lifecycle/resize       max  75: cgroups cri internal/containers lifecycle/podspec qos API
lifecycle/podview      max  75: cri API
lifecycle/poddir       max  75: cri cri/logs internal/atomicfile internal/backoff internal/dirlock internal/plainfile internal/rmtree lifecycle/podspec lifecycle/podstatus API
lifecycle/internal/startslots max 0:
lifecycle/internal/turns max 0:
lifecycle/internal/callout max 0:
lifecycle/internal/mailbox max 75: lifecycle/plan lifecycle/podstatus API
lifecycle/lifecycletest max 75: lifecycle lifecycle/podspec API
lifecycle/internal/podtest max 75: cgroups cri lifecycle/podapi API
lifecycle/podapi       max  75: cri images/reference internal/containers internal/fielderr internal/optional internal/podfield qos API
lifecycle/podenv       max  70: cri internal/containers internal/expand internal/fielderr internal/optional internal/podfield internal/podip API
lifecycle/podspec      max  70: cri internal/expand internal/fielderr internal/optional internal/podfield internal/podip lifecycle/podenv qos API
lifecycle/podset       max  65: API
lifecycle/userns       max  75: cri internal/atomicfile API
lifecycle/hook         max  70: cri lifecycle/podspec internal/sleep API
lifecycle/podstore     max  75: internal/atomicfile internal/backoff internal/runonce internal/safeyaml internal/sleep lifecycle/podset API
lifecycle/source       max  80: internal/backoff internal/safeyaml lifecycle/podapi lifecycle/podset API YAML github.com/fsnotify/fsnotify
lifecycle/objects      max  80: internal/safeyaml API sigs.k8s.io/yaml github.com/fsnotify/fsnotify

# Volumes: the engine knows no plugin, and what decides does no I/O.
volume                 max  75: internal/atomicfile internal/backoff internal/containers internal/fielderr internal/plainfile internal/listener internal/mount internal/podfield internal/runonce internal/sleep lifecycle/podspec volume/plan volume/subpath API
volume/plan            max   0: internal/backoff internal/sleep
volume/payload         max  75: internal/containers internal/optional internal/podfield volume/atomicwriter API
volume/token           max   0:
volume/intree          max  75: internal/containers internal/mount internal/optional internal/podfield internal/rmtree qos volume volume/atomicwriter volume/fsgroup volume/payload volume/plan volume/token API SYS
volume/volumetest      max  75: internal/suite volume API testing

# Images: what is pulled, for whom, and with what.
images                 max   0: cri images/credential images/reference images/internal/... internal/...
images/credential      max   0: cri images/internal/... images/reference internal/plugincmd
images/internal/...    max   0:
images/reference       max   0:

# The network of pods.
cni                    max  23: cni/netns internal/atomicfile internal/dirlock internal/plainfile internal/plugincmd internal/sleep SYS CNI
cni/netns              max   0: SYS
cni/cnitest            max   0: testing

# Volumes: leaves that know no pods.
volume/atomicwriter    max   0: internal/dirent internal/rmtree SYS
volume/fsgroup         max   0: internal/dirent SYS
volume/subpath         max   0: internal/mount SYS

# Leaves, shared by two packages or more.
internal/...           max   0: SYS
internal/cripb         max 115: cri GRPC
internal/containers    max  75: API
internal/costtest      max   0: testing
internal/expand        max  75: internal/fielderr API
internal/exetest       max   0: testing
internal/fielderr      max  75: API
internal/lab           max   0: testing
internal/mount         max   0: internal/backoff SYS
internal/mounttest     max   0: internal/isolated testing SYS
internal/podfield      max  75: internal/containers API
internal/podip         max  75: API
internal/podtest       max  80: lifecycle/podapi API sigs.k8s.io/yaml testing
internal/safeyaml      max  75: API YAML
internal/hostile       max   0:
internal/script        max   0: testing
internal/suite/...     max   0: testing

# Commands. The benchmark shares no code with what it measures.
examples/... hack/...         : any
hack/bench                    : internal/lab hack/bench/internal/... GRPC
hack/bench/internal/...       : GRPC

# Planned: what they may import is settled before they are written.
gc                     max   0: cri
eviction               max   0: internal/...
volume/csi                    : volume API GRPC
device                        : GRPC
nodestatus nodestatus/cert    : API CLUSTER
lifecycle/apisource           : API CLUSTER
nodeapi/prom                  : github.com/prometheus/client_golang/...
nodetest/...                  : any
`

func TestImports(t *testing.T) {
	p, tree := parsePolicy(t), load(t)
	report(t, p.CheckImports(tree))
}

func TestBudgets(t *testing.T) {
	p := parsePolicy(t)
	closure, err := repocheck.LoadClosure(t.Context(), ".")
	require.NoError(t, err)
	for _, name := range slices.Sorted(maps.Keys(closure)) {
		t.Logf("%4d %s", len(closure[name]), name)
	}
	report(t, p.CheckBudgets(closure))
}

func parsePolicy(t *testing.T) *repocheck.Policy {
	t.Helper()
	p, err := repocheck.ParsePolicy(policy)
	require.NoError(t, err)
	return p
}

func load(t *testing.T) *repocheck.Tree {
	t.Helper()
	tree, err := repocheck.Load(os.DirFS("."))
	require.NoError(t, err)
	return tree
}

func report(t *testing.T, complaints []repocheck.Complaint) {
	t.Helper()
	for _, c := range complaints {
		t.Error(c)
	}
}
