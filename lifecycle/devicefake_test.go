// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// deviceCall is a recorded call of [fakeDevices].
type deviceCall struct {
	op        string // Reserve, Container or Release
	uid       string // of the pod
	container string // container name, for op Container
}

// fakeDevices is a lifecycle.Devices with an unlimited number of devices of every extended resource. It survives the agent, like
// the record of a real implementation. It calls no plugin and has no topology.
type fakeDevices struct {
	// fault is called by Reserve, Container and Release, without locks held. It may block, and its error is returned by that
	// method. Nil: all calls succeed at once.
	fault func(ctx context.Context, c deviceCall) error

	mu        sync.Mutex // guards all below
	calls     []deviceCall
	reserved  map[string]*corev1.Pod // by pod UID
	unhealthy bool
	changed   func(uids ...string)
}

var (
	_ lifecycle.Devices  = (*fakeDevices)(nil)
	_ lifecycle.Notifier = (*fakeDevices)(nil)
)

// Notify stores fn, which setUnhealthy calls.
func (d *fakeDevices) Notify(fn func(uids ...string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = fn
}

// Reserve reserves the devices of pod, unless fault returns an error.
func (d *fakeDevices) Reserve(ctx context.Context, pod *corev1.Pod) error {
	if err := d.recordCall(ctx, deviceCall{op: "Reserve", uid: string(pod.UID)}); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reserved == nil {
		d.reserved = map[string]*corev1.Pod{}
	}
	d.reserved[string(pod.UID)] = pod
	return nil
}

// Container adds an environment variable, a mount, a device node, a CDI name and an annotation to launch for each extended resource
// that the container limits. Their names contain that of the resource without its domain. Container returns an error if the
// devices are not reserved.
func (d *fakeDevices) Container(ctx context.Context, pod *corev1.Pod, container *corev1.Container, launch *podspec.Launch) error {
	if err := d.recordCall(ctx, deviceCall{op: "Container", uid: string(pod.UID), container: container.Name}); err != nil {
		return err
	}
	if !slices.Contains(d.reservedPods(), string(pod.UID)) {
		return fmt.Errorf("pod %s/%s: devices are not reserved", pod.Namespace, pod.Name)
	}
	for _, resource := range extendedResources(container) {
		name := resource[strings.LastIndex(resource, "/")+1:]
		path := "/dev/" + name
		launch.Env = append(launch.Env, cri.EnvVar{Name: strings.ToUpper(name), Value: path})
		launch.Mounts = append(launch.Mounts, cri.Mount{ContainerPath: "/opt/" + name, HostPath: "/opt/" + name, ReadOnly: true})
		launch.Devices = append(launch.Devices, cri.Device{ContainerPath: path, HostPath: path, Permissions: "rw"})
		launch.CDIDevices = append(launch.CDIDevices, resource+"=0")
		if launch.Annotations == nil {
			launch.Annotations = map[string]string{}
		}
		launch.Annotations[resource] = path
	}
	return nil
}

// Health returns the devices of a container, whose IDs are numbers from zero. They are healthy until setUnhealthy is called.
func (d *fakeDevices) Health(uid, container string) (list []corev1.ResourceStatus) {
	d.mu.Lock()
	defer d.mu.Unlock()
	health := corev1.ResourceHealthStatusHealthy
	if d.unhealthy {
		health = corev1.ResourceHealthStatusUnhealthy
	}
	pod := d.reserved[uid]
	if pod == nil {
		return nil
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name != container {
			continue
		}
		for _, resource := range extendedResources(&c) {
			status, limit := corev1.ResourceStatus{Name: corev1.ResourceName(resource)}, c.Resources.Limits[corev1.ResourceName(resource)]
			for i := range limit.Value() {
				status.Resources = append(status.Resources, corev1.ResourceHealth{ResourceID: corev1.ResourceID(fmt.Sprint(i)), Health: health})
			}
			list = append(list, status)
		}
	}
	return list
}

// setUnhealthy sets whether all devices are unhealthy, and reports the pods with devices as changed.
func (d *fakeDevices) setUnhealthy(unhealthy bool) {
	d.mu.Lock()
	d.unhealthy = unhealthy
	changed := d.changed
	d.mu.Unlock()
	changed(d.reservedPods()...)
}

// Release releases the devices of the pod with this UID, unless fault returns an error.
func (d *fakeDevices) Release(ctx context.Context, uid string) error {
	if err := d.recordCall(ctx, deviceCall{op: "Release", uid: uid}); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.reserved, uid)
	return nil
}

func (d *fakeDevices) recordCall(ctx context.Context, call deviceCall) error {
	d.mu.Lock()
	d.calls = append(d.calls, call)
	d.mu.Unlock()
	if d.fault == nil {
		return nil
	}
	return d.fault(ctx, call)
}

// callsOf returns the calls for a pod in order, such as "Reserve" and "Container main". Calls of Health are not recorded.
func (d *fakeDevices) callsOf(uid string) (lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		if c.uid == uid {
			lines = append(lines, strings.TrimSpace(c.op+" "+c.container))
		}
	}
	return lines
}

// reservedPods returns the sorted UIDs of the pods with reserved devices.
func (d *fakeDevices) reservedPods() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.reserved))
}

// extendedResources returns the sorted names of the extended resources that the container limits.
func extendedResources(container *corev1.Container) (names []string) {
	for name := range container.Resources.Limits {
		if strings.Contains(string(name), "/") {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names
}
