// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags_test

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/agent/kubeletflags"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// noFiles is a LoadFunc for command lines whose files do not matter.
func noFiles(string, string) (kubeletconfig.Documents, error) { return kubeletconfig.Documents{}, nil }

// load parses args and applies them to documents.
func load(t *testing.T, documents string, args ...string) (kubeletconfig.Documents, error) {
	t.Helper()
	line, err := kubeletflags.Parse(append(args, "--config=c.yaml"))
	require.NoError(t, err)
	return line.Load(func(file, dropIns string) (kubeletconfig.Documents, error) {
		assert.Equal(t, "c.yaml", file)
		assert.Empty(t, dropIns)
		return kubeletconfig.ParseDocuments([]byte(documents))
	})
}

const documents = `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 7
clusterDNS: [10.0.0.10]
evictionHard: {memory.available: 5%, nodefs.available: 5%}
featureGates: {GracefulNodeShutdown: true}
registerNode: true
authentication: {x509: {clientCAFile: /ca}, anonymous: {enabled: false}}
---
apiVersion: nodeagent/v1alpha1
kind: NodeConfiguration
nodeName: file
nodeLabels: {a: file, b: file}
rootDir: /file
logLevel: ERROR
`

// A flag replaces the value of the files, including maps and lists. Feature gates and node labels are merged.
func TestFlagsOverrideFiles(t *testing.T) {
	d, err := load(t, documents, "--max-pods=9", "--cluster-dns=10.0.0.1,10.0.0.2", "--cluster-dns=10.0.0.3", "--register-node=false",
		"--eviction-hard=imagefs.available<5%", "--eviction-hard=memory.available<1Gi,pid.available<5%", "--anonymous-auth", "--hostname-override= Flag ",
		"--node-labels=b=flag,c", "--node-labels=d=e", "--root-dir=/flag", "--node-ip=10.0.0.1,fd00::1", "--kubeconfig=/k", "--bootstrap-kubeconfig=/b", "-v4",
		"--image-credential-provider-bin-dir=/bin", "--register-with-taints=k=v:NoSchedule,l:NoExecute", "--streaming-connection-idle-timeout=90m")
	require.NoError(t, err)
	k, n := &d.Kubelet, &d.Node
	assert.EqualValues(t, 9, k.MaxPods)
	assert.Equal(t, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, k.ClusterDNS)
	assert.Equal(t, map[string]string{"imagefs.available": "5%", "memory.available": "1Gi", "pid.available": "5%"}, k.EvictionHard)
	assert.False(t, *k.RegisterNode)
	assert.True(t, *k.Authentication.Anonymous.Enabled)
	assert.Equal(t, "/ca", k.Authentication.X509.ClientCAFile)
	assert.Equal(t, 90*time.Minute, k.StreamingConnectionIdleTimeout.Duration)
	assert.Equal(t, []corev1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}, {Key: "l", Effect: "NoExecute"}}, k.RegisterWithTaints)
	assert.Equal(t, "flag", n.NodeName)
	assert.Equal(t, map[string]string{"a": "file", "b": "flag", "c": "", "d": "e"}, n.NodeLabels)
	assert.Equal(t, []string{"/flag", "/k", "/b", "/bin"}, []string{n.RootDir, n.Kubeconfig, n.BootstrapKubeconfig, n.CredentialProviderBinDir})
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, n.NodeIPs)
	assert.Equal(t, slog.LevelDebug, n.LogLevel)
}

// The log level is that of -v, otherwise that of the NodeConfiguration, otherwise that of logging.verbosity.
func TestLogLevelIsThatOfTheFlagOrOfTheFiles(t *testing.T) {
	const kubelet, node = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nlogging: {verbosity: 6}\n", "---\napiVersion: nodeagent/v1alpha1\nkind: NodeConfiguration\n"
	for _, c := range []struct {
		text string
		args []string
		want slog.Level
	}{
		{kubelet, nil, slog.LevelDebug - 2},
		{kubelet + node + "logLevel: INFO\n", nil, slog.LevelInfo},
		{kubelet + node, []string{"-v0"}, slog.LevelInfo},
		{kubelet + node, []string{"-v4"}, slog.LevelDebug},
		{node, nil, slog.LevelInfo},
	} {
		d, err := load(t, c.text, c.args...)
		require.NoError(t, err, c.text)
		assert.Equal(t, c.want, d.Node.LogLevel, "%s %q", c.text, c.args)
	}
}

// Files keep their values where no flag is given. Only missing values get the kubelet's defaults.
func TestFilesOverrideDefaults(t *testing.T) {
	d, err := load(t, documents)
	require.NoError(t, err)
	want, err := kubeletconfig.ParseDocuments([]byte(documents))
	require.NoError(t, err)
	want.Kubelet.ContainerRuntimeEndpoint, want.Node.CertDir = "unix:///run/containerd/containerd.sock", "/var/lib/kubelet/pki"
	require.Equal(t, "/file/config.json", d.Node.DockerConfigFiles[0], "registry credentials in the root directory")
	want.Node.DockerConfigFiles = d.Node.DockerConfigFiles
	require.Equal(t, want, d)

	line, err := kubeletflags.Parse(nil)
	require.NoError(t, err)
	d, err = line.Load(nil)
	require.NoError(t, err)
	require.Equal(t, "/var/lib/kubelet", d.Node.RootDir)
	require.Equal(t, "unix:///run/containerd/containerd.sock", d.Kubelet.ContainerRuntimeEndpoint)
	require.NoError(t, d.SetDefaults())
	require.False(t, *d.Kubelet.Authentication.Anonymous.Enabled)
	require.Zero(t, d.Kubelet.ReadOnlyPort)
}

// Empty values remove settings of the files, as in a unit whose variable is empty.
func TestEmptyFlagsRemoveSettings(t *testing.T) {
	d, err := load(t, documents, "--hostname-override=", "--eviction-hard=", "--cluster-dns=", "--client-ca-file=", "--address=", "--node-ip=")
	require.NoError(t, err)
	assert.Empty(t, d.Node.NodeName)
	assert.Equal(t, map[string]string{}, d.Kubelet.EvictionHard)
	assert.Empty(t, d.Kubelet.ClusterDNS)
	assert.Empty(t, d.Kubelet.Authentication.X509.ClientCAFile)
}

func TestFeatureGatesMergeByName(t *testing.T) {
	const file = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfeatureGates: {APIResponseCompression: true, AllAlpha: false}\n"
	line, err := kubeletflags.Parse([]string{"--feature-gates=GracefulNodeShutdown=true", "--config=c", "--feature-gates=APIResponseCompression=false"})
	require.NoError(t, err)
	d, err := line.Load(func(string, string) (kubeletconfig.Documents, error) {
		return kubeletconfig.ParseDocuments([]byte(file))
	})
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"AllAlpha": false, "APIResponseCompression": false, "GracefulNodeShutdown": true}, d.Kubelet.FeatureGates)
}

// Some values depend on other flags, or on the files.
func TestFlagsThatConflict(t *testing.T) {
	_, err := load(t, documents, "--image-service-endpoint=unix:///i")
	require.ErrorContains(t, err, "--image-service-endpoint=unix:///i: imageServiceEndpoint: ")
	_, err = load(t, documents, "--image-service-endpoint=unix:///i", "--container-runtime-endpoint=unix:///i")
	require.NoError(t, err)
	_, err = load(t, documents, "--hairpin-mode=never")
	require.ErrorContains(t, err, "--hairpin-mode=never: hairpinMode: ")
	d, err := load(t, documents, "--oom-score-adj=5000", "--kubeconfig=/k")
	require.NoError(t, err)
	require.NoError(t, d.SetDefaults())
	require.ErrorContains(t, d.Validate(), "--oom-score-adj=5000: oomScoreAdj: 5000 is not between -1000 and 1000")
}

// An external cloud provider initializes a new Node, so the Node has the taint of the kubelet until then.
func TestExternalCloudProviderTaintsNewNode(t *testing.T) {
	for args, taints := range map[string]int{"--cloud-provider=external": 1, "--cloud-provider=": 0} {
		d, err := load(t, "apiVersion: nodeagent/v1alpha1\nkind: NodeConfiguration\nexternalCloudProvider: true\n", args, "--node-ip=10.0.0.1", "--kubeconfig=/k")
		require.NoError(t, err)
		require.NoError(t, d.SetDefaults())
		require.NoError(t, d.Validate())
		node, _ := nodestatus.Initial(nodestatus.Facts{Config: d.NodeStatus(), Host: nodestatus.Host{Interfaces: d.Node.NodeIPs}})
		require.Len(t, node.Spec.Taints, taints, args)
		if taints > 0 {
			assert.Equal(t, corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}, node.Spec.Taints[0])
			assert.Equal(t, "10.0.0.1", node.Annotations["alpha.kubernetes.io/provided-node-ip"])
		}
	}
}

// The certificates of a kubelet are not below --root-dir, unless --cert-dir says so.
func TestCertDirDoesNotFollowRootDir(t *testing.T) {
	for args, want := range map[string]string{"--root-dir=/data": "/var/lib/kubelet/pki", "--cert-dir=/data/pki/": "/data/pki"} {
		d, err := load(t, documents, args)
		require.NoError(t, err)
		require.NoError(t, d.SetDefaults())
		assert.Equal(t, want, d.Node.CertDir, args)
	}
}

// The credential providers of all files of a directory are merged. An error names the file.
func TestCredentialProviders(t *testing.T) {
	const header, provider = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n",
		"{matchImages: ['*.x.io'], defaultCacheDuration: 1m, apiVersion: credentialprovider.kubelet.k8s.io/v1, name: "
	dir := t.TempDir()
	for name, text := range map[string]string{
		"2.yaml": header + "providers: [" + provider + "b}]", "1.yml": header + "providers: [" + provider + "a}]", "README": "no configuration",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	d, err := load(t, documents, "--image-credential-provider-config="+dir)
	require.NoError(t, err)
	require.Len(t, d.Node.CredentialProviders.Providers, 2)
	require.Equal(t, "a", d.Node.CredentialProviders.Providers[0].Name)
	d, err = load(t, documents, "--image-credential-provider-config="+filepath.Join(dir, "2.yaml"))
	require.NoError(t, err)
	require.Len(t, d.Node.CredentialProviders.Providers, 1)

	_, err = load(t, documents, "--image-credential-provider-config="+filepath.Join(dir, "README"))
	require.ErrorContains(t, err, "README: ")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "3.json"), []byte(header+"providers: ["+provider+"a}]"), 0o600))
	_, err = load(t, documents, "--image-credential-provider-config="+dir)
	require.ErrorContains(t, err, `provider "a": name: there are two`)
	_, err = load(t, documents, "--image-credential-provider-config="+t.TempDir())
	require.ErrorContains(t, err, "there is no configuration file in the directory")
	_, err = load(t, documents, "--image-credential-provider-config=/dev/null")
	require.ErrorContains(t, err, "is no regular file")
}

// Load returns the error of the files without applying flags.
func TestLoadReturnsErrorOfFiles(t *testing.T) {
	line, err := kubeletflags.Parse([]string{"--config-dir=/d"})
	require.NoError(t, err)
	_, err = line.Load(func(file, dropIns string) (kubeletconfig.Documents, error) {
		assert.Empty(t, file)
		return kubeletconfig.Documents{}, os.ErrNotExist
	})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The default of the report frequency follows the file, and not the flag.
func TestReportFrequencyFollowsTheFile(t *testing.T) {
	d, err := load(t, documents, "--node-status-update-frequency=4s")
	require.NoError(t, err)
	require.NoError(t, d.SetDefaults())
	assert.Equal(t, 4*time.Second, d.Kubelet.NodeStatusUpdateFrequency.Duration)
	assert.Equal(t, 5*time.Minute, d.Kubelet.NodeStatusReportFrequency.Duration)
}

// A refused value of a flag does not hide the other flags, of which a report on the configuration needs the directories and sockets.
func TestRefusedFlagsLeaveOtherFlags(t *testing.T) {
	line, err := kubeletflags.Parse([]string{
		"--contention-profiling", "--node-ip=x", "--hostname-override=n1", "--container-runtime-endpoint=unix:///c", "--root-dir=/r", "--max-pods=9",
	})
	require.EqualError(t, err, `--contention-profiling=true: enableContentionProfiling: true is not supported by this version, want false`+"\n"+
		`--node-ip=x: node IP "x": is not an IP address`)
	d, err := line.Load(nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"n1", "unix:///c", "/r"}, []string{d.Node.NodeName, d.Kubelet.ContainerRuntimeEndpoint, d.Node.RootDir})
	assert.EqualValues(t, 9, d.Kubelet.MaxPods)
}
