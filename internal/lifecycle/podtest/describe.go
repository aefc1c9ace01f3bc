// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
)

// Find returns the container with this name in specs, or nil.
func Find(specs []corev1.Container, name string) *corev1.Container {
	i := slices.IndexFunc(specs, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &specs[i]
}

// ParseRequirements parses the words "cpu=REQUEST/LIMIT" and "memory=REQUEST/LIMIT". It ignores all other words.
func ParseRequirements(words []string) (r corev1.ResourceRequirements) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		if name != "cpu" && name != "memory" {
			continue
		}
		request, limit, _ := strings.Cut(value, "/")
		for _, side := range []struct {
			list *corev1.ResourceList
			text string
		}{{&r.Requests, request}, {&r.Limits, limit}} {
			if side.text == "" {
				continue
			}
			if *side.list == nil {
				*side.list = corev1.ResourceList{}
			}
			(*side.list)[corev1.ResourceName(name)] = resource.MustParse(side.text)
		}
	}
	return r
}

// FormatRequirements formats resources in the form that [ParseRequirements] reads. It returns "nothing" if they are empty.
func FormatRequirements(resources *corev1.ResourceRequirements) string {
	side := func(list corev1.ResourceList, name corev1.ResourceName) string {
		if q, ok := list[name]; ok {
			return q.String()
		}
		return ""
	}
	var words []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if both := side(resources.Requests, name) + "/" + side(resources.Limits, name); both != "/" {
			words = append(words, string(name)+"="+both)
		}
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, " ")
}

// FormatSize returns the CPU and memory of size as text for a test scenario.
func FormatSize(size cgroups.ContainerSize) string {
	memory := func(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }
	return fmt.Sprintf("cpu=%dm/%dm memory=%s/%s", size.CPURequest, size.CPULimit, memory(size.MemoryRequest), memory(size.MemoryLimit))
}

// ConditionOf returns the status and the reason of the pod condition of this type, or "absent" if the status has no such
// condition.
func ConditionOf(status corev1.PodStatus, conditionType corev1.PodConditionType) string {
	for _, c := range status.Conditions {
		if c.Type == conditionType {
			return string(c.Status) + " " + c.Reason
		}
	}
	return "absent"
}

// SpecNames returns the names of all containers of pod, including ephemeral containers, as a set.
func SpecNames(pod *corev1.Pod) map[string]bool {
	names := map[string]bool{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		names[c.Name] = true
	}
	for _, c := range pod.Spec.EphemeralContainers {
		names[c.Name] = true
	}
	return names
}

// JSON returns v as JSON, or the text of the encoding error.
func JSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// DescribeObserved returns a text with one line for each sandbox and container of pod.
func DescribeObserved(pod cri.Pod) (s string) {
	for _, sb := range pod.Sandboxes {
		s += fmt.Sprintf("\n  sandbox %s attempt=%d %s ips=%v %v", sb.ID, sb.Attempt, sb.State, sb.IPs, sb.Annotations)
	}
	for _, c := range pod.Containers {
		s += fmt.Sprintf("\n  %s attempt=%d sandbox=%s %s code=%d %s %v", c.ID, c.Attempt, c.SandboxID, c.State, c.ExitCode, c.Reason, c.Annotations)
	}
	return s
}

// LazyText is a failure message that is built only when it is printed.
type LazyText func() string

// String calls s to build the message.
func (s LazyText) String() string { return s() }

// ExamplePods returns functions that each add one feature to a plain pod, by the name of the feature, such as "sidecar" or
// "probes".
func ExamplePods() map[string]func(pod *corev1.Pod) {
	return map[string]func(pod *corev1.Pod){
		"plain": func(*corev1.Pod) {},
		"init containers": func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{Init("setup0"), Init("setup1")}
		},
		"sidecar": func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{Sidecar("proxy0"), Init("setup1"), Sidecar("proxy2")}
		},
		"probes": func(pod *corev1.Pod) {
			proxy := Sidecar("proxy0")
			proxy.StartupProbe, proxy.LivenessProbe = Probe("started", 1), Probe("alive", 10)
			pod.Spec.InitContainers = []corev1.Container{proxy}
			c := &pod.Spec.Containers[0]
			c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = Probe("started", 1), Probe("ready", 10), Probe("alive", 10)
		},
		"hooks": func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: Exec("hello"), PreStop: Exec("bye")}
		},
		"rules": func(pod *corev1.Pod) {
			c := &pod.Spec.Containers[0]
			c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
			c.RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action: corev1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
					Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88},
				},
			}}
		},
		"ephemeral container": func(pod *corev1.Pod) { AddEphemeral(pod, "serve") },
	}
}

// IsSidecar reports whether container is an init container with restart policy Always. It returns false for nil.
func IsSidecar(container *corev1.Container) bool {
	return container != nil && container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
