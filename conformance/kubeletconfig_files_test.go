// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// configFiles are a generated configuration file of a kubelet and its directory of drop-ins.
type configFiles struct {
	main    string
	dropIns map[string]string // by path below the directory; nil: no directory
	refused map[string]string // fields that only nodeagent refuses, with the name of the difference
}

// String returns the files for the log of a failed test.
func (f configFiles) String() string {
	text := "--- kubelet.yaml\n" + f.main
	for _, name := range slices.Sorted(maps.Keys(f.dropIns)) {
		text += "--- " + name + "\n" + f.dropIns[name]
	}
	return text
}

// effective returns the text of the main file and of the drop-ins that count.
func (f configFiles) effective() string {
	text := f.main
	for name, dropIn := range f.dropIns {
		if strings.HasSuffix(name, ".conf") {
			text += dropIn
		}
	}
	return text
}

// setsSerialPulls reports whether the last file with serializeImagePulls sets a value: null restores the default.
func (f configFiles) setsSerialPulls() (set bool) {
	texts := []string{f.main}
	for _, name := range slices.Sorted(maps.Keys(f.dropIns)) {
		if strings.HasSuffix(name, ".conf") {
			texts = append(texts, f.dropIns[name])
		}
	}
	for _, text := range texts {
		if _, value, ok := strings.Cut(text, "serializeImagePulls: "); ok {
			set = !strings.HasPrefix(value, "null")
		}
	}
	return set
}

// write creates the files below dir, and returns the paths of the main file and of the directory, which is empty if there is none.
func (f configFiles) write(dir string) (path, dropIns string, err error) {
	path = filepath.Join(dir, "kubelet.yaml")
	err = os.WriteFile(path, []byte(f.main), 0o600)
	if f.dropIns == nil || err != nil {
		return path, "", err
	}
	dropIns = filepath.Join(dir, "d")
	if err := os.MkdirAll(dropIns, 0o700); err != nil {
		return "", "", err
	}
	for name, text := range f.dropIns {
		if strings.Contains(name, "/") {
			if err := os.MkdirAll(filepath.Join(dropIns, filepath.Dir(name)), 0o700); err != nil {
				return "", "", err
			}
		}
		if err := os.WriteFile(filepath.Join(dropIns, name), []byte(text), 0o600); err != nil {
			return "", "", err
		}
	}
	return path, dropIns, nil
}

const kubeletHeader = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// configValues has values of fields in YAML, which both sides may accept or refuse, separated by " ; ".
const configValues = `
address 0.0.0.0 ; 127.0.0.1 ; "::" ; localhost ; ""
allowedUnsafeSysctls [] ; [net.core.somaxconn] ; ["kernel.msg*"] ; null
authentication {} ; {anonymous: {enabled: true}} ; {webhook: {enabled: false, cacheTTL: 5s}} ; {x509: {clientCAFile: ca.crt}} ; {x509: {clientCAFile: /etc/ca.crt}} ; {webhook: {cacheTTL: 5}} ; null
authorization {mode: AlwaysAllow} ; {mode: Webhook, webhook: {cacheAuthorizedTTL: 1m}} ; {mode: RBAC} ; {webhook: null} ; {mode: null}
cgroupDriver systemd ; cgroupfs ; "" ; null
cgroupRoot / ; /kubelet ; ""
cgroupsPerQOS true ; false ; null
clusterDNS [10.96.0.10] ; ["fd00::10"] ; [] ; [nope]
clusterDomain cluster.local ; "" ; 5
configMapAndSecretChangeDetectionStrategy Watch ; Get ; Cache
containerLogMaxFiles 2 ; 5 ; 1 ; 0 ; -1
containerLogMaxSize 10Mi ; 1Gi ; "" ; 10Mib
containerLogMaxWorkers 1 ; 3 ; 0 ; -1 ; null
containerLogMonitorInterval 10s ; 3s ; 2s ; 0s ; null
containerRuntimeEndpoint unix:///run/containerd/containerd.sock ; unix:///run/crio/crio.sock
contentType application/json ; ""
cpuCFSQuota true ; false ; null
cpuCFSQuotaPeriod 100ms ; 10ms ; 2s ; null
cpuManagerPolicy none ; static ; "" ; null
cpuManagerPolicyOptions {} ; {full-pcpus-only: "true"}
cpuManagerReconcilePeriod 0s ; 10s
crashLoopBackOff {} ; {maxContainerRestartPeriod: 300s} ; {maxContainerRestartPeriod: 10s} ; {maxContainerRestartPeriod: 1h} ; {maxContainerRestartPeriod: null}
defaultPodSysctls {} ; {net.core.somaxconn: "5"}
enableControllerAttachDetach true ; false ; null
enableDebuggingHandlers true ; false
enableProfilingHandler true ; false ; null
enableServer true ; false ; null
enableSystemLogHandler true ; false ; null
enableSystemLogQuery true ; false ; null
enforceNodeAllocatable [pods] ; [] ; [none] ; [pods, pods] ; [pods, none] ; [system-reserved] ; [what] ; null
eventBurst 0 ; 10 ; -1
eventRecordQPS 0 ; 5 ; -1 ; null
evictionHard {memory.available: 100Mi} ; {memory.available: 5%, nodefs.available: "10%"} ; {} ; null ; {memory.available: null} ; {memory.available: lots} ; {disk: 5%} ; {memory.available: 5}
evictionMaxPodGracePeriod 0 ; 60
evictionMinimumReclaim {} ; {nodefs.available: 500Mi} ; {memory.available: -1Mi}
evictionPressureTransitionPeriod 0s ; 30s ; 30
evictionSoft {} ; {memory.available: 200Mi} ; {memory.available: -5%} ; null
evictionSoftGracePeriod {} ; {memory.available: 30s} ; {memory.available: -30s} ; null
failCgroupV1 false ; null
failSwapOn true ; false ; null
featureGates {} ; {AllAlpha: false} ; {AllBeta: true} ; {AllAlpha: true} ; {NodeSwap: true} ; {NodeSwap: false} ; {Unknown: true} ; {ContextualLogging: false} ; {GracefulNodeShutdown: false} ; {DRAConsumableCapacity: true, DynamicResourceAllocation: false} ; {EventedPLEG: true} ; {GenericWorkload: true} ; {WorkloadWithJob: true} ; {EnvFiles: true} ; {CompositePodGroup: true, TopologyAwareWorkloadScheduling: false} ; {ContextualLogging: null} ; {ContextualLogging: "true"} ; null
fileCheckFrequency 0s ; 10s
hairpinMode none ; hairpin-veth ; promiscuous-bridge ; bridge ; ""
healthzBindAddress 127.0.0.1 ; 0.0.0.0 ; ""
healthzPort 10248 ; 0 ; 65536 ; -1 ; null
httpCheckFrequency 20s ; 1m
imageGCHighThresholdPercent 85 ; 100 ; 101 ; 0 ; null
imageGCLowThresholdPercent 80 ; 0 ; 85 ; -1 ; null
imageMaximumGCAge 0s ; 1h ; 1m ; -1s
imageMinimumGCAge 0s ; 5m ; -1s
imageServiceEndpoint "" ; unix:///run/containerd/containerd.sock ; unix:///run/images.sock
imagePullCredentialsVerificationPolicy NeverVerifyPreloadedImages ; AlwaysVerify ; Sometimes ; ""
iptablesDropBit 15 ; 31 ; 32 ; -1 ; null
iptablesMasqueradeBit 14 ; 0 ; 32 ; null
kernelMemcgNotification true ; false
kubeAPIBurst 100 ; 0 ; -1
kubeAPIQPS 50 ; 0 ; -1 ; null
kubeReserved {} ; {cpu: 100m, memory: 100Mi} ; {pid: "100"} ; {cpu: -1} ; {cpu: "-1"} ; {nvidia.com/gpu: "1"} ; {memory: lots} ; {memory: null} ; null
localStorageCapacityIsolation true ; false ; null
logging {} ; {format: json} ; {format: text} ; {format: xml} ; {verbosity: 4} ; {verbosity: -1} ; {flushFrequency: 5s} ; {flushFrequency: 0} ; {flushFrequency: -1s} ; {vmodule: [{filePattern: a, verbosity: 2}]} ; {vmodule: [{filePattern: "", verbosity: 2}]} ; {options: {text: {splitStream: true}}} ; {options: {json: {infoBufferSize: "0"}}} ; null
makeIPTablesUtilChains true ; false
maxOpenFiles 0 ; 1000 ; -1
maxParallelImagePulls 1 ; 5 ; 0 ; -1 ; null
maxPods 0 ; 50 ; 110 ; -1 ; 2147483648 ; 5.5
memoryManagerPolicy None ; Static
memoryReservationPolicy None ; TieredReservation ; Some
memorySwap {} ; {swapBehavior: NoSwap} ; {swapBehavior: LimitedSwap} ; {swapBehavior: Lots}
memoryThrottlingFactor 0.9 ; 0.5 ; 2.0 ; null
mergeDefaultEvictionSettings true ; false ; null
nodeLeaseDurationSeconds 0 ; 10 ; -1
nodeStatusMaxImages 50 ; -1 ; -2 ; null
nodeStatusReportFrequency 0s ; 1m ; null
nodeStatusUpdateFrequency 0s ; 20s ; null
oomScoreAdj -999 ; 0 ; 1001 ; null
podCIDR 10.100.0.0/24 ; ""
podLogsDir /var/log/pods ; /logs ; /logs/ ; "/lögs" ; ""
podPidsLimit -1 ; -5 ; 1000 ; null
podsPerCore 0 ; 10 ; -1
port 0 ; 10250 ; 65536 ; -1 ; "10250" ; many
protectKernelDefaults false ; true
providerID "" ; aws:///i-1
readOnlyPort 0 ; 10255 ; -1 ; 65536
registerNode true ; false ; null
registerWithTaints [] ; [{key: a, effect: NoSchedule}] ; [{key: a, value: b}] ; [{key: "a b", effect: NoSchedule}] ; [{key: a, effect: Never}] ; [{key: a, value: "-"}] ; [{key: a, timeAdded: "2026-01-01T00:00:00Z"}] ; [{effect: NoSchedule}] ; null
registryBurst 0 ; 10 ; -1
registryPullQPS 5 ; 0 ; -1 ; null
reservedMemory [] ; [{numaNode: 0, limits: {memory: 100Mi}}] ; [{limits: {memory: 1048576, hugepages-2Mi: 2Mi}}, {numaNode: 1, limits: {memory: 1.5Gi}}] ; [{limits: {memory: 0}}] ; [{numaNode: 2, limits: {cpu: "1"}}] ; [{limits: {memory: 1}}, {limits: {memory: 1}}] ; [{numaNode: -1, limits: {memory: -1}}] ; [{numaNode: x}] ; [{limits: {memory: lots}}] ; null
resolvConf /run/systemd/resolve/resolv.conf ; resolv.conf ; "" ; null
rotateCertificates true ; false
runOnce false ; true
runtimeRequestTimeout 0s ; 2m ; 15m
seccompDefault false ; true ; null
serializeImagePulls true ; false ; null
serverTLSBootstrap false ; true
shutdownGracePeriod 0s ; 30s ; 500ms ; 1500ms ; -1s
shutdownGracePeriodByPodPriority [] ; [{priority: 0, shutdownGracePeriodSeconds: 5}] ; [{priority: 0, shutdownGracePeriodSeconds: -5}] ; null
shutdownGracePeriodCriticalPods 0s ; 10s ; 1h ; 500ms
staticPodPath /etc/kubernetes/manifests ; manifests ; "" ; null
staticPodURL "" ; http://localhost/pods
streamingConnectionIdleTimeout 0s ; 1h ; 1x
syncFrequency 0s ; 1m ; null
systemCgroups "" ; /system.slice
systemReserved {} ; {cpu: 100m} ; {ephemeral-storage: 1Gi} ; {cpu: "-1"} ; {pods: "1"} ; null
tlsCertFile "" ; tls.crt ; /tls.crt
tlsPrivateKeyFile "" ; tls.key ; /tls.key
tlsMinVersion "" ; VersionTLS12 ; VersionTLS13
topologyManagerPolicy none ; restricted ; strict ; ""
topologyManagerPolicyOptions {} ; {prefer-closest-numa-nodes: "true"} ; {x: "1"}
topologyManagerScope container ; pod ; node ; null
tracing null ; {} ; {samplingRatePerMillion: 0} ; {samplingRatePerMillion: -1} ; {samplingRatePerMillion: 100}
userNamespaces {idsPerPod: 65536} ; {idsPerPod: 131072} ; {idsPerPod: 5} ; null
volumePluginDir "" ; /plugins
volumeStatsAggPeriod 0s ; 10s ; -1s
`

// dependentFields are fields that depend on each other or on the order of drop-ins. They are generated more often than others.
var dependentFields = []string{
	"evictionHard", "mergeDefaultEvictionSettings", "serializeImagePulls", "maxParallelImagePulls", "nodeStatusUpdateFrequency",
	"nodeStatusReportFrequency", "cgroupsPerQOS", "enforceNodeAllocatable", "imageServiceEndpoint", "containerRuntimeEndpoint", "clusterDomain", "featureGates",
}

// fieldValues returns the values of configValues by field, and the sorted fields.
func fieldValues() (values map[string][]string, names []string) {
	values = map[string][]string{}
	for line := range strings.Lines(strings.TrimSpace(configValues)) {
		name, list, _ := strings.Cut(strings.TrimSpace(line), " ")
		values[name] = strings.Split(list, " ; ")
		names = append(names, name)
	}
	return values, names
}

// configGenerator generates configuration files.
type configGenerator struct {
	values map[string][]string
	names  []string
}

func newConfigGenerator() configGenerator {
	values, names := fieldValues()
	return configGenerator{values: values, names: names}
}

// generate returns the files for one random source. A third of them has invalid values on purpose; most of the others are valid.
func (g configGenerator) generate(r *rand.Rand) configFiles {
	f := configFiles{refused: map[string]string{}}
	bad := r.IntN(3) == 0
	f.main = g.document(r, 8, bad, &f, "")
	if r.IntN(2) == 0 {
		return f
	}
	f.dropIns = map[string]string{}
	for i := range r.IntN(4) {
		name := fmt.Sprintf("%s%d%s", []string{"", "", "", "sub/", "a.conf/", ".hidden/"}[r.IntN(6)], (i*7)%10, []string{".conf", ".conf", ".conf", ".conf", ".yaml", ".conf.bak"}[r.IntN(6)])
		ignored := !strings.HasSuffix(name, ".conf")
		drop := configFiles{refused: map[string]string{}}
		f.dropIns[name] = g.document(r, 3, bad && r.IntN(2) == 0, &drop, "unknown")
		if !ignored {
			maps.Copy(f.refused, drop.refused)
		}
	}
	if bad && r.IntN(50) == 0 { // only the last of them counts
		f.dropIns["8.conf"], f.dropIns["9.conf"] = kubeletHeader+"providerID: 5\n", kubeletHeader+"providerID: aws:///i-2\n"
	}
	return f
}

// document returns a document with up to n fields. It records in f.refused the fields that only nodeagent refuses.
func (g configGenerator) document(r *rand.Rand, n int, bad bool, f *configFiles, dropIn string) string {
	text := kubeletHeader
	if bad && r.IntN(60) == 0 {
		return []string{"", "# nothing\n", "apiVersion: v1\nkind: Pod\n", "kind: KubeletConfiguration\n", "- 1\n", "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n", kubeletHeader + "port: [\n"}[r.IntN(7)]
	}
	seen := map[string]bool{}
	for range r.IntN(n + 1) {
		name := g.names[r.IntN(len(g.names))]
		if r.IntN(4) == 0 {
			name = dependentFields[r.IntN(len(dependentFields))]
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		values := g.values[name]
		value := values[min(r.IntN(len(values)), r.IntN(len(values)))]
		if !bad && r.IntN(8) > 0 {
			value = values[r.IntN(min(2, len(values)))]
		}
		text += name + ": " + value + "\n"
	}
	if bad && r.IntN(20) == 0 {
		unknown := []string{"podCidr", "MaxPods", "frobnicate"}[r.IntN(3)]
		text += unknown + ": 5\n"
		f.refused[unknown] = "strict decoding"
	}
	if bad && r.IntN(20) == 0 && !seen["authentication"] {
		text += "authentication: {x509: {caFile: x}}\n"
		f.refused["authentication"] = "strict decoding"
	}
	if bad && dropIn == "" && r.IntN(20) == 0 && !seen["syncFrequency"] {
		text += "syncFrequency: 1m\nsyncFrequency: 1m\n"
		f.refused["syncFrequency"] = "strict decoding"
	}
	return text
}
