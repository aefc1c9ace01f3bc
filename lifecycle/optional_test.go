// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
	"github.com/seed81659283/nodeagent/qos"
)

// Sandboxes are in the cgroups of their pods: the cgroup tree names them, or New returns an error.
func TestSandboxHasParentFromCgroupNamer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		tree, err := podtree.New(cgroupstest.New(cgroupstest.Options{}), nil, podtree.Options{
			Node: qos.Node{MemoryCapacity: 8 << 30},
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
			},
		})
		require.NoError(t, err)
		require.NoError(t, tree.Setup(t.Context()))
		var parents []string
		var scores []int64
		seen := faulty{&critest.Faults{
			Runtime: rt,
			RunSandboxFunc: func(ctx context.Context, next cri.Runtime, c *cri.SandboxConfig) (string, error) {
				parents = append(parents, c.CgroupParent)
				return next.RunSandbox(ctx, c)
			},
			CreateContainerFunc: func(ctx context.Context, next cri.Runtime, id string, c *cri.ContainerConfig, s *cri.SandboxConfig) (string, error) {
				scores = append(scores, c.Resources.OOMScoreAdj)
				return next.CreateContainer(ctx, id, c, s)
			},
		}, rt, rt}

		n := startAgent(t, rt, seen, lifecycle.Options{Cgroups: tree})
		pod := podtest.Pod("a")
		n.set(pod)
		time.Sleep(5 * time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("a"))

		require.Equal(t, []string{tree.Path(pod).Cgroupfs()}, parents)
		require.Equal(t, []int64{1000}, scores, "OOM score adjustment is set, because the tree provides the node resources")
	})
}

// unnamedCgroups are cgroups without names for the runtime.
type unnamedCgroups struct{ lifecycle.PodCgroups }

func TestNewRefusesCgroupsWithoutCgroupParent(t *testing.T) {
	rt := critest.New(critest.Options{})
	generator := pleg.New(rt, pleg.Options{})
	_, err := lifecycle.New(rt, generator, lifecycle.Options{Cgroups: unnamedCgroups{}})
	require.ErrorContains(t, err, "field Spec.CgroupParent: required with Cgroups")
}

// New logs a warning without Spec.Node, because containers then have no OOM score adjustment.
func TestNewLogsMissingNode(t *testing.T) {
	var log bytes.Buffer
	rt := critest.New(critest.Options{})
	_, err := lifecycle.New(rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.Contains(t, log.String(), "lifecycle.Options.Spec.Node is nil")
}

// Set refuses liveness probes that the agent cannot run: such a probe would stop its container.
func TestSetRefusesProbesThatCannotRun(t *testing.T) {
	rt := critest.New(critest.Options{})
	probes := podprobe.NewPods(probe.NewSet(probe.Options{}), podprobe.Options{})
	r := newReconciler(t, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{Probes: probes})
	pod := podtest.Pod("a")
	pod.Spec.Containers[0].LivenessProbe = podtest.Probe("x", 1)
	pod.Spec.Containers[0].LivenessProbe.ProbeHandler = corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 80}}
	pod.Spec.Containers[0].ReadinessProbe = podtest.Probe("x", 1)
	pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}
	err := r.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{pod}})
	require.ErrorContains(t, err, "spec.containers[0].livenessProbe.grpc: Forbidden: this agent runs no gRPC probes: podprobe.Options.GRPC is nil")
	require.ErrorContains(t, err, "spec.containers[0].readinessProbe.exec: Forbidden: this agent runs no exec probes: podprobe.Options.Execer is nil")
}

// Without AdmitChecksNodeAffinity, Set refuses pods with a node selector.
func TestSetRefusesNodeSelectorThatAdmitIgnores(t *testing.T) {
	for _, byNode := range []bool{false, true} {
		rt := critest.New(critest.Options{})
		r := newReconciler(t, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{
			Admit:                   func(context.Context, *corev1.Pod, []*corev1.Pod) error { return nil },
			AdmitChecksNodeAffinity: byNode,
		})
		pod := podtest.Pod("a")
		pod.Spec.NodeSelector = map[string]string{"zone": "a"}
		err := r.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{pod}})
		if byNode {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "spec.nodeSelector")
		}
	}
}

func TestSetRefusesEmptySourceAndStoppedReconciler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		require.EqualError(t, n.reconciler.Set(lifecycle.PodSet{}), "set of a source without a name: field Source must not be empty")
		n.stop()
		require.EqualError(t, n.reconciler.Set(lifecycle.PodSet{Source: "test"}),
			`set of source "test": Reconciler.Run has returned: make another Reconciler`)
	})
}

// A program that does not call Reconciler.Run gets an error within 10 s of the first Set.
func TestMissingRunReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var reported []error
		r := newReconciler(t, rt, pleg.New(rt, pleg.Options{}), lifecycle.Options{Hooks: lifecycle.Hooks{
			Error: func(pod cri.PodIdentity, err error, _ time.Duration) {
				require.Zero(t, pod)
				reported = append(reported, err)
			},
		}})
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "test"}))
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{podtest.Pod("a")}}))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, reported, 1)
		require.ErrorContains(t, reported[0], "lifecycle.Reconciler.Run is not running")
	})
}
