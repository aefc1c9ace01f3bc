// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtest

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// Names of generated containers indicate their behaviour: serve runs until it is stopped, work exits by itself, setup is an init
// container, and proxy is a sidecar.

// Generate returns a random pod with this name and UID. Its policies, probes, hooks, init containers and sidecars are
// random. The result depends only on the state of rnd.
func Generate(rnd *rand.Rand, name, uid string) *corev1.Pod {
	pod := Pod(name, Pick(rnd, [][]string{{"serve"}, {"work"}, {"serve", "work"}, {"serve", "serve2"}})...)
	pod.UID = types.UID(uid)
	pod.Spec.RestartPolicy = Pick(rnd, []corev1.RestartPolicy{
		corev1.RestartPolicyAlways, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever,
	})
	*pod.Spec.TerminationGracePeriodSeconds = Pick(rnd, []int64{1, 5, 30})
	if Chance(rnd, 10) {
		pod.Spec.ActiveDeadlineSeconds = new(int64(60 + rnd.IntN(600)))
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		generatePolicy(rnd, c, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever)
		generateProbes(rnd, c)
		generateHooks(rnd, c)
	}
	for i := range rnd.IntN(4) {
		c := Init(fmt.Sprint("setup", i))
		if Chance(rnd, 50) {
			c = Sidecar(fmt.Sprint("proxy", i))
			generateProbes(rnd, &c)
			generateHooks(rnd, &c)
		} else {
			generatePolicy(rnd, &c, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	if Chance(rnd, 10) {
		AddEphemeral(pod, pod.Spec.Containers[0].Name)
	}
	podapi.Default(pod)
	return pod
}

// generatePolicy sets, with a probability of 40 %, one of the restart policies, and restart rules for two exit codes.
func generatePolicy(rnd *rand.Rand, container *corev1.Container, policies ...corev1.ContainerRestartPolicy) {
	if !Chance(rnd, 40) {
		return
	}
	container.RestartPolicy = new(Pick(rnd, policies))
	for code, action := range map[int32]corev1.ContainerRestartRuleAction{
		42: corev1.ContainerRestartRuleActionRestart, 88: corev1.ContainerRestartRuleActionRestartAllContainers,
	} {
		container.RestartPolicyRules = append(container.RestartPolicyRules, corev1.ContainerRestartRule{
			Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
				Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code},
			},
		})
	}
}

func generateProbes(rnd *rand.Rand, container *corev1.Container) {
	if Chance(rnd, 25) {
		container.StartupProbe = Probe("started", 2)
		container.StartupProbe.FailureThreshold = 5
	}
	if Chance(rnd, 25) {
		container.ReadinessProbe = Probe("ready", 5)
	}
	if Chance(rnd, 25) {
		container.LivenessProbe = Probe("alive", 10)
	}
}

func generateHooks(rnd *rand.Rand, container *corev1.Container) {
	var l corev1.Lifecycle
	if Chance(rnd, 20) {
		l.PostStart = Exec("hello")
	}
	if Chance(rnd, 20) {
		l.PreStop = Exec("bye")
	}
	if l != (corev1.Lifecycle{}) {
		container.Lifecycle = &l
	}
}

// AddEphemeral adds an ephemeral container to pod. target is the name of its target container.
func AddEphemeral(pod *corev1.Pod, target string) {
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: fmt.Sprint("debug", len(pod.Spec.EphemeralContainers)), Image: "busybox"},
		TargetContainerName:      target,
	})
}

// Pick returns a random element of from.
func Pick[T any](rnd *rand.Rand, from []T) T { return from[rnd.IntN(len(from))] }

// Chance returns true with the given probability in percent.
func Chance(rnd *rand.Rand, percent int) bool { return rnd.IntN(100) < percent }
