// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

func TestStatuses(t *testing.T) { run(t, statuses) }
func FuzzStatuses(f *testing.F) { fuzz(f, statuses) }

// statusInput is a scene with the previous statuses of its containers, and waiting reasons of containers that were not
// started. The containers have no probes.
type statusInput struct {
	Scene     scene
	Previous  *corev1.PodStatus
	Waiting   map[string]podstatus.Waiting
	Recursive bool // the runtime supports recursive read-only mounts
}

// containerStatuses has the container statuses of a pod, and its pod-level fields.
type containerStatuses struct {
	Init, Containers, Ephemeral []corev1.ContainerStatus
	Resources                   *corev1.ResourceRequirements
	Allocated                   corev1.ResourceList
	Running                     bool `json:"-"` // the phase in our status is Running
}

var statuses = conformance.Comparison[statusInput, containerStatuses]{
	Make:       newDescribed,
	Kubelet:    kubeletStatuses,
	Ours:       nodeagentStatuses,
	Same:       sameStatuses,
	Exceptions: statusExceptions,
}

func nodeagentStatuses(in statusInput) containerStatuses {
	st := podstatus.Of(in.Scene.Pod, in.Scene.Observed, podstatus.Input{
		Now: sceneTime, Previous: in.Previous, RuntimeName: "stand-in", Waiting: in.Waiting, Deleted: in.Scene.Pod.DeletionTimestamp != nil,
	})
	out := statusesOf(&st)
	out.Running = st.Phase == corev1.PodRunning
	return out
}

// sameStatuses reports whether both results are equal. It ignores the resources of a running pod, which depend on its
// cgroup: TestResizeStatus compares them.
func sameStatuses(kubelet, ours containerStatuses) bool {
	kubelet.Running = ours.Running
	if ours.Running {
		kubelet.Resources, ours.Resources = nil, nil
	}
	return equality.Semantic.DeepEqual(kubelet, ours)
}

func kubeletStatuses(in statusInput) containerStatuses {
	ctx := context.Background()
	r := newRuntimeOf(in.Scene)
	parts := kuberuntime.ConformanceParts{Runtime: detailed{r}, Images: r, Kubelet: r, OS: r}
	m, err := kuberuntime.NewConformanceManager(ctx, parts)
	if err != nil {
		panic(err)
	}
	k := kubelet.ConformanceStatus{
		Pod: in.Scene.Pod, Seen: podStatus(ctx, m, in.Scene), Previous: *in.Previous, RecursiveReadOnly: in.Recursive,
	}
	for name, w := range in.Waiting {
		k.Fail(name, w.Reason, w.Message)
	}
	return statusesOf(k.Status(ctx))
}

// statusesOf returns the container statuses of a pod, without messages that differ between both sides.
func statusesOf(st *corev1.PodStatus) containerStatuses {
	out := containerStatuses{
		Init: st.InitContainerStatuses, Containers: st.ContainerStatuses, Ephemeral: st.EphemeralContainerStatuses,
		Resources: st.Resources, Allocated: st.AllocatedResources,
	}
	for _, list := range [][]corev1.ContainerStatus{out.Init, out.Containers, out.Ephemeral} {
		for i := range list {
			for _, state := range []*corev1.ContainerState{&list[i].State, &list[i].LastTerminationState} {
				*state = *state.DeepCopy()
				if t := state.Terminated; t != nil && t.FinishedAt.IsZero() {
					t.Message = "" // the termination was not observed
				}
				if w := state.Waiting; w != nil && w.Reason == podstatus.ReasonRestartingAllContainers {
					w.Message = ""
				}
			}
		}
	}
	return out
}

// detailed is a runtime that reports all details of its containers.
type detailed struct{ *runtimeOf }

func (r detailed) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	response, err := r.runtimeOf.ContainerStatus(ctx, id, verbose)
	if err != nil {
		return nil, err
	}
	c, st := r.find(id), response.Status
	if c.StartedAt.IsZero() {
		st.StartedAt = 0
	}
	st.Message = c.Message
	if u := c.User; u != nil {
		st.User = &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{
			Uid: u.UID, Gid: u.GID, SupplementalGroups: u.SupplementalGroups,
		}}
	}
	return response, nil
}

// newDescribed returns a scene with random previous statuses.
func newDescribed(c *conformance.Choices) statusInput {
	in := statusInput{Scene: newScene(c), Previous: &corev1.PodStatus{}, Waiting: map[string]podstatus.Waiting{}, Recursive: c.OneIn(2)}
	if c.OneIn(4) {
		slices.Reverse(in.Scene.Pod.Spec.Containers)
	}
	for _, spec := range in.Scene.specs() {
		spec.LivenessProbe, spec.StartupProbe = nil, nil
		in.addResources(c, spec)
	}
	for i := range in.Scene.Observed.Containers {
		in.addDetails(c, &in.Scene.Observed.Containers[i])
	}
	for _, list := range in.lists(&containerStatuses{}) {
		for _, spec := range list.specs {
			if !c.OneIn(6) {
				*list.before = append(*list.before, in.previousStatus(c, spec))
			}
		}
	}
	// A terminated ephemeral container stays terminated in the status, even if the runtime reports another state: API
	// servers reject any other state.
	in.Previous.EphemeralContainerStatuses = slices.DeleteFunc(in.Previous.EphemeralContainerStatuses, func(st corev1.ContainerStatus) bool {
		last := in.Scene.last(st.Name)
		return st.State.Terminated != nil && (last == nil || last.State != cri.ContainerExited)
	})
	if in.mayRestartAll() && c.OneIn(4) {
		in.Previous.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
	}
	in.setWaiting(c)
	return in
}

// setWaiting adds waiting reasons to some containers to start. In a deleted pod they are outdated.
func (in *statusInput) setWaiting(c *conformance.Choices) {
	a := plan.Plan(plan.State{Pod: in.Scene.Pod, Observed: in.Scene.Observed, Now: sceneTime})
	for _, waiting := range a.BackOff {
		in.Waiting[waiting.Name] = podstatus.Waiting{Reason: podstatus.ReasonCrashLoopBackOff, Message: waiting.Message}
	}
	for _, spec := range in.Scene.specs() {
		starts := slices.ContainsFunc(a.Start, func(s plan.Start) bool { return s.Container.Name == spec.Name })
		if (starts || in.Scene.Pod.DeletionTimestamp != nil) && c.OneIn(3) {
			in.Waiting[spec.Name] = podstatus.Waiting{Reason: conformance.Pick(c, "ErrImagePull", "RunContainerError"), Message: "no"}
		}
	}
}

// addResources adds resources and mounts to a container.
func (in *statusInput) addResources(c *conformance.Choices, spec *corev1.Container) {
	if c.OneIn(3) {
		spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	}
	if c.OneIn(3) {
		spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	}
	for _, name := range []string{"data", "conf"}[:conformance.Pick(c, 0, 0, 0, 0, 1, 2)] {
		m := corev1.VolumeMount{Name: name, MountPath: conformance.Pick(c, "/", "") + name, ReadOnly: c.OneIn(2)}
		if m.ReadOnly {
			m.RecursiveReadOnly = conformance.Pick(c, nil, new(corev1.RecursiveReadOnlyDisabled),
				new(corev1.RecursiveReadOnlyIfPossible), new(corev1.RecursiveReadOnlyEnabled))
		}
		spec.VolumeMounts = append(spec.VolumeMounts, m)
	}
}

// addDetails adds the details that a runtime reports of a container in addition to its state.
func (in *statusInput) addDetails(c *conformance.Choices, instance *cri.Container) {
	instance.Image = conformance.Pick(c, instance.Image, cri.ImageSpec{Image: "registry.example/v1"})
	if c.OneIn(16) {
		instance.Image = cri.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "v1"}
	}
	instance.ImageRef = conformance.Pick(c, "registry.example/v1@sha256:1", "sha256:1")
	instance.User = conformance.Pick(c, nil, &cri.ContainerUser{},
		&cri.ContainerUser{UID: 1000, GID: 100, SupplementalGroups: []int64{100, 5}})
	if instance.State == cri.ContainerExited {
		instance.Message = conformance.Pick(c, "", "oh")
		if c.OneIn(16) {
			instance.StartedAt, instance.ExitCode, instance.Reason = time.Time{}, 128, "StartError"
		}
	}
	if spec := in.Scene.spec(instance.Name); spec != nil {
		for i := range spec.VolumeMounts {
			m := &spec.VolumeMounts[i]
			instance.Mounts = append(instance.Mounts, cri.Mount{
				ContainerPath: "/" + m.Name, ReadOnly: m.ReadOnly, RecursiveReadOnly: in.recursive(m),
			})
		}
	}
}

// recursive reports whether the mount is recursively read-only in a container.
func (in *statusInput) recursive(m *corev1.VolumeMount) bool {
	return in.Recursive && m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled
}

// mounts returns the mount statuses of an existing container.
func (in *statusInput) mounts(spec *corev1.Container) (list []corev1.VolumeMountStatus) {
	for i := range spec.VolumeMounts {
		m := &spec.VolumeMounts[i]
		st := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if in.recursive(m) {
			st.RecursiveReadOnly = new(corev1.RecursiveReadOnlyEnabled)
		} else if m.ReadOnly {
			st.RecursiveReadOnly = new(corev1.RecursiveReadOnlyDisabled)
		}
		list = append(list, st)
	}
	return list
}

// previousStatus returns a previous status of a container: of one of its instances in the runtime, or of a removed instance.
func (in *statusInput) previousStatus(c *conformance.Choices, spec *corev1.Container) corev1.ContainerStatus {
	instances := slices.DeleteFunc(slices.Clone(in.Scene.Observed.Containers), func(c cri.Container) bool { return c.Name != spec.Name })
	instance := cri.Container{ID: spec.Name + "-gone", State: cri.ContainerUnknown}
	if i := c.Int(len(instances) + 1); i < len(instances) {
		instance = instances[len(instances)-1-i]
	}
	st := corev1.ContainerStatus{
		Name: spec.Name, Image: spec.Image, RestartCount: int32(instance.Attempt) + conformance.Pick[int32](c, 0, 0, 0, 1, 3),
		VolumeMounts: in.mounts(spec),
	}
	if c.OneIn(3) {
		st.LastTerminationState.Terminated = saidEnd(c, "before")
	}
	how := conformance.Pick(c, "running", "terminated", "waiting")
	switch {
	case instance.State == cri.ContainerCreated:
		how = "waiting"
	case instance.State == cri.ContainerRunning && how == "terminated":
		how = "running"
	}
	if !in.Scene.ephemeral(spec.Name) {
		st.Started = new(how == "running")
	}
	if how == "waiting" {
		st.State.Waiting = &corev1.ContainerStateWaiting{Reason: conformance.Pick(c, "ContainerCreating", "CrashLoopBackOff")}
		if instance.State == cri.ContainerCreated || c.OneIn(2) {
			return st // no instance had run
		}
	}
	st.ContainerID, st.ImageID = "stand-in://"+instance.ID, "sha256:0"
	st.Resources, st.AllocatedResources = spec.Resources.DeepCopy(), spec.Resources.Requests.DeepCopy()
	st.User = conformance.Pick(c, nil, &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 7}})
	switch how {
	case "running":
		st.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(sceneTime.Add(-time.Hour))}
		st.Ready = st.Started != nil && in.Scene.initial(spec.Name) == nil
	case "terminated":
		st.State.Terminated = saidEnd(c, instance.ID)
		st.Ready = in.Scene.initial(spec.Name) != nil && !sidecar(spec) && st.State.Terminated.ExitCode == 0
	}
	return st
}

func saidEnd(c *conformance.Choices, id string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{
		ContainerID: "stand-in://" + id, ExitCode: conformance.Pick[int32](c, 0, 0, 1, 42, 137), Reason: "Said",
		StartedAt: metav1.NewTime(sceneTime.Add(-3 * time.Hour)), FinishedAt: metav1.NewTime(sceneTime.Add(-2 * time.Hour)),
	}
}

func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// statusList is one list of statuses, with its containers.
type statusList struct {
	specs       []*corev1.Container
	before, now *[]corev1.ContainerStatus
}

// lists returns the status lists of a pod.
func (in *statusInput) lists(now *containerStatuses) []statusList {
	pod := &in.Scene.Pod.Spec
	init, regular := len(pod.InitContainers), len(pod.InitContainers)+len(pod.Containers)
	all := in.Scene.specs()
	return []statusList{
		{all[:init], &in.Previous.InitContainerStatuses, &now.Init},
		{all[init:regular], &in.Previous.ContainerStatuses, &now.Containers},
		{all[regular:], &in.Previous.EphemeralContainerStatuses, &now.Ephemeral},
	}
}
