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

// validateListed limits the size of the data of a pod that the runtime returns whenever it lists containers.
func validateListed(pod *corev1.Pod, path *field.Path) field.ErrorList {
	if n := podfield.MapSize(pod.Labels); n > podfield.MaxSandboxLabels {
		return field.ErrorList{fielderr.TooLong(path.Child("labels"), "may not be more than %d bytes in all", podfield.MaxSandboxLabels)}
	}
	size := 0
	for c := range podfield.Containers(&pod.Spec) {
		if errs := validateHooks(c); len(errs) > 0 {
			return errs
		}
		if size += listedSize(c.Container.Container); size > podfield.MaxListed {
			return field.ErrorList{fielderr.TooLong(c.Path, "images, ports, preStop hooks and termination message paths of all containers may not be "+
				"more than %d bytes, as the runtime lists them", podfield.MaxListed)}
		}
	}
	return nil
}

// listedSize returns the number of bytes that a container adds to the container list of the runtime.
func listedSize(container *corev1.Container) int {
	size := len(container.Image) + len(container.TerminationMessagePath)
	// Package podspec stores ports and preStop hook as JSON in annotations.
	if len(container.Ports) > 0 {
		ports, _ := json.Marshal(container.Ports) // strings and numbers can always be encoded
		size += len(ports)
	}
	if container.Lifecycle != nil && container.Lifecycle.PreStop != nil {
		hook, _ := json.Marshal(container.Lifecycle.PreStop) // can always be encoded
		size += len(hook)
	}
	return size
}

func validateHooks(container podfield.Container) field.ErrorList {
	if container.Lifecycle == nil {
		return nil
	}
	var errs field.ErrorList
	check := func(hook *corev1.LifecycleHandler, name string) {
		if hook != nil && hookSize(hook) > podfield.MaxHook {
			errs = append(errs, fielderr.TooLong(container.Path.Child("lifecycle", name), "may not be more than %d bytes as JSON", podfield.MaxHook))
		}
	}
	check(container.Lifecycle.PostStart, "postStart")
	check(container.Lifecycle.PreStop, "preStop")
	return errs
}

// hookSize returns the size of a lifecycle hook in JSON, or that of its strings if they alone exceed the limit.
func hookSize(handler *corev1.LifecycleHandler) int {
	size := 0
	for _, word := range optional.OrZero(handler.Exec).Command {
		size += len(word)
	}
	get := optional.OrZero(handler.HTTPGet)
	size += len(get.Path) + len(get.Host) + len(get.Port.StrVal) + len(get.Scheme) + len(optional.OrZero(handler.TCPSocket).Host) + len(optional.OrZero(handler.TCPSocket).Port.StrVal)
	for _, header := range get.HTTPHeaders {
		size += len(header.Name) + len(header.Value)
	}
	if size > podfield.MaxHook {
		return size
	}
	text, _ := json.Marshal(handler) // can always be encoded
	return len(text)
}
