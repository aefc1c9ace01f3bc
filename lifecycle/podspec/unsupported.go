// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unsupported returns an error for each field that is valid and set, and that this version cannot act on. Ignoring
// it would run something else than the pod asks for. Fields that only matter to a scheduler are not among them,
// nor are those whose effect comes later in a pod's life and is asked for by default (terminationMessagePath, requests
// and limits of ephemeral-storage, resizePolicy).
func Unsupported(pod *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	spec, path := &pod.Spec, field.NewPath("spec")
	refuse := func(set bool, name, what string) {
		if set {
			errs = append(errs, unsupported(path.Child(name), what))
		}
	}
	refuse(len(spec.InitContainers) > 0, "initContainers", "init containers and sidecars")
	refuse(len(spec.EphemeralContainers) > 0, "ephemeralContainers", "ephemeral containers")
	refuse(len(spec.Volumes) > 0, "volumes", "volumes")
	refuse(len(spec.ResourceClaims) > 0, "resourceClaims", "dynamic resource allocation")
	refuse(spec.HostUsers != nil && !*spec.HostUsers, "hostUsers", "user namespaces")
	refuse(len(spec.HostAliases) > 0, "hostAliases", "a hosts file")
	refuse(len(spec.ReadinessGates) > 0, "readinessGates", "readiness gates")
	refuse(len(spec.ImagePullSecrets) > 0, "imagePullSecrets", "secrets")
	refuse(len(spec.NodeSelector) > 0, "nodeSelector", "admission by the labels of the node")
	refuse(requiresNode(spec.Affinity), "affinity", "admission by the labels of the node")
	refuse(spec.ActiveDeadlineSeconds != nil, "activeDeadlineSeconds", "a deadline of the pod")
	refuse(spec.OS != nil && spec.OS.Name == corev1.Windows, "os", "Windows")
	for i := range spec.Containers {
		errs = append(errs, unsupportedContainer(&spec.Containers[i], path.Child("containers").Index(i))...)
	}
	return errs
}

func requiresNode(a *corev1.Affinity) bool {
	return a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
}

func unsupportedContainer(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	refuse := func(set bool, path *field.Path, what string) {
		if set {
			errs = append(errs, unsupported(path, what))
		}
	}
	refuse(len(c.VolumeMounts) > 0, path.Child("volumeMounts"), "volumes")
	refuse(len(c.VolumeDevices) > 0, path.Child("volumeDevices"), "volumes")
	refuse(len(c.EnvFrom) > 0, path.Child("envFrom"), "variables from config maps and secrets")
	refuse(c.LivenessProbe != nil, path.Child("livenessProbe"), "probes")
	refuse(c.ReadinessProbe != nil, path.Child("readinessProbe"), "probes")
	refuse(c.StartupProbe != nil, path.Child("startupProbe"), "probes")
	if c.Lifecycle != nil {
		refuse(c.Lifecycle.PostStart != nil, path.Child("lifecycle", "postStart"), "hooks")
		refuse(c.Lifecycle.PreStop != nil, path.Child("lifecycle", "preStop"), "hooks")
	}
	for i := range c.RestartPolicyRules {
		refuse(c.RestartPolicyRules[i].Action == corev1.ContainerRestartRuleActionRestartAllContainers,
			path.Child("restartPolicyRules").Index(i).Child("action"), "a restart of all containers")
	}
	for i, e := range c.Env {
		if from := e.ValueFrom; from != nil {
			source := path.Child("env").Index(i).Child("valueFrom")
			refuse(from.ConfigMapKeyRef != nil, source.Child("configMapKeyRef"), "variable "+e.Name+" from a config map")
			refuse(from.SecretKeyRef != nil, source.Child("secretKeyRef"), "variable "+e.Name+" from a secret")
			refuse(from.FileKeyRef != nil, source.Child("fileKeyRef"), "variable "+e.Name+" from a file")
		}
	}
	refuse(len(c.Resources.Claims) > 0, path.Child("resources", "claims"), "dynamic resource allocation")
	for _, name := range sorted(c.Resources.Limits) {
		refuse(strings.Contains(string(name), "/"), path.Child("resources", "limits").Key(string(name)), "devices")
	}
	return errs
}

func unsupported(path *field.Path, what string) *field.Error {
	return field.Forbidden(path, "not supported by this version: "+what)
}
