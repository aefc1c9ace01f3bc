// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/qos"
)

// Resources are the requests and limits of a container, as quantities such as "500m" and "1Gi". An empty field is not set.
type Resources struct {
	CPU, Memory           string // requests
	CPULimit, MemoryLimit string
}

// NewPod returns a pod in the namespace default with one container, main. usage is the value of the annotation
// [AnnotationUsage]; empty means no annotation. It panics if a quantity in r is invalid.
func NewPod(name string, r Resources, usage string) *corev1.Pod {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if cpu != "" {
			l[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "nodetest", ImagePullPolicy: corev1.PullIfNotPresent,
			Resources: corev1.ResourceRequirements{Requests: list(r.CPU, r.Memory), Limits: list(r.CPULimit, r.MemoryLimit)},
		}}},
	}
	if usage != "" {
		pod.Annotations = map[string]string{AnnotationUsage: usage}
	}
	return pod
}

// podCgroup returns the cgroup of a pod.
func podCgroup(pod *corev1.Pod) cgroups.Path {
	return cgroups.PodPath("", cgroups.QOS(qos.StatusClass(pod)), string(pod.UID))
}

// podPair is a pod as its source lists it, and as the agent runs it.
type podPair struct{ listed, run *corev1.Pod }

// transform returns the simulated pod that the agent runs in place of pod. It returns an equal pointer as long as pod is an equal pointer.
func (n *Node) transform(pod *corev1.Pod) *corev1.Pod {
	if found, ok := n.pods.Load(string(pod.UID)); ok && found.(*podPair).listed == pod {
		return found.(*podPair).run
	}
	run := simulatedPod(pod)
	n.pods.Store(string(pod.UID), &podPair{listed: pod, run: run})
	return run
}

// simulatedPod returns a copy of pod for the simulated runtime, without volume mounts, resource claims and host aliases. Its
// HTTP, TCP and gRPC probes and HTTP hooks become exec actions. [Behavior].Probe receives their command, which is "http", "tcp"
// or "grpc".
func simulatedPod(pod *corev1.Pod) *corev1.Pod {
	// It shares memory, because a node of a cluster has both for each pod.
	copied := *pod
	spec := &copied.Spec
	spec.ResourceClaims, spec.HostAliases = nil, nil
	spec.InitContainers, spec.Containers = simulatedContainers(spec.InitContainers), simulatedContainers(spec.Containers)
	spec.EphemeralContainers = slices.Clone(spec.EphemeralContainers)
	for i := range spec.EphemeralContainers {
		c := &spec.EphemeralContainers[i]
		c.VolumeMounts, c.VolumeDevices = nil, nil
	}
	return &copied
}

// simulatedContainers returns a copy of the containers without volume mounts and resource claims. All their probes and HTTP
// hooks become exec probes and exec hooks.
func simulatedContainers(list []corev1.Container) []corev1.Container {
	list = slices.Clone(list)
	for i := range list {
		c := &list[i]
		c.VolumeMounts, c.VolumeDevices, c.Resources.Claims = nil, nil, nil
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = simulatedProbe(c.LivenessProbe), simulatedProbe(c.ReadinessProbe), simulatedProbe(c.StartupProbe)
		if c.Lifecycle != nil {
			hooks := *c.Lifecycle
			hooks.PostStart, hooks.PreStop = simulatedHook(hooks.PostStart), simulatedHook(hooks.PreStop)
			c.Lifecycle = &hooks
		}
	}
	return list
}

// simulatedProbe returns an exec probe with the settings of p. Its command is the kind of p, such as "http". It returns an
// exec probe or nil unchanged.
func simulatedProbe(p *corev1.Probe) *corev1.Probe {
	if p == nil || p.Exec != nil {
		return p
	}
	copied := *p
	copied.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{probeKind(p)}}}
	return &copied
}

// simulatedHook returns an exec hook in place of an HTTP hook. It returns any other hook, or nil, unchanged.
func simulatedHook(h *corev1.LifecycleHandler) *corev1.LifecycleHandler {
	if h == nil || h.HTTPGet == nil {
		return h
	}
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"http"}}}
}

// probeKind returns the kind of a probe that is not an exec probe: "http", "tcp" or "grpc".
func probeKind(p *corev1.Probe) string {
	switch {
	case p.HTTPGet != nil:
		return "http"
	case p.GRPC != nil:
		return "grpc"
	}
	return "tcp"
}
