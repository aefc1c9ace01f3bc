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

// policy is the list of permitted imports. A new package needs a line here; the documentation of repocheck.Policy has the
// form. "max" is the number of third-party packages, without golang.org/x/sys, that a program links by importing the
// package: zero is a promise, other numbers are the measured ones and a reserve.
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
tests internal/lifecycle/podhash: lifecycle/podapi YAML
tests internal/wiringtest: cgroups/cpus device device/placement device/poddevice device/plugin device/podresources internal/repocheck API PROM k8s.io/client-go/rest cgroups cgroups/cgroupstest cgroups/podtree cni cri/criserver cri/logs cri/remote cri/streaming eviction eviction/evictiontest eviction/podevict gc images lifecycle apiserver lifecycle/podstore lifecycle/source nodeapi nodeapi/auth nodeapi/podsapi nodeapi/prom nodeapi/prom/usage cri/streaming nodestatus apiserver/cert nodestatus/heartbeat shutdown stats pleg probe probe/podprobe volume volume/csi internal/volume/podcert internal/volume/token internal/volume/trustbundle agent cri apiserver/apiservertest lifecycle/podevents nodestatus/machine volume/volumetest agent/kubeletconfig
tests apiserver:      cri lifecycle internal/lifecycle/podenv volume volume/csi volume/intree internal/lifecycle/podtest lifecycle/podstore pleg
tests apiserver:      cri lifecycle lifecycle/podapi pleg internal/volume/token
tests apiserver apiserver/apiservertest nodestatus apiserver/cert internal/kubeapi: apiserver/apiservertest k8s.io/client-go/rest/...
tests internal/lab:             GRPC
tests internal/dirusage volume/fsgroup: internal/rmtree
tests nodestatus/heartbeat:     apiserver apiserver/apiservertest k8s.io/client-go/rest nodestatus/machine apiserver/cert
tests shutdown internal/login1: internal/login1/login1test
tests apiserver/cert: internal/certtest internal/certstore
tests cri/streaming:           cri/remote
tests nodeapi nodeapi/auth:     cri nodeapi/auth internal/authtest cri/streaming internal/streaming/streamtest stats API
tests images/credential:         SYS
tests volume/csi:               lifecycle/podspec apiserver apiserver/apiservertest
tests cri/process:              cgroups cgroups/driver cni/netns cri/logs
tests cri/remote:               cri/criserver
tests cri/critest:              cri/criserver cri/process cri/remote cri/streaming internal/streaming/streamtest
tests cri/criserver:            cri/remote cri/streaming internal/streaming/streamtest GRPC
tests internal/lifecycle/mailbox: internal/lifecycle/podtest
tests lifecycle/plan:           internal/lifecycle/podtest lifecycle/podapi cgroups qos
tests lifecycle/podstatus:      internal/lifecycle/podtest lifecycle/podapi
tests internal/lifecycle/poddir:         internal/mounttest internal/lifecycle/podtest SYS
tests internal/lifecycle/kubeletstate:   SYS
tests internal/takeover:         device/plugin
tests internal/changeover: volume/volumetest cgroups/cpus cgroups/numa cgroups/topology agent/kubeletconfig device/plugin lifecycle/podspec internal/lifecycle/ownership cri device API
tests agent/kubeletconfig: internal/hostsettings
tests internal/lifecycle/podview:        internal/lifecycle/podtest
tests internal/lifecycle/resize:         internal/lifecycle/podtest
tests internal/lifecycle/executor:       internal/lifecycle/podtest internal/lifecycle/lifecycletest
tests lifecycle:                gc internal/lifecycle/hook internal/lifecycle/statuspatch internal/lifecycle/podtest internal/lifecycle/lifecycletest cgroups images/credential qos pleg cri/remote cri/process cgroups/driver cgroups/cgroupstest cgroups/podtree
tests hack/bench/...:           cgroups cgroups/driver API YAML GRPC internal/... hack/bench/internal/...
tests lifecycle/podevents:      images/credential
tests internal/lifecycle/podenv:         lifecycle/podapi
tests lifecycle/podspec:        lifecycle/podapi
tests lifecycle/objects: lifecycle/podspec
tests volume/csi:               CSI GRPC internal/mounttest lifecycle/objects internal/csitest volume/volumetest
tests internal/blockdev:        internal/mount internal/mounttest
tests internal/memimage:        API
tests volume:                   cri internal/mount internal/mounttest lifecycle lifecycle/objects lifecycle/podspec pleg volume/intree volume/volumetest SYS
tests volume/intree:            internal/mounttest lifecycle/objects lifecycle/podspec internal/volume/podcert internal/volume/trustbundle volume/volumetest
tests internal/volume/podcert:           volume/volumetest
tests internal/volume/trustbundle:       volume/volumetest
tests internal/volume/record: internal/volume/claim
tests internal/volume/payload:           YAML
tests volume/volumetest:        volume/intree
tests lifecycle/podstore:       cri lifecycle/podapi pleg
tests cgroups:                  cgroups/cgroupstest
tests device:                   device/devicetest
tests device/plugin:            device/devicetest
tests device/placement:         device/devicetest device/podresources API cri/critest lifecycle pleg
tests device/poddevice:         device/devicetest lifecycle
tests cgroups/driver:           cgroups/cgroupstest
tests eviction:                 eviction/evictiontest API
tests eviction/podevict:        cgroups/cgroupstest cri/critest pleg
tests probe:                    SYS
tests probe/podprobe:           cri/remote cri/process
tests cgroups/podtree:          cgroups/cgroupstest cgroups/driver
tests nodeapi/prom/usage:       cgroups/cgroupstest cri/critest internal/promtest
tests stats:       internal/rmtree cgroups/cgroupstest cgroups/driver cri/critest SYS
tests gc internal/gctest:       internal/gctest images images/credential cri/remote SYS
tests cni:                      internal/cnitest API SYS
tests cni/netns internal/isolated: SYS
tests nodetest/machine: cgroups/driver SYS
tests nodetest: cgroups/driver cri/process nodetest/internal/worker
tests nodeapi/prom:             internal/promtest cgroups/topology cri/critest images/credential github.com/prometheus/client_golang/prometheus/testutil/...

# The map has no code.
.                      max   0:

# Types and interfaces: the standard library and x/sys.
cri                    max   0: SYS

# Runtimes.
cri/critest            max   0: cri internal/sleep internal/suite testing
cri/process/...        max   0: cgroups cri cri/process/internal/... internal/... SYS
cri/remote             max 115: cri internal/cripb GRPC
cri/criserver          max 115: cri internal/cripb GRPC internal/required

# Log files of containers.
cri/logs               max   0: cri internal/backoff internal/runonce internal/sleep SYS internal/required internal/notexist

# Sockets for local programs.
internal/privatesocket max   0:
internal/takeover      max  80: internal/lifecycle/poddir
internal/changeover    max 330: agent/kubeletconfig apiserver/cert cgroups/cpus cgroups/numa cgroups/driver cgroups/podtree cri cri/remote device device/plugin internal/kubeapi internal/lifecycle/kubeletstate internal/lifecycle/lacking internal/lifecycle/ownership internal/lifecycle/podview internal/lifecycle/resize internal/plainfile internal/podfield internal/volume/record lifecycle/plan lifecycle/podapi lifecycle/source nodestatus/machine qos volume volume/intree API
internal/iptables      max   0: internal/plugincmd internal/runonce internal/sleep
internal/tokenbucket   max   0:
internal/verbosity     max   0:

# Engines: no third-party package, and never each other.
pleg                   max   0: cri internal/backoff internal/listener internal/runonce internal/sleep internal/required
device                 max   0: cri internal/atomicfile internal/backoff internal/plainfile internal/record internal/runonce internal/sleep
device/devicetest      max   0: cri device internal/suite testing
device/plugin          max 115: cri device internal/atomicfile internal/backoff internal/kubechecksum internal/plainfile internal/plugingrpc internal/pluginregistry internal/runonce internal/sleep GRPC k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1 k8s.io/kubelet/pkg/apis/pluginregistration/v1
device/podresources    max 115: device internal/backoff internal/privatesocket internal/runonce internal/sleep internal/tokenbucket GRPC k8s.io/kubelet/pkg/apis/podresources/v1 k8s.io/kubelet/pkg/apis/podresources/v1alpha1
device/placement       max  75: cgroups/cpus cgroups/numa cgroups/topology cri device device/poddevice internal/runonce lifecycle/podspec lifecycle/podstatus qos API
device/poddevice       max  75: cri device internal/sleep lifecycle/admission lifecycle/podspec lifecycle/podstatus internal/podfield internal/listener qos API
eviction               max   0: internal/runonce internal/required internal/sleep
eviction/evictiontest  max   0: eviction internal/suite testing
eviction/podevict      max  80: cgroups cri eviction internal/containers internal/required internal/runonce lifecycle lifecycle/admission stats qos API k8s.io/kubelet/pkg/apis/stats/v1alpha1 lifecycle/podevents lifecycle/podstatus
gc                     max   0: SYS cri internal/reference internal/atomicfile internal/plainfile internal/rmtree internal/runonce internal/sleep internal/required
internal/gctest        max   0: cri gc internal/suite testing

# Resources: what a pod may use, and the cgroups that enforce it.
cgroups                max   0: SYS
cgroups/topology       max   0:
cgroups/cpus           max   0: cgroups/topology device internal/atomicfile internal/kubechecksum internal/plainfile internal/record internal/runonce internal/sleep
cgroups/numa           max  10: cgroups/topology device internal/atomicfile internal/kubechecksum internal/plainfile internal/record API
cgroups/cgroupstest    max   0: cgroups internal/suite testing internal/sleep
cgroups/driver         max  40: cgroups cgroups/driver/internal/... internal/backoff internal/dirent internal/sleep SYS OCI
cgroups/driver/internal/... max 40: cgroups internal/backoff internal/sleep SYS OCI
cgroups/podtree        max  75: cgroups qos internal/backoff internal/quantity internal/runonce internal/required API internal/sleep
qos                    max  75: cgroups cri internal/containers internal/quantity API

# Probes: the engine and its probers know neither pods nor gRPC.
probe                  max   0: internal/listener internal/probeconn internal/runonce internal/required internal/sleep
probe/httpprobe        max   0: probe internal/probeconn internal/redirect SYS
probe/grpcprobe        max 115: probe internal/probeconn GRPC
probe/podprobe         max  75: cri internal/containers internal/expand probe probe/httpprobe API internal/required

# Pods.
lifecycle              max  75: cri images internal/backoff internal/fielderr internal/sleep internal/lifecycle/executor internal/lifecycle/callout internal/lifecycle/kubeletstate internal/lifecycle/lacking internal/lifecycle/mailbox internal/lifecycle/ownership internal/lifecycle/resizequeue internal/lifecycle/runtimestate internal/lifecycle/startslots internal/lifecycle/turns lifecycle/plan lifecycle/podapi internal/lifecycle/poddir internal/lifecycle/podenv lifecycle/podspec lifecycle/podstatus internal/lifecycle/podview probe probe/podprobe qos internal/lifecycle/resize internal/runonce internal/required API lifecycle/podevents images/credential cgroups internal/lifecycle/podset
internal/lifecycle/executor     max  75: cgroups cri internal/containers internal/podip internal/rmtree internal/lifecycle/hook internal/lifecycle/startslots lifecycle/plan internal/lifecycle/poddir lifecycle/podspec lifecycle/podstatus internal/lifecycle/podview internal/lifecycle/resize API internal/sleep lifecycle/podevents
lifecycle/plan         max  75: cri internal/containers internal/sleep internal/lifecycle/hook lifecycle/podspec lifecycle/podstatus internal/lifecycle/podview internal/lifecycle/resize probe probe/podprobe API
lifecycle/podstatus    max  75: cgroups cri internal/containers internal/podip lifecycle/podspec internal/lifecycle/podview internal/lifecycle/resize probe/podprobe qos API
internal/lifecycle/resize       max  75: cgroups cri internal/containers lifecycle/podspec internal/lifecycle/podview qos API
internal/lifecycle/podset       max  65: API
internal/lifecycle/podhash      max  65: API
internal/lifecycle/podview      max  75: cri API
internal/lifecycle/poddir       max  75: cri cri/logs internal/atomicfile internal/backoff internal/dirlock internal/plainfile internal/rmtree lifecycle/podspec lifecycle/podstatus internal/lifecycle/resize API internal/notexist
internal/lifecycle/startslots max   0: internal/sleep
internal/lifecycle/turns max 0:
internal/lifecycle/resizequeue max 65: qos API
internal/lifecycle/kubeletstate max 75: internal/atomicfile internal/backoff internal/containers internal/lifecycle/resize internal/plainfile internal/sleep API
internal/lifecycle/callout max 0:
internal/lifecycle/ownership max 0: cri
internal/lifecycle/lacking max 65: API
internal/lifecycle/runtimestate max   0: cri internal/lifecycle/callout internal/sleep
internal/lifecycle/mailbox max  75: lifecycle/plan lifecycle/podstatus API internal/sleep
internal/lifecycle/lifecycletest max 75: lifecycle lifecycle/podspec API
internal/lifecycle/podtest max 75: cgroups cri lifecycle/podapi API
lifecycle/podapi       max  75: cri internal/reference internal/containers internal/fielderr internal/optional internal/podfield internal/quantity qos API
internal/lifecycle/podenv       max  70: cri internal/containers internal/expand internal/fielderr internal/optional internal/podfield internal/podip qos API
lifecycle/podspec      max  70: cri internal/expand internal/fielderr internal/optional internal/podfield internal/podip internal/lifecycle/podenv qos API
lifecycle/admission    max  75: internal/containers internal/nodeselector internal/podfield lifecycle/podstatus qos API
internal/lifecycle/statuspatch  max  75: internal/containers lifecycle/podapi lifecycle/podstatus internal/lifecycle/podview API
lifecycle/userns       max  75: cri internal/atomicfile API
internal/lifecycle/hook         max  70: cri lifecycle/podspec internal/redirect internal/sleep API
lifecycle/podstore     max  75: internal/atomicfile internal/backoff internal/runonce internal/safeyaml internal/sleep lifecycle/podstatus API lifecycle
lifecycle/source       max  80: internal/atomicfile internal/backoff internal/lifecycle/podhash internal/safeyaml lifecycle/podapi github.com/fsnotify/fsnotify internal/runonce API YAML internal/sleep lifecycle
apiserver    max 200: cri internal/backoff internal/containers internal/correlator internal/eventobject internal/kubeapi internal/required internal/retryqueue internal/runonce internal/sleep lifecycle lifecycle/podstatus internal/lifecycle/statuspatch qos API CLUSTER images/credential internal/atomicfile internal/lifecycle/podenv internal/objectwatch internal/plainfile internal/volume/claim internal/volume/podcert internal/volume/token internal/volume/trustbundle lifecycle/podevents internal/lifecycle/podset internal/notexist volume
apiserver/apiservertest max 200: k8s.io/client-go/rest testing lifecycle/podapi API
lifecycle/objects      max  80: internal/objectwatch internal/safeyaml API sigs.k8s.io/yaml github.com/fsnotify/fsnotify

# Volumes: the engine knows no plugin, and what decides does no I/O.
volume                 max  75: internal/backoff internal/dirlock internal/fielderr internal/listener internal/mount internal/nowait internal/podfield internal/podvolume internal/runonce internal/sleep lifecycle/podspec internal/volume/claim volume/internal/blockmap internal/volume/plan internal/volume/record internal/volume/selinux volume/subpath API internal/notexist
internal/volume/record max  75: internal/atomicfile internal/plainfile API internal/notexist
volume/internal/blockmap max   0: internal/blockdev internal/mount internal/notexist
internal/volume/claim           max  75: internal/containers internal/nodeselector internal/optional API
internal/volume/plan            max   0: internal/backoff internal/sleep
internal/volume/payload         max  75: internal/containers internal/optional internal/podfield volume/atomicwriter API volume
internal/volume/token           max  75: internal/required volume
volume/intree          max  75: internal/blockdev internal/containers internal/dirusage internal/mount internal/nowait internal/optional internal/plugincmd internal/podfield internal/projquota internal/quantity internal/rmtree qos volume volume/atomicwriter volume/fsgroup internal/volume/payload internal/volume/token API SYS internal/volume/podcert internal/volume/trustbundle internal/notexist
volume/volumetest      max  75: API internal/suite testing volume
internal/volume/selinux         max  75: internal/containers internal/optional API internal/notexist
internal/volume/podcert         max  75: internal/backoff internal/runonce internal/sleep API internal/required volume
internal/volume/trustbundle     max  75: API internal/required volume

# CSI: drivers of volumes speak gRPC.
volume/csi             max 175: internal/atomicfile internal/backoff internal/mount internal/optional internal/plainfile internal/plugingrpc internal/pluginregistry internal/required internal/retryqueue internal/rmtree internal/runonce internal/sleep volume volume/fsgroup internal/volume/selinux internal/volume/token API CSI GRPC SYS internal/notexist
internal/csitest     max 115: CSI GRPC testing

# Images: what is pulled, for whom, and with what.
images                 max   0: cri images/credential internal/reference images/internal/... internal/...
images/credential      max   0: cri images/internal/... internal/reference internal/plugincmd
images/internal/...    max   0:
internal/reference       max   0:

# The network of pods.
cni                    max  23: cni/netns internal/atomicfile internal/dirlock internal/plainfile internal/plugincmd internal/sleep SYS CNI
cni/netns              max   0: SYS
internal/cnitest       max   0: testing

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
internal/eventobject   max  75: cri API
internal/costtest      max   0: testing
internal/dirusage      max   0: internal/dirent SYS
internal/expand        max  75: internal/fielderr API
internal/exetest       max   0: testing
internal/faultproxy    max   0: testing
internal/fielderr      max  75: API
internal/kubeapi       max 200: internal/backoff internal/runonce internal/sleep API CLUSTER github.com/go-logr/logr
internal/loginstance   max  75: API
internal/logquery      max  20: API
internal/lab           max   0: testing
internal/latest        max   0:
internal/login1/...    max  20: internal/atomicfile internal/login1 github.com/godbus/dbus/v5 internal/sleep
internal/memimage      max   0: unsafe
internal/mount         max   0: internal/backoff SYS
internal/blockdev      max   0: internal/plainfile internal/plugincmd SYS
internal/mounttest     max   0: internal/isolated testing SYS
internal/nodeselector  max  75: API
internal/plugingrpc    max 115: GRPC SYS
internal/pluginregistry max 115: internal/backoff internal/plugingrpc internal/runonce internal/sleep GRPC k8s.io/kubelet/pkg/apis/pluginregistration/v1 github.com/fsnotify/fsnotify
internal/repocheck       max  25: golang.org/x/tools/go/packages
internal/projquota      max   0: SYS unsafe
internal/podfield      max  75: internal/containers API
internal/podvolume     max  75: internal/containers API
internal/podip         max  75: API
internal/podtest       max  80: lifecycle/podapi API sigs.k8s.io/yaml testing
internal/quantity      max  75: API
internal/retryqueue    max   0: internal/sleep
internal/safeyaml      max  75: internal/quantity API YAML
internal/hostile       max   0:
internal/script        max   0: testing internal/scriptlines
internal/suite/...     max   0: testing

# Commands. The benchmark shares no code with the agents that it measures.
examples/... hack/...         : any
hack/bench/...                : hack/bench/internal/... internal/agentfile internal/controlplane internal/streaming/streamtest API GRPC

# The whole node. Only programs and test helpers are above it.
agent                  max 300: any
nodetest               max 330: agent apiserver/apiservertest apiserver/cert internal/correlator internal/eventobject internal/kubeapi internal/memimage internal/lifecycle/statuspatch internal/runonce cgroups cgroups/cgroupstest cgroups/podtree cri cri/critest eviction eviction/podevict internal/backoff internal/crilimits internal/lifecycle/executor internal/lifecycle/hook internal/lifecycle/podview lifecycle/admission lifecycle/plan lifecycle/podapi lifecycle/podstatus probe probe/podprobe internal/scriptlines internal/sleep lifecycle lifecycle/podevents lifecycle/podspec nodestatus nodestatus/machine nodetest/machine qos stats testing testing/synctest API k8s.io/kubelet/pkg/apis/stats/v1alpha1
nodetest/machine       max   0: cgroups cgroups/cgroupstest
nodetest/internal/worker max 0: cri/process SYS
agent/kubeletconfig    max 110: internal/verbosity cgroups/cpus cgroups/numa cgroups/podtree cgroups/topology cri cri/logs device eviction gc internal/hostsettings internal/quantity nodestatus shutdown API sigs.k8s.io/yaml images/credential lifecycle/podspec nodeapi/auth internal/safeyaml
agent/kubeletflags     max 110: internal/verbosity agent/kubeletconfig images/credential internal/quantity nodestatus API sigs.k8s.io/yaml github.com/spf13/pflag internal/safeyaml
internal/agentfile     max 110: agent/kubeletconfig
internal/scriptlines   max   0:
internal/crilimits     max   0: cri cgroups
internal/embedded      max 140: agent/kubeletconfig cgroups/cpus cgroups/driver cgroups/numa cri cri/process
internal/volumestats   max  75: lifecycle stats volume internal/volume/claim API k8s.io/kubelet/pkg/apis/stats/v1alpha1
lifecycle/podevents    max  70: cri images internal/required probe API

# The node: what is used of it.
nodestatus             max  80: cgroups/podtree cri nodestatus/machine internal/podfield API
nodestatus/machine     max   0:
nodestatus/heartbeat   max 200: cri internal/backoff internal/kubeapi internal/listener internal/runonce internal/sleep nodestatus apiserver/cert nodestatus/machine API k8s.io/client-go/rest
shutdown    max  80: internal/atomicfile internal/backoff internal/login1 internal/runonce internal/sleep API cri lifecycle lifecycle/podstatus qos
stats     max  75: cgroups cri internal/dirusage internal/latest internal/runonce internal/sleep API k8s.io/kubelet/pkg/apis/stats/v1alpha1 SYS internal/required
apiserver/cert        max 200: internal/atomicfile internal/kubeapi internal/runonce internal/sleep API CLUSTER internal/notexist internal/certrequest internal/certstore internal/kubeconfig
internal/certrequest max 75: internal/backoff internal/certstore internal/sleep API
internal/certstore max 0: internal/atomicfile internal/plainfile
internal/kubeconfig max 200: internal/atomicfile internal/certstore internal/plainfile internal/safeyaml API CLUSTER
internal/certtest max 200: apiserver/apiservertest API k8s.io/client-go/tools/clientcmd/...

# Metrics: client_golang is imported here alone.
nodeapi/prom            max 130: cgroups cgroups/cpus cgroups/numa cgroups/podtree cri device eviction gc images internal/containers lifecycle lifecycle/podstatus nodeapi/prom/internal/answer pleg probe qos volume API PROM internal/required lifecycle/podevents
nodeapi/prom/internal/answer max   0:
nodeapi/prom/usage      max 110: cgroups cri internal/latest nodeapi/prom/internal/answer nodestatus/machine stats API PROM k8s.io/kubelet/pkg/apis/stats/v1alpha1 internal/required
internal/promtest   max  40: PROM
# The API of the node.
nodeapi                max  85: cri cri/logs internal/freshfile internal/loginstance internal/logquery internal/runonce internal/sleep internal/verbosity nodeapi/auth API k8s.io/kubelet/pkg/apis/stats/v1alpha1
nodeapi/auth           max  70: internal/backoff internal/freshfile internal/nodeattributes internal/sleep API
# The HTTP API of the node. One third-party package frames SPDY for it; neither klog nor k8s.io/apiserver comes with it.
cri/streaming         max   1: cri internal/required internal/runonce internal/streaming/...
internal/streaming/... max   1: cri internal/streaming/... github.com/moby/spdystream/spdy internal/sleep
internal/authtest  max  65: internal/sleep API testing
# The kubelet's API.
nodeapi/podsapi        max 175: cri internal/privatesocket internal/runonce internal/tokenbucket API GRPC k8s.io/kubelet/pkg/apis/pods/v1alpha1 internal/required lifecycle

# Planned: what they may import is settled before they are written.
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
