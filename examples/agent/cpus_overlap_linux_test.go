// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ownerYAML is a Guaranteed pod with a CPU of its own. burnerYAML is a pod that uses CPU time on all CPUs that the pod may use. The comment in each script
// identifies the processes of the pod.
func ownerYAML(name string) string {
	return strings.Replace(podYAML(name, sleeper+" # owner"), "      command:", "      resources: {limits: {cpu: 1, memory: 64Mi}}\n      command:", 1)
}

func burnerYAML(name string) string {
	return strings.Replace(podYAML(name, "trap 'exit 0' TERM; while :; do :; done # burner"), "      command:",
		"      resources: {requests: {cpu: 0}, limits: {cpu: 50m}}\n      command:", 1)
}

// cpuSampler looks again and again at the processes of containers below a cgroup, and at the CPUs on which the processes may run.
type cpuSampler struct {
	cgroup string

	samples, owned  int           // all samples, and those with a running owner
	longestGap      time.Duration // between two samples
	longestOverlap  time.Duration // from the last sample without overlap to the next one without
	firstOverlapped string
}

// run samples until ctx ends.
func (s *cpuSampler) run(ctx context.Context) {
	last := time.Now()
	apart := last // time of the last sample without overlap
	for ctx.Err() == nil {
		overlap, owned := s.sample()
		now := time.Now()
		s.samples++
		if owned {
			s.owned++
		}
		s.longestGap = max(s.longestGap, now.Sub(last))
		if last = now; overlap == "" {
			apart = now
			continue
		}
		s.longestOverlap = max(s.longestOverlap, now.Sub(apart))
		if s.firstOverlapped == "" {
			s.firstOverlapped = overlap
		}
	}
}

// sample returns a description of the first burner that may run on the CPU of an owner, and whether an owner runs. Programs of the runtime, which start
// the processes of containers, count neither as owners nor as burners.
func (s *cpuSampler) sample() (overlap string, owned bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return "", false
	}
	var owners, burners []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		switch {
		case err != nil:
		case strings.HasSuffix(string(line), "# owner\x00") && s.contains(pid):
			owners = append(owners, pid)
		case strings.HasSuffix(string(line), "# burner\x00") && s.contains(pid):
			burners = append(burners, pid)
		}
	}
	for _, owner := range owners {
		var own unix.CPUSet
		if unix.SchedGetaffinity(owner, &own) != nil {
			continue
		}
		owned = true
		for _, burner := range burners {
			var shared unix.CPUSet
			if unix.SchedGetaffinity(burner, &shared) != nil {
				continue
			}
			for cpu := range runtime.NumCPU() {
				if own.IsSet(cpu) && shared.IsSet(cpu) {
					return fmt.Sprintf("process %d may run on CPU %d of process %d", burner, cpu, owner), true
				}
			}
		}
	}
	return "", owned
}

// contains reports whether a process is in a cgroup below the sampler's.
func (s *cpuSampler) contains(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	return err == nil && strings.Contains(string(text), s.cgroup)
}

// Ten pods start at once, one of them with a CPU of its own. While the process of that pod runs, no process of another pod may run on its CPU. The test
// samples the processes: an overlap that is shorter than the time between two samples can be missed.
func TestIntegrationNoContainerRunsOnExclusiveCPUs(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one CPU")
	}
	n := newNode(t)
	a := n.start(map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
	s := cpuSampler{cgroup: n.root + "/kubepods"}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.run(ctx) }()
	for round := range 2 {
		var names []string
		for i := range 10 {
			name, text := fmt.Sprintf("burner%d-%d", i, round), burnerYAML
			if i == 5 {
				name, text = fmt.Sprintf("owner-%d", round), ownerYAML
			}
			names = append(names, name)
			n.manifests.Write(name+".yaml", text(name))
		}
		for _, name := range names {
			a.AwaitLine(2*timeout, "pod="+name+"-n1 phase=Running")
		}
		time.Sleep(time.Second) // the owner and all burners run side by side
		for _, name := range names {
			n.manifests.Remove(name + ".yaml")
		}
		for _, name := range names {
			a.AwaitLine(2*timeout, "pod is removed", name+"-n1")
		}
	}
	cancel()
	<-done
	t.Logf("%d samples, %d with a running owner, at most %v apart; longest overlap %v", s.samples, s.owned, s.longestGap, s.longestOverlap)
	require.Greater(t, s.owned, 10)
	require.Empty(t, s.firstOverlapped, "for %v", s.longestOverlap)
	require.Zero(t, a.Terminate(timeout))
}
