// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/gc"
)

func TestContainerGC(t *testing.T) { run(t, containerGC) }
func FuzzContainerGC(f *testing.F) { fuzz(f, containerGC) }

// garbage has the containers and sandboxes of a runtime, their ages in minutes, and the states of their pods.
type garbage struct {
	Policy         gc.ContainerPolicy
	NotReady       bool
	Unused         bool
	Pods           map[string]gc.PodState
	Containers     []cri.Container
	Sandboxes      []cri.Sandbox
	createdMinutes map[string]int
	sandboxAge     map[string]int
}

// collected has the remaining containers and sandboxes, and the stopped ones.
type collected struct{ Containers, Sandboxes, Stopped []string }

// containerGC compares the remaining containers and sandboxes after a pass of both collectors on equal runtimes.
var containerGC = conformance.Comparison[garbage, collected]{
	Make:    newGarbage,
	Kubelet: kubeletCollects,
	Ours:    oursCollects,
}

func newGarbage(c *conformance.Choices) garbage {
	g := garbage{
		Policy:   gc.ContainerPolicy{MinAge: time.Duration(c.Int(4)) * 5 * time.Minute, MaxPerPodContainer: c.Int(4) - 1, MaxContainers: c.Int(8) - 1},
		NotReady: c.Int(4) == 0, Unused: c.Int(2) == 0, Pods: map[string]gc.PodState{},
		createdMinutes: map[string]int{}, sandboxAge: map[string]int{},
	}
	for i := range 3 {
		g.Pods[fmt.Sprint("pod", i)] = []gc.PodState{gc.PodActive, gc.PodTerminated, gc.PodRemoved}[c.Int(3)]
	}
	for i := range c.Int(6) {
		s := cri.Sandbox{ID: fmt.Sprint("s", i), Pod: cri.PodIdentity{UID: fmt.Sprint("pod", c.Int(3))}, State: cri.SandboxState(c.Int(2))}
		g.sandboxAge[s.ID] = 7*i%6 + 1 // unique ages, in another order than the list
		g.Sandboxes = append(g.Sandboxes, s)
	}
	for i := range c.Int(12) {
		n := cri.Container{
			ID: fmt.Sprint("c", i), Name: []string{"x", "y"}[c.Int(2)], PodUID: fmt.Sprint("pod", c.Int(3)),
			SandboxID: fmt.Sprint("s", c.Int(8)), State: cri.ContainerState(c.Int(4)),
		}
		g.createdMinutes[n.ID] = 7*i%12 + 1
		g.Containers = append(g.Containers, n)
	}
	return g
}

// minutesAgo returns a time that is half a minute off, so that the result does not depend on the moment in a pass at which
// the clock is read.
func minutesAgo(now time.Time, minutes int) time.Time {
	return now.Add(-time.Duration(minutes)*time.Minute - 30*time.Second)
}

// heap is a CRI runtime with garbage. Other methods of the embedded interfaces panic.
type heap struct {
	internalapi.RuntimeService
	internalapi.ImageManagerService
	kubecontainer.RuntimeHelper
	kubecontainer.OSInterface
	g       *garbage
	now     time.Time
	stopped []string
}

func (h *heap) left() (out collected) {
	for i := range h.g.Containers {
		out.Containers = append(out.Containers, h.g.Containers[i].ID)
	}
	for i := range h.g.Sandboxes {
		out.Sandboxes = append(out.Sandboxes, h.g.Sandboxes[i].ID)
	}
	slices.Sort(h.stopped)
	out.Stopped = h.stopped
	return out
}

func kubeletCollects(g garbage) collected {
	ctx := context.Background()
	h := &heap{g: &g, now: time.Now()}
	m, err := kuberuntime.NewConformanceManager(ctx, kuberuntime.ConformanceParts{Runtime: h, Images: h, Kubelet: h, OS: h})
	if err != nil {
		panic(err)
	}
	kuberuntime.ConformanceGC(m, kuberuntime.ConformancePods{
		Content: func(uid types.UID) bool { return g.Pods[string(uid)] == gc.PodRemoved },
		Runtime: func(uid types.UID) bool { return g.Pods[string(uid)] >= gc.PodTerminated },
	})
	policy := kubecontainer.GCPolicy{
		MinAge: g.Policy.MinAge, MaxPerPodContainer: g.Policy.MaxPerPodContainer, MaxContainers: g.Policy.MaxContainers,
	}
	if err := m.GarbageCollect(ctx, policy, !g.NotReady, g.Unused); err != nil {
		panic(err)
	}
	return h.left()
}

func oursCollects(g garbage) collected {
	g.Containers, g.Sandboxes = slices.Clone(g.Containers), slices.Clone(g.Sandboxes)
	h := &heap{g: &g, now: time.Now()}
	collector, err := gc.NewContainers(ourHeap{h}, gc.ContainerOptions{
		Policy: &g.Policy, Ready: func() bool { return !g.NotReady }, Pod: func(uid string) gc.PodState { return g.Pods[uid] },
	})
	if err != nil {
		panic(err)
	}
	collect := collector.Collect
	if g.Unused {
		collect = collector.CollectTerminated
	}
	if err := collect(context.Background()); err != nil {
		panic(err)
	}
	return h.left()
}

// ourHeap implements cri.Runtime for a heap.
type ourHeap struct{ h *heap }

func (o ourHeap) List(context.Context) (cri.Snapshot, error) {
	snap := cri.Snapshot{Time: o.h.now}
	for _, c := range o.h.g.Containers {
		c.CreatedAt = minutesAgo(o.h.now, o.h.g.createdMinutes[c.ID])
		snap.Containers = append(snap.Containers, c)
	}
	for _, s := range o.h.g.Sandboxes {
		s.CreatedAt = minutesAgo(o.h.now, o.h.g.sandboxAge[s.ID])
		snap.Sandboxes = append(snap.Sandboxes, s)
	}
	return snap, nil
}

func (o ourHeap) RunSandbox(context.Context, *cri.SandboxConfig) (string, error) {
	panic("unexpected call")
}

func (o ourHeap) StopSandbox(ctx context.Context, id string) error {
	return o.h.StopPodSandbox(ctx, id)
}

func (o ourHeap) RemoveSandbox(ctx context.Context, id string) error {
	return o.h.RemovePodSandbox(ctx, id)
}

func (o ourHeap) CreateContainer(context.Context, string, *cri.ContainerConfig, *cri.SandboxConfig) (string, error) {
	panic("unexpected call")
}

func (o ourHeap) StartContainer(context.Context, string) error { panic("unexpected call") }

func (o ourHeap) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return o.h.StopContainer(ctx, id, int64(grace/time.Second))
}

func (o ourHeap) RemoveContainer(ctx context.Context, id string) error {
	return o.h.RemoveContainer(ctx, id)
}

// Methods that the kubelet calls on a runtime and on the operating system.

func (h *heap) Close(context.Context) error { return nil }

func (h *heap) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "stand-in"}, nil
}

func (h *heap) ListContainers(context.Context, *runtimeapi.ContainerFilter) (list []*runtimeapi.Container, err error) {
	for i := range h.g.Containers {
		c := &h.g.Containers[i]
		list = append(list, &runtimeapi.Container{
			Id: c.ID, PodSandboxId: c.SandboxID, Metadata: &runtimeapi.ContainerMetadata{Name: c.Name}, State: runtimeapi.ContainerState(c.State),
			CreatedAt: minutesAgo(h.now, h.g.createdMinutes[c.ID]).UnixNano(), Labels: heapLabels(c),
		})
	}
	return list, nil
}

func heapLabels(c *cri.Container) map[string]string {
	return map[string]string{cri.LabelPodUID: c.PodUID, cri.LabelContainerName: c.Name, cri.LabelPodName: c.PodUID, cri.LabelPodNamespace: "ns"}
}

func (h *heap) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) (list []*runtimeapi.PodSandbox, err error) {
	for i := range h.g.Sandboxes {
		s := &h.g.Sandboxes[i]
		list = append(list, &runtimeapi.PodSandbox{
			Id: s.ID, Metadata: &runtimeapi.PodSandboxMetadata{Uid: s.Pod.UID}, State: runtimeapi.PodSandboxState(s.State),
			CreatedAt: minutesAgo(h.now, h.g.sandboxAge[s.ID]).UnixNano(),
		})
	}
	return list, nil
}

func (h *heap) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	for i := range h.g.Containers {
		if c := &h.g.Containers[i]; c.ID == id {
			return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
				Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: c.Name}, State: runtimeapi.ContainerState(c.State), Labels: heapLabels(c),
			}}, nil
		}
	}
	return nil, errGone
}

func (h *heap) StopContainer(_ context.Context, id string, _ int64) error {
	h.stopped = append(h.stopped, id)
	return nil
}

func (h *heap) RemoveContainer(_ context.Context, id string) error {
	h.g.Containers = slices.DeleteFunc(h.g.Containers, func(c cri.Container) bool { return c.ID == id })
	return nil
}

func (h *heap) StopPodSandbox(_ context.Context, id string) error {
	h.stopped = append(h.stopped, id)
	return nil
}

func (h *heap) RemovePodSandbox(_ context.Context, id string) error {
	h.g.Sandboxes = slices.DeleteFunc(h.g.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id })
	return nil
}

func (h *heap) Glob(string) ([]string, error) { return nil, nil }

func (h *heap) ReadDir(string) ([]os.DirEntry, error) { return nil, nil }

func (h *heap) Remove(string) error { return nil }
