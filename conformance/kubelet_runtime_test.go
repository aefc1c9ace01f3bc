// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"

	"github.com/seed81659283/nodeagent/cri"
	ours "github.com/seed81659283/nodeagent/probe"
)

// runtimeOf is a CRI runtime with one pod. It executes each request at once and records it. Other methods of the embedded
// interfaces panic.
type runtimeOf struct {
	internalapi.RuntimeService
	internalapi.ImageManagerService
	kubecontainer.RuntimeHelper
	kubecontainer.OSInterface

	mu     sync.Mutex
	pod    cri.Pod
	now    time.Time
	record decision
	hooked map[string]bool   // container IDs whose preStop hook ran
	gone   map[string]uint32 // by container name: attempt of the next instance, as the kubelet reads it from log files of removed instances
}

// newRuntimeOf returns a runtime with the pod of a scene, without the containers that a restart of all containers has
// removed.
func newRuntimeOf(s scene) *runtimeOf {
	r := &runtimeOf{now: sceneTime, pod: s.Observed, hooked: map[string]bool{}, gone: map[string]uint32{}}
	r.record.Kills = map[string]string{}
	r.pod.Sandboxes, r.pod.Containers = slices.Clone(s.Observed.Sandboxes), slices.Clone(s.Observed.Containers)
	r.pod.Containers = slices.DeleteFunc(r.pod.Containers, func(c cri.Container) bool {
		former := generationOf(c) < s.generation() && !s.ephemeral(c.Name)
		if former {
			r.gone[c.Name] = c.Attempt + 1
		}
		return former
	})
	return r
}

// manager returns the kubelet's runtime manager on this runtime.
func (r *runtimeOf) manager(ctx context.Context, s scene) kuberuntime.KubeGenericRuntime {
	m, err := kuberuntime.NewConformanceManager(ctx, kuberuntime.ConformanceParts{
		Runtime: r, Images: r, Puller: r, Kubelet: r, OS: r, Hooks: r,
		Liveness: probeFindings{s: s, kind: ours.Liveness}, Startup: probeFindings{s: s, kind: ours.Startup},
	})
	if err != nil {
		panic(err)
	}
	return m
}

// probeFindings returns the probe results of a scene to the kubelet.
type probeFindings struct {
	proberesults.Manager
	s    scene
	kind ours.Kind
}

func (r probeFindings) Get(id kubecontainer.ContainerID) (proberesults.Result, bool) {
	outcome, ok := r.s.Probes[id.ID+" "+r.kind.String()]
	switch outcome {
	case ours.Success:
		return proberesults.Success, ok
	case ours.Failure:
		return proberesults.Failure, ok
	}
	return proberesults.Unknown, ok
}

func (r *runtimeOf) Close(context.Context) error { return nil }

func (r *runtimeOf) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "stand-in"}, nil
}

func (r *runtimeOf) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) (list []*runtimeapi.PodSandbox, err error) {
	for i := range r.pod.Sandboxes {
		st := r.sandboxStatus(&r.pod.Sandboxes[i])
		list = append(list, &runtimeapi.PodSandbox{Id: st.Id, Metadata: st.Metadata, State: st.State, CreatedAt: st.CreatedAt})
	}
	return list, nil
}

func (r *runtimeOf) ListContainers(context.Context, *runtimeapi.ContainerFilter) (list []*runtimeapi.Container, err error) {
	for i := range r.pod.Containers {
		st := r.containerStatus(&r.pod.Containers[i])
		list = append(list, &runtimeapi.Container{
			Id: st.Id, PodSandboxId: r.pod.Containers[i].SandboxID, Metadata: st.Metadata, Image: st.Image, State: st.State,
			CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations,
		})
	}
	return list, nil
}

func (r *runtimeOf) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	for i := range r.pod.Sandboxes {
		if s := &r.pod.Sandboxes[i]; s.ID == id {
			return &runtimeapi.PodSandboxStatusResponse{Status: r.sandboxStatus(s)}, nil
		}
	}
	return nil, os.ErrNotExist
}

func (r *runtimeOf) sandboxStatus(s *cri.Sandbox) *runtimeapi.PodSandboxStatus {
	network := runtimeapi.NamespaceMode(s.Namespaces.Network) // the constants have equal values
	st := &runtimeapi.PodSandboxStatus{
		Id:        s.ID,
		Metadata:  &runtimeapi.PodSandboxMetadata{Name: r.pod.Name, Namespace: r.pod.Namespace, Uid: r.pod.UID, Attempt: s.Attempt},
		State:     runtimeapi.PodSandboxState(s.State),
		CreatedAt: s.CreatedAt.UnixNano(),
		Network:   &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{
			Network: network,
		}}},
	}
	if len(s.IPs) > 0 {
		st.Network.Ip = s.IPs[0]
	}
	return st
}

func (r *runtimeOf) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	if c := r.find(id); c != nil {
		return &runtimeapi.ContainerStatusResponse{Status: r.containerStatus(c)}, nil
	}
	return nil, errGone // the kubelet removes some containers twice
}

// errGone is the error of a runtime for an unknown container.
var errGone = status.Error(codes.NotFound, "gone")

func (r *runtimeOf) find(id string) *cri.Container {
	for i := range r.pod.Containers {
		if r.pod.Containers[i].ID == id {
			return &r.pod.Containers[i]
		}
	}
	return nil
}

func (r *runtimeOf) containerStatus(c *cri.Container) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id:       c.ID,
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: c.Attempt},
		State:    runtimeapi.ContainerState(c.State),
		Labels: map[string]string{
			cri.LabelContainerName: c.Name, cri.LabelPodName: r.pod.Name, cri.LabelPodNamespace: r.pod.Namespace, cri.LabelPodUID: r.pod.UID,
		},
		Annotations: c.Annotations,
		CreatedAt:   c.CreatedAt.UnixNano(), StartedAt: c.StartedAt.UnixNano(), FinishedAt: c.FinishedAt.UnixNano(),
		ExitCode: c.ExitCode, Reason: c.Reason, Image: &runtimeapi.ImageSpec{Image: c.Image.Image}, ImageRef: c.ImageRef,
	}
}

func (r *runtimeOf) StopContainer(_ context.Context, id string, seconds int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.find(id)
	if c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown {
		r.record.kill(id, time.Duration(seconds)*time.Second, r.hooked[id])
		c.ExitCode, c.FinishedAt = 137, r.now
	}
	c.State = cri.ContainerExited
	return nil
}

func (r *runtimeOf) RemoveContainer(_ context.Context, id string) error {
	c := r.find(id)
	if c == nil {
		return nil
	}
	r.gone[c.Name] = max(r.gone[c.Name], c.Attempt+1)
	r.pod.Containers = slices.DeleteFunc(r.pod.Containers, func(c cri.Container) bool { return c.ID == id })
	return nil
}

func (r *runtimeOf) StopPodSandbox(_ context.Context, id string) error {
	for i := range r.pod.Sandboxes {
		if s := &r.pod.Sandboxes[i]; s.ID == id {
			s.State = cri.SandboxNotReady
			r.record.StopSandboxes = append(r.record.StopSandboxes, id)
		}
	}
	return nil
}

func (r *runtimeOf) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	s := cri.Sandbox{ID: "s" + strconv.Itoa(len(r.pod.Sandboxes)), Attempt: config.Metadata.Attempt, CreatedAt: r.now, IPs: []string{"10.0.0.99"}}
	s.Namespaces.Network = cri.NamespaceMode(config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork())
	r.pod.Sandboxes = append(r.pod.Sandboxes, s)
	r.record.Sandbox = strconv.Itoa(int(s.Attempt))
	return s.ID, nil
}

func (r *runtimeOf) CreateContainer(
	_ context.Context, sandbox string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig,
) (string, error) {
	name, attempt := config.Metadata.Name, config.Metadata.Attempt
	if len(r.named(name)) == 0 {
		attempt = r.gone[name]
	}
	target := config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetTargetId()
	r.record.Starts = append(r.record.Starts, started{name, attempt, target})
	c := cri.Container{
		ID: name + "-" + strconv.Itoa(int(attempt)) + "-new", Name: name, SandboxID: sandbox, Attempt: attempt, CreatedAt: r.now,
		Annotations: maps.Clone(config.Annotations),
	}
	r.pod.Containers = append(r.pod.Containers, c)
	return c.ID, nil
}

// named returns the instances of a container.
func (r *runtimeOf) named(name string) []cri.Container {
	return slices.DeleteFunc(slices.Clone(r.pod.Containers), func(c cri.Container) bool { return c.Name != name })
}

func (r *runtimeOf) StartContainer(_ context.Context, id string) error {
	c := r.find(id)
	c.State, c.StartedAt = cri.ContainerRunning, r.now
	return nil
}

// Run runs the preStop hook of a container.
func (r *runtimeOf) Run(
	_ context.Context, id kubecontainer.ContainerID, _ *corev1.Pod, _ *corev1.Container, _ *corev1.LifecycleHandler,
) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hooked[id.ID] = true
	return "", nil
}

func (r *runtimeOf) EnsureImageExists(
	_ context.Context, _ *corev1.ObjectReference, _ *corev1.Pod, image string, _ []corev1.Secret, _ *runtimeapi.PodSandboxConfig,
	_ string, _ corev1.PullPolicy,
) (ref, message string, err error) {
	return image, "", nil
}

func (r *runtimeOf) ImageStatus(context.Context, *runtimeapi.ImageSpec, bool) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "image"}}, nil
}

func (r *runtimeOf) GenerateRunContainerOptions(
	context.Context, *corev1.Pod, *corev1.Container, string, []string, kubecontainer.ImageVolumes,
) (*kubecontainer.RunContainerOptions, func(), error) {
	return &kubecontainer.RunContainerOptions{}, nil, nil
}

func (r *runtimeOf) GetPodDNS(context.Context, *corev1.Pod) (*runtimeapi.DNSConfig, error) {
	return nil, nil
}

func (r *runtimeOf) GetPodCgroupParent(*corev1.Pod) string { return "" }

func (r *runtimeOf) GetExtraSupplementalGroupsForPod(*corev1.Pod) []int64 { return nil }

func (r *runtimeOf) PrepareDynamicResources(context.Context, *corev1.Pod) error { return nil }

func (r *runtimeOf) OnPodSandboxReady(context.Context, *corev1.Pod) error { return nil }

func (r *runtimeOf) MkdirAll(string, os.FileMode) error { return nil }

func (r *runtimeOf) Remove(string) error { return nil }

func (r *runtimeOf) Glob(string) ([]string, error) { return nil, nil }

func (r *runtimeOf) Stat(string) (os.FileInfo, error) { return nil, os.ErrNotExist }

func (r *runtimeOf) GeneratePodHostNameAndDomain(klog.Logger, *corev1.Pod) (host, domain string, err error) {
	return "p", "", nil
}

func (r *runtimeOf) GetOrCreateUserNamespaceMappings(klog.Logger, *corev1.Pod, string) (*runtimeapi.UserNamespace, error) {
	return nil, nil
}
