// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/probe"
)

// scene is a desired pod, with the observations of the runtime and the probe results.
type scene struct {
	Pod      *corev1.Pod
	Observed cri.Pod
	Probes   map[string]probe.Outcome // by container ID and kind, such as "web-0 liveness"
}

// sceneTime is the current time of all scenes. They contain no later times.
var sceneTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// probeResults returns the probe results of the scene to nodeagent.
func (s scene) probeResults(k probe.Key) (probe.Value, bool) {
	for i := range s.Observed.Containers {
		c := &s.Observed.Containers[i]
		if c.Name != k.Container || c.State != cri.ContainerRunning {
			continue
		}
		if outcome, ok := s.Probes[c.ID+" "+k.Kind.String()]; ok {
			return probe.Value{ContainerID: c.ID, Outcome: outcome}, true
		}
	}
	return probe.Value{}, false
}

// newScene returns a pod in a random state, which may be impossible in practice.
func newScene(c *conformance.Choices) scene {
	s := scene{Pod: scenePod(c), Probes: map[string]probe.Outcome{}}
	s.Observed.PodIdentity = cri.PodIdentity{UID: string(s.Pod.UID), Name: s.Pod.Name, Namespace: s.Pod.Namespace}
	s.sandboxes(c)
	generation := 0
	if c.OneIn(8) {
		generation = conformance.Pick(c, 1, 2)
	}
	for _, spec := range s.specs() {
		s.instances(c, spec, generation)
	}
	if c.OneIn(10) {
		s.instances(c, &corev1.Container{Name: "former", Image: "v1"}, generation)
	}
	return s
}

func scenePod(c *conformance.Choices) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u1"}}
	spec := &pod.Spec
	spec.SecurityContext = &corev1.PodSecurityContext{} // the default of the API server
	spec.RestartPolicy = conformance.Pick(c, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	spec.TerminationGracePeriodSeconds = conformance.Pick(c, new(int64(30)), nil, new(int64(0)), new(int64(1)), new(int64(5)))
	spec.HostNetwork = c.OneIn(8)
	if c.OneIn(16) {
		pod.DeletionTimestamp = &metav1.Time{Time: sceneTime}
		pod.DeletionGracePeriodSeconds = conformance.Pick(c, new(int64(30)), nil, new(int64(0)), new(int64(1)), new(int64(10)))
	}
	for i := range conformance.Pick(c, 1, 1, 2, 3) {
		spec.Containers = append(spec.Containers, sceneContainer(c, "web"+strconv.Itoa(i), false))
	}
	for i := range conformance.Pick(c, 0, 0, 1, 1, 2, 3) {
		spec.InitContainers = append(spec.InitContainers, sceneContainer(c, "init"+strconv.Itoa(i), true))
	}
	if c.OneIn(6) {
		spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "v1"},
			TargetContainerName:      conformance.Pick(c, "", "web0", "init0", "nobody"),
		}}
	}
	return pod
}

// sceneContainer returns a random container of a spec.
func sceneContainer(c *conformance.Choices, name string, initial bool) corev1.Container {
	ctr := corev1.Container{Name: name, Image: "v1"}
	always := corev1.ContainerRestartPolicyAlways
	switch {
	case initial && c.OneIn(3):
		ctr.RestartPolicy = &always
	case c.OneIn(3):
		policy := conformance.Pick(c, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure, always)
		if initial && policy == always {
			policy = corev1.ContainerRestartPolicyNever // otherwise it would be a sidecar
		}
		ctr.RestartPolicy = &policy
		for range conformance.Pick(c, 0, 1, 2) {
			ctr.RestartPolicyRules = append(ctr.RestartPolicyRules, sceneRule(c))
		}
	}
	if !initial || ctr.RestartPolicy == &always {
		ctr.LivenessProbe, ctr.StartupProbe = sceneProbe(c), sceneProbe(c)
	}
	if c.OneIn(6) {
		ctr.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"bye"}}}}
	}
	return ctr
}

func sceneRule(c *conformance.Choices) corev1.ContainerRestartRule {
	rule := corev1.ContainerRestartRule{
		Action: corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
			Operator: conformance.Pick(c, corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn),
			Values:   []int32{conformance.Pick[int32](c, 0, 1, 42, 137)},
		},
	}
	if c.OneIn(4) {
		rule.Action = corev1.ContainerRestartRuleActionRestartAllContainers
	}
	return rule
}

func sceneProbe(c *conformance.Choices) *corev1.Probe {
	if !c.OneIn(4) {
		return nil
	}
	return &corev1.Probe{TerminationGracePeriodSeconds: conformance.Pick(c, nil, nil, new(int64(1)), new(int64(60)))}
}

// sandboxes adds the sandboxes of the pod, the newest last.
func (s *scene) sandboxes(c *conformance.Choices) {
	n := conformance.Pick(c, 1, 1, 1, 1, 0, 2, 3)
	first := conformance.Pick(c, 0, 0, 1)
	for i := range n {
		sb := cri.Sandbox{
			ID: "s" + strconv.Itoa(i), Pod: s.Observed.PodIdentity, Attempt: uint32(first + i),
			CreatedAt: sceneTime.Add(time.Duration(i-20) * time.Hour),
		}
		newest := i == n-1
		if newest == c.OneIn(6) {
			sb.State = cri.SandboxNotReady
		}
		if host := s.Pod.Spec.HostNetwork; host != c.OneIn(16) {
			sb.Namespaces.Network = cri.NamespaceNode
		} else if !c.OneIn(16) {
			sb.IPs = []string{"10.0.0." + strconv.Itoa(i+1)}
		}
		s.Observed.Sandboxes = append(s.Observed.Sandboxes, sb)
	}
}

// instances adds the instances of a container: of previous restart-all generations, and of the current one.
func (s *scene) instances(c *conformance.Choices, spec *corev1.Container, generation int) {
	n := conformance.Pick(c, 1, 1, 1, 0, 2, 3)
	current := 0 // index of the first instance in the current generation
	if generation > 0 {
		current = c.Int(n + 1)
	}
	sandbox := 0 // never older than the sandbox of the previous instance
	for i := range n {
		if last := len(s.Observed.Sandboxes) - 1; last > sandbox && (i < n-1 && c.OneIn(3) || i == n-1 && !c.OneIn(4)) {
			sandbox = conformance.Pick(c, last, last, sandbox+1)
		}
		instance := cri.Container{
			ID: spec.Name + "-" + strconv.Itoa(i), Name: spec.Name, PodUID: s.Observed.UID, SandboxID: "s" + strconv.Itoa(sandbox),
			Attempt: uint32(i), CreatedAt: sceneTime.Add(time.Duration(i-20) * time.Minute), Image: cri.ImageSpec{Image: spec.Image},
			Annotations: map[string]string{podspec.AnnotationHash: podspec.Hash(spec), podspec.AnnotationRestartCount: strconv.Itoa(i)},
		}
		if c.OneIn(8) {
			instance.Annotations[podspec.AnnotationHash] = podspec.Hash(&corev1.Container{Name: spec.Name, Image: "v0"})
		}
		if i >= current && generation > 0 {
			instance.Annotations[podview.AnnotationGeneration] = strconv.Itoa(generation)
		}
		s.progress(c, spec, &instance, i == n-1, i < current)
		s.Observed.Containers = append(s.Observed.Containers, instance)
	}
}

// progress sets the state of an instance. Instances of previous generations have exited.
func (s *scene) progress(c *conformance.Choices, spec *corev1.Container, instance *cri.Container, newest, former bool) {
	instance.State = conformance.Pick(c, cri.ContainerRunning, cri.ContainerRunning, cri.ContainerRunning, cri.ContainerExited,
		cri.ContainerExited, cri.ContainerExited, cri.ContainerCreated, cri.ContainerUnknown)
	if former || !newest && !c.OneIn(16) {
		instance.State = cri.ContainerExited
	}
	if instance.State != cri.ContainerCreated {
		instance.StartedAt = instance.CreatedAt.Add(time.Second)
	}
	if instance.State == cri.ContainerExited {
		instance.FinishedAt = instance.CreatedAt.Add(30 * time.Second)
		instance.ExitCode = conformance.Pick[int32](c, 0, 0, 1, 42, 137)
		instance.Reason = conformance.Pick(c, "", "", "", "OOMKilled")
	}
	if instance.State != cri.ContainerRunning || !newest {
		return
	}
	for _, kind := range []probe.Kind{probe.Liveness, probe.Startup} {
		asked := !c.OneIn(4)
		outcome := conformance.Pick(c, probe.Success, probe.Success, probe.Failure, probe.Unknown)
		has := kind == probe.Liveness && spec.LivenessProbe != nil || kind == probe.Startup && spec.StartupProbe != nil
		if has && asked {
			s.Probes[fmt.Sprint(instance.ID, " ", kind)] = outcome
		}
	}
}
