// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// makePod returns a random pod. Most containers limit one resource. A container limits two only if no admission check can fail, because the order of
// resources is random in the kubelet.
func (n *socketNode) makePod() *corev1.Pod {
	n.next++
	name := fmt.Sprint("pod", n.next)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("uid-" + name), Name: name, Namespace: "default"}}
	free := n.freeDevices()
	limits := func() corev1.ResourceRequirements {
		list := corev1.ResourceList{}
		set := func(name string, count int) {
			free[name] -= count
			list[corev1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
		}
		first, count := n.c.Int(3), 1+n.c.Int(3)
		second, secondCount := (first+1)%3, 1+n.c.Int(2)
		a, b := deviceResources[first], deviceResources[second]
		set(a, count)
		if n.c.OneIn(2) && free[a] >= 0 && free[b] >= secondCount && !n.failing[a] && !n.failing[b] {
			set(b, secondCount)
		}
		return corev1.ResourceRequirements{Limits: list}
	}
	if n.c.OneIn(4) {
		always := corev1.ContainerRestartPolicyAlways
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "sidecar", RestartPolicy: &always, Resources: limits()})
	}
	for i := range 1 + n.c.Int(2) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Resources: limits()})
	}
	if n.c.OneIn(3) {
		// The first container reuses all devices of the init container: of more, the kubelet reuses any.
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "init", Resources: *pod.Spec.Containers[0].Resources.DeepCopy()})
	}
	return pod
}

// freeDevices returns the number of healthy devices of each resource that no container holds.
func (n *socketNode) freeDevices() map[string]int {
	free := map[string]int{}
	inUse := map[string]map[string]bool{}
	for _, containers := range n.ours.Allocator().Allocations() {
		for _, held := range containers {
			for name, devices := range held {
				for _, d := range devices {
					if inUse[name] == nil {
						inUse[name] = map[string]bool{}
					}
					inUse[name][d.ID] = true
				}
			}
		}
	}
	for name, devices := range n.ours.Allocator().Allocatable() {
		for _, d := range devices {
			if !inUse[name][d.ID] {
				free[name]++
			}
		}
	}
	return free
}

// admit admits a random pod on both sides.
func (n *socketNode) admit() {
	pod := n.makePod()
	reason, message := n.kubelet.Admit(n.t.Context(), pod)
	err := n.ours.Reserve(n.t.Context(), pod)
	n.note("admit %s: kubelet %q, ours %v", describeLimits(pod), message, err)
	rejection, rejected := errors.AsType[*podstatus.Rejection](err)
	limits := 0
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		limits += len(c.Resources.Limits)
	}
	switch {
	case err == nil && reason == "":
	case rejected && strings.Contains(message, outOfOrder) && limits > 1:
		// A later container may have no devices: ours chooses the devices of all containers before it calls a plugin.
	case !rejected || rejection.Reason != reason || rejection.Message != message:
		n.fail("kubelet: %s %s\nours:    %v", reason, message, err)
	}
}

// remove removes a pod that has terminated.
func (n *socketNode) remove() {
	if len(n.kubelet.Active) == 0 {
		return
	}
	uid := string(n.kubelet.Active[n.c.Int(len(n.kubelet.Active))].UID)
	n.note("remove %s", uid)
	n.kubelet.Remove(uid)
	require.NoError(n.t, n.ours.Release(n.t.Context(), uid))
}

// compare compares the state of both sides.
func (n *socketNode) compare() {
	theirs, ours := describeCapacity(n.kubelet.Capacity()), describeCapacity(n.ourCapacity())
	if theirs != ours {
		n.fail("capacity:\nkubelet %s\nours    %s", theirs, ours)
	}
	for _, pod := range n.kubelet.Active {
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if theirs, ours := n.theirDevices(pod, c.Name), n.ourDevices(pod, c.Name); !slices.Equal(theirs, ours) {
				n.fail("devices of %s of %s:\nkubelet %q\nours    %q", c.Name, pod.UID, theirs, ours)
			}
			n.compareConfig(pod, &c)
		}
	}
	name := "unknown"
	if pods := n.kubelet.Active; len(pods) > 0 {
		name = pods[n.c.Int(len(pods))].Name
	}
	lists, listed := describeResources(n.t.Context(), n.resources[0], name), describeResources(n.t.Context(), n.resources[1], name)
	if !slices.Equal(lists, listed) {
		n.fail("podresources:\nkubelet\n%s\nours\n%s", strings.Join(lists, "\n"), strings.Join(listed, "\n"))
	}
	n.compareCheckpoint()
}

func (n *socketNode) ourCapacity() (capacity, allocatable corev1.ResourceList, removed []string) {
	capacity, allocatable, names := n.ours.Capacity()
	for _, name := range names {
		removed = append(removed, string(name))
	}
	return capacity, allocatable, removed
}

func describeCapacity(capacity, allocatable corev1.ResourceList, removed []string) (text string) {
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		all, free := capacity[name], allocatable[name]
		text += fmt.Sprintf("%s=%d/%d ", name, all.Value(), free.Value())
	}
	return text + fmt.Sprint(len(allocatable), slices.Sorted(slices.Values(removed)))
}

// theirDevices describes the devices of a container in the kubelet: resource, ID, NUMA nodes and health.
func (n *socketNode) theirDevices(pod *corev1.Pod, container string) (lines []string) {
	status := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: container}}}
	n.kubelet.Manager().UpdateAllocatedResourcesStatus(klog.Logger{}, pod, &status)
	health := indexHealth(status.ContainerStatuses[0].AllocatedResourcesStatus)
	for name, devices := range n.kubelet.Manager().GetDevices(string(pod.UID), container) {
		for id, d := range devices {
			var nodes device.Mask
			for _, node := range d.GetTopology().GetNodes() {
				nodes |= 1 << node.GetID()
			}
			lines = append(lines, fmt.Sprint(name, id, nodes, health[name+id]))
		}
	}
	slices.Sort(lines)
	return lines
}

// ourDevices describes the devices of a container in our allocator.
func (n *socketNode) ourDevices(pod *corev1.Pod, container string) (lines []string) {
	health := indexHealth(n.ours.Health(string(pod.UID), container))
	for name, devices := range n.ours.Allocator().Allocations()[string(pod.UID)][container] {
		for _, d := range devices {
			lines = append(lines, fmt.Sprint(name, d.ID, d.Nodes, health[name+d.ID]))
		}
	}
	slices.Sort(lines)
	return lines
}

// indexHealth returns the health by resource and ID.
func indexHealth(list []corev1.ResourceStatus) map[string]corev1.ResourceHealthStatus {
	health := map[string]corev1.ResourceHealthStatus{}
	for _, r := range list {
		for _, d := range r.Resources {
			health[string(r.Name)+string(d.ResourceID)] = d.Health
		}
	}
	return health
}

// compareConfig compares the config that a container gets at its start, and the calls of PreStartContainer.
func (n *socketNode) compareConfig(pod *corev1.Pod, c *corev1.Container) {
	held := n.ours.Allocator().Allocations()[string(pod.UID)][c.Name]
	for name := range c.Resources.Limits {
		plugins := n.plugins[string(name)]
		switch {
		case held[string(name)] == nil:
			return // the container runs without the resource; the kubelet would allocate now
		case len(plugins) == 0 && string(name) == deviceResources[2]:
			return // the kubelet's error prints its memory, or it does not remember PreStartContainer after a restart
		}
	}
	options, theirErr := n.kubelet.RunOptions(n.t.Context(), pod, c)
	theirStarts := n.takeStarts()
	launch := &podspec.Launch{}
	ourErr := n.ours.Container(n.t.Context(), pod, c, launch)
	ourStarts := n.takeStarts()
	if fmt.Sprint(theirErr) != fmt.Sprint(ourErr) || !slices.Equal(theirStarts, ourStarts) {
		n.fail("start of %s of %s:\nkubelet %v, calls %q\nours    %v, calls %q", c.Name, pod.UID, theirErr, theirStarts, ourErr, ourStarts)
	}
	if theirs, ours := describeOptions(options), describeLaunch(launch); theirErr == nil && !slices.Equal(theirs, ours) {
		n.fail("config of %s of %s:\nkubelet %q\nours    %q", c.Name, pod.UID, theirs, ours)
	}
}

// takeStarts returns the calls of PreStartContainer since it was last called.
func (n *socketNode) takeStarts() (starts []string) {
	for _, plugins := range n.plugins {
		for _, p := range plugins {
			for _, ids := range p.takeStarts() {
				starts = append(starts, p.endpoint+ids)
			}
		}
	}
	slices.Sort(starts)
	return starts
}

func describeOptions(options *devicemanager.DeviceRunContainerOptions) (lines []string) {
	if options == nil {
		return nil
	}
	for _, v := range options.Envs {
		lines = append(lines, "env "+v.Name+"="+v.Value)
	}
	for _, m := range options.Mounts {
		lines = append(lines, fmt.Sprint("mount ", m.ContainerPath, m.HostPath, m.ReadOnly))
	}
	for _, d := range options.Devices {
		lines = append(lines, fmt.Sprint("device ", d.PathInContainer, d.PathOnHost, d.Permissions))
	}
	for _, d := range options.CDIDevices {
		lines = append(lines, "CDI "+d.Name)
	}
	slices.Sort(lines)
	return lines
}

func describeLaunch(launch *podspec.Launch) (lines []string) {
	for _, v := range launch.Env {
		lines = append(lines, "env "+v.Name+"="+v.Value)
	}
	for _, m := range launch.Mounts {
		lines = append(lines, fmt.Sprint("mount ", m.ContainerPath, m.HostPath, m.ReadOnly))
	}
	for _, d := range launch.Devices {
		lines = append(lines, fmt.Sprint("device ", d.ContainerPath, d.HostPath, d.Permissions))
	}
	for _, name := range launch.CDIDevices {
		lines = append(lines, "CDI "+name)
	}
	slices.Sort(lines)
	return lines
}

// compareCheckpoint compares the kubelet's checkpoint, as our reader understands it, with the devices of our pods and their responses. It may have
// removed pods, too: the kubelet writes a removal with its next change.
func (n *socketNode) compareCheckpoint() {
	previous, err := plugin.ReadCheckpoint(n.kubelet.CheckpointFile())
	if errors.Is(err, os.ErrNotExist) && n.lists == 0 && len(n.ours.Allocator().Claims()) == 0 {
		return
	}
	require.NoError(n.t, err)
	theirs, ours := map[string]string{}, map[string]string{}
	describe := func(into map[string]string, claims []device.Claim) {
		for _, c := range claims {
			var ids []string
			for _, d := range c.Devices {
				ids = append(ids, fmt.Sprint(d.ID, d.Nodes))
			}
			slices.Sort(ids)
			require.NotNil(n.t, c.Response)
			into[fmt.Sprint(c.PodUID, c.Container, c.Resource)] = fmt.Sprintf("%s %+v", ids, *c.Response)
		}
	}
	held := n.ours.Allocator().Claims()
	describe(ours, held)
	describe(theirs, slices.DeleteFunc(previous.Claims, func(c device.Claim) bool {
		return !slices.ContainsFunc(held, func(h device.Claim) bool { return h.PodUID == c.PodUID })
	}))
	if !maps.Equal(theirs, ours) {
		n.fail("checkpoint:\n%v\nours:\n%v", theirs, ours)
	}
	var names []string
	for _, r := range n.ours.Allocator().Resources() {
		names = append(names, r.Name)
	}
	if !slices.Equal(previous.Resources, names) {
		n.fail("resources of the checkpoint: %v, ours %v", previous.Resources, names)
	}
}
