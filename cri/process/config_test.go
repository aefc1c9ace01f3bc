// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
)

func TestContainerConfigRefused(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	for _, test := range []struct {
		name   string
		change func(c *cri.ContainerConfig)
		want   []string // texts in the error
	}{
		{"no command", func(c *cri.ContainerConfig) { c.Command = nil }, []string{`"web"`, "set command"}},
		{"mount elsewhere", func(c *cri.ContainerConfig) {
			c.Mounts = []cri.Mount{{HostPath: "/tmp", ContainerPath: "/tmp/"}, {HostPath: "/srv", ContainerPath: "/data"}}
		}, []string{"mounts[1]", "/srv", "/data"}},
		{"image mount", func(c *cri.ContainerConfig) {
			c.Mounts = []cri.Mount{{ContainerPath: "/data", Image: &cri.ImageSpec{Image: "data:1"}}}
		}, []string{"mounts[0]", "data:1"}},
		{"device elsewhere", func(c *cri.ContainerConfig) {
			c.Devices = []cri.Device{{HostPath: "/dev/null", ContainerPath: "/dev/x"}}
		}, []string{"devices[0]", "/dev/null", "/dev/x"}},
		{"CDI", func(c *cri.ContainerConfig) { c.CDIDevices = []string{"v.com/c=n"} }, []string{"cdi_devices", "v.com/c=n"}},
		{"user namespace", func(c *cri.ContainerConfig) {
			c.Security.Namespaces.User = &cri.UserNamespace{Mode: cri.NamespacePod}
		}, []string{"user namespace"}},
		{"relative directory", func(c *cri.ContainerConfig) { c.WorkingDir = "x" }, []string{"working_dir", `"x"`}},
		{"log outside", func(c *cri.ContainerConfig) { c.LogPath = "../x.log" }, []string{"log_path", "../x.log"}},
		{"signal", func(c *cri.ContainerConfig) { c.StopSignal = "SIGRTMIN+40" }, []string{"stop_signal", "SIGRTMIN+40"}},
		{"variable", func(c *cri.ContainerConfig) { c.Env = []cri.EnvVar{{Name: "A=B"}} }, []string{"envs[0]", "A=B"}},
		{"zero byte", func(c *cri.ContainerConfig) { c.Args = []string{"a\x00b"} }, []string{"argument 1"}},
		{"cpusets without cgroups", func(c *cri.ContainerConfig) {
			c.Resources = &cri.Resources{CPUShares: 2, CpusetCPUs: "0", CpusetMems: "0"}
		}, []string{`cpuset_cpus "0" without Options.Cgroups; cpuset_mems "0" without Options.Cgroups: unsupported operation`}},
		{"negative user", func(c *cri.ContainerConfig) { c.Security.RunAsUser = new(int64(-1)) }, []string{"-1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := cri.ContainerConfig{Name: "web", Command: []string{"true"}}
			test.change(&c)
			_, err := rt.CreateContainer(t.Context(), sandbox, &c, nil)
			require.Error(t, err)
			for _, part := range test.want {
				assert.Contains(t, err.Error(), part)
			}
		})
	}
}

func TestSandboxConfigRefused(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	for _, test := range []struct {
		name string
		c    cri.SandboxConfig
		want string
	}{
		{"handler", cri.SandboxConfig{RuntimeHandler: "kata"}, "kata"},
		{"sysctl", cri.SandboxConfig{Sysctls: map[string]string{"net.x": "1"}}, "net.x=1"},
		{"host port", cri.SandboxConfig{Ports: []cri.PortMapping{{ContainerPort: 80, HostPort: 8080}}}, "8080"},
	} {
		_, err := rt.RunSandbox(t.Context(), &test.c)
		require.ErrorIs(t, err, errors.ErrUnsupported, test.name)
		assert.ErrorContains(t, err, test.want)
	}
	_, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{Ports: []cri.PortMapping{{ContainerPort: 80, HostPort: 80}}})
	assert.NoError(t, err, "a port without host port is accepted")
}

func TestIgnoreUnsupported(t *testing.T) {
	rt, err := process.Open(t.TempDir(), process.Options{IgnoreUnsupported: true})
	require.NoError(t, err)
	defer rt.Close()
	sandbox, _ := runPodSandbox(t, rt)
	_, err = rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Command: []string{"true"}, TTY: true}, nil)
	require.NoError(t, err)
}

// A process has the environment and files of its config, and inherits nothing from the agent.
func TestProcessSeesConfigOnly(t *testing.T) {
	t.Setenv("SECRET_OF_THE_AGENT", "1")
	leak, err := os.Open("/")
	require.NoError(t, err)
	defer leak.Close()
	_, err = unix.FcntlInt(leak.Fd(), unix.F_SETFD, 0) // as if the agent had inherited the descriptor
	require.NoError(t, err)
	rt := openRuntime(t, t.TempDir())
	sandbox, logs := runPodSandbox(t, rt)
	c := shellConfig(`env | sort; umask; pwd; cat; ls /proc/self/fd | tr '\n' ' '; grep NoNewPrivs /proc/self/status`)
	c.Env = []cri.EnvVar{{Name: "X", Value: "line\nbreak"}}
	c.Security.NoNewPrivs = true
	id := startContainer(t, rt, sandbox, c)
	require.Zero(t, awaitExit(t, rt, id).ExitCode)
	out := readLog(t, filepath.Join(logs, "c.log"))["stdout"]
	assert.Equal(t, strings.Join([]string{
		"NODEAGENT_CONTAINER_ID=" + id,
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"PWD=/",
		"X=line",
		"break",
		"0022",
		"/",
		"0 1 2 3 NoNewPrivs:\t1", // 3 is the directory that ls reads
		"",
	}, "\n"), sortedEnv(out))
}

// sortedEnv moves the second line of a value back behind the first, from where sort moved it.
func sortedEnv(out string) string {
	out = strings.Replace(out, "break\n", "", 1)
	return strings.Replace(out, "X=line\n", "X=line\nbreak\n", 1)
}

// Stdin of a container stays open if its config requests it; otherwise it is at its end.
func TestStdinStaysOpenIfRequested(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, cri.ContainerConfig{Name: "closed", Command: []string{"cat"}})
	assert.Zero(t, awaitExit(t, rt, id).ExitCode)
	id = startContainer(t, rt, sandbox, cri.ContainerConfig{Name: "open", Command: []string{"timeout", "0.2", "cat"}, Stdin: true})
	assert.EqualValues(t, 124, awaitExit(t, rt, id).ExitCode)
}

func TestUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start processes of other users")
	}
	rt := openRuntime(t, t.TempDir())
	sandbox, logs := runPodSandbox(t, rt)
	for _, test := range []struct {
		name     string
		security cri.ContainerSecurity
		want     string
	}{
		{"root", cri.ContainerSecurity{}, "0 0 0"},
		{"unknown", cri.ContainerSecurity{RunAsUser: new(int64(54321))}, "54321 54321 54321"},
		{"known", cri.ContainerSecurity{RunAsUsername: "nobody"}, "65534 65534 65534"},
		{"groups", cri.ContainerSecurity{
			RunAsUser: new(int64(7)), RunAsGroup: new(int64(8)), SupplementalGroups: []int64{9, 10},
		}, "7 8 8 9 10"},
	} {
		c := shellConfig(`echo $(id -u) $(id -g) $(id -G)`)
		c.Name, c.Security = test.name, test.security
		id := startContainer(t, rt, sandbox, c)
		awaitExit(t, rt, id)
		assert.Equal(t, test.want+"\n", readLog(t, filepath.Join(logs, test.name+".log"))["stdout"], test.name)
	}
}

func TestStartError(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	for _, test := range []struct {
		name string
		c    cri.ContainerConfig
		want string
	}{
		{"command", cri.ContainerConfig{Name: "a", Command: []string{"no-such-command"}}, "no-such-command"},
		{"directory", cri.ContainerConfig{Name: "b", Command: []string{"true"}, WorkingDir: "/no/such"}, "/no/such"},
		{"not a program", cri.ContainerConfig{Name: "c", Command: []string{"/etc/passwd"}}, "/etc/passwd"},
	} {
		id, err := rt.CreateContainer(t.Context(), sandbox, &test.c, nil)
		require.NoError(t, err)
		assert.ErrorContains(t, rt.StartContainer(t.Context(), id), test.want, test.name)
		c := getContainer(t, rt, id)
		assert.Equal(t, cri.ContainerExited, c.State, test.name)
		assert.EqualValues(t, 128, c.ExitCode, test.name)
		assert.Equal(t, "StartError", c.Reason, test.name)
		assert.Contains(t, c.Message, test.want, test.name)
	}
}
