// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// kernel has the cgroups of a node, in memory, with a process for each started container. It survives restarts of the agent.
type kernel struct {
	t       *testing.T
	tree    *cgroupstest.Tree
	rt      *critest.Runtime     // its containers exit with their processes
	mayKill func(id string) bool // reports whether a container may be killed; nil: no container may
}

func newKernel(t *testing.T) *kernel {
	k := &kernel{t: t}
	k.tree = cgroupstest.New(cgroupstest.Options{Killed: k.processKilled})
	return k
}

// containerStarted moves the process of a container into the cgroup of its pod. After a late start the cgroup may not exist.
func (k *kernel) containerStarted(c cri.Container) {
	for _, class := range []cgroups.QOS{cgroups.Guaranteed, cgroups.Burstable, cgroups.BestEffort} {
		pod := cgroups.PodPath("", class, c.PodUID)
		if _, err := k.tree.Procs(context.Background(), pod); err != nil {
			continue
		}
		p := pod.Join(c.ID)
		if !assert.NoError(k.t, k.tree.Apply(context.Background(), p, cgroups.Resources{})) {
			return
		}
		_, err := k.tree.Start(cgroupstest.Proc{Cgroup: p, Name: c.ID})
		assert.NoError(k.t, err)
	}
}

// processKilled makes the containers of a removed cgroup exit. It fails the test for a running container, whose preStop hook
// and grace period would be skipped.
func (k *kernel) processKilled(kill cgroupstest.KilledProc) {
	c, ok := k.rt.Container(kill.Name)
	if !ok || c.State != cri.ContainerRunning {
		return
	}
	assert.True(k.t, k.mayKill != nil && k.mayKill(c.ID), "removal of a cgroup kills running container %s", c.ID)
	_ = k.rt.KillWith(c.ID, critest.Exit{Code: 137})
}

// agentPods provides the pods of an agent that is created later.
type agentPods struct {
	reconciler atomic.Pointer[lifecycle.Reconciler]
}

func (a *agentPods) Active() ([]*corev1.Pod, bool) {
	if r := a.reconciler.Load(); r != nil {
		return r.Active()
	}
	return nil, false
}

func (a *agentPods) MayRun(uid string) bool {
	r := a.reconciler.Load()
	return r == nil || r.MayRun(uid)
}

// podtree returns the cgroups of pods for an agent, ready to run.
func (k *kernel) podtree(t *testing.T) (*podtree.Tree, *agentPods) {
	t.Helper()
	pods := new(agentPods)
	tree, err := podtree.New(k.tree, pods, podtree.Options{Capacity: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
	}})
	require.NoError(t, err)
	require.NoError(t, tree.Setup(t.Context()))
	return tree, pods
}

// The removal of orphaned cgroups must not kill containers before the runtime was listed, or while it does not report a pod. An
// orphaned pod gets its preStop hook and grace period.
func TestCgroupsOfRunningPodsNotRemoved(t *testing.T) {
	for name, hangs := range map[string]func(op, id string) bool{
		"calls are slow":      neverHangs,
		"no list answers":     func(op, _ string) bool { return op == "List" },
		"an inspection hangs": func(op, id string) bool { return op == "ContainerStatus" && strings.HasPrefix(id, "uid-a-") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel(t)
				var logged []string
				k.rt = critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
					s := critest.ExitAfterStop(3*time.Second, 0)
					s.Started = k.containerStarted
					s.Exec = func(_ context.Context, cmd []string) (cri.ExecResult, error) {
						logged = append(logged, fmt.Sprint(c.Labels[cri.LabelPodUID], cmd))
						return cri.ExecResult{}, nil
					}
					return s
				}})
				agent := func(hangs func(op, id string) bool) *node {
					tree, pods := k.podtree(t)
					via := newRemoteRuntime(k.rt, hangs)
					n := startAgent(t, k.rt, via, lifecycle.Options{Cgroups: tree})
					pods.reconciler.Store(n.reconciler)
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan struct{})
					go func() { defer close(done); _ = tree.Run(ctx) }()
					stop := n.stop
					n.stop = func() { cancel(); <-done; stop() }
					t.Cleanup(n.stop)
					return n
				}
				pod := podtest.Pod("a")
				pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: podtest.Exec("bye")}
				n := agent(neverHangs)
				n.set(pod)
				time.Sleep(time.Minute)
				n.requireStatus("a", "Running, main: ready")
				n.stop()

				var healed atomic.Bool
				n = agent(func(op, id string) bool { return !healed.Load() && hangs(op, id) })
				n.set()
				time.Sleep(10 * time.Minute)
				healed.Store(true)
				time.Sleep(time.Minute)
				sandboxes, containers := n.objects()
				require.Zero(t, sandboxes+containers)
				require.Equal(t, []string{"uid-a[bye]"}, logged, "orphaned pod gets its preStop hook and grace period")
				names, err := k.tree.Children(t.Context(), "kubepods/besteffort")
				require.NoError(t, err)
				require.Empty(t, names)
				n.stop()
			})
		})
	}
}
