// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// awaitOneLine waits until a process has printed a line with all words of one alternative.
func awaitOneLine(t *testing.T, a *exetest.Process, limit time.Duration, alternatives ...[]string) {
	t.Helper()
	exetest.Eventually(t, limit, func() error {
		for line := range strings.Lines(a.Output()) {
			for _, words := range alternatives {
				found := true
				for _, w := range words {
					found = found && strings.Contains(line, w)
				}
				if found {
					return nil
				}
			}
		}
		return errors.New("the step is not logged")
	})
}

// Agents are killed one after the other, each at the next step of the eviction of a pod whose volume exceeds its limit. The
// pod is evicted once and restarted later; another pod is unaffected.
func TestIntegrationAgentKilledDuringEviction(t *testing.T) {
	s := &starvedNode{newNode(t), t.TempDir()}
	s.manifests.Write("beside.yaml", podYAML("beside", sleeper))
	s.manifests.Write("over.yaml", strings.Replace(s.podYAML("over", "head -c 5000000 /dev/zero > /dir/file; echo written", "{}"),
		"emptyDir: {}", "emptyDir: {sizeLimit: 1Mi}", 1))
	seen := newContainerWatch(s.node)
	start := func() *exetest.Process { return s.start(map[string]string{"memory.available": "1"}, nil) }
	a := start()
	s.awaitRunning(timeout, "beside-n1", "over-n1")
	s.startScript("over")
	s.awaitLog("over-n1", "main", "written")
	require.NoError(t, os.Remove(filepath.Join(s.signal, "over"))) // the next attempt does not exceed the limit

	down := []string{"pod=over-n1", "phase=Pending", "0/1", "Error"}
	for _, step := range [][]string{
		{`msg="evict pod"`, "pod=default/over-n1"},
		{"msg=event", "pod=over-n1", "reason=Evicted"},
		{`msg="evict pod"`, "pod=over-n1", "hold=true"},
		{`msg="kill container"`, "pod=over-n1"},
		down,
	} {
		awaitOneLine(t, a, time.Minute, step, down)
		a.Kill()
		seen.update()
		a = start()
	}

	exetest.Eventually(t, time.Minute, func() error {
		seen.update()
		if seen.countStarts("over-n1") < 2 {
			return errors.New("the pod is not restarted")
		}
		return s.collectRunning(s.awaitRunning(timeout, "beside-n1"), []string{"over-n1"})
	})
	time.Sleep(5 * time.Second)
	seen.update()
	require.Equal(t, 2, seen.countStarts("over-n1"), "the pod is evicted once:\n%s", seen.history("over-n1"))
	require.Equal(t, 1, seen.countStarts("beside-n1"), "the other pod is not restarted:\n%s", seen.history("beside-n1"))
	s.drain(a, "shim", "runc", "mount")
}
