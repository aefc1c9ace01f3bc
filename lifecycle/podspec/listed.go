// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A runtime answers a list of all sandboxes, or of all containers, in one message of at most 16 MiB, with all labels
// and annotations: larger, and no agent can list anything. So what a pod can add to a list is bounded. 110 pods with
// [MaxListed] each make 13.75 MiB, which leaves 20 KiB for the names and IDs of each pod.
const (
	// MaxHook is the size of a lifecycle hook as JSON, in bytes. A preStop hook is an annotation of its container.
	MaxHook = 64 << 10
	// MaxListed is the size in bytes of what the manifest of a pod adds to the runtime's list of containers, for all
	// containers of the pod: images, ports, preStop hooks and termination message paths. It is also the size of the
	// labels and annotations of one container with those that devices ask for.
	MaxListed = 128 << 10
	// MaxSandboxLabels is the size of the labels of a pod, in bytes. Its annotations have 256 KiB, as in the API server.
	MaxSandboxLabels = 64 << 10

	maxAnnotations = 256 << 10 // TotalAnnotationSizeLimitB
)

// validateListed checks what the runtime lists of a pod.
func validateListed(pod *corev1.Pod, path *field.Path) field.ErrorList {
	if n := mapSize(pod.Labels); n > MaxSandboxLabels {
		return field.ErrorList{tooLong(path.Child("labels"), "may not be more than %d bytes in all", MaxSandboxLabels)}
	}
	size := 0
	for c := range containers(&pod.Spec) {
		if errs := validateHooks(c); len(errs) > 0 {
			return errs
		}
		annotations := containerAnnotations(pod, c.Container, Launch{})
		size += len(c.Image) + len(annotations[AnnotationPorts]) + len(annotations[AnnotationPreStopHandler]) + len(c.TerminationMessagePath)
		if size > MaxListed {
			return field.ErrorList{tooLong(c.path, "images, ports, preStop hooks and termination message paths of all containers may not be "+
				"more than %d bytes, as the runtime lists them", MaxListed)}
		}
	}
	return nil
}

func validateHooks(c listed) field.ErrorList {
	if c.Lifecycle == nil {
		return nil
	}
	var errs field.ErrorList
	check := func(hook *corev1.LifecycleHandler, name string) {
		if hook != nil && hookSize(hook) > MaxHook {
			errs = append(errs, tooLong(c.path.Child("lifecycle", name), "may not be more than %d bytes as JSON", MaxHook))
		}
	}
	check(c.Lifecycle.PostStart, "postStart")
	check(c.Lifecycle.PreStop, "preStop")
	return errs
}

// hookSize returns the size of a hook as JSON, or one that is too large for it. Nothing is written that is.
func hookSize(h *corev1.LifecycleHandler) int {
	size := 0
	for _, word := range orZero(h.Exec).Command {
		size += len(word)
	}
	get := orZero(h.HTTPGet)
	size += len(get.Path) + len(get.Host) + len(get.Port.StrVal) + len(get.Scheme) + len(orZero(h.TCPSocket).Host) + len(orZero(h.TCPSocket).Port.StrVal)
	for _, header := range get.HTTPHeaders {
		size += len(header.Name) + len(header.Value)
	}
	if size > MaxHook {
		return size
	}
	text, _ := json.Marshal(h) // plain strings and numbers
	return len(text)
}

// checkListed checks what a container or a sandbox at path is about to be given.
func checkListed(path *field.Path, labels, annotations map[string]string, limit int) error {
	if mapSize(labels)+mapSize(annotations) > limit {
		return tooLong(path, "labels and annotations may not be more than %d bytes in all", limit)
	}
	return nil
}

func mapSize(m map[string]string) int {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
	}
	return size
}
