// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

// writeFiles writes files below a new directory and returns the path of its file main.yaml and of its directory d.
func writeFiles(t *testing.T, files map[string]string) (path, dropIns string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return filepath.Join(dir, "main.yaml"), filepath.Join(dir, "d")
}

// Drop-ins are merged in lexical order: objects by field, lists as a whole, and null restores the default. Other suffixes are ignored.
func TestLoadDirMergesDropInsInOrder(t *testing.T) {
	path, dir := writeFiles(t, map[string]string{
		"main.yaml":       header + "maxPods: 10\nclusterDNS: [10.0.0.1]\nsystemReserved: {cpu: 100m, memory: 1Gi}\nnodeLeaseDurationSeconds: 20\n",
		"d/20.conf":       header + "maxPods: 20\nsystemReserved: {memory: 2Gi, pid: \"10\"}\n",
		"d/10.conf":       header + "maxPods: 30\nclusterDNS: [10.0.0.2, 10.0.0.3]\nnodeLeaseDurationSeconds: null\n",
		"d/15/a.conf":     header + "podsPerCore: 4\n---\n" + nodeHeader + "nodeName: n1\nnodeLabels: {a: b}\n",
		"d/30.conf":       nodeHeader + "nodeLabels: {c: d}\n",
		"d/40.yaml":       "no document",
		"d/.conf.d/x.txt": "",
	})
	d, err := loadAndValidate(path, dir)
	require.NoError(t, err)
	assert.EqualValues(t, 20, d.Kubelet.MaxPods)
	assert.EqualValues(t, 4, d.Kubelet.PodsPerCore)
	assert.EqualValues(t, 40, d.Kubelet.NodeLeaseDurationSeconds)
	assert.Equal(t, []string{"10.0.0.2", "10.0.0.3"}, d.Kubelet.ClusterDNS)
	assert.Equal(t, map[string]string{"cpu": "100m", "memory": "2Gi", "pid": "10"}, d.Kubelet.SystemReserved)
	assert.Equal(t, "n1", d.Node.NodeName)
	assert.Equal(t, map[string]string{"a": "b", "c": "d"}, d.Node.NodeLabels)
}

// The defaults that follow from other fields are those of the main file, as in the kubelet.
func TestLoadDirSetsDependentDefaultsBeforeMerge(t *testing.T) {
	path, dir := writeFiles(t, map[string]string{
		"main.yaml": header,
		"d/a.conf":  header + "nodeStatusUpdateFrequency: 30s\nevictionHard: {memory.available: 5%}\n",
	})
	d, err := loadAndValidate(path, dir)
	require.NoError(t, err)
	assert.Equal(t, 5*time.Minute, d.Kubelet.NodeStatusReportFrequency.Duration, "not 30s")
	assert.Equal(t, "5%", d.Kubelet.EvictionHard["memory.available"])
	assert.Equal(t, "10%", d.Kubelet.EvictionHard["nodefs.available"], "a default of the main file")

	path, dir = writeFiles(t, map[string]string{"main.yaml": header, "d/a.conf": header + "evictionHard: null\n"})
	d, err = loadAndValidate(path, dir)
	require.NoError(t, err)
	assert.Empty(t, d.Kubelet.EvictionHard)
}

// A drop-in may correct a value of the main file that is not supported. Errors name the file that has set the field.
func TestLoadDirNamesFileOfField(t *testing.T) {
	path, dir := writeFiles(t, map[string]string{"main.yaml": header + "memoryReservationPolicy: Static\n", "d/a.conf": header + "memoryReservationPolicy: None\n"})
	_, err := loadAndValidate(path, dir)
	require.NoError(t, err)

	for text, want := range map[string]string{
		header + "maxPods: -1\n":                "maxPods: -1 is not between 0 and 2147483647",
		header + "memoryReservationPolicy: x\n": `memoryReservationPolicy: "x" is not supported by this version, want "None"`,
		header + "maxPod: 1\n":                  "maxPod: unknown field",
		nodeHeader + "keepObjects: true\n":      "keepObjects needs kubeconfig: other config maps and secrets are on disk already",
		"":                                      "is empty",
		"# nothing\n":                           "kind: missing, want KubeletConfiguration or NodeConfiguration",
		"maxPods: 1\n":                          "kind: missing, want KubeletConfiguration or NodeConfiguration",
	} {
		path, dir := writeFiles(t, map[string]string{"main.yaml": header + "port: 1\n", "d/a.conf": text})
		_, err := loadAndValidate(path, dir)
		require.EqualError(t, err, filepath.Join(dir, "a.conf")+": "+want, text)
	}
}

// An empty directory has no drop-ins. A missing directory, a file, and links are errors.
func TestLoadDirFollowsNoLinks(t *testing.T) {
	path, dir := writeFiles(t, map[string]string{"main.yaml": header + "maxPods: 7\n", "d/other.txt": ""})
	d, err := kubeletconfig.LoadDir(path, dir)
	require.NoError(t, err)
	require.EqualValues(t, 7, d.Kubelet.MaxPods)

	_, err = kubeletconfig.LoadDir(path, dir+"x")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = kubeletconfig.LoadDir(path, path)
	require.EqualError(t, err, "read drop-ins: "+path+": is no directory")

	require.NoError(t, os.Symlink(path, filepath.Join(dir, "l.conf")))
	_, err = kubeletconfig.LoadDir(path, dir)
	require.EqualError(t, err, filepath.Join(dir, "l.conf")+": is no regular file")
	require.NoError(t, os.Symlink(dir, path+".d"))
	_, err = kubeletconfig.LoadDir(path, path+".d")
	require.EqualError(t, err, "read drop-ins: "+path+".d: is no directory")
}

// The number of drop-ins, the depth of directories and the size of a file are limited.
func TestLoadDirLimitsDropIns(t *testing.T) {
	files := map[string]string{"main.yaml": header}
	for i := range 257 {
		files["d/"+strconv.Itoa(1000+i)+".conf"] = header
	}
	path, dir := writeFiles(t, files)
	_, err := kubeletconfig.LoadDir(path, dir)
	require.EqualError(t, err, filepath.Join(dir, "1256.conf")+": is one of more than 256 drop-ins")

	path, dir = writeFiles(t, map[string]string{"main.yaml": header, "d/1/2/3/4/5/6/7/8/9/a.conf": header})
	_, err = kubeletconfig.LoadDir(path, dir)
	require.EqualError(t, err, filepath.Join(dir, "1/2/3/4/5/6/7/8/9")+": is below more than 8 directories")

	path, dir = writeFiles(t, map[string]string{"main.yaml": header, "d/a.conf": header + strings.Repeat("#", 1<<20)})
	_, err = kubeletconfig.LoadDir(path, dir)
	require.EqualError(t, err, filepath.Join(dir, "a.conf")+": must not be larger than 1048576 bytes")
}

// Relative paths of the main file are relative to its directory. Those of drop-ins stay, as in the kubelet.
func TestLoadResolvesRelativePaths(t *testing.T) {
	path, dir := writeFiles(t, map[string]string{
		"main.yaml": header + "staticPodPath: manifests\nauthentication: {x509: {clientCAFile: pki/ca.crt}}\ntlsCertFile: /tls.crt\n",
		"d/a.conf":  header + "tlsPrivateKeyFile: tls.key\n",
	})
	d, err := kubeletconfig.LoadDir(path, dir)
	require.NoError(t, err)
	base := filepath.Dir(path)
	assert.Equal(t, filepath.Join(base, "manifests"), d.Kubelet.StaticPodPath)
	assert.Equal(t, filepath.Join(base, "pki/ca.crt"), d.Kubelet.Authentication.X509.ClientCAFile)
	assert.Equal(t, []string{"/tls.crt", "tls.key"}, []string{d.Kubelet.TLSCertFile, d.Kubelet.TLSPrivateKeyFile})
}

// Without a main file, the drop-ins are the configuration.
func TestLoadDirWithoutMainFile(t *testing.T) {
	_, dir := writeFiles(t, map[string]string{"d/a.conf": header + "maxPods: 3\nserializeImagePulls: true\n"})
	d, err := loadAndValidate("", dir)
	require.NoError(t, err)
	assert.EqualValues(t, 3, d.Kubelet.MaxPods)
	assert.EqualValues(t, 1, *d.Kubelet.MaxParallelImagePulls)
}

// Errors about a field that a flag has set name the flag. Errors about other fields name the file.
func TestSetByReplacesFileInErrors(t *testing.T) {
	path, _ := writeFiles(t, map[string]string{"main.yaml": header + "maxPods: 5\nport: -1\n"})
	d, err := kubeletconfig.Load(path)
	require.NoError(t, err)
	before := d
	d.Kubelet.MaxPods, d.Kubelet.PodsPerCore = -1, -1
	d.SetBy("--max-pods", "maxPods")
	require.NoError(t, d.SetDefaults())
	require.EqualError(t, d.Validate(), path+": port: -1 is not between 1 and 65535\n"+
		"--max-pods: maxPods: -1 is not between 0 and 2147483647\n"+path+": podsPerCore: -1 is not between 0 and 2147483647")
	require.NoError(t, before.SetDefaults())
	require.EqualError(t, before.Validate(), path+": port: -1 is not between 1 and 65535")
}

// FuzzLoadDir checks that no file and drop-in cause a panic, and that an accepted configuration can be validated.
func FuzzLoadDir(f *testing.F) {
	f.Add(header+"authentication: null\nkubeReserved: {cpu: null}\n", header+"authentication: {x509: null}\nregisterWithTaints: [null]\n")
	f.Add(header+"tracing: {}\n", nodeHeader+"credentialProviders: {providers: [{name: a}]}\n---\n"+header+"logging: {vmodule: [null]}\n")
	f.Add(header+"evictionHard: {a: {}}\n", header)
	f.Add(nodeHeader+"nodeIPs: [null]\n", header+"reservedMemory: [{limits: {memory: \"1e-2000000000\"}}]\n")
	dir := f.TempDir()
	path, dropIns := filepath.Join(dir, "main.yaml"), filepath.Join(dir, "d")
	require.NoError(f, os.Mkdir(dropIns, 0o700))
	f.Fuzz(func(t *testing.T, text, dropIn string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dropIns, "a.conf"), []byte(dropIn), 0o600))
		_, _ = loadAndValidate(path, dropIns)
	})
}

// Aliases that would expand to gigabytes are an error.
func TestExpandingAliasesAreRefused(t *testing.T) {
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDomain: &a " + strings.Repeat("x", 400_000) +
		"\nclusterDNS: [" + strings.Repeat("*a,", 100_000) + "]\n"
	_, err := kubeletconfig.ParseDocuments([]byte(text))
	require.Error(t, err)
	require.Less(t, len(err.Error()), 300)
}

// The value of a header may be a bearer token.
func TestErrorsDoNotHaveHeaders(t *testing.T) {
	_, err := kubeletconfig.ParseDocuments([]byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodURLHeader: {Authorization: [Bearer s3cret]}\n"))
	require.ErrorContains(t, err, "staticPodURLHeader: its value is not supported by this version")
	require.NotContains(t, err.Error(), "s3cret")
}
