// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
)

// openWithMounts opens a runtime with mounts and runs a pod.
func openWithMounts(t *testing.T, root string, c cri.SandboxConfig) (rt *process.Runtime, sandbox, logs string) {
	t.Helper()
	needRoot(t)
	rt = openWith(t, root, process.Options{Mounts: true})
	c.LogDirectory = t.TempDir()
	return rt, runPod(t, rt, c), c.LogDirectory
}

// The mounts that a kubelet adds to every container, and the volumes of its pod.
func TestIntegrationMounts(t *testing.T) {
	root, volume := t.TempDir(), t.TempDir()
	for _, name := range []string{"hosts", "message", "config"} {
		require.NoError(t, os.WriteFile(filepath.Join(volume, name), []byte(name+"\n"), 0o600))
	}
	rt, sandbox, logs := openWithMounts(t, root, cri.SandboxConfig{
		DNS: &cri.DNSConfig{Servers: []string{"10.9.8.7"}, Searches: []string{"a.b", "c"}, Options: []string{"ndots:5"}},
	})
	c := shellConfig(`cat /etc/hosts; cat /etc/resolv.conf; cat /var/run/secrets/app/config; cat /test-volume/config
		echo last > /dev/termination-log; echo x > /test-volume/written; if echo x > /var/run/secrets/app/written; then exit 9; fi
		touch /test-volume/log; echo to the host > "$OUT"; exec sleep 1000`)
	c.Env = []cri.EnvVar{{Name: "OUT", Value: filepath.Join(logs, "out")}}
	c.Mounts = []cri.Mount{
		{HostPath: volume + "/hosts", ContainerPath: "/etc/hosts"},
		{HostPath: volume + "/message", ContainerPath: "/dev/termination-log"},
		{HostPath: volume, ContainerPath: "/test-volume"},
		{HostPath: volume, ContainerPath: "/var/run/secrets/app", ReadOnly: true},
	}
	id := startContainer(t, rt, sandbox, c)
	out := filepath.Join(logs, "out")
	requireEventually(t, "the container has written its file", func() bool { _, err := os.Stat(out); return err == nil })
	require.Equal(t, "hosts\nnameserver 10.9.8.7\nsearch a.b c\noptions ndots:5\nconfig\nconfig\n",
		runToExit(t, rt, sandbox, logs, cri.ContainerConfig{Command: []string{
			"cat", "/etc/hosts", "/etc/resolv.conf", "/var/run/secrets/app/config",
			"/test-volume/config",
		}, Mounts: c.Mounts}))
	message, err := os.ReadFile(filepath.Join(volume, "message"))
	require.NoError(t, err)
	require.Equal(t, "last\n", string(message))
	require.FileExists(t, filepath.Join(volume, "written"))
	for _, path := range []string{"/dev/termination-log", "/test-volume", "/var/run/secrets/app"} {
		require.NoFileExists(t, path, "the mount point is not created on the host")
		require.NoDirExists(t, path, "the mount point is not created on the host")
	}
	require.NotContains(t, hostMounts(t), volume)

	// The next agent runs commands in the mount namespace of the container.
	require.NoError(t, rt.Close())
	rt = openWith(t, root, process.Options{Mounts: true})
	require.Equal(t, "config\n", execScript(t, rt, id, "cat /test-volume/config"))
	require.NoError(t, rt.ReopenContainerLog(t.Context(), id))
	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	require.NoError(t, os.RemoveAll(volume), "the volume can be removed: nothing is mounted")
}

func hostMounts(t *testing.T) string {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	return string(table)
}

// A container may mount over files that its shim needs, because the shim is on the host.
func TestIntegrationMountsHideShim(t *testing.T) {
	root, empty := t.TempDir(), t.TempDir()
	rt, sandbox, logs := openWithMounts(t, root, cri.SandboxConfig{})
	c := shellConfig(`test ! -e ` + root + `/containers && echo hidden; exit 7`)
	c.Mounts = []cri.Mount{{HostPath: empty, ContainerPath: root}, {HostPath: empty, ContainerPath: logs}}
	id := startContainer(t, rt, sandbox, c)
	ended := awaitExit(t, rt, id)
	require.EqualValues(t, 7, ended.ExitCode)
	require.Equal(t, "Error", ended.Reason)
	log, err := os.ReadFile(ended.LogPath)
	require.NoError(t, err)
	require.Contains(t, string(log), "hidden")
}

// A container of another user has its mounts, and the entries of replaced directories.
func TestIntegrationMountsOfUser(t *testing.T) {
	volume := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(volume, "file"), []byte("of the volume\n"), 0o644))
	require.NoError(t, os.Chmod(volume, 0o755))
	rt, sandbox, logs := openWithMounts(t, t.TempDir(), cri.SandboxConfig{DNS: &cri.DNSConfig{Servers: []string{"10.9.8.7"}}})
	c := shellConfig("id -u; cat /etc/resolv.conf /test-user/file; test -r /etc/passwd && test -c /dev/null && echo fine; touch /test 2>/dev/null || echo refused")
	c.Security.RunAsUser = new(int64(12345))
	c.Mounts = []cri.Mount{{HostPath: volume, ContainerPath: "/test-user"}, {HostPath: volume + "/file", ContainerPath: "/dev/test-user"}}
	require.Equal(t, "12345\nnameserver 10.9.8.7\nof the volume\nfine\nrefused\n", runToExit(t, rt, sandbox, logs, c))
}

// Mounts that a container creates are private and are removed with it.
func TestIntegrationMountsOfContainer(t *testing.T) {
	dir := t.TempDir()
	rt, sandbox, logs := openWithMounts(t, t.TempDir(), cri.SandboxConfig{})
	require.Equal(t, "there\n", runToExit(t, rt, sandbox, logs, shellConfig(`mount -t tmpfs tmpfs `+dir+` && echo there > `+dir+`/file && cat `+dir+`/file`)))
	require.NoFileExists(t, filepath.Join(dir, "file"))
}

func TestIntegrationDevice(t *testing.T) {
	rt, sandbox, logs := openWithMounts(t, t.TempDir(), cri.SandboxConfig{})
	c := shellConfig(`head -c 3 /dev/test-zero | od -An -tx1; echo x > /dev/test-null`)
	c.Devices = []cri.Device{{HostPath: "/dev/zero", ContainerPath: "/dev/test-zero"}, {HostPath: "/dev/null", ContainerPath: "/dev/test-null"}}
	require.Equal(t, " 00 00 00\n", runToExit(t, rt, sandbox, logs, c))
	require.NoFileExists(t, "/dev/test-zero")
}

// A missing device is not created, and a device with invalid paths is refused before the start.
func TestIntegrationDeviceRefused(t *testing.T) {
	rt, sandbox, _ := openWithMounts(t, t.TempDir(), cri.SandboxConfig{})
	absent := filepath.Join(t.TempDir(), "absent")
	c := shellConfig("true")
	c.Devices = []cri.Device{{HostPath: absent, ContainerPath: "/dev/test-absent"}}
	id, err := rt.CreateContainer(t.Context(), sandbox, &c, nil)
	require.NoError(t, err)
	require.ErrorContains(t, rt.StartContainer(t.Context(), id), "mount "+absent+" at /dev/test-absent: open source: no such file")
	require.NoDirExists(t, absent)
	require.Equal(t, "StartError", getContainer(t, rt, id).Reason)
	for _, test := range []struct {
		device cri.Device
		want   string
	}{
		{cri.Device{HostPath: "/dev/null"}, `container_path "": it must be absolute and below /`},
		{cri.Device{HostPath: "/dev/null", ContainerPath: "x"}, `container_path "x": it must be absolute and below /`},
		{cri.Device{HostPath: "/dev/null", ContainerPath: "/"}, `container_path "/": it must be absolute and below /`},
		{cri.Device{ContainerPath: "/dev/x"}, `container_path "/dev/x" with host_path "", which must be absolute`},
		{cri.Device{HostPath: "dev/null", ContainerPath: "/dev/x"}, `container_path "/dev/x" with host_path "dev/null", which must be absolute`},
	} {
		c := shellConfig("true")
		c.Name, c.Devices = "d", []cri.Device{{HostPath: "/dev/null", ContainerPath: "/dev/null"}, test.device}
		_, err := rt.CreateContainer(t.Context(), sandbox, &c, nil)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "devices[1]: "+test.want)
	}
}

// Unsupported mounts are refused at creation, with field and value in the error.
func TestIntegrationMountRefused(t *testing.T) {
	rt, sandbox, _ := openWithMounts(t, t.TempDir(), cri.SandboxConfig{})
	for _, test := range []struct {
		mount cri.Mount
		want  string
	}{
		{cri.Mount{HostPath: "/etc", ContainerPath: "/"}, `container_path "/": it must be absolute and below /`},
		{cri.Mount{HostPath: "/etc", ContainerPath: "x"}, `container_path "x": it must be absolute`},
		{cri.Mount{HostPath: "etc", ContainerPath: "/x"}, `host_path "etc", which must be absolute`},
		{cri.Mount{ContainerPath: "/x", Image: &cri.ImageSpec{Image: "busybox"}}, `of image "busybox"`},
		{cri.Mount{HostPath: "/etc", ContainerPath: "/x", Options: []string{"noexec", "relatime"}}, `with options ["relatime"]`},
		{cri.Mount{HostPath: "/etc", ContainerPath: "/x", UIDMappings: make([]cri.IDMapping, 1)}, "with ID mappings"},
		{cri.Mount{HostPath: "/etc", ContainerPath: "/x", RecursiveReadOnly: true}, "read-only recursively"},
	} {
		c := shellConfig("true")
		c.Name, c.Mounts = "c", []cri.Mount{{HostPath: "/etc", ContainerPath: "/fine"}, test.mount}
		_, err := rt.CreateContainer(t.Context(), sandbox, &c, nil)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "mounts[1]: ")
		require.ErrorContains(t, err, test.want)
	}
	c := shellConfig("true")
	c.Name, c.Mounts = "late", []cri.Mount{{HostPath: "/etc/passwd", ContainerPath: "/etc"}}
	id, err := rt.CreateContainer(t.Context(), sandbox, &c, nil)
	require.NoError(t, err)
	require.ErrorContains(t, rt.StartContainer(t.Context(), id), "mount /etc/passwd at /etc: mount point is a directory, source is a file")
	ended := getContainer(t, rt, id)
	assert.Equal(t, "StartError", ended.Reason)
	assert.EqualValues(t, 128, ended.ExitCode)
	_, err = rt.RunSandbox(t.Context(), &cri.SandboxConfig{DNS: &cri.DNSConfig{Servers: []string{"1.2.3.4\nsearch evil"}}})
	require.ErrorContains(t, err, `dns_config: nameserver "1.2.3.4\nsearch evil" is empty or holds a blank`)
}
