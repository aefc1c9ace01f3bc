// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/stats"
)

// machine is a node with one running pod: a Measurer and Pods.
type machine struct {
	signals stats.Signals
	stats   statsapi.Summary
	state   lifecycle.PodState
	missing bool // the pod has no worker
	evicted []podstatus.Eviction
	trimmed int
	objects int // containers in the runtime
}

func (m *machine) Signals(context.Context) (stats.Signals, error) { return m.signals, nil }

func (m *machine) Summary(context.Context) (*statsapi.Summary, error) { return &m.stats, nil }

func (m *machine) Active() ([]*corev1.Pod, bool) { return []*corev1.Pod{m.state.Spec}, true }

func (m *machine) Pod(uid string) (lifecycle.PodState, bool) {
	if m.missing || uid != string(m.state.Spec.UID) {
		return lifecycle.PodState{}, false
	}
	return m.state, true
}

func (m *machine) Evict(_ context.Context, _ string, e podstatus.Eviction) error {
	m.evicted = append(m.evicted, e)
	m.state.Evicted = true
	return nil
}

func (m *machine) RemoveTerminatedContainers(context.Context) error {
	m.trimmed++
	m.objects = 0
	return nil
}

func (m *machine) runtime() ([]cri.Pod, error) {
	return []cri.Pod{{Containers: make([]cri.Container, m.objects)}}, nil
}

// imageGC records the requested bytes, and frees 5.
type imageGC struct{ wants []uint64 }

func (g *imageGC) Reclaim(_ context.Context, want uint64) (uint64, error) {
	g.wants = append(g.wants, want)
	return 5, nil
}

func newMachine() *machine {
	p := pod("a", list("memory", "1Mi"), nil)
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	return &machine{
		state: lifecycle.PodState{Pod: cri.PodIdentity{UID: "a", Name: "a", Namespace: "default"}, Spec: p},
		stats: statsapi.Summary{Pods: []statsapi.PodStats{podStats("a", 100*mi, 0, 0)}},
	}
}

// rules returns rules that keep 100Mi of memory free.
func rules() eviction.Rules {
	return eviction.Rules{Thresholds: []eviction.Threshold{{
		Signal: eviction.MemoryAvailable, Value: eviction.Amount{Absolute: 100 * mi, Format: eviction.BinarySI},
	}}}
}

func newNode(t *testing.T, m *machine, change func(*podevict.NodeOptions)) *podevict.Node {
	t.Helper()
	o := podevict.NodeOptions{Measurer: m, Pods: func() podevict.Pods { return m }, Eviction: eviction.Options{Rules: rules()}}
	if change != nil {
		change(&o)
	}
	n, err := podevict.NewNode(o)
	require.NoError(t, err)
	return n
}

// Signals of a collector become readings, with reclaimable caches. The devices determine the layout.
func TestObserve(t *testing.T) {
	now := time.Now()
	s := stats.Signals{
		Memory: &stats.Amount{Time: now, Available: 5, Capacity: 10}, MemAvailable: &stats.Amount{Time: now, Available: 4, Capacity: 10},
		PIDs: &stats.Amount{Time: now, Available: -1, Capacity: 3}, NodeFs: &stats.Amount{Time: now, Capacity: 0},
		NodeDevice: 1,
	}
	s.Root.Memory.Stat.ActiveFile, s.Root.Memory.Stat.SlabReclaimable = 2, 1
	require.Equal(t, eviction.Observation{Readings: []eviction.Reading{
		{Signal: eviction.MemoryAvailable, Available: 5, Capacity: 10, Time: now, Reclaimable: 3},
		{Signal: eviction.MemoryAvailable, Available: 4, Capacity: 10, Time: now},
		{Signal: eviction.PIDAvailable, Available: -1, Capacity: 3, Time: now},
	}}, podevict.Observe(&s), "a file system without a size has no reading")

	for _, test := range []struct {
		image, container uint64
		layout           eviction.Layout
	}{
		{0, 0, eviction.SingleFS},
		{1, 1, eviction.SingleFS},
		{2, 0, eviction.DedicatedImageFS},
		{2, 2, eviction.DedicatedImageFS},
		{2, 1, eviction.SplitFS},
	} {
		got := podevict.Observe(&stats.Signals{NodeDevice: 1, ImageDevice: test.image, ContainerDevice: test.container})
		require.Equal(t, test.layout, got.Layout, "images on %d, layers on %d", test.image, test.container)
	}
}

// The error names the missing option.
func TestNewNodeRejectsMissingOptions(t *testing.T) {
	m := newMachine()
	pods := func() podevict.Pods { return m }
	for want, o := range map[string]podevict.NodeOptions{
		"NodeOptions.Measurer: required":       {Pods: pods},
		"NodeOptions.Pods: required":           {Measurer: m},
		"NodeOptions.Cgroups and Path: one is": {Measurer: m, Pods: pods, Path: func(*corev1.Pod) cgroups.Path { return "" }},
		"podevict.NewNode: eviction":           {Measurer: m, Pods: pods, Eviction: eviction.Options{Rules: eviction.Rules{TransitionPeriod: -1}}},
	} {
		_, err := podevict.NewNode(o)
		require.ErrorContains(t, err, want)
	}
}

// Candidates are the measured pods with a worker. Static pods are critical unless NodeOptions.Hold is set.
func TestNodeCandidatesOmitsPodsWithoutWorker(t *testing.T) {
	for _, hold := range []bool{false, true} {
		m := newMachine()
		m.state.Spec.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		n := newNode(t, m, func(o *podevict.NodeOptions) { o.Hold = hold })
		found, err := n.Candidates(t.Context())
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.EqualValues(t, 100*mi, found[0].Memory)
		require.Equal(t, !hold, found[0].Critical)
		m.missing = true
		found, err = n.Candidates(t.Context())
		require.NoError(t, err)
		require.Empty(t, found)
	}
}

// An eviction has the kubelet's message and event, and Hold only if the option is set.
func TestNodeEvictRecordsEventAndHold(t *testing.T) {
	for _, hold := range []bool{false, true} {
		m := newMachine()
		var events []string
		n := newNode(t, m, func(o *podevict.NodeOptions) {
			o.Hold = hold
			o.Event = func(pod cri.PodIdentity, e podevents.Event, annotations map[string]string) {
				events = append(events, fmt.Sprint(pod.Name, " ", e.Type, " ", e.Reason, " ", annotations[podevict.StarvedResourceKey]))
			}
		})
		_, err := n.Candidates(t.Context())
		require.NoError(t, err)
		e := eviction.Eviction{UID: "a", Name: "default/a", Signal: eviction.MemoryAvailable, Message: "The node was low on resource: memory. ", Grace: time.Second}
		require.NoError(t, n.Evict(t.Context(), e))
		require.Equal(t, []string{"a Warning Evicted memory"}, events)
		require.Len(t, m.evicted, 1)
		require.Equal(t, hold, m.evicted[0].Temporary)
		require.Equal(t, time.Second, m.evicted[0].Grace)
		require.Contains(t, m.evicted[0].Message, "Container c was using 100Mi, request is 1Mi, has larger consumption of memory. ")

		e.UID = "other"
		require.ErrorIs(t, n.Evict(t.Context(), e), cri.ErrNotFound)
	}
}

// A pod that runs again without a call of Admit is reported once: its eviction had no effect.
func TestMissingAdmitIsReported(t *testing.T) {
	for _, asked := range []bool{false, true} {
		m := newMachine()
		var errs []error
		n := newNode(t, m, func(o *podevict.NodeOptions) {
			o.Hold = true
			o.Eviction.Hooks.Error = func(err error) { errs = append(errs, err) }
		})
		for range 2 {
			require.NoError(t, n.Evict(t.Context(), eviction.Eviction{UID: "a", Signal: eviction.MemoryAvailable}))
			_, err := n.Candidates(t.Context())
			require.NoError(t, err)
			if asked {
				require.NoError(t, n.Admit(t.Context(), m.state.Spec, nil), "a node without pressure admits the pod")
			}
			m.state.Evicted = false // the pod runs again
			_, err = n.Candidates(t.Context())
			require.NoError(t, err)
		}
		if asked {
			require.Empty(t, errs)
			continue
		}
		require.Len(t, errs, 1)
		require.ErrorContains(t, errs[0], "pod default/a was evicted and runs again without a call of podevict.Node.Admit")
	}
}

// Containers are removed first, then images for the missing bytes, or all images if inodes are short.
func TestNodeReclaimRemovesContainersThenImages(t *testing.T) {
	m, g := newMachine(), &imageGC{}
	m.objects = 2
	n := newNode(t, m, func(o *podevict.NodeOptions) { o.Images, o.RuntimePods = g, m.runtime })
	freed, err := n.Reclaim(t.Context(), eviction.Reclaim{Signal: eviction.NodeFSAvailable, Kind: eviction.ReclaimContainers, Missing: 10})
	require.NoError(t, err)
	require.EqualValues(t, 1, freed)
	require.Equal(t, 1, m.trimmed)
	for _, signal := range []eviction.Signal{eviction.ImageFSAvailable, eviction.ImageFSInodesFree} {
		freed, err := n.Reclaim(t.Context(), eviction.Reclaim{Signal: signal, Kind: eviction.ReclaimImages, Missing: 1000})
		require.NoError(t, err)
		require.EqualValues(t, 5, freed)
	}
	require.Equal(t, []uint64{1000, math.MaxUint64}, g.wants)

	freed, err = newNode(t, m, nil).Reclaim(t.Context(), eviction.Reclaim{Signal: eviction.MemoryAvailable, Kind: eviction.ReclaimCache, Missing: 10})
	require.NoError(t, err, "no cache is reclaimed without a Machine")
	require.Zero(t, freed)
}

// The pod's memory is limited to its usage and its processes are killed, in the cgroup returned by Path.
func TestNodeLimitsMemoryAndKillsInCgroup(t *testing.T) {
	m, tree := newMachine(), cgroupstest.New(cgroupstest.Options{Memory: gi})
	const path = cgroups.Path("kubepods/poda")
	require.NoError(t, tree.Apply(t.Context(), path, cgroups.Resources{}))
	_, err := tree.Start(cgroupstest.Proc{Cgroup: path, Memory: 8 * mi})
	require.NoError(t, err)
	n := newNode(t, m, func(o *podevict.NodeOptions) {
		o.Cgroups, o.Machine = tree, tree
		o.Path = func(pod *corev1.Pod) cgroups.Path { return cgroups.Path("kubepods/pod" + string(pod.UID)) }
	})
	require.NoError(t, n.LimitMemory(t.Context(), "a"))
	limits, err := tree.Limits(t.Context(), path)
	require.NoError(t, err)
	require.EqualValues(t, 8*mi, *limits.MemoryHigh)
	require.NoError(t, n.Kill(t.Context(), "a"))
	stats, err := tree.Sample(t.Context(), path, "", cgroups.PartMemory)
	require.NoError(t, err)
	require.Zero(t, stats.Memory.Current)
	require.ErrorIs(t, n.Kill(t.Context(), "other"), cri.ErrNotFound)
	require.ErrorIs(t, newNode(t, m, nil).Kill(t.Context(), "a"), errors.ErrUnsupported)
	m.state.Spec = pod("b", nil, nil)
	require.ErrorIs(t, n.LimitMemory(t.Context(), "b"), fs.ErrNotExist)
}

// A second Run is rejected before it watches or evicts, and does not affect the first.
func TestSecondRunOfNodeIsRejected(t *testing.T) {
	n := newNode(t, newMachine(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, n.Run(ctx))
	require.EqualError(t, n.Run(ctx), "podevict.Node: second call of Run")
}
