// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	nodefeatures "k8s.io/component-helpers/nodedeclaredfeatures/types"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/qos"
)

func TestResize(t *testing.T)       { run(t, resizes) }
func FuzzResize(f *testing.F)       { fuzz(f, resizes) }
func TestResizeStatus(t *testing.T) { run(t, resizeStatuses) }
func FuzzResizeStatus(f *testing.F) { fuzz(f, resizeStatuses) }

// gates returns the feature gates of the kubelet.
type gates struct{}

func (gates) Enabled(name string) bool {
	return utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(name))
}

func TestDeclaredFeatures(t *testing.T) {
	ours := append(nodestatus.DeclaredFeatures(), "ExtendWebSocketsToKubelet") // an agent with an HTTP API adds this feature
	slices.Sort(ours)
	kubelets := nodedeclaredfeatures.DefaultFramework.DiscoverNodeFeatures(&nodefeatures.NodeConfiguration{FeatureGates: gates{}})
	if !slices.Equal(kubelets, ours) {
		t.Errorf("the kubelet declares %q, ours %q", kubelets, ours)
	}
}

// resizeInput is a pod with its allocated resources, and a copy with the resources in force.
type resizeInput struct {
	Allocated, InForce *corev1.Pod
	Observed           cri.Pod
}

// makeResized returns a pod during a resize of random containers and resources, and of pod-level resources.
func makeResized(c *conformance.Choices) resizeInput {
	in := resizeInput{Allocated: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u1"}}}
	spec := &in.Allocated.Spec
	spec.SecurityContext, spec.RestartPolicy = &corev1.PodSecurityContext{}, corev1.RestartPolicyAlways
	for i := range conformance.Pick(c, 0, 0, 1, 2) {
		init := resizedContainer(c, "init"+strconv.Itoa(i))
		if c.OneIn(2) {
			init.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		} else {
			init.ResizePolicy = nil // API servers accept only the default for init containers
		}
		spec.InitContainers = append(spec.InitContainers, init)
	}
	for i := range conformance.Pick(c, 1, 1, 2, 3) {
		spec.Containers = append(spec.Containers, resizedContainer(c, "web"+strconv.Itoa(i)))
	}
	if c.OneIn(2) {
		spec.Resources = new(resizedAmounts(c, true))
	}
	in.InForce = in.Allocated.DeepCopy()
	if c.OneIn(2) {
		if spec.Resources != nil {
			in.InForce.Spec.Resources = conformance.Pick(c, nil, new(withoutMissing(resizedAmounts(c, true), *spec.Resources)), spec.Resources)
		}
	}
	for _, list := range [][]corev1.Container{in.InForce.Spec.InitContainers, in.InForce.Spec.Containers} {
		for i := range list {
			if c.OneIn(2) {
				list[i].Resources = withoutMissing(resizedAmounts(c, false), list[i].Resources)
			}
		}
	}
	in.observe(c)
	return in
}

func resizedContainer(c *conformance.Choices, name string) corev1.Container {
	ctr := corev1.Container{Name: name, Image: "v1", Resources: resizedAmounts(c, false)}
	for _, resourceName := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if c.OneIn(3) {
			ctr.ResizePolicy = append(ctr.ResizePolicy, corev1.ContainerResizePolicy{
				ResourceName: resourceName, RestartPolicy: conformance.Pick(c, corev1.NotRequired, corev1.RestartContainer),
			})
		}
	}
	return ctr
}

// resizedAmounts returns requests and limits with the defaults of an API server: a limit implies a request.
func resizedAmounts(c *conformance.Choices, whole bool) (r corev1.ResourceRequirements) {
	amounts := map[corev1.ResourceName][3]string{
		corev1.ResourceCPU: {"5m", "100m", "1"}, corev1.ResourceMemory: {"16Mi", "64Mi", "1Gi"},
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := c.Int(4), c.Int(4) // 3: none
		if request == 3 && whole {
			request = 0
		}
		if request < 3 {
			setAmount(&r.Requests, name, amounts[name][request])
		}
		if limit < 3 && (request == 3 || request <= limit) {
			setAmount(&r.Limits, name, amounts[name][limit])
			if request == 3 {
				setAmount(&r.Requests, name, amounts[name][limit])
			}
		}
	}
	return r
}

// withoutMissing returns r without the resources that all does not have: by a resize, an API server permits adding requests and
// limits, but not removing them.
func withoutMissing(r, all corev1.ResourceRequirements) corev1.ResourceRequirements {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, ok := all.Requests[name]; !ok {
			delete(r.Requests, name)
		}
		if _, ok := all.Limits[name]; !ok {
			delete(r.Limits, name)
		}
	}
	return r
}

func setAmount(list *corev1.ResourceList, name corev1.ResourceName, amount string) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = resource.MustParse(amount)
}

// observe adds the observed containers: regular containers and sidecars run, or an init container that is no sidecar.
func (in *resizeInput) observe(c *conformance.Choices) {
	spec := &in.Allocated.Spec
	in.Observed = cri.Pod{
		PodIdentity: cri.PodIdentity{UID: "u1", Name: "p", Namespace: "default"},
		Sandboxes:   []cri.Sandbox{{ID: "s0", IPs: []string{"10.0.0.1"}, CreatedAt: sceneTime.Add(-2e12)}},
	}
	in.Observed.Sandboxes[0].Pod = in.Observed.PodIdentity
	running := len(spec.InitContainers) // index of the running init container
	if c.OneIn(3) && running > 0 {
		running = c.Int(running)
	}
	add := func(ctr *corev1.Container, state cri.ContainerState) {
		instance := cri.Container{
			ID: ctr.Name + "-0", Name: ctr.Name, PodUID: "u1", SandboxID: "s0", State: state, Image: cri.ImageSpec{Image: ctr.Image},
			CreatedAt: sceneTime.Add(-1e12), StartedAt: sceneTime.Add(-9e11),
			Annotations: map[string]string{podspec.AnnotationHash: podspec.Hash(ctr), podspec.AnnotationRestartCount: "0"},
		}
		if state == cri.ContainerExited {
			instance.FinishedAt = sceneTime.Add(-8e11)
		}
		in.Observed.Containers = append(in.Observed.Containers, instance)
	}
	for i := range spec.InitContainers[:min(running+1, len(spec.InitContainers))] {
		ctr := &spec.InitContainers[i]
		if sidecar(ctr) || i == running {
			add(ctr, cri.ContainerRunning)
		} else {
			add(ctr, cri.ContainerExited)
		}
	}
	if running < len(spec.InitContainers) {
		return
	}
	for i := range spec.Containers {
		add(&spec.Containers[i], conformance.Pick(c, cri.ContainerRunning, cri.ContainerRunning, cri.ContainerRunning, cri.ContainerExited))
	}
}

// decision returns the decision of nodeagent.
func (in resizeInput) decision() resize.Decision {
	told := map[string]cgroups.ContainerSize{}
	for i := range in.Observed.Containers {
		instance := &in.Observed.Containers[i]
		for _, list := range [][]corev1.Container{in.InForce.Spec.InitContainers, in.InForce.Spec.Containers} {
			for j := range list {
				if list[j].Name == instance.Name {
					told[instance.ID] = resize.SizeOf(&in.InForce.Spec, &list[j])
				}
			}
		}
	}
	return resize.Decide(resize.State{
		Pod: in.Allocated, Observed: in.Observed, Allocated: resize.AllocationOf(in.Allocated), SentSizes: told,
		CgroupSizes: resize.SizesOf(in.InForce),
	})
}

var resizes = conformance.Comparison[resizeInput, kuberuntime.ConformanceResize]{
	Make: makeResized,
	Kubelet: func(in resizeInput) kuberuntime.ConformanceResize {
		ctx := context.Background()
		s := scene{Pod: in.Allocated, Observed: in.Observed}
		m := newRuntimeOf(s).manager(ctx, s)
		out, err := kuberuntime.NewConformanceResize(ctx, m, in.Allocated.DeepCopy(), in.InForce.DeepCopy(), podStatus(ctx, m, s))
		if err != nil {
			panic(err)
		}
		return out
	},
	Ours: func(in resizeInput) kuberuntime.ConformanceResize {
		out := kuberuntime.ConformanceResize{Update: map[string]bool{}, Restart: map[string]bool{}}
		d := in.decision()
		a := plan.Plan(plan.State{Pod: d.Pod, Observed: in.Observed, Now: sceneTime, Resize: d})
		for _, r := range a.Resize {
			out.Update[r.Name] = true
		}
		for _, k := range a.Kill {
			out.Restart[k.Name] = true
		}
		out.InProgress = d.InProgress
		return out
	},
	Exceptions: []conformance.Exception[resizeInput, kuberuntime.ConformanceResize]{{
		Name:   "pod-level resources added",
		Reason: "pod-level resources that are added to a running pod are in progress until its cgroup has them",
		When: func(in resizeInput) bool {
			return in.InForce.Spec.Resources == nil && in.Allocated.Spec.Resources != nil && in.hasRunning()
		},
		Want: func(_ resizeInput, kubelet kuberuntime.ConformanceResize) kuberuntime.ConformanceResize {
			kubelet.InProgress = true
			return kubelet
		},
	}, {
		Name:   "init container that runs",
		Reason: "the resize of an init container is in progress until it is applied; the kubelet reports no condition for it",
		When:   func(in resizeInput) bool { return in.initDiffers() },
		Want: func(_ resizeInput, kubelet kuberuntime.ConformanceResize) kuberuntime.ConformanceResize {
			kubelet.InProgress = true
			return kubelet
		},
	}, {
		Name:   "shares of the limit",
		Reason: "a container without a CPU request has the shares of its limit, so that adding an equal request changes nothing",
		When:   func(in resizeInput) bool { return in.requestIsLimit() },
	}, {
		Name:   "nothing runs",
		Reason: "a pod without running containers has no resize in progress; the kubelet waits for the cgroup of the pod",
		When:   func(in resizeInput) bool { return !in.hasRunning() },
		Want: func(_ resizeInput, kubelet kuberuntime.ConformanceResize) kuberuntime.ConformanceResize {
			kubelet.InProgress = false
			return kubelet
		},
	}},
}

// initDiffers reports whether the resources in force of a running init container, which is no sidecar, differ from the
// allocated ones.
func (in resizeInput) initDiffers() bool {
	d := in.decision()
	return slices.ContainsFunc(d.Containers, func(r resize.Container) bool {
		i := slices.IndexFunc(in.Allocated.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == r.Name })
		return i >= 0 && !sidecar(&in.Allocated.Spec.InitContainers[i])
	})
}

// requestIsLimit reports whether a CPU request is added to a container without one that has a CPU limit, possibly of its
// pod.
func (in resizeInput) requestIsLimit() bool {
	was, is := slices.Concat(in.InForce.Spec.InitContainers, in.InForce.Spec.Containers), slices.Concat(in.Allocated.Spec.InitContainers, in.Allocated.Spec.Containers)
	return slices.ContainsFunc(was, func(c corev1.Container) bool {
		to := is[slices.IndexFunc(is, func(o corev1.Container) bool { return o.Name == c.Name })]
		_, had := c.Resources.Requests[corev1.ResourceCPU]
		_, has := to.Resources.Requests[corev1.ResourceCPU]
		return !had && (has && resize.SizeOf(&in.InForce.Spec, &c).CPULimit > 0)
	})
}

// hasRunning reports whether a container of the pod is running.
func (in resizeInput) hasRunning() bool {
	return slices.ContainsFunc(in.Observed.Containers, func(c cri.Container) bool { return c.State == cri.ContainerRunning })
}

// podAmounts has the CPU and memory of requests and limits.
type podAmounts struct{ CPURequest, MemoryRequest, CPULimit, MemoryLimit string }

func amountsOf(r *corev1.ResourceRequirements) podAmounts {
	return podAmounts{r.Requests.Cpu().String(), r.Requests.Memory().String(), r.Limits.Cpu().String(), r.Limits.Memory().String()}
}

var resizeStatuses = conformance.Comparison[resizeInput, podAmounts]{
	Make: func(c *conformance.Choices) resizeInput {
		in := makeResized(c)
		in.Allocated.Status.Phase = conformance.Pick(c, corev1.PodRunning, corev1.PodRunning, corev1.PodPending)
		in.Observed.Containers = nil
		if in.Allocated.Status.Phase == corev1.PodPending {
			return in
		}
		add := func(ctr *corev1.Container, state cri.ContainerState) {
			in.Observed.Containers = append(in.Observed.Containers, cri.Container{ID: ctr.Name + "-0", Name: ctr.Name, SandboxID: "s0", State: state})
		}
		for i := range in.Allocated.Spec.InitContainers {
			if ctr := &in.Allocated.Spec.InitContainers[i]; sidecar(ctr) {
				add(ctr, cri.ContainerRunning)
			} else {
				add(ctr, cri.ContainerExited)
			}
		}
		for i := range in.Allocated.Spec.Containers {
			add(&in.Allocated.Spec.Containers[i], cri.ContainerRunning)
		}
		return in
	},
	Kubelet: func(in resizeInput) podAmounts {
		return amountsOf(kubelet.ConformancePodResources(in.Allocated.DeepCopy(), in.InForce.DeepCopy()))
	},
	Ours: func(in resizeInput) podAmounts {
		st := podstatus.Of(in.Allocated, in.Observed, podstatus.Input{Now: sceneTime, Resize: in.decision()})
		if st.Phase != in.Allocated.Status.Phase {
			panic("unexpected phase " + st.Phase)
		}
		return amountsOf(st.Resources)
	},
	Exceptions: []conformance.Exception[resizeInput, podAmounts]{{
		Name:   "one weight for two requests",
		Reason: "the CPU request in force is computed from the cgroup's shares; the kubelet reports the allocated request if both have the same cpu.weight",
		When: func(in resizeInput) bool {
			allocated := int64(0)
			if r := in.Allocated.Spec.Resources; r != nil {
				allocated = r.Requests.Cpu().MilliValue()
			}
			return in.Allocated.Status.Phase == corev1.PodRunning && max(in.requestInForce(), allocated) > 2 &&
				cm.CPUSharesEqualAfterV2RoundTrip(cgroups.CPUShares(allocated), cgroups.CPUShares(in.requestInForce()))
		},
		Want: func(in resizeInput, kubelet podAmounts) podAmounts {
			kubelet.CPURequest = resource.NewMilliQuantity(in.requestInForce(), resource.DecimalSI).String()
			return kubelet
		},
	}},
}

// requestInForce returns the CPU request that corresponds to the shares of the pod's cgroup.
func (in resizeInput) requestInForce() int64 {
	return cgroups.SharesToMilli(cgroups.CPUShares(qos.CPURequest(in.InForce)))
}
