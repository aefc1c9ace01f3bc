// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddevice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/listener"
	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/admission"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/qos"
)

// Options configures [Devices]. The zero value keeps no record.
type Options struct {
	Allocator device.Options // zero: no record, and no NUMA nodes
	// Runtime lists the containers whose annotations restore a lost record. Nil: Allocator.Running lists them.
	Runtime cri.Lister
	// IsManaged reports whether a source lists the pod with this UID, or the pod is being removed. The devices of other pods are released. Nil: only
	// Release releases devices. *lifecycle.Handle and *lifecycle.Reconciler have this method.
	IsManaged func(uid string) bool
	// Unhealthy is the reaction to a device that becomes unhealthy. A device that no plugin lists causes no reaction. Empty: the health is only in
	// the container status, as in the kubelet.
	Unhealthy Reaction
	// Evict evicts a pod. *lifecycle.Handle and *lifecycle.Reconciler have this method. Nil: no pod is evicted, and Unhealthy cannot be [EvictPod].
	Evict func(ctx context.Context, uid string, eviction podstatus.Eviction) error
}

// Reaction is the reaction to a device that becomes unhealthy while containers hold it.
type Reaction string

// The reactions to an unhealthy device.
const (
	// EvictPod evicts the pod, so that its controller replaces it.
	EvictPod Reaction = "Evict"
	// RestartContainer restarts the container, once: the new instance has the same device, which its plugin may repair in PreStartContainer.
	RestartContainer Reaction = "Restart"
)

// ReasonUnhealthyDevice is the reason of evictions of pods with an unhealthy device.
const ReasonUnhealthyDevice = "UnhealthyDevice"

// Devices gives the containers of pods their devices. Create it with [New].
type Devices struct {
	allocator *device.Allocator
	isManaged func(uid string) bool
	evict     func(ctx context.Context, uid string, eviction podstatus.Eviction) error // nil: pods are not evicted
	failures  *failures                                                                // nil: containers are not restarted
	report    func(error)
	listeners listener.List
	changed   chan struct{} // wakes Run after a change of health
}

// New returns Devices with an allocator of their own. Functions registered by Notify are called in addition to Hooks.PodsChanged of the allocator.
// New starts no goroutine; call [Devices.Run]. It returns an error for an unknown Unhealthy, for [EvictPod] without Evict, and the errors of
// [device.New].
func New(opts Options) (*Devices, error) {
	d := &Devices{isManaged: opts.IsManaged, changed: make(chan struct{}, 1)}
	o := opts.Allocator
	switch {
	case opts.Unhealthy == EvictPod && opts.Evict == nil:
		return nil, errors.New("poddevice: Options.Evict is nil: it is required where Options.Unhealthy is Evict")
	case opts.Unhealthy == EvictPod:
		d.evict = opts.Evict
	case opts.Unhealthy == RestartContainer:
		d.failures = &failures{at: map[string]map[string]time.Time{}}
	case opts.Unhealthy != "":
		return nil, fmt.Errorf("poddevice: Options.Unhealthy is %q, want Evict, Restart or nothing", opts.Unhealthy)
	}
	hook := o.Hooks.PodsChanged
	o.Hooks.PodsChanged = func(uids []string) {
		if hook != nil {
			hook(uids)
		}
		if d.failures != nil {
			d.failures.recordHealth(d.allocator, uids, time.Now())
		}
		d.listeners.Call(uids...)
		sleep.Wake(d.changed)
	}
	if opts.Runtime != nil {
		o.Running = func(ctx context.Context) ([]device.RunningContainer, error) { return listContainers(ctx, opts.Runtime) }
	}
	d.report = func(err error) {
		if o.Logger != nil {
			o.Logger.Error("devices", "error", err)
		}
		if o.Hooks.Error != nil {
			o.Hooks.Error(err)
		}
	}
	var err error
	if d.allocator, err = device.New(o); err != nil {
		return nil, err
	}
	return d, nil
}

// listContainers returns the containers of the runtime that have not exited.
func listContainers(ctx context.Context, runtime cri.Lister) (list []device.RunningContainer, err error) {
	snapshot, err := runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range snapshot.Containers {
		c := &snapshot.Containers[i]
		if c.State == cri.ContainerExited {
			continue
		}
		list = append(list, device.RunningContainer{
			PodUID: c.PodUID, Namespace: c.Labels[cri.LabelPodNamespace], Name: c.Labels[cri.LabelPodName], Container: c.Name,
			Note: c.Annotations[device.AnnotationDevices],
		})
	}
	return list, nil
}

// Allocator returns the allocator, to which plugins are connected.
func (d *Devices) Allocator() *device.Allocator { return d.allocator }

// lookPeriod is the time between two checks for pods that are not managed. Run also retries failed evictions then.
const lookPeriod = time.Minute

// evictTimeout limits how long Run waits for evictions before it checks for further pods with unhealthy devices.
const evictTimeout = 30 * time.Second

// Run runs the allocator, releases the devices of pods that are not managed, and evicts pods with unhealthy devices, until ctx ends. It must be
// called only once.
func (d *Devices) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() {
		ticker := time.NewTicker(lookPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				d.releaseUnmanaged()
			case <-d.changed:
			}
			d.evictUnhealthy(ctx)
		}
	})
	return d.allocator.Run(ctx)
}

// releaseUnmanaged releases the devices of pods that are not managed.
func (d *Devices) releaseUnmanaged() {
	if d.isManaged == nil {
		return
	}
	if err := d.allocator.Retain(d.isManaged); err != nil {
		d.report(err) // the devices are free; the next change writes the record
	}
}

// evictUnhealthy evicts the pods that hold an unhealthy device.
func (d *Devices) evictUnhealthy(ctx context.Context) {
	if d.evict == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, evictTimeout) // an eviction in progress continues
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for uid, containers := range d.allocator.Allocations() {
		message := d.describeUnhealthy(uid, containers)
		if message == "" {
			continue
		}
		wg.Go(func() {
			err := d.evict(ctx, uid, podstatus.Eviction{Reason: ReasonUnhealthyDevice, Message: message})
			if err != nil && ctx.Err() == nil {
				d.report(fmt.Errorf("evict pod %s with an unhealthy device: %w", uid, err))
			}
		})
	}
}

// describeUnhealthy returns the message about an unhealthy device of a pod, or "".
func (d *Devices) describeUnhealthy(uid string, containers map[string]map[string][]device.Device) string {
	for _, container := range slices.Sorted(maps.Keys(containers)) {
		if h := findUnhealthy(d.allocator, uid, container); h != nil {
			return fmt.Sprintf("Device %s of resource %s of container %s is unhealthy", h.ID, h.Resource, container)
		}
	}
	return ""
}

// Notify registers fn. fn is called with the UIDs of pods whose devices have changed their health, or whose wait for a plugin has ended.
func (d *Devices) Notify(fn func(uids ...string)) { d.listeners.Add(fn) }

// Reserve reserves all devices of a pod, or none. It returns a [*podstatus.Rejection] for a pod that can never have its devices. After another error,
// Reserve may be called again.
func (d *Devices) Reserve(ctx context.Context, pod *corev1.Pod) error {
	return d.ReserveWith(ctx, pod)
}

// ReserveWith reserves all devices of a pod together with the resources of partners, or nothing. Its errors are those of Reserve.
func (d *Devices) ReserveWith(ctx context.Context, pod *corev1.Pod, partners ...device.Partner) error {
	converted, err := FromPod(pod)
	if err != nil {
		return err
	}
	err = d.allocator.Reserve(ctx, converted, partners...)
	if refusal, ok := errors.AsType[*device.Refusal](err); ok {
		return &podstatus.Rejection{Reason: refusal.Reason, Message: refusal.Message, Explanation: refusal.Detail}
	}
	return err
}

// Container adds the devices of a container to launch. It calls PreStartContainer of each plugin that has requested this call.
func (d *Devices) Container(ctx context.Context, pod *corev1.Pod, container *corev1.Container, launch *podspec.Launch) error {
	response, err := d.allocator.Start(ctx, string(pod.UID), container.Name)
	if err != nil {
		return err
	}
	if name := findLimit(container); name != "" && d.allocator.Allocations()[string(pod.UID)] == nil {
		return fmt.Errorf("start container %s of pod %s/%s: it limits %s, and the devices of the pod are not reserved: call Reserve first",
			container.Name, pod.Namespace, pod.Name, name)
	}
	launch.Env = append(launch.Env, response.EnvVars()...)
	launch.Mounts = append(launch.Mounts, response.Mounts...)
	launch.Devices = append(launch.Devices, response.Devices...)
	launch.CDIDevices = append(launch.CDIDevices, response.CDIDevices...)
	if len(response.Annotations) > 0 {
		annotations := response.Annotations
		maps.Copy(annotations, launch.Annotations) // those of the agent win
		launch.Annotations = annotations
	}
	return nil
}

// Health returns the devices of a container for the field allocatedResourcesStatus of its status, by resource and ID.
func (d *Devices) Health(uid, container string) (list []corev1.ResourceStatus) {
	for _, h := range d.allocator.Health(uid, container) {
		if len(list) == 0 || string(list[len(list)-1].Name) != h.Resource {
			list = append(list, corev1.ResourceStatus{Name: corev1.ResourceName(h.Resource)})
		}
		last := &list[len(list)-1]
		last.Resources = append(last.Resources, corev1.ResourceHealth{ResourceID: corev1.ResourceID(h.ID), Health: corev1.ResourceHealthStatus(h.Health)})
	}
	return list
}

// Release frees the devices of the pod with this UID. A pod without devices is no error.
func (d *Devices) Release(_ context.Context, uid string) error {
	if d.failures != nil {
		d.failures.removePod(uid)
	}
	return d.allocator.Release(uid)
}

// Capacity returns the number of devices and of healthy devices of each resource, for the status of the Node. removed are resources that have
// lost their plugin.
func (d *Devices) Capacity() (capacity, allocatable corev1.ResourceList, removed []corev1.ResourceName) {
	capacity, allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	for _, r := range d.allocator.Resources() {
		name := corev1.ResourceName(r.Name)
		if r.Removed {
			removed = append(removed, name)
			continue
		}
		capacity[name] = *resource.NewQuantity(int64(r.Capacity), resource.DecimalSI)
		allocatable[name] = *resource.NewQuantity(int64(r.Allocatable), resource.DecimalSI)
	}
	return capacity, allocatable, removed
}

// WithoutDevices returns node without the resources of device plugins, for the admission checks. Reserve allocates these resources after the checks,
// and plugins may not have listed them yet. d and node may be nil.
func (d *Devices) WithoutDevices(node *corev1.Node) *corev1.Node {
	if d == nil || node == nil {
		return node
	}
	return admission.WithoutResources(node, func(name corev1.ResourceName) bool { return d.allocator.Manages(string(name)) })
}

// findLimit returns the name of an extended resource that a container limits, or "".
func findLimit(container *corev1.Container) corev1.ResourceName {
	for _, name := range slices.Sorted(maps.Keys(container.Resources.Limits)) {
		if limit := container.Resources.Limits[name]; podfield.IsExtendedResource(name) && limit.Sign() > 0 {
			return name
		}
	}
	return ""
}

// ActivePods returns a function that converts the active pods of source, which *lifecycle.Handle and *lifecycle.Reconciler implement. It is for
// podresources.PodsFunc, and returns no inactive pods.
func ActivePods(source interface {
	Active() (pods []*corev1.Pod, complete bool)
},
) func() (active, inactive []device.Pod) {
	return func() (active, inactive []device.Pod) {
		pods, _ := source.Active()
		return FromPods(pods), nil
	}
}

// FromPods converts pods, except those that [FromPod] refuses.
func FromPods(pods []*corev1.Pod) (list []device.Pod) {
	for _, pod := range pods {
		if converted, err := FromPod(pod); err == nil {
			list = append(list, converted)
		}
	}
	return list
}

// FromPod converts a pod, with the limits of its init containers, sidecars and regular containers for extended resources. A negative limit, or
// one of more than [device.MaxDevices], is an error.
func FromPod(pod *corev1.Pod) (device.Pod, error) {
	out := device.Pod{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, PodLevel: qos.HasPodLevelResources(pod)}
	add := func(list []corev1.Container, kind device.ContainerKind) error {
		for i := range list {
			c := device.Container{Name: list[i].Name, Kind: kind, Limits: map[string]int{}}
			if kind == device.Init && list[i].RestartPolicy != nil && *list[i].RestartPolicy == corev1.ContainerRestartPolicyAlways {
				c.Kind = device.Sidecar
			}
			for name, limit := range list[i].Resources.Limits {
				if !podfield.IsExtendedResource(name) {
					continue
				}
				count := limit.Value()
				if count < 0 || count > device.MaxDevices {
					return fmt.Errorf("pod %s/%s, container %s: limit %s of %s is not between 0 and %d", pod.Namespace, pod.Name, c.Name, limit.String(), name, device.MaxDevices)
				}
				c.Limits[string(name)] = int(count)
			}
			out.Containers = append(out.Containers, c)
		}
		return nil
	}
	err := add(pod.Spec.InitContainers, device.Init)
	if err == nil {
		err = add(pod.Spec.Containers, device.Regular)
	}
	return out, err
}
