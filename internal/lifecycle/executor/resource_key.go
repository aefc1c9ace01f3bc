// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
)

// resourceKey returns what tells the resources of a pod from others.
func resourceKey(pod *corev1.Pod) string {
	var key strings.Builder
	if pod.Spec.Resources != nil {
		key.WriteString(resize.FormatSize(resize.SizeOfPod(pod)))
	}
	for c := range containers.NotEphemeral(&pod.Spec) {
		key.WriteString(";" + c.Name + " " + resize.FormatSize(resize.SizeOf(&pod.Spec, c)))
	}
	return key.String()
}

// containerKeys returns the names and sizes of the containers in a key that resourceKey has returned.
func containerKeys(key string) iter.Seq2[string, string] {
	return func(yield func(name, size string) bool) {
		_, list, _ := strings.Cut(key, ";")
		for entry := range strings.SplitSeq(list, ";") {
			if name, size, ok := strings.Cut(entry, " "); ok && !yield(name, size) {
				return
			}
		}
	}
}

// sizedContainers returns the resources of the containers that the pod's cgroup is for, by name. It is empty where these are not known, and where
// nothing can be resized.
func (z *Resizer) sizedContainers() map[string]cgroups.Size {
	z.mu.Lock()
	defer z.mu.Unlock()
	sizes := map[string]cgroups.Size{}
	if z.node.Cgroups == nil || z.node.updater == nil {
		return sizes
	}
	for name, text := range containerKeys(z.sized) {
		if size, ok := resize.ParseSize(text); ok {
			sizes[name] = size
		}
	}
	return sizes
}

// isSized reports whether the pod's cgroup is for the resources that are allocated, but for init containers that have completed. The caller holds mu.
func (z *Resizer) isSized(observed cri.Pod) bool {
	if z.sized == z.key || z.keyOf == nil {
		return z.sized == z.key
	}
	withoutCompleted := func(key string) string {
		whole, _, _ := strings.Cut(key, ";")
		for name, size := range containerKeys(key) {
			if !resize.HasCompleted(&z.keyOf.Spec, name, observed) {
				whole += ";" + name + " " + size
			}
		}
		return whole
	}
	return z.sized != "" && withoutCompleted(z.sized) == withoutCompleted(z.key)
}
