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
CLUSTER = k8s.io/client-go/rest/... k8s.io/client-go/tools/cache k8s.io/client-go/tools/clientcmd/... k8s.io/client-go/transport/... k8s.io/client-go/util/flowcontrol
OCI     = github.com/opencontainers/cgroups/... github.com/coreos/go-systemd/v22/dbus github.com/godbus/dbus/v5
CNI     = github.com/containernetworking/cni/...
PROM    = github.com/prometheus/client_golang/prometheus/... github.com/prometheus/client_model/go github.com/prometheus/common/...
CSI     = github.com/container-storage-interface/spec/lib/go/csi k8s.io/kubelet/pkg/apis/pluginregistration/v1

ban:    k8s.io/kubernetes/... k8s.io/klog/... k8s.io/component-base/... github.com/google/cadvisor/...
named:  testing/... C unsafe

tests:                          github.com/stretchr/testify/assert github.com/stretchr/testify/require
tests:                          github.com/google/go-cmp/... golang.org/x/tools/txtar
tests:                          cri/critest internal/controlplane internal/costtest internal/faultproxy internal/hostile internal/isolated internal/lab internal/mounttest internal/podtest internal/script internal/suite/suitetest
tests .:                        internal/repocheck
tests internal/wiringtest:      internal/repocheck API PROM k8s.io/client-go/rest cgroups cgroups/cgroupstest cgroups/podtree cni cri/criserver cri/logs cri/remote cri/streaming eviction eviction/evictiontest eviction/podevict gc images lifecycle lifecycle/apisource lifecycle/podset lifecycle/podstore lifecycle/source nodeapi nodeapi/auth nodeapi/podsapi nodeapi/prom nodeapi/prom/usage nodeapi/stream nodestatus nodestatus/cert nodestatus/heartbeat nodestatus/shutdown nodestatus/summary pleg probe probe/podprobe volume volume/csi volume/podcert volume/token volume/trustbundle agent cri lifecycle/apisource/apisourcetest lifecycle/podevents nodestatus/machine volume/volumetest
tests lifecycle/apisource:      cri lifecycle lifecycle/podenv volume volume/csi volume/intree lifecycle/internal/podtest lifecycle/podstore pleg
tests lifecycle/apisource lifecycle/apisource/apiobjects lifecycle/apisource/apisourcetest nodestatus nodestatus/cert internal/kubeapi: lifecycle/apisource/apisourcetest k8s.io/client-go/rest/...
tests lifecycle/apisource:      cri lifecycle lifecycle/podapi pleg volume/token
tests internal/lab:             GRPC
tests internal/dirusage volume/fsgroup: internal/rmtree
tests nodestatus/heartbeat:     lifecycle/apisource/apisourcetest k8s.io/client-go/rest nodestatus/machine nodestatus/kubeconfig
tests nodestatus/shutdown internal/login1: internal/login1/login1test
tests nodestatus/cert:          nodestatus/cert/certtest
tests nodeapi/stream:           nodeapi/stream/streamtest cri/remote
tests nodeapi nodeapi/auth:     cri nodeapi/auth nodeapi/auth/authtest nodeapi/nodelogs nodeapi/stream nodeapi/stream/streamtest nodestatus/summary API
tests images/credential:         SYS
tests volume/csi:               lifecycle/podspec lifecycle/apisource lifecycle/apisource/apisourcetest
tests cri/process:              cgroups cgroups/driver cni/netns cri/logs
tests cri/remote:               cri/criserver
tests cri/critest/sessiontest:  cri/criserver cri/process cri/remote cri/streaming nodeapi/stream nodeapi/stream/streamtest
tests cri/criserver:            cri/remote cri/streaming nodeapi/stream nodeapi/stream/streamtest GRPC
tests cri/streaming:            nodeapi/stream/streamtest
tests lifecycle/internal/mailbox: lifecycle/internal/podtest
tests lifecycle/plan:           lifecycle/internal/podtest lifecycle/podapi cgroups qos
tests lifecycle/podstatus:      lifecycle/internal/podtest
tests lifecycle/poddir:         internal/mounttest lifecycle/internal/podtest SYS
tests lifecycle/podview:        lifecycle/internal/podtest
tests lifecycle/resize:         lifecycle/internal/podtest
tests lifecycle/executor:       lifecycle/internal/podtest lifecycle/lifecycletest
tests lifecycle:                lifecycle/internal/podtest lifecycle/lifecycletest cgroups images/credential qos pleg cri/remote cri/process cgroups/driver cgroups/cgroupstest cgroups/podtree
tests hack/bench:               API YAML
tests lifecycle/podevents:      images/credential
tests lifecycle/podenv:         lifecycle/podapi
tests lifecycle/podspec:        lifecycle/podapi
tests lifecycle/objects:        lifecycle/podenv lifecycle/podspec
tests volume/csi:               CSI GRPC internal/mounttest lifecycle/objects volume/csi/csitest volume/volumetest
tests internal/blockdev:        internal/mount internal/mounttest
tests volume:                   cri internal/mount internal/mounttest lifecycle lifecycle/objects lifecycle/podspec pleg volume/intree volume/volumetest SYS
tests volume/intree:            internal/mounttest lifecycle/objects lifecycle/podspec volume/podcert volume/trustbundle volume/volumetest
tests volume/podcert:           volume/volumetest
tests volume/trustbundle:       volume/volumetest
tests volume/payload:           YAML
tests volume/volumetest:        volume/intree
tests lifecycle/podstore:       cri lifecycle/podapi pleg
tests cgroups/driver:           cgroups/cgroupstest
tests eviction:                 eviction/evictiontest eviction/threshold
tests eviction/podevict:        eviction/threshold cgroups/cgroupstest cri/critest pleg
tests eviction/threshold:       API
tests probe:                    SYS
tests probe/podprobe:           cri/remote cri/process
tests cgroups/podtree:          cgroups/cgroupstest cgroups/driver
tests nodestatus:               eviction/threshold
tests nodeapi/prom/usage:       cgroups/cgroupstest cri/critest nodeapi/prom/promtest
tests nodestatus/summary:       internal/rmtree cgroups/cgroupstest cgroups/driver cri/critest SYS
tests gc gc/gctest:             gc/gctest images images/credential cri/remote SYS
tests cni:                      cni/cnitest API SYS
tests cni/netns internal/isolated: SYS
tests nodeapi/prom:             nodeapi/prom/promtest cri/critest images/credential github.com/prometheus/client_golang/prometheus/testutil/...

# The map has no code.
.                      max   0:

# Types and interfaces: the standard library and x/sys.
cri                    max   0: SYS

# Runtimes.
cri/critest            max   0: cri internal/sleep internal/suite testing
cri/critest/sessiontest max  0: cri cri/critest internal/sleep internal/suite testing
cri/process/...        max   0: cgroups cri cri/process/internal/... internal/... SYS
cri/remote             max 115: cri internal/cripb GRPC
cri/criserver          max 115: cri internal/cripb GRPC internal/required
cri/streaming          max   1: cri internal/runonce nodeapi/stream internal/required

# Log files of containers.
cri/logs               max   0: cri internal/backoff internal/runonce internal/sleep SYS internal/required

# Engines: no third-party package, and never each other.
pleg                   max   0: cri internal/backoff internal/listener internal/runonce internal/sleep internal/required
eviction               max   0: eviction/threshold internal/runonce internal/required
eviction/threshold     max   0:
eviction/evictiontest  max   0: eviction internal/suite testing
eviction/podevict      max  80: cgroups cri eviction internal/containers internal/required lifecycle lifecycle/admission nodestatus/summary qos API k8s.io/kubelet/pkg/apis/stats/v1alpha1
gc                     max   0: SYS cri images/reference internal/atomicfile internal/plainfile internal/rmtree internal/runonce internal/sleep internal/required
gc/gctest              max   0: cri gc internal/suite testing

# Resources: what a pod may use, and the cgroups that enforce it.
cgroups                max   0: SYS
cgroups/cgroupstest    max   0: cgroups internal/suite testing
cgroups/driver         max  40: cgroups cgroups/driver/internal/... internal/backoff internal/dirent internal/sleep SYS OCI
cgroups/driver/internal/... max 40: cgroups internal/backoff internal/sleep SYS OCI
cgroups/podtree        max  75: cgroups eviction/threshold qos internal/backoff internal/quantity internal/runonce internal/required API
qos                    max  75: cgroups cri internal/containers internal/quantity API

# Probes: the engine and its probers know neither pods nor gRPC.
probe                  max   0: internal/listener internal/probeconn internal/runonce internal/required
probe/httpprobe        max   0: probe internal/probeconn SYS
probe/grpcprobe        max 115: probe internal/probeconn GRPC
probe/podprobe         max  75: cri internal/containers internal/expand probe probe/httpprobe API internal/required

# Pods.
lifecycle              max  75: cri images internal/backoff internal/fielderr internal/sleep lifecycle/executor lifecycle/internal/callout lifecycle/internal/lacking lifecycle/internal/mailbox lifecycle/internal/ownership lifecycle/internal/resizequeue lifecycle/internal/runtimestate lifecycle/internal/startslots lifecycle/internal/turns lifecycle/plan lifecycle/podapi lifecycle/poddir lifecycle/podenv lifecycle/podset lifecycle/podspec lifecycle/podstatus lifecycle/podview probe probe/podprobe qos lifecycle/resize internal/runonce internal/required API
lifecycle/executor     max  75: cgroups cri images images/credential internal/containers internal/podip internal/rmtree lifecycle/hook lifecycle/internal/startslots lifecycle/plan lifecycle/poddir lifecycle/podenv lifecycle/podspec lifecycle/podstatus lifecycle/podview lifecycle/resize API
lifecycle/plan         max  75: cri internal/containers internal/sleep lifecycle/hook lifecycle/podspec lifecycle/podstatus lifecycle/podview lifecycle/resize probe probe/podprobe API
lifecycle/podstatus    max  75: cgroups cri internal/containers internal/podip lifecycle/podspec lifecycle/podview lifecycle/resize probe/podprobe qos API
lifecycle/resize       max  75: cgroups cri internal/containers lifecycle/podspec lifecycle/podview qos API
lifecycle/podview      max  75: cri API
lifecycle/poddir       max  75: cri cri/logs internal/atomicfile internal/backoff internal/dirlock internal/plainfile internal/rmtree lifecycle/podspec lifecycle/podstatus lifecycle/resize API
lifecycle/internal/startslots max 0:
lifecycle/internal/turns max 0:
lifecycle/internal/resizequeue max 65: qos API
lifecycle/internal/callout max 0:
lifecycle/internal/ownership max 0: cri
lifecycle/internal/lacking max 65: API
lifecycle/internal/runtimestate max 0: cri lifecycle/internal/callout
lifecycle/internal/mailbox max 75: lifecycle/plan lifecycle/podstatus API
lifecycle/lifecycletest max 75: lifecycle lifecycle/podspec API
lifecycle/internal/podtest max 75: cgroups cri lifecycle/podapi API
lifecycle/podapi       max  75: cri images/reference internal/containers internal/fielderr internal/optional internal/podfield internal/quantity qos API
lifecycle/podenv       max  70: cri internal/containers internal/expand internal/fielderr internal/optional internal/podfield internal/podip qos API
lifecycle/podspec      max  70: cri internal/expand internal/fielderr internal/optional internal/podfield internal/podip lifecycle/podenv qos API
lifecycle/podset       max  65: API
lifecycle/admission    max  75: internal/containers internal/nodeselector lifecycle/podstatus qos API
lifecycle/statuspatch  max  75: internal/containers lifecycle/podapi lifecycle/podstatus lifecycle/podview API
lifecycle/userns       max  75: cri internal/atomicfile API
lifecycle/hook         max  70: cri lifecycle/podspec internal/sleep API
lifecycle/podstore     max  75: internal/atomicfile internal/backoff internal/runonce internal/safeyaml internal/sleep lifecycle/podset lifecycle/podstatus API
lifecycle/source       max  80: internal/atomicfile internal/backoff internal/safeyaml lifecycle/podapi lifecycle/podset github.com/fsnotify/fsnotify internal/runonce API YAML
lifecycle/apisource    max 200: cri internal/backoff internal/containers internal/correlator internal/kubeapi internal/required internal/retryqueue internal/runonce internal/sleep lifecycle lifecycle/apisource/apiobjects lifecycle/podset lifecycle/podstatus lifecycle/statuspatch qos API CLUSTER
lifecycle/apisource/apiobjects max 200: images/credential internal/atomicfile internal/backoff internal/containers internal/kubeapi internal/objectwatch internal/plainfile internal/runonce internal/sleep lifecycle/podenv volume/claim volume/podcert volume/token volume/trustbundle API CLUSTER
lifecycle/apisource/apisourcetest max 200: k8s.io/client-go/rest testing lifecycle/podapi API
lifecycle/objects      max  80: internal/objectwatch internal/safeyaml API sigs.k8s.io/yaml github.com/fsnotify/fsnotify

# Volumes: the engine knows no plugin, and what decides does no I/O.
volume                 max  75: internal/atomicfile internal/backoff internal/dirlock internal/fielderr internal/plainfile internal/listener internal/mount internal/nowait internal/podfield internal/podvolume internal/runonce internal/sleep lifecycle/podspec volume/claim volume/internal/blockmap volume/plan volume/selinux volume/subpath API
volume/internal/blockmap max 0: internal/blockdev internal/mount
volume/claim           max  75: internal/containers internal/nodeselector internal/optional API
volume/plan            max   0: internal/backoff internal/sleep
volume/payload         max  75: internal/containers internal/optional internal/podfield volume/atomicwriter API
volume/token           max   0: internal/required
volume/intree          max  75: internal/blockdev internal/containers internal/dirusage internal/mount internal/nowait internal/optional internal/plugincmd internal/podfield internal/projquota internal/quantity internal/rmtree qos volume volume/atomicwriter volume/fsgroup volume/payload volume/plan volume/token API SYS
volume/volumetest      max  75: API internal/suite testing volume volume/podcert volume/trustbundle
volume/selinux         max  75: internal/containers internal/optional API
volume/podcert         max  75: internal/backoff internal/runonce internal/sleep volume/payload API internal/required
volume/trustbundle     max  75: volume/payload API internal/required

# CSI: drivers of volumes speak gRPC.
volume/csi             max 175: internal/atomicfile internal/backoff internal/mount internal/optional internal/plainfile internal/plugingrpc internal/pluginregistry internal/required internal/retryqueue internal/rmtree internal/runonce internal/sleep volume volume/fsgroup volume/plan volume/selinux volume/token API CSI GRPC SYS
volume/csi/csitest     max 115: CSI GRPC testing

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
internal/controlplane  max   0: internal/dirlock internal/lab testing
internal/cripb         max 115: cri GRPC
internal/containers    max  75: API
internal/correlator    max  75: API
internal/costtest      max   0: testing
internal/dirusage      max   0: internal/dirent SYS
internal/expand        max  75: internal/fielderr API
internal/exetest       max   0: testing
internal/faultproxy    max   0: testing
internal/fielderr      max  75: API
internal/kubeapi       max 200: internal/backoff internal/runonce internal/sleep API CLUSTER github.com/go-logr/logr
internal/lab           max   0: testing
internal/latest        max   0:
internal/login1/...    max  20: internal/atomicfile internal/login1 github.com/godbus/dbus/v5
internal/mount         max   0: internal/backoff SYS
internal/blockdev      max   0: internal/plainfile internal/plugincmd SYS
internal/mounttest     max   0: internal/isolated testing SYS
internal/nodeselector  max  75: API
internal/plugingrpc    max 115: GRPC SYS
internal/pluginregistry max 115: internal/backoff internal/plugingrpc internal/runonce internal/sleep GRPC k8s.io/kubelet/pkg/apis/pluginregistration/v1 github.com/fsnotify/fsnotify
internal/projquota      max   0: SYS unsafe
internal/podfield      max  75: internal/containers API
internal/podvolume     max  75: internal/containers API
internal/podip         max  75: API
internal/podtest       max  80: lifecycle/podapi API sigs.k8s.io/yaml testing
internal/quantity      max  75: API
internal/safeyaml      max  75: internal/quantity API YAML
internal/hostile       max   0:
internal/script        max   0: testing
internal/suite/...     max   0: testing

# Commands. The benchmark shares no code with what it measures.
examples/... hack/...         : any
hack/bench                    : internal/lab hack/bench/internal/... GRPC
hack/bench/internal/...       : internal/agentfile GRPC

# The whole node. Only programs and test helpers are above it.
agent                  max 300: any
agent/kubeletconfig    max 110: cgroups/podtree cri/logs eviction eviction/threshold gc internal/quantity nodestatus nodestatus/shutdown API sigs.k8s.io/yaml
internal/agentfile     max 300: agent agent/kubeletconfig
internal/volumestats   max  75: nodestatus/summary volume volume/claim API k8s.io/kubelet/pkg/apis/stats/v1alpha1
lifecycle/podevents    max  80: cri images internal/required lifecycle probe API

# The node: what is used of it.
nodestatus             max  80: cgroups/podtree cri nodestatus/machine API
nodestatus/machine     max   0:
nodestatus/heartbeat   max 200: cri internal/backoff internal/kubeapi internal/listener internal/runonce internal/sleep nodestatus nodestatus/kubeconfig nodestatus/machine API k8s.io/client-go/rest
nodestatus/kubeconfig  max 200: internal/safeyaml API CLUSTER
nodestatus/shutdown    max  80: internal/atomicfile internal/backoff internal/login1 internal/runonce internal/sleep API
nodestatus/summary     max  75: cgroups cri internal/dirusage internal/latest internal/runonce internal/sleep API k8s.io/kubelet/pkg/apis/stats/v1alpha1 SYS internal/required
nodestatus/cert        max 200: internal/atomicfile internal/backoff internal/kubeapi internal/plainfile internal/runonce internal/safeyaml internal/sleep API CLUSTER
nodestatus/cert/certtest max 200: lifecycle/apisource/apisourcetest API k8s.io/client-go/tools/clientcmd/...

# Metrics: client_golang is imported here alone.
nodeapi/prom            max 130: cgroups cgroups/podtree cri eviction gc images internal/containers lifecycle lifecycle/executor lifecycle/podstatus nodeapi/prom/internal/answer pleg probe qos volume volume/plan API PROM internal/required
nodeapi/prom/internal/answer max   0:
nodeapi/prom/usage      max 110: cgroups cri internal/latest nodeapi/prom/internal/answer nodestatus/machine nodestatus/summary API PROM k8s.io/kubelet/pkg/apis/stats/v1alpha1 internal/required
nodeapi/prom/promtest   max  40: PROM
# The API of the node.
nodeapi                max  85: cri cri/logs internal/freshfile internal/runonce nodeapi/auth API k8s.io/kubelet/pkg/apis/stats/v1alpha1
nodeapi/auth           max  70: internal/backoff internal/freshfile internal/sleep API
# The HTTP API of the node. One third-party package frames SPDY for it; neither klog nor k8s.io/apiserver comes with it.
nodeapi/stream         max   1: cri nodeapi/stream/internal/...
nodeapi/stream/streamtest max 1: cri nodeapi/stream/internal/...
nodeapi/stream/internal/... max 1: nodeapi/stream/internal/... github.com/moby/spdystream/spdy
nodeapi/auth/authtest  max  65: internal/sleep API testing
nodeapi/nodelogs       max  20: API
# The kubelet's API.
nodeapi/podsapi        max 175: cri internal/runonce API GRPC k8s.io/kubelet/pkg/apis/pods/v1alpha1 internal/required

# Planned: what they may import is settled before they are written.
device                        : GRPC
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
