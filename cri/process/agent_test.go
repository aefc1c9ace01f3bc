// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/process/internal/procfs"
)

// agentName is the argv[0] of a test binary that plays an agent in its own process.
const agentName = "process-test-agent"

// agentMain starts containers in the runtime at root until it is killed, and prints the number of each running container.
func agentMain(root string) int {
	ctx := context.Background()
	rt, err := process.Open(root, process.Options{})
	if err == nil {
		err = startForever(ctx, rt, root)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func startForever(ctx context.Context, rt *process.Runtime, root string) error {
	sandbox, err := rt.RunSandbox(ctx, &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "uid"}, LogDirectory: root})
	for i := 0; err == nil; i++ {
		var id string
		if id, err = rt.CreateContainer(ctx, sandbox, numberedConfig(root, i), nil); err != nil {
			break
		}
		if err = rt.StartContainer(ctx, id); err == nil {
			fmt.Println(i)
		}
	}
	return err
}

// numberedConfig returns a container that leaves a file when it starts. Odd ones exit soon, with a distinct code.
func numberedConfig(root string, i int) *cri.ContainerConfig {
	script := `echo x >> "$ROOT/trace.$I"; if [ $((I % 2)) = 1 ]; then sleep 0.03; exit $((I % 200 + 1)); fi; exec sleep 1000`
	return &cri.ContainerConfig{
		Name:    fmt.Sprint(i),
		Command: []string{"sh", "-c", script},
		Env:     []cri.EnvVar{{Name: "ROOT", Value: root}, {Name: "I", Value: fmt.Sprint(i)}},
		LogPath: fmt.Sprint(i, ".log"),
	}
}

// openRuntime opens a runtime until the end of the test. Then it removes all sandboxes and containers.
func openRuntime(t *testing.T, root string) *process.Runtime {
	t.Helper()
	return openWith(t, root, process.Options{})
}

// runPodSandbox runs a sandbox with a log directory.
func runPodSandbox(t *testing.T, rt *process.Runtime) (id, logs string) {
	t.Helper()
	logs = t.TempDir()
	id, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{
		Pod:          cri.PodIdentity{UID: t.Name(), Name: "pod", Namespace: "test"},
		LogDirectory: logs,
	})
	require.NoError(t, err)
	return id, logs
}

// startContainer creates and starts a container with log file c.log.
func startContainer(t *testing.T, rt *process.Runtime, sandbox string, c cri.ContainerConfig) string {
	t.Helper()
	if c.Name == "" {
		c.Name = "c"
	}
	c.LogPath = c.Name + ".log"
	id, err := rt.CreateContainer(t.Context(), sandbox, &c, nil)
	require.NoError(t, err)
	require.NoError(t, rt.StartContainer(t.Context(), id))
	return id
}

// shellConfig returns a container that runs a shell script.
func shellConfig(script string) cri.ContainerConfig {
	return cri.ContainerConfig{Command: []string{"sh", "-c", script}}
}

// getContainer returns a container from List.
func getContainer(t *testing.T, rt *process.Runtime, id string) cri.Container {
	t.Helper()
	snapshot, err := rt.List(t.Context())
	require.NoError(t, err)
	for _, c := range snapshot.Containers {
		if c.ID == id {
			return c
		}
	}
	require.FailNow(t, "container is not listed", id)
	return cri.Container{}
}

// awaitExit waits until a container has exited.
func awaitExit(t *testing.T, rt *process.Runtime, id string) cri.Container {
	t.Helper()
	requireEventually(t, "container has exited", func() bool { return getContainer(t, rt, id).State == cri.ContainerExited })
	return getContainer(t, rt, id)
}

// requireEventually polls until a condition holds, and fails the test after a timeout.
func requireEventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(2 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "timed out: %s", what)
	}
}

// processesWithEnv returns the running processes that were started with an environment entry.
func processesWithEnv(t *testing.T, entry string) []procfs.Process {
	t.Helper()
	all, err := procfs.ListProcesses()
	require.NoError(t, err)
	var found []procfs.Process
	for _, p := range all {
		if !p.Zombie && procfs.HasEnv(p.PID, entry) {
			found = append(found, p)
		}
	}
	return found
}

// playAgent starts the test binary as an agent.
func playAgent(t *testing.T, root string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{agentName, root}
	cmd.Stderr = os.Stderr
	return cmd
}
