// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// What a pod can add to the lists of its runtime, which have to fit in one message of 16 MiB with those of 109 others.
const (
	// MaxHook is the size of a lifecycle hook as JSON, in bytes. A preStop hook is an annotation of its container.
	MaxHook = 64 << 10
	// MaxListed is the size in bytes of what the manifest of a pod adds to the runtime's list of containers, for all
	// containers of the pod: images, ports, preStop hooks and termination message paths. It is also the size of the
	// labels and annotations of one container with those that devices ask for.
	MaxListed = podfield.MaxListed
	// MaxSandboxLabels is the size of the labels of a pod, in bytes. Its annotations have 256 KiB, as in the API server.
	MaxSandboxLabels = podfield.MaxSandboxLabels
)

// validateListed checks what the runtime lists of a pod.
func validateListed(pod *corev1.Pod, path *field.Path) field.ErrorList {
	if n := podfield.MapSize(pod.Labels); n > MaxSandboxLabels {
		return field.ErrorList{fielderr.TooLong(path.Child("labels"), "may not be more than %d bytes in all", MaxSandboxLabels)}
	}
	size := 0
	for c := range podfield.Containers(&pod.Spec) {
		if errs := validateHooks(c); len(errs) > 0 {
			return errs
		}
		if size += listedSize(c.Container.Container); size > MaxListed {
			return field.ErrorList{fielderr.TooLong(c.Path, "images, ports, preStop hooks and termination message paths of all containers may not be "+
				"more than %d bytes, as the runtime lists them", MaxListed)}
		}
	}
	return nil
}

// listedSize returns the size of what the manifest of a container adds to the runtime's list of containers: package
// podspec makes annotations of its ports and its preStop hook, as JSON.
func listedSize(c *corev1.Container) int {
	size := len(c.Image) + len(c.TerminationMessagePath)
	if len(c.Ports) > 0 {
		ports, _ := json.Marshal(c.Ports) // plain strings and numbers
		size += len(ports)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		hook, _ := json.Marshal(c.Lifecycle.PreStop) // likewise
		size += len(hook)
	}
	return size
}

func validateHooks(c podfield.Container) field.ErrorList {
	if c.Lifecycle == nil {
		return nil
	}
	var errs field.ErrorList
	check := func(hook *corev1.LifecycleHandler, name string) {
		if hook != nil && hookSize(hook) > MaxHook {
			errs = append(errs, fielderr.TooLong(c.Path.Child("lifecycle", name), "may not be more than %d bytes as JSON", MaxHook))
		}
	}
	check(c.Lifecycle.PostStart, "postStart")
	check(c.Lifecycle.PreStop, "preStop")
	return errs
}

// hookSize returns the size of a hook as JSON, or one that is too large for it. Nothing is written that is.
func hookSize(h *corev1.LifecycleHandler) int {
	size := 0
	for _, word := range optional.OrZero(h.Exec).Command {
		size += len(word)
	}
	get := optional.OrZero(h.HTTPGet)
	size += len(get.Path) + len(get.Host) + len(get.Port.StrVal) + len(get.Scheme) + len(optional.OrZero(h.TCPSocket).Host) + len(optional.OrZero(h.TCPSocket).Port.StrVal)
	for _, header := range get.HTTPHeaders {
		size += len(header.Name) + len(header.Value)
	}
	if size > MaxHook {
		return size
	}
	text, _ := json.Marshal(h) // plain strings and numbers
	return len(text)
}
