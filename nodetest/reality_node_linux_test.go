// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/nodestatus"
	hardware "github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/internal/worker"
	"github.com/seed81659283/nodeagent/stats"
)

// realNode is package agent on this kernel: with the embedded runtime, whose containers are workers in cgroups, and an API server in memory.
type realNode struct {
	dir     string
	cgroups *driver.Driver
	api     *apiservertest.Server
	began   time.Time
	cancel  context.CancelFunc
	ended   chan error

	mu       sync.Mutex // guards the fields below
	log      nodetest.Log
	oomKills map[string]bool // IDs of containers
	observed time.Duration   // time of the last observation of the evictor
	longest  time.Duration   // longest time between two observations
}

// startRealNode starts a node that the caller stops.
func startRealNode(t *testing.T, config agent.Config) *realNode {
	t.Helper()
	ctx := t.Context()
	n := &realNode{dir: t.TempDir(), began: time.Now(), oomKills: map[string]bool{}, ended: make(chan error, 1)}
	var err error
	n.cgroups, err = driver.Open(ctx, driver.Options{})
	require.NoError(t, err)
	runtime, err := process.Open(filepath.Join(n.dir, "processes"), process.Options{Cgroups: n.cgroups})
	require.NoError(t, err)
	logs := filepath.Join(n.dir, "logs")
	collector, err := stats.New(n.cgroups, runtime, stats.Options{NodeName: nodeName, Root: n.dir, LogRoot: logs})
	require.NoError(t, err)
	info, err := hardware.Read(os.DirFS("/"))
	require.NoError(t, err)
	host := nodestatus.Fixed{Info: info, IPs: []netip.Addr{netip.MustParseAddr("172.16.0.1")}}
	n.api = apiservertest.NewServer(apiservertest.Options{})
	config.Node.NodeName, config.Node.RootDir, config.Kubelet.PodLogsDir = nodeName, n.dir, logs
	config.Node.DrainOnExit, config.Kubelet.EnableServer = true, new(false)
	o := agent.Options{
		Logger: slog.New(slog.DiscardHandler), Runtime: runtime, Cgroups: n.cgroups, Machine: host, Hosts: host, API: n.api.Config(),
		Measurer: collector, Rand: func() float64 { return 0.5 },
	}
	o.Hooks.Event, o.Hooks.Lifecycle.StatusChanged, o.Hooks.Eviction.Observed = n.recordEvent, n.recordStatus, n.recordObservation
	a, err := agent.New(ctx, config, o)
	require.NoError(t, err)
	running, cancel := context.WithCancel(ctx)
	n.cancel = cancel
	var measured sync.WaitGroup
	measured.Go(func() { _ = collector.Run(running) })
	go func() {
		err := a.Run(running)
		measured.Wait()
		n.ended <- err
	}()
	return n
}

// stop terminates the pods and stops the agent.
func (n *realNode) stop(t *testing.T) {
	t.Helper()
	n.cancel()
	select {
	case err := <-n.ended:
		assert.NoError(t, err, "agent")
	case <-time.After(time.Minute):
		assert.Fail(t, "the agent does not stop")
	}
	n.api.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	assert.NoError(t, n.cgroups.Remove(ctx, "kubepods"))
	assert.NoError(t, n.cgroups.Close())
}

// add binds pods to the node. Their containers are workers with the usage of their annotations, which wait until the file start exists.
func (n *realNode) add(t *testing.T, files, start string, pods ...*corev1.Pod) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	for _, p := range pods {
		p = p.DeepCopy()
		p.Spec.NodeName = nodeName
		list, err := loads(p)
		require.NoError(t, err)
		c := &p.Spec.Containers[0]
		c.Command = []string{program}
		for name, value := range worker.Environment(list, filepath.Join(files, p.Name), start) {
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
		}
		require.NoError(t, n.api.Put(p))
	}
}

// awaitReady waits until the worker of each pod is ready.
func awaitReady(t *testing.T, files string, pods []*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		require.Eventually(t, func() bool {
			ready, _, err := worker.ReadTimes(filepath.Join(files, p.Name))
			return err == nil && len(ready) > 0
		}, 2*time.Minute, 200*time.Millisecond, "worker of pod %s", p.Name)
	}
}

// age returns the time since the start of the node.
func (n *realNode) age() time.Duration { return time.Since(n.began) }

func (n *realNode) recordEvent(pod cri.PodIdentity, e podevents.Event, _ map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = append(n.log, nodetest.Entry{
		At: n.age(), Kind: nodetest.KindEvent, Pod: pod.Namespace + "/" + pod.Name, Container: e.Container, Reason: e.Reason, Message: e.Message,
	})
}

// recordStatus records the containers that the OOM killer has ended.
func (n *realNode) recordStatus(pod *corev1.Pod, st *corev1.PodStatus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range st.ContainerStatuses {
		for _, ended := range []*corev1.ContainerStateTerminated{c.LastTerminationState.Terminated, c.State.Terminated} {
			if ended != nil && ended.Reason == "OOMKilled" && !n.oomKills[ended.ContainerID] {
				n.oomKills[ended.ContainerID] = true
				n.log = append(n.log, nodetest.Entry{At: n.age(), Kind: nodetest.KindOOM, Pod: pod.Namespace + "/" + pod.Name, Container: c.Name})
			}
		}
	}
}

// readBegins returns the times at which the loads of the workers of the pods have begun, since the age start of the node, by the UID of their pods.
func (n *realNode) readBegins(t *testing.T, files string, pods []*corev1.Pod, start time.Duration) (begins map[string][]time.Duration) {
	t.Helper()
	begins = map[string][]time.Duration{}
	for _, p := range pods {
		_, began, err := worker.ReadTimes(filepath.Join(files, p.Name))
		require.NoError(t, err)
		for _, at := range began {
			begins[string(p.UID)] = append(begins[string(p.UID)], at.Sub(n.began)-start)
		}
	}
	return begins
}

// recordObservation measures the time between two observations of the evictor.
func (n *realNode) recordObservation(eviction.Observation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.age()
	if n.observed > 0 {
		n.longest = max(n.longest, now-n.observed)
	}
	n.observed = now
}

// usageReader reads the usage of cgroups: of this kernel or of a machine.
type usageReader interface {
	Stats(ctx context.Context, p cgroups.Path) (cgroups.Stats, error)
	Children(ctx context.Context, p cgroups.Path) ([]string, error)
}

// openCgroups opens the cgroups of this kernel until the end of the test.
func openCgroups(t *testing.T) *driver.Driver {
	t.Helper()
	d, err := driver.Open(t.Context(), driver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// availableMemory returns memory.available of this machine.
func (n *realNode) availableMemory(t *testing.T) int64 {
	t.Helper()
	root, err := n.cgroups.Stats(t.Context(), "")
	require.NoError(t, err)
	info, err := hardware.Read(os.DirFS("/"))
	require.NoError(t, err)
	return info.Memory - workingSetOf(&root)
}

// workingSetOf returns the memory of s without inactive page cache.
func workingSetOf(s *cgroups.Stats) int64 {
	return int64(s.Memory.Current - min(s.Memory.Current, s.Memory.Stat.InactiveFile))
}
