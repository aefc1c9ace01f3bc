// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cni/netns"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
)

// isolatedAgentName is the argv[0] of a test binary that plays an agent with all isolation options.
const isolatedAgentName = "process-test-isolated-agent"

// isolatedOptions returns the options of the agent at root, whose cgroups are below group.
func isolatedOptions(ctx context.Context, root, group string) (process.Options, *network, *driver.Driver, error) {
	n := &network{spaces: netns.New(filepath.Join(root, "netns"))}
	d, err := driver.Open(ctx, driver.Options{Root: group})
	return process.Options{Network: n, Mounts: true, Cgroups: d}, n, d, err
}

// isolatedAgentMain runs, stops and removes pods until it is killed, and prints a line for each running pod.
func isolatedAgentMain(root, group string) int {
	ctx := context.Background()
	o, _, _, err := isolatedOptions(ctx, root, group)
	if err == nil {
		var rt *process.Runtime
		if rt, err = process.Open(filepath.Join(root, "state"), o); err == nil {
			err = podsForever(ctx, rt, root)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func podsForever(ctx context.Context, rt *process.Runtime, root string) error {
	var before string
	for i := os.Getpid() << 16; ; i++ {
		sandbox, err := rt.RunSandbox(ctx, &cri.SandboxConfig{Pod: cri.PodIdentity{UID: fmt.Sprint(i)}, LogDirectory: root})
		if err != nil {
			return err
		}
		c := shellConfig("setsid sleep 1000 & exec sleep 1000")
		c.Name, c.LogPath, c.Env = "c", fmt.Sprint(i, ".log"), []cri.EnvVar{{Name: "ROOT", Value: root}}
		c.Mounts = []cri.Mount{{HostPath: root, ContainerPath: "/nodeagent-crash/root"}}
		id, err := rt.CreateContainer(ctx, sandbox, &c, nil)
		if err == nil {
			err = rt.StartContainer(ctx, id)
		}
		if err == nil && before != "" {
			if err = rt.StopSandbox(ctx, before); err == nil {
				err = rt.RemoveSandbox(ctx, before)
			}
		}
		if err != nil {
			return err
		}
		before = sandbox
		fmt.Println(i)
	}
}

// An agent is killed at random moments while it runs, stops and removes pods. The next agent finds or tears down every
// network, cgroup and mount, and no process is lost.
func TestIntegrationIsolatedAgentKilled(t *testing.T) {
	host := newCgroups(t)
	root := t.TempDir()
	t.Cleanup(func() {
		for unix.Unmount(filepath.Join(root, "netns"), unix.MNT_DETACH) == nil {
		}
	})
	rounds := 15
	if os.Getenv("NODEAGENT_SOAK") != "" {
		rounds = 200
	}
	group, err := host.Name("")
	require.NoError(t, err)
	for range rounds {
		killIsolatedAgent(t, root, group)
	}
	o, n, d, err := isolatedOptions(t.Context(), root, group)
	require.NoError(t, err)
	defer d.Close()
	rt := openWith(t, filepath.Join(root, "state"), o)
	_, err = rt.RunSandbox(t.Context(), &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "last"}}) // RunSandbox tears down the networks of earlier agents
	require.NoError(t, err)
	snapshot, err := rt.List(t.Context())
	require.NoError(t, err)
	var ready []string
	for _, s := range snapshot.Sandboxes {
		if len(s.IPs) > 0 {
			ready = append(ready, s.ID)
		}
	}
	names, err := n.spaces.Names()
	require.NoError(t, err)
	require.Subset(t, ready, names, "each network belongs to a sandbox")
	for _, c := range snapshot.Containers {
		require.NotEqual(t, cri.ContainerUnknown, c.State)
	}
	for _, s := range snapshot.Sandboxes {
		require.NoError(t, rt.RemoveSandbox(t.Context(), s.ID))
	}
	names, err = n.spaces.Names()
	require.NoError(t, err)
	assert.Empty(t, names)
	assert.Empty(t, processesWithEnv(t, "ROOT="+root), "no process of a pod is left")
	left, err := d.Children(t.Context(), cgroups.Path("nodeagent"))
	require.NoError(t, err)
	assert.Empty(t, left, "no cgroup is left")
	assert.NoDirExists(t, "/nodeagent-crash")
}

// killIsolatedAgent starts an agent, and kills it some time after its first pod.
func killIsolatedAgent(t *testing.T, root, group string) {
	t.Helper()
	agent := exec.Command("/proc/self/exe")
	agent.Args = []string{isolatedAgentName, root, group}
	agent.Stderr = os.Stderr
	out, err := agent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, agent.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "the agent runs a pod")
	timer := time.AfterFunc(time.Duration(rand.IntN(200))*time.Millisecond, func() { agent.Process.Kill() })
	defer timer.Stop()
	for lines.Scan() {
	}
	_ = agent.Wait() // the agent was killed
}
