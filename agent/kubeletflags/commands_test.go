// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/agent/kubeletflags"
)

// kubeadmConfig is part of the file that kubeadm writes.
const kubeadmConfig = `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}, x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock
healthzBindAddress: 127.0.0.1
healthzPort: 10248
rotateCertificates: true
staticPodPath: /etc/kubernetes/manifests
`

// dropIn are the arguments in 10-kubeadm.conf of the packages, before those of kubeadm-flags.env and KUBELET_EXTRA_ARGS.
const dropIn = "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml "

// The command lines that tools start a kubelet with give these settings, over the file of kubeadm where the command line has a file. Sources:
// cmd/kubeadm/app/phases/kubelet/flags.go, cluster/gce/util.sh, hack/local-up-cluster.sh and test/e2e_node/services/kubelet.go of Kubernetes 1.37.1,
// pkg/cluster/internal/kubeadm/config.go of kind, pkg/daemons/agent/agent_linux.go of k3s, and the unit of minikube.
func TestCommandLinesOfTools(t *testing.T) {
	for name, line := range map[string]struct {
		args     string
		warnings int
		want     map[string]any
	}{
		"kubeadm": {dropIn, 0, map[string]any{
			"kubeconfig": "/etc/kubernetes/kubelet.conf", "bootstrapKubeconfig": "/etc/kubernetes/bootstrap-kubelet.conf", "rootDir": "/var/lib/kubelet",
			"staticPodPath": "/etc/kubernetes/manifests", "rotateCertificates": true, "containerRuntimeEndpoint": "unix:///var/run/containerd/containerd.sock",
			"maxPods": 110.0, "registerNode": true,
		}},
		"kubeadm with a node name and taints": {
			dropIn + "--register-with-taints=node-role.kubernetes.io/control-plane=:NoSchedule,example.com/a=b:NoExecute --hostname-override=Node-1", 1,
			map[string]any{"nodeName": "node-1", "registerWithTaints": []any{
				map[string]any{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
				map[string]any{"key": "example.com/a", "value": "b", "effect": "NoExecute"},
			}},
		},
		"packages with KUBELET_EXTRA_ARGS": {
			dropIn + "--container-runtime-endpoint=unix:///var/run/crio/crio.sock --cgroup-driver=systemd --fail-swap-on=false --node-ip=192.168.0.5 --max-pods 64 --v=2", 4,
			map[string]any{"containerRuntimeEndpoint": "unix:///var/run/crio/crio.sock", "nodeIPs": []any{"192.168.0.5"}, "maxPods": 64.0, "logLevel": nil},
		},
		"kind": {
			dropIn + "--container-runtime-endpoint=unix:///run/containerd/containerd.sock --node-ip=172.18.0.2 --node-labels= " +
				"--provider-id=kind://docker/kind/kind-control-plane --runtime-cgroups=/system.slice/containerd.service --cgroup-root=/kubelet --fail-swap-on=false",
			3,
			map[string]any{
				"providerID": "kind://docker/kind/kind-control-plane", "nodeIPs": []any{"172.18.0.2"}, "nodeLabels": nil, "cgroupRoot": "/kubelet",
				"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
			},
		},
		"kind with two IP families": {
			dropIn + "--node-ip=172.18.0.2,fc00::2 --node-labels=ingress-ready=true,tier=a --provider-id=kind://docker/kind/kind-worker", 0,
			map[string]any{"nodeIPs": []any{"172.18.0.2", "fc00::2"}, "nodeLabels": map[string]any{"ingress-ready": "true", "tier": "a"}},
		},
		"minikube": {
			dropIn + "--hostname-override=minikube --node-ip=192.168.49.2 --cgroups-per-qos=false --enforce-node-allocatable=", 2,
			map[string]any{"nodeName": "minikube", "nodeIPs": []any{"192.168.49.2"}, "cgroupsPerQOS": false},
		},
		"k3s without its cloud controller": {
			"--config-dir=/var/lib/rancher/k3s/agent/etc/kubelet.conf.d --kubeconfig=/var/lib/rancher/k3s/agent/kubelet.kubeconfig --read-only-port=0 " +
				"--hostname-override=k3s-1 --node-ip=10.0.0.5 --node-labels=a=b --kubelet-cgroups=/k3s --runtime-cgroups=/k3s " +
				"--root-dir=/data/kubelet --cert-dir=/data/kubelet/pki",
			2,
			map[string]any{
				"kubeconfig": "/var/lib/rancher/k3s/agent/kubelet.kubeconfig", "readOnlyPort": nil, "nodeName": "k3s-1", "rootDir": "/data/kubelet",
				"nodeLabels": map[string]any{"a": "b"},
			},
		},
		"k3s before drop-ins": {
			"--address=0.0.0.0 --allowed-unsafe-sysctls=net.ipv4.ip_forward,net.ipv6.conf.all.forwarding --anonymous-auth=false " +
				"--authentication-token-webhook=true --authorization-mode=Webhook --cgroup-driver=cgroupfs --client-ca-file=/k3s/client-ca.crt " +
				"--cluster-dns=10.43.0.10 --cluster-domain=cluster.local --container-runtime-endpoint=unix:///run/k3s/containerd/containerd.sock " +
				"--eviction-hard=imagefs.available<5%,nodefs.available<5% --eviction-minimum-reclaim=imagefs.available=10%,nodefs.available=10% " +
				"--fail-swap-on=false --feature-gates=CloudDualStackNodeIPs=true --healthz-bind-address=127.0.0.1 --kubeconfig=/k3s/kubelet.kubeconfig " +
				"--pod-manifest-path=/k3s/pod-manifests --read-only-port=0 --resolv-conf=/run/systemd/resolve/resolv.conf --serialize-image-pulls=false " +
				"--tls-cert-file=/k3s/serving-kubelet.crt --tls-private-key-file=/k3s/serving-kubelet.key --node-labels=egress.k3s.io/cluster=true",
			21,
			nil, // the gate was removed in 1.32
		},
		"kube-up on GCE": {
			"--v=2 --config=/opt/kubernetes/kubelet-config.yaml --experimental-mounter-path=/opt/kubernetes/containerized_mounter/mounter " +
				"--cert-dir=/var/lib/kubelet/pki/ --bootstrap-kubeconfig=/var/lib/kubelet/bootstrap-kubeconfig --kubeconfig=/var/lib/kubelet/kubeconfig " +
				"--resolv-conf=/run/systemd/resolve/resolv.conf --volume-plugin-dir=/opt/kubernetes/flexvolume --node-labels=cloud.google.com/x=true " +
				"--container-runtime-endpoint=unix:///run/containerd/containerd.sock --runtime-cgroups=/system.slice/containerd.service",
			4,
			map[string]any{"resolvConf": "/run/systemd/resolve/resolv.conf", "nodeLabels": map[string]any{"cloud.google.com/x": "true"}},
		},
		"local-up-cluster": {
			"--v=3 --vmodule= --hostname-override=127.0.0.1 --bootstrap-kubeconfig=/c/kubelet.kubeconfig --kubeconfig=/c/kubelet-rotated.kubeconfig --config=/tmp/kubelet.yaml", 0,
			map[string]any{"nodeName": "127.0.0.1", "logLevel": "DEBUG"},
		},
		"node e2e tests": {
			"--runtime-cgroups=/docker-daemon --kubeconfig /k --root-dir /var/lib/kubelet --v 4 --feature-gates AllAlpha=false --config-dir /d --hostname-override n " +
				"--container-runtime-endpoint unix:///run/containerd/containerd.sock --image-service-endpoint unix:///run/containerd/containerd.sock --config /c",
			3,
			map[string]any{"nodeName": "n", "logLevel": "DEBUG", "featureGates": map[string]any{"AllAlpha": false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := kubeletflags.Parse(strings.Fields(line.args))
			assert.Len(t, parsed.Warnings, line.warnings)
			if line.want == nil {
				require.ErrorContains(t, err, "--feature-gates=CloudDualStackNodeIPs=true: featureGates: unrecognized feature gate: CloudDualStackNodeIPs")
				return
			}
			require.NoError(t, err)
			d, err := parsed.Load(func(string, string) (kubeletconfig.Documents, error) {
				return kubeletconfig.ParseDocuments([]byte(kubeadmConfig))
			})
			require.NoError(t, err)
			require.NoError(t, d.SetDefaults())
			require.NoError(t, d.Validate())
			got := settings(t, d)
			for field, want := range line.want {
				assert.Equal(t, want, got[field], field)
			}
		})
	}
}

// settings returns the fields of both documents by name.
func settings(t *testing.T, d kubeletconfig.Documents) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, document := range []any{d.Kubelet, d.Node} {
		text, err := json.Marshal(document)
		require.NoError(t, err)
		fields := map[string]any{}
		require.NoError(t, json.Unmarshal(text, &fields))
		maps.Copy(all, fields)
	}
	return all
}

// The flags also override files that kubeletconfig reads, with drop-ins.
func TestLoadWithKubeletconfig(t *testing.T) {
	dir := t.TempDir()
	file, dropIns := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "conf.d")
	require.NoError(t, os.Mkdir(dropIns, 0o700))
	require.NoError(t, os.WriteFile(file, []byte(kubeadmConfig+"maxPods: 1\npodsPerCore: 1\nport: 1\n"), 0o600))
	const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	require.NoError(t, os.WriteFile(filepath.Join(dropIns, "10.conf"), []byte(header+"maxPods: 2\npodsPerCore: 2\n"), 0o600))
	line, err := kubeletflags.Parse([]string{"--config", file, "--config-dir", dropIns, "--max-pods=3"})
	require.NoError(t, err)
	d, err := line.Load(kubeletconfig.LoadDir)
	require.NoError(t, err)
	require.Equal(t, []int32{3, 2, 1}, []int32{d.Kubelet.MaxPods, d.Kubelet.PodsPerCore, d.Kubelet.Port})
}
