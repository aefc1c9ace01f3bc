// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/internal/script"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/qos"
)

// TestResizeScenarios runs testdata/resize/*.txt. A scenario describes a pod and its containers, and requests decisions about
// their resources. The indented lines are the expected decision. Resources are cpu=REQUEST/LIMIT and memory=REQUEST/LIMIT;
// request or limit may be empty. Lines:
//
//	node KEY...                      v2, tiered (memory QoS) and swap; fixed: the runtime cannot resize
//	full MESSAGE                     the node has no capacity; without a message it has
//	pod RESOURCES                    pod-level resources
//	spec NAME RESOURCES KEY...       restart=cpu restart=memory
//	init NAME RESOURCES KEY...       like spec, for an init container; sidecar
//	container ID RESOURCES KEY...    is created, and runs: name=NAME; exited; silent: the runtime reports no resources
//	foreign ID                       it has no annotations of this agent
//	sized RESOURCES                  resources of the pod's cgroup
//	grant                            the requested resources are allocated
//	update ID RESOURCES              the runtime has resized it, and the agent does not know it
//	told ID RESOURCES                the runtime has resized it, and the agent knows it
//	adjust ID SHARES                 a plugin of the runtime has changed its CPU shares
//	limit ID BYTES                   the runtime reports another memory limit than it was given
//	look                             prints the decision of PlanResize, and the plan
//	status                           prints pod-level resources, resources of the containers, and conditions
func TestResizeScenarios(t *testing.T) {
	script.Run(t, "testdata/resize/*.txt", func(t *testing.T, text string) string {
		s := &resizeScene{scene: &scene{t: t, pod: podtest.Pod("p")}, told: map[string]cgroups.ContainerSize{}}
		s.pod.Spec.Containers = nil
		s.node.CgroupV1, s.node.NoSwapController, s.node.MemoryCapacity = true, true, 1<<30
		s.obs.Sandboxes = []cri.Sandbox{{ID: "s0", IPs: []string{"10.0.0.1"}}}
		return script.Lines(text, "  ", s.do)
	})
}

// resizeScene is the state that the lines of a scenario describe.
type resizeScene struct {
	*scene
	node     qos.Node
	told     map[string]cgroups.ContainerSize
	sized    *resize.Sizes
	granted  *resize.Allocation
	fixed    bool
	full     string
	previous *corev1.PodStatus
}

func (s *resizeScene) do(out *strings.Builder, words []string) {
	args := words[1:]
	switch words[0] {
	case "node":
		s.setNode(args)
	case "full":
		s.full = strings.Join(args, " ")
	case "pod":
		s.pod.Spec.Resources = new(podtest.ParseRequirements(args))
	case "sized":
		s.sized = &resize.Sizes{Pod: new(size(s.t, args))}
	case "grant":
		s.granted = resize.AllocationOf(s.pod)
	case "spec", "init":
		c := corev1.Container{Name: args[0], Image: "busybox", Resources: podtest.ParseRequirements(args[1:])}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if slices.Contains(args, "restart="+string(name)) {
				c.ResizePolicy = append(c.ResizePolicy, corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.RestartContainer})
			}
		}
		list := &s.pod.Spec.Containers
		if words[0] == "init" {
			list = &s.pod.Spec.InitContainers
		}
		if slices.Contains(args, "sidecar") {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		setSpec(list, c)
	case "container":
		s.make(args[0], args[1:])
	case "foreign":
		s.life(args[0]).Annotations = nil
	case "update", "told":
		life := s.life(args[0])
		life.Resources = s.resources(life.Name, args[1:])
		if words[0] == "told" {
			s.told[life.ID] = size(s.t, args[1:])
		}
	case "adjust":
		s.life(args[0]).Resources.CPUShares = s.number(args[1])
	case "limit":
		s.life(args[0]).Resources.MemoryLimit = s.number(args[1])
	case "look":
		s.look(out)
	case "status":
		s.status(out)
	default:
		s.t.Fatalf("unknown line %q", words)
	}
}

func (s *resizeScene) setNode(keys []string) {
	for _, key := range keys {
		switch key {
		case "v2":
			s.node.CgroupV1 = false
		case "tiered":
			s.node.Reservation = qos.TieredReservation
		case "swap":
			s.node.NoSwapController, s.node.Swap, s.node.SwapCapacity = false, qos.LimitedSwap, 1<<30
		case "fixed":
			s.fixed = true
		default:
			s.t.Fatalf("node: unknown %q", key)
		}
	}
}

// resources returns the CRI resources of a container of the pod with these amounts.
func (s *resizeScene) resources(name string, amounts []string) *cri.Resources {
	c := *s.container(name)
	c.Resources = podtest.ParseRequirements(amounts)
	r, err := podspec.Resources(s.pod, &c, podspec.Options{Node: &s.node})
	require.NoError(s.t, err)
	return r
}

func (s *resizeScene) make(id string, args []string) {
	c := cri.Container{ID: id, Name: "main", SandboxID: "s0", State: cri.ContainerRunning}
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, "name="); ok {
			c.Name = name
		}
		if arg == "exited" {
			c.State, c.FinishedAt = cri.ContainerExited, epoch.Add(-time.Hour)
		}
		if arg == "created" {
			c.State = cri.ContainerCreated
		}
	}
	sized := size(s.t, args)
	c.Annotations = map[string]string{resize.AnnotationResources: fmt.Sprintf("cpu=%d/%d memory=%d/%d",
		sized.CPURequest, sized.CPULimit, sized.MemoryRequest, sized.MemoryLimit)}
	if !slices.Contains(args, "silent") {
		c.Resources = s.resources(c.Name, args)
	}
	s.remove(id)
	s.obs.Containers = append(s.obs.Containers, c)
}

func (s *resizeScene) life(id string) *cri.Container {
	i := slices.IndexFunc(s.obs.Containers, func(c cri.Container) bool { return c.ID == id })
	require.GreaterOrEqual(s.t, i, 0, "no container %q", id)
	return &s.obs.Containers[i]
}

func (s *resizeScene) plan() resize.Decision {
	state := resize.State{
		Pod: s.pod, Observed: s.obs, Spec: podspec.Options{Node: &s.node}, Allocated: s.granted, SentSizes: s.told, CgroupSizes: s.sized, NoUpdates: s.fixed,
	}
	d := resize.Decide(state)
	if s.full != "" && d.IsResize() {
		return d.Deferred(s.full)
	}
	return d
}

func (s *resizeScene) look(out *strings.Builder) {
	z := s.plan()
	if z.Reason != "" {
		fmt.Fprintf(out, "  %s: %s\n", z.Reason, z.Message)
		if r := z.Pod.Spec.Resources; r != nil {
			fmt.Fprintf(out, "  the pod keeps %s\n", podtest.FormatRequirements(r))
		}
		for _, c := range z.Pod.Spec.Containers {
			fmt.Fprintf(out, "  %s keeps %s\n", c.Name, podtest.FormatRequirements(&c.Resources))
		}
	}
	resizePod := z.ResizedSinceCreate || s.sized != nil && s.sized.PodLevel() != resize.SizeOfPod(z.Pod)
	a := plan.Plan(plan.State{Pod: z.Pod, Observed: s.obs, Now: epoch, Resize: z, ResizePod: resizePod})
	for _, k := range a.Kill {
		fmt.Fprintf(out, "  kill %s: %s\n", k.ID, k.Reason)
	}
	for _, r := range a.Resize {
		fmt.Fprintf(out, "  resize %s: %s -> %s\n", r.ID, podtest.FormatSize(r.From), podtest.FormatSize(r.To))
	}
	if a.ResizePod {
		fmt.Fprintln(out, "  resize the pod")
	}
	for _, x := range a.Start {
		fmt.Fprintf(out, "  start %s\n", strings.TrimSpace(x.Container.Name+" "+x.CreatedID))
	}
	if a.IsIdle() {
		fmt.Fprintln(out, "  nothing")
	}
}

func (s *resizeScene) status(out *strings.Builder) {
	z := s.plan()
	st := podstatus.Of(z.Pod, s.obs, podstatus.Input{Now: epoch, Resize: z, Previous: s.previous})
	s.previous = &st
	if s.pod.Spec.Resources != nil {
		fmt.Fprintf(out, "  the pod has %s, is allocated %s\n", podtest.FormatRequirements(st.Resources),
			podtest.FormatRequirements(&corev1.ResourceRequirements{Requests: st.AllocatedResources}))
	}
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		if c.Resources == nil {
			fmt.Fprintf(out, "  %s: no resources\n", c.Name)
			continue
		}
		fmt.Fprintf(out, "  %s has %s, is allocated %s\n", c.Name, podtest.FormatRequirements(c.Resources),
			podtest.FormatRequirements(&corev1.ResourceRequirements{Requests: c.AllocatedResources}))
	}
	for _, c := range st.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			fmt.Fprintln(out, " ", strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Type, c.Reason, c.Message)))
		}
	}
}

// FuzzPlanResize tests a container with arbitrary annotations and reported resources. The plan leads to the resources of the
// spec. Then no action is left, neither for this agent nor, if the runtime reports exact sizes, for a restarted one.
func FuzzPlanResize(f *testing.F) {
	f.Add("cpu=100/200 memory=1048576/2097152", int64(500), int64(1000), int64(1<<20), int64(4<<20))
	f.Add("cpu=100/200 memory=1048576/2097152", int64(100), int64(200), int64(1<<19), int64(2<<20))
	f.Add("cpu=-1/9223372036854775807 memory=x/", int64(0), int64(0), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, note string, cpuRequest, cpuLimit, memoryRequest, memoryLimit int64) {
		to := cgroups.ContainerSize{
			CPURequest: cpuRequest & 0xfffff, CPULimit: cpuLimit & 0xfffff,
			MemoryRequest: memoryRequest & 0xffffffffff, MemoryLimit: memoryLimit & 0xffffffffff,
		}
		pod := podtest.Pod("p")
		pod.Spec.Containers[0].Resources = podtest.ParseRequirements(strings.Fields(fmt.Sprintf("cpu=%dm/%dm memory=%d/%d",
			to.CPURequest, to.CPULimit, to.MemoryRequest, to.MemoryLimit)))
		want, err := podspec.Resources(pod, &pod.Spec.Containers[0], podspec.Options{})
		require.NoError(t, err)
		life := cri.Container{
			ID: "m0", Name: "main", State: cri.ContainerRunning,
			Annotations: map[string]string{resize.AnnotationResources: note},
			Resources:   &cri.Resources{CPUShares: 1024, CPUPeriod: 100000, CPUQuota: 50000, MemoryLimit: 64 << 20},
		}
		s := resize.State{Pod: pod, Observed: cri.Pod{Containers: []cri.Container{life}}}
		for _, r := range resize.Decide(s).Containers {
			require.Equal(t, to, r.To)
			require.NotEqual(t, to, r.From)
		}
		s.SentSizes = map[string]cgroups.ContainerSize{"m0": to}
		require.Empty(t, resize.Decide(s).Containers)

		s.SentSizes, s.Observed.Containers[0].Resources = nil, want
		z := resize.Decide(s)
		for _, r := range z.Containers {
			r.From.MemoryRequest = to.MemoryRequest
			a, b := cgroups.CPUShares(r.From.CPURequest), cgroups.CPUShares(to.CPURequest)
			require.Equal(t, b, a)
			require.Equal(t, cgroups.CPUQuota(to.CPULimit, 0), cgroups.CPUQuota(r.From.CPULimit, 0))
			require.Equal(t, to.MemoryLimit, r.From.MemoryLimit)
		}
	})
}

// size parses resources. A missing CPU request equals the limit.
func size(t *testing.T, words []string) cgroups.ContainerSize {
	t.Helper()
	r := podtest.ParseRequirements(words)
	s := cgroups.ContainerSize{
		CPURequest: r.Requests.Cpu().MilliValue(), CPULimit: r.Limits.Cpu().MilliValue(),
		MemoryRequest: r.Requests.Memory().Value(), MemoryLimit: r.Limits.Memory().Value(),
	}
	if _, ok := r.Requests[corev1.ResourceCPU]; !ok {
		s.CPURequest = s.CPULimit
	}
	return s
}
