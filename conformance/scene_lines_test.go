// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// MarshalJSON returns the scene as lines of a scenario of lifecycle/testdata/plan.
func (s scene) MarshalJSON() ([]byte, error) {
	spec := &s.Pod.Spec
	pod := "pod restart=" + string(spec.RestartPolicy)
	if g := spec.TerminationGracePeriodSeconds; g != nil {
		pod += fmt.Sprint(" grace=", *g)
	}
	if spec.HostNetwork {
		pod += " hostNetwork"
	}
	if s.Pod.DeletionTimestamp != nil {
		pod += " deleted"
		if g := s.Pod.DeletionGracePeriodSeconds; g != nil {
			pod += fmt.Sprint("=", *g)
		}
	}
	lines := []string{pod}
	for i := range spec.InitContainers {
		lines = append(lines, specLine("init", &spec.InitContainers[i]))
	}
	for i := range spec.Containers {
		lines = append(lines, specLine("spec", &spec.Containers[i]))
	}
	for _, e := range spec.EphemeralContainers {
		line := "ephemeral " + e.Name
		if e.TargetContainerName != "" {
			line += " target=" + e.TargetContainerName
		}
		lines = append(lines, line)
	}
	for i := range s.Observed.Sandboxes {
		lines = append(lines, sandboxLine(&s.Observed.Sandboxes[i]))
	}
	for i := range s.Observed.Containers {
		lines = append(lines, containerLine(&s.Observed.Containers[i]))
	}
	for _, id := range slices.Sorted(maps.Keys(s.Probes)) {
		name, kind, _ := strings.Cut(id, " ")
		lines = append(lines, fmt.Sprintf("probe %s %s %s", strings.ToLower(kind), name, s.Probes[id]))
	}
	return json.Marshal(lines)
}

func specLine(kind string, c *corev1.Container) string {
	line := kind + " " + c.Name
	if c.RestartPolicy != nil {
		line += " restart=" + string(*c.RestartPolicy)
	}
	for _, rule := range c.RestartPolicyRules {
		line += fmt.Sprintf(" rule=%s:%d:%s", rule.ExitCodes.Operator, rule.ExitCodes.Values[0], rule.Action)
	}
	line += probeWords("startup", c.StartupProbe) + probeWords("liveness", c.LivenessProbe)
	if c.Lifecycle != nil {
		line += " prestop"
	}
	return line
}

func probeWords(kind string, p *corev1.Probe) string {
	switch {
	case p == nil:
		return ""
	case p.TerminationGracePeriodSeconds == nil:
		return " " + kind
	}
	return fmt.Sprint(" ", kind, "=", *p.TerminationGracePeriodSeconds)
}

func sandboxLine(s *cri.Sandbox) string {
	line := fmt.Sprintf("sandbox %s attempt=%d", s.ID, s.Attempt)
	if s.State != cri.SandboxReady {
		line += " notready"
	}
	if s.Namespaces.Network == cri.NamespaceNode {
		line += " network=node"
	}
	if len(s.IPs) == 0 {
		line += " ip=none"
	}
	return line
}

func containerLine(c *cri.Container) string {
	line := fmt.Sprintf("container %s name=%s sandbox=%s attempt=%d %s", c.ID, c.Name, c.SandboxID, c.Attempt, c.State)
	if c.State == cri.ContainerExited {
		line += fmt.Sprint("=", c.ExitCode)
	}
	if c.Reason != "" {
		line += " reason=" + c.Reason
	}
	if !podspec.HasHash(&corev1.Container{Name: c.Name, Image: c.Image.Image}, c.Annotations[podspec.AnnotationHash]) {
		line += " image=v0"
	}
	if n := generationOf(*c); n > 0 {
		line += fmt.Sprint(" round=", n)
	}
	return line
}
