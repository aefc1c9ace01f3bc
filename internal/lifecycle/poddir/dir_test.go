// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// requireFile fails unless the file has exactly this content and mode.
func requireFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, mode, info.Mode(), path)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, content, string(data), path)
}

// write writes a file and creates its parent directories.
func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// The UID of an orphaned pod and its container names come from labels and may be malicious.
func TestUnsafeNamesHaveNoPath(t *testing.T) {
	root := t.TempDir()
	for name, plain := range map[string]bool{
		"8f5c2a0e-1f8e-4d5a-9a55-0d6a0f4a7f10": true, "web": true, "web.1": true,
		"": false, ".": false, "..": false, ".hidden": false, "../other": false, "a/b": false, "/etc": false, "a\x00b": false,
	} {
		assert.Equal(t, plain, poddir.IsFileName(name), "%q", name)
		d := poddir.DirOf(root, name)
		assert.Equal(t, plain, d != "", "%q", name)
		path, err := poddir.DirOf(root, "uid").CreateMessageFile(name, 0)
		require.NoError(t, err)
		assert.Equal(t, plain, path != "", "%q", name)
	}
	assert.Empty(t, poddir.DirOf("", "uid"))
}

// With an empty Dir no files are written, and no errors are returned.
func TestEmptyDirWritesNothing(t *testing.T) {
	var d poddir.Dir
	path, err := d.WriteHostsFile(podtest.Pod("a"), nil, podspec.Options{})
	require.NoError(t, err)
	require.Empty(t, path)
	path, err = d.CreateMessageFile("main", 0)
	require.NoError(t, err)
	require.Empty(t, path)
	require.Empty(t, d.ReadMessage(t.Context(), exited("main")))
	require.NoError(t, d.Remove())
}

const hostsOfA = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
	"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n10.0.0.7\ta\n"

func TestWriteHostsFile(t *testing.T) {
	d := poddir.DirOf(t.TempDir(), "uid-a")
	pod := podtest.Pod("a")
	path, err := d.WriteHostsFile(pod, []string{"10.0.0.7"}, podspec.Options{})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(string(d), "etc-hosts"), path)
	requireFile(t, path, hostsOfA, 0o644)

	node, err := os.ReadFile("/etc/hosts")
	if err != nil {
		node = nil
	}
	pod.Spec.HostNetwork = true
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"nine", "neuf"}}}
	_, err = d.WriteHostsFile(pod, nil, podspec.Options{})
	require.NoError(t, err)
	requireFile(t, path, "# Kubernetes-managed hosts file (host network).\n"+string(node)+
		"\n# Entries added by HostAliases.\n192.0.2.9\tnine\tneuf\n", 0o644)
}

// A container mounts the file, not its name. It sees the addresses of a new sandbox only if the file is rewritten in place.
func TestHostsFileRewrittenInPlace(t *testing.T) {
	d := poddir.DirOf(t.TempDir(), "uid-a")
	pod := podtest.Pod("a")
	path, err := d.WriteHostsFile(pod, []string{"10.0.0.7", "fd00::7"}, podspec.Options{})
	require.NoError(t, err)
	mounted, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer mounted.Close()
	seen := func() string {
		data, err := io.ReadAll(io.NewSectionReader(mounted, 0, 1<<20))
		require.NoError(t, err)
		return string(data)
	}
	again := func() {
		_, err := d.WriteHostsFile(pod, []string{"10.0.0.7"}, podspec.Options{})
		require.NoError(t, err)
		require.Equal(t, hostsOfA, seen())
		requireFile(t, path, hostsOfA, 0o644)
	}
	again() // shorter content

	_, err = mounted.WriteAt([]byte("#"), 20)
	require.NoError(t, err)
	again() // different content of equal length
	require.NoError(t, mounted.Truncate(1<<30))
	again()
	require.NoError(t, mounted.Truncate(0))
	require.NoError(t, mounted.Chmod(0o600))
	again()
	require.NoError(t, mounted.Chmod(0o600))
	again() // different mode
}

func TestCreateMessageFile(t *testing.T) {
	d := poddir.DirOf(t.TempDir(), "uid-a")
	path, err := d.CreateMessageFile("main", 3)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(string(d), "containers/main/3"), path)
	requireFile(t, path, "", 0o666)

	require.NoError(t, os.WriteFile(path, []byte("of a container that the runtime has forgotten"), 0o600))
	_, err = d.CreateMessageFile("main", 3)
	require.NoError(t, err)
	requireFile(t, path, "", 0o666)

	require.NoError(t, d.Remove())
	require.NoDirExists(t, string(d))
	require.NoError(t, d.Remove(), "a second Remove succeeds")
}
