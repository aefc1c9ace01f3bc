// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// Limits of the restart policy rules of a container (KEP-5307).
const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

// validateContainers checks all containers of a pod, and that their names and host ports are unique.
func validateContainers(pod *corev1.Pod, index nameIndex) field.ErrorList {
	var errs field.ErrorList
	if len(pod.Spec.Containers) == 0 {
		errs = append(errs, field.Required(field.NewPath("spec", "containers"), ""))
	}
	names, hostPorts := make(map[string]bool), make(map[string]bool)
	for c := range podfield.Containers(&pod.Spec) {
		if names[c.Name] && c.Name != "" {
			errs = append(errs, field.Duplicate(c.Path.Child("name"), c.Name))
		}
		names[c.Name] = true
		if len(errs) > fielderr.MaxErrors {
			return errs // further errors would be dropped
		}
		errs = append(errs, validateContainer(pod, c, index)...)
		switch c.Kind {
		case containers.Regular:
			errs = append(errs, validatePorts(c, pod.Spec.HostNetwork, hostPorts)...)
			errs = append(errs, validateLongRunning(pod, c)...)
		case containers.Init:
			// Init containers run one after another, and may share a host port.
			errs = append(errs, validatePorts(c, false, make(map[string]bool))...)
			errs = append(errs, validateInit(pod, c)...)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		errs = append(errs, validateEphemeral(pod, i, index)...)
	}
	return errs
}

// validateContainer checks the fields that regular, init and ephemeral containers have in common. index finds volumes by
// name.
func validateContainer(pod *corev1.Pod, container podfield.Container, index nameIndex) field.ErrorList {
	var errs field.ErrorList
	if container.Name == "" {
		errs = append(errs, field.Required(container.Path.Child("name"), ""))
	} else {
		errs = append(errs, validateWith(container.Path.Child("name"), container.Name, validation.IsDNS1123Label)...)
	}
	switch {
	case container.Image == "":
		errs = append(errs, field.Required(container.Path.Child("image"), ""))
	case container.Image != strings.TrimSpace(container.Image):
		errs = append(errs, field.Invalid(container.Path.Child("image"), container.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, validateOneOf(container.Path.Child("imagePullPolicy"), container.ImagePullPolicy,
		corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, validateOneOf(container.Path.Child("terminationMessagePolicy"), container.TerminationMessagePolicy,
		corev1.TerminationMessageFallbackToLogsOnError, corev1.TerminationMessageReadFile)...)
	errs = append(errs, validateEnv(container, index)...)
	errs = append(errs, validateEnvFrom(container.EnvFrom, container.Path.Child("envFrom"))...)
	errs = append(errs, validateMounts(container, index)...)
	errs = append(errs, validateDevices(container, index)...)
	errs = append(errs, validateRequirements(&container.Resources, container.Path.Child("resources"))...)
	errs = append(errs, validateResizePolicy(pod, container)...)
	return append(errs, validateContainerSecurity(container.SecurityContext, container.Path.Child("securityContext"), pod.Spec.HostUsers == nil || *pod.Spec.HostUsers)...)
}

// validateLongRunning checks the lifecycle hooks, the probes and the restart policy of a regular container or sidecar.
func validateLongRunning(pod *corev1.Pod, container podfield.Container) field.ErrorList {
	return slices.Concat(validateLifecycle(pod, container), validateProbes(container), validateRestartPolicy(container))
}

// validateInit checks an init container. An init container that is not a sidecar must not have probes or lifecycle hooks.
func validateInit(pod *corev1.Pod, container podfield.Container) field.ErrorList {
	if container.IsSidecar() {
		return validateLongRunning(pod, container)
	}
	errs := validateRestartPolicy(container)
	forbid := func(set bool, name string) {
		if set {
			errs = append(errs, field.Forbidden(container.Path.Child(name), "may not be set for init containers without restartPolicy Always"))
		}
	}
	forbid(container.Lifecycle != nil, "lifecycle")
	forbid(container.LivenessProbe != nil, "livenessProbe")
	forbid(container.ReadinessProbe != nil, "readinessProbe")
	forbid(container.StartupProbe != nil, "startupProbe")
	return errs
}

// validateEphemeral checks an ephemeral container: its target container must exist, and fields such as ports and probes must
// be unset.
func validateEphemeral(pod *corev1.Pod, i int, index nameIndex) field.ErrorList {
	var errs field.ErrorList
	c, path := &pod.Spec.EphemeralContainers[i], field.NewPath("spec", "ephemeralContainers").Index(i)
	if name := c.TargetContainerName; name != "" {
		if t, ok := index.containers[name]; !ok || t.Kind == containers.Ephemeral {
			errs = append(errs, field.NotFound(path.Child("targetContainerName"), name))
		}
	}
	forbid := func(set bool, path *field.Path) {
		if set {
			errs = append(errs, field.Forbidden(path, "may not be set for ephemeral containers"))
		}
	}
	forbid(len(c.Ports) > 0, path.Child("ports"))
	forbid(c.Resources.Limits != nil || c.Resources.Requests != nil || c.Resources.Claims != nil, path.Child("resources"))
	forbid(len(c.ResizePolicy) > 0, path.Child("resizePolicy"))
	forbid(c.RestartPolicy != nil, path.Child("restartPolicy"))
	forbid(len(c.RestartPolicyRules) > 0, path.Child("restartPolicyRules"))
	forbid(c.Lifecycle != nil, path.Child("lifecycle"))
	forbid(c.LivenessProbe != nil, path.Child("livenessProbe"))
	forbid(c.ReadinessProbe != nil, path.Child("readinessProbe"))
	forbid(c.StartupProbe != nil, path.Child("startupProbe"))
	for j, m := range c.VolumeMounts {
		forbid(m.SubPath != "", path.Child("volumeMounts").Index(j).Child("subPath"))
		forbid(m.SubPathExpr != "", path.Child("volumeMounts").Index(j).Child("subPathExpr"))
	}
	return errs
}

// validatePorts checks the ports of a container. used has the host ports of earlier containers, and gets those of this one.
func validatePorts(container podfield.Container, hostNetwork bool, used map[string]bool) field.ErrorList {
	var errs field.ErrorList
	names := make(map[string]bool)
	for i, p := range container.Ports {
		path := container.Path.Child("ports").Index(i)
		if p.Name != "" {
			errs = append(errs, validateWith(path.Child("name"), p.Name, validation.IsValidPortName)...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(path.Child("containerPort"), ""))
		} else {
			errs = append(errs, validateWith(path.Child("containerPort"), int(p.ContainerPort), validation.IsValidPortNum)...)
		}
		errs = append(errs, validateOneOf(path.Child("protocol"), p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		if hostNetwork && p.HostPort != p.ContainerPort {
			errs = append(errs, field.Invalid(path.Child("hostPort"), p.HostPort, "must match `containerPort` when `hostNetwork` is true"))
		}
		if p.HostPort == 0 {
			continue
		}
		errs = append(errs, validateWith(path.Child("hostPort"), int(p.HostPort), validation.IsValidPortNum)...)
		key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
		if used[key] {
			errs = append(errs, field.Duplicate(path.Child("hostPort"), key))
		}
		used[key] = true
	}
	return errs
}

func validateRestartPolicy(container podfield.Container) field.ErrorList {
	var errs field.ErrorList
	rules := container.Path.Child("restartPolicyRules")
	if container.RestartPolicy != nil {
		errs = append(errs, validateOneOf(container.Path.Child("restartPolicy"), *container.RestartPolicy, corev1.ContainerRestartPolicyAlways,
			corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)...)
	} else if len(container.RestartPolicyRules) > 0 {
		errs = append(errs, field.Required(container.Path.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	if n := len(container.RestartPolicyRules); n > maxRestartRules {
		errs = append(errs, field.TooMany(rules, n, maxRestartRules))
	}
	for i, r := range container.RestartPolicyRules {
		path := rules.Index(i)
		errs = append(errs, validateOneOf(path.Child("action"), r.Action,
			corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)...)
		if r.ExitCodes == nil {
			errs = append(errs, field.Required(path.Child("exitCodes"), "must be specified"))
			continue
		}
		errs = append(errs, validateOneOf(path.Child("exitCodes", "operator"), r.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if n := len(r.ExitCodes.Values); n > maxExitCodes {
			errs = append(errs, field.TooMany(path.Child("exitCodes", "values"), n, maxExitCodes))
		}
	}
	return errs
}
