// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// starvedNode is a node whose machine a test may exhaust: a VM of hack/vm.
type starvedNode struct {
	*node
	signal string // directory that pods see as /signal
}

// newStarvedNode skips the test outside of a VM.
func newStarvedNode(t *testing.T) *starvedNode {
	t.Helper()
	requireVM(t)
	return &starvedNode{newNode(t), t.TempDir()}
}

func requireVM(t *testing.T) {
	t.Helper()
	if os.Getenv("IN_TEST_VM") == "" {
		t.Skip("exhausts a machine: make test-vm and make soak-vm run it in a kernel of its own")
	}
}

// writePod writes a pod of one container with the given resources. It waits for the file NAME in /signal before it runs a
// script, and ignores SIGTERM.
func (s *starvedNode) writePod(name, script, resources string) {
	s.manifests.Write(name+".yaml", s.podYAML(name, script, resources))
}

func (s *starvedNode) podYAML(name, script, resources string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 2
  volumes: [{name: signal, hostPath: {path: %[2]s}}, {name: dir, emptyDir: {}}]
  containers:
    - name: main
      image: nodeagent.test/busybox:1
      command: [/bin/sh, -c, %[3]q]
      resources: %[4]s
      volumeMounts: [{name: signal, mountPath: /signal}, {name: dir, mountPath: /dir}]
`, name, s.signal, "trap '' TERM; while [ ! -e /signal/"+name+" ]; do sleep 0.1; done; "+script+"; while :; do sleep 1; done", resources)
}

// startScript makes a pod run its script.
func (s *starvedNode) startScript(name string) {
	require.NoError(s.t, os.WriteFile(filepath.Join(s.signal, name), nil, 0o600))
}

// start starts an agent with hard eviction thresholds. more is added to its config.
func (s *starvedNode) start(hard map[string]string, more map[string]any) *exetest.Process {
	s.t.Helper()
	all := map[string]any{"evictionHard": hard, "evictionPressureTransitionPeriod": "5s", "logLevel": "DEBUG"}
	maps.Copy(all, more)
	return s.node.start(all)
}

// awaitEvicted waits until a pod is evicted and has no running container.
func (s *starvedNode) awaitEvicted(a *exetest.Process, pod string, limit time.Duration) {
	s.t.Helper()
	a.AwaitLine(limit, `msg="evict pod"`, "pod="+pod, "message=")
	a.AwaitLine(limit, "pod="+pod, "phase=Pending", "0/1", "Error")
	exetest.Eventually(s.t, limit, func() error {
		c, err := s.runningContainer(pod)
		if err == nil {
			return fmt.Errorf("container %s of pod %s still runs", c.ID, pod)
		}
		return nil
	})
}

// requireSameContainers checks that the containers of other pods are not restarted.
func (s *starvedNode) requireSameContainers(before map[string]cri.Container) {
	s.t.Helper()
	for name, c := range s.awaitRunning(vmTimeout, keys(before)...) {
		require.Equal(s.t, before[name].ID, c.ID, "the container of pod %s is not restarted", name)
	}
}

func keys[V any](m map[string]V) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	return names
}

// oomKills returns how many processes of this machine the kernel has killed for memory.
func oomKills(t *testing.T) int {
	text, err := os.ReadFile("/proc/vmstat")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\noom_kill ")
	require.True(t, found, "/proc/vmstat of this kernel has no oom_kill")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(line)
	require.NoError(t, err)
	return n
}

// growth is the memory usage of a cgroup while it was watched.
type growth struct {
	rate float64 // largest increase within a second, in bytes
	most uint64
}

// watchGrowth reads the memory usage of a cgroup ten times a second until stop is called.
func (n *node) watchGrowth(p cgroups.Path) (stop func() growth) {
	done, ended := make(chan struct{}), make(chan growth, 1)
	go func() {
		var g growth
		var seen []uint64 // ten values a second
		for {
			select {
			case <-done:
				ended <- g
				return
			case <-time.After(100 * time.Millisecond):
			}
			s, err := n.cgroups.Stats(n.t.Context(), p)
			if err != nil {
				continue // the cgroup is removed
			}
			g.most = max(g.most, s.Memory.Current)
			if seen = append(seen, s.Memory.Current); len(seen) > 10 {
				g.rate = max(g.rate, float64(s.Memory.Current)-float64(seen[len(seen)-11]))
			}
		}
	}()
	return func() growth { close(done); return <-ended }
}
