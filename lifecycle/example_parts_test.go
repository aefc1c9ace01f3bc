// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/qos"
)

// sharedSlice puts all pods into one cgroup, which systemd has created.
type sharedSlice struct {
	active func() (pods []*corev1.Pod, complete bool)
}

// The optional interfaces of a lifecycle.PodCgroups. A wrapper of a podtree.Tree must also have their methods.
var (
	_ lifecycle.CgroupNamer   = &sharedSlice{}
	_ lifecycle.NodeResources = &sharedSlice{}
	_ lifecycle.Follower      = &sharedSlice{}
)

func (*sharedSlice) Exists(context.Context, *corev1.Pod) (bool, error) { return true, nil }
func (*sharedSlice) Ensure(context.Context, *corev1.Pod) error         { return nil }
func (*sharedSlice) Limit(context.Context, *corev1.Pod) error          { return nil }
func (*sharedSlice) Remove(context.Context, string) error              { return nil }

func (*sharedSlice) Resize(context.Context, *corev1.Pod, []cgroups.ContainerResize, cgroups.Resizer) error {
	return nil
}

func (*sharedSlice) CgroupParent() func(pod *corev1.Pod) string {
	return func(*corev1.Pod) string { return "pods.slice" }
}

func (*sharedSlice) Node() qos.Node { return qos.Node{MemoryCapacity: 8 << 30} }

func (s *sharedSlice) Follow(active func() ([]*corev1.Pod, bool), _ func(uid string) bool) {
	s.active = active
}

// preloaded returns the images that the installer of the machine has loaded. No image is ever removed.
type preloaded struct{}

var _ lifecycle.ImageHolder = preloaded{} // the optional interface of a lifecycle.ImageSource

func (preloaded) Ensure(_ context.Context, _ *corev1.Pod, c *corev1.Container, _ *cri.SandboxConfig) (cri.Image, error) {
	return cri.Image{ID: c.Image}, nil
}

func (preloaded) Hold(string) (release func()) { return func() {} }

// meshProbes has the results of readiness probes that a service mesh runs.
type meshProbes struct {
	changed func(uids ...string)

	mu    sync.Mutex
	ready map[probe.Key]string // container IDs of ready containers
}

// The optional interfaces of a lifecycle.Probes.
var (
	_ lifecycle.Notifier     = &meshProbes{} // also of an Observer and of a PodResources
	_ lifecycle.ProbeChecker = &meshProbes{}
)

func (p *meshProbes) Notify(changed func(uids ...string)) { p.changed = changed }

func (p *meshProbes) Check(pod *corev1.Pod) (errs field.ErrorList) {
	for i, c := range pod.Spec.Containers {
		if c.LivenessProbe != nil {
			errs = append(errs, field.Forbidden(field.NewPath("spec", "containers").Index(i).Child("livenessProbe"), "the mesh kills no container"))
		}
	}
	return errs
}

func (p *meshProbes) Sync(pod *corev1.Pod, status *corev1.PodStatus) error {
	for _, c := range status.ContainerStatuses {
		if c.State.Running == nil {
			continue
		}
		key := probe.Key{PodUID: string(pod.UID), Container: c.Name, Kind: probe.Readiness}
		p.mu.Lock()
		_, known := p.ready[key]
		_, p.ready[key], _ = strings.Cut(c.ContainerID, "://") // without the name of the runtime
		p.mu.Unlock()
		if !known {
			p.changed(string(pod.UID)) // the mesh has reported a result
		}
	}
	return nil
}

func (p *meshProbes) Result(k probe.Key) (probe.Value, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, ok := p.ready[k]
	return probe.Value{ContainerID: id, Outcome: probe.Success}, ok
}

func (*meshProbes) Remove(string) {}

// offlineObjects has its own config maps and secrets, and no services before the first contact with the cluster.
type offlineObjects struct{ objects.Memory }

func (*offlineObjects) Services(context.Context, string) ([]*corev1.Service, error) {
	return nil, fmt.Errorf("the cluster was not reached yet: %w", lifecycle.ErrServicesUnknown) // static pods start without services
}

// Each part of an agent can be replaced: its interface is small, and further interfaces are optional. New uses the optional
// interfaces that a part implements.
func ExampleOptions_ownParts() {
	runtime := critest.New(critest.Options{})
	slice, mesh := &sharedSlice{}, &meshProbes{ready: map[probe.Key]string{}}
	reconciler, err := lifecycle.New(runtime, pleg.New(runtime, pleg.Options{}), lifecycle.Options{
		Cgroups: slice, Images: preloaded{}, Probes: mesh, Objects: &offlineObjects{},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("connected:", slice.active != nil, mesh.changed != nil)

	exec := corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check"}}}
	pod, err := source.Static(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "nginx", LivenessProbe: &corev1.Probe{ProbeHandler: exec}}}},
	}, source.Origin{})
	if err != nil {
		fmt.Println(err)
	}
	err = reconciler.Set(lifecycle.PodSet{Source: "example", Pods: []*corev1.Pod{pod}})
	fmt.Println("refused:", err != nil && strings.Contains(err.Error(), "the mesh kills no container"))
	// Output:
	// connected: true true
	// refused: true
}

// fpgas are devices whose containers start again when an FPGA has lost its bitstream.
type fpgas struct {
	lifecycle.Devices
	lost time.Time
}

// FailedAt returns the time of the loss.
func (f *fpgas) FailedAt(string, string) time.Time { return f.lost }

// An implementation of Devices that also has the method FailedAt restarts containers.
func ExampleDeviceFailures() {
	var devices lifecycle.Devices = &fpgas{lost: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)}
	failures, ok := devices.(lifecycle.DeviceFailures)
	fmt.Println(ok, failures.FailedAt("uid", "main"))
	// Output: true 2026-11-28 12:00:00 +0000 UTC
}

// PrepareStart binds the FPGA to a container that the runtime has created.
func (f *fpgas) PrepareStart(_ context.Context, pod *corev1.Pod, container *corev1.Container, id string) error {
	fmt.Printf("bind the FPGA of %s/%s to container %s\n", pod.Name, container.Name, id)
	return nil
}

// An implementation of Devices that also has the method PrepareStart knows the ID of each container before it starts.
func ExampleStartPreparer() {
	var devices lifecycle.Devices = &fpgas{}
	preparer, ok := devices.(lifecycle.StartPreparer)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "codec"}}
	fmt.Println(ok, preparer.PrepareStart(context.Background(), pod, &corev1.Container{Name: "main"}, "4f1d"))
	// Output:
	// bind the FPGA of codec/main to container 4f1d
	// true <nil>
}

// quietObserver is an observer without a Notify method.
type quietObserver struct{ lifecycle.Observer }

// The garbage collection of images and containers calls the reconciler for the pods in use. The program passes changes of an
// observer that is no Notifier to the reconciler.
func ExampleReconciler_IsManaged() {
	runtime := critest.New(critest.Options{})
	generator := pleg.New(runtime, pleg.Options{})
	reconciler, err := lifecycle.New(runtime, quietObserver{generator}, lifecycle.Options{Owner: "edge-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	generator.Notify(reconciler.Changed) // a lifecycle.Notifier is connected by lifecycle.New

	images, err := gc.NewImages(runtime, runtime, gc.ImageOptions{PodImages: reconciler.ImagesInUse})
	fmt.Println(images != nil, err)
	containers, err := gc.NewContainers(runtime, gc.ContainerOptions{
		Pod: gc.OwnedBy(reconciler.IsManaged),
		MayRemove: func(labels map[string]string) bool {
			_, ofAgent := labels[lifecycle.LabelOwner]
			return ofAgent // not of another user of the runtime
		},
	})
	fmt.Println(containers != nil, err)
	fmt.Println("owned while it does not run:", reconciler.IsManaged("1"))
	// Output:
	// true <nil>
	// true <nil>
	// owned while it does not run: true
}
