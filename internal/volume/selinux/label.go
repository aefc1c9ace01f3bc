// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package selinux

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/optional"
)

// FileLabel returns the label of the files of a container with these options: the default one of the node with their user and level.
// Role and type are of the process alone. It is empty where SELinux is not enabled, and where the options have no level.
func (n Node) FileLabel(o *corev1.SELinuxOptions) (string, error) {
	if !n.Enabled || n.File == "" || o == nil || o.Level == "" {
		return "", nil
	}
	parts := strings.SplitN(n.File, ":", 4) // user, role, type and, where the policy has levels, a level
	if len(parts) < 3 {
		return "", fmt.Errorf("construct SELinux label: default label %.256q of the node has no type", n.File)
	}
	for _, part := range []string{o.User, o.Level} {
		if strings.ContainsAny(part, "\"\n\x00") {
			return "", fmt.Errorf("construct SELinux label: %.256q is invalid", part)
		}
	}
	if o.User != "" {
		parts[0] = o.User
	}
	return strings.Join(append(parts[:3:3], o.Level), ":"), nil
}

// MultipleLabelsError says that containers of a pod which mount the same volume have different labels.
type MultipleLabelsError struct {
	Labels []string // sorted
}

// Error is in the words of the kubelet.
func (e *MultipleLabelsError) Error() string {
	return "multiple SELinux labels found: " + strings.Join(e.Labels, ",")
}

// Mount returns the label that a volume of a pod is to be mounted with by a plugin that can; empty: with none.
func (n Node) Mount(pod *corev1.Pod, volume string) (string, error) {
	if !n.Enabled {
		return "", nil
	}
	var labels []string
	for c := range containers.All(&pod.Spec) {
		if !mounts(c.Container, volume) {
			continue
		}
		if o := Options(pod, c.Container); o != nil {
			label, err := n.FileLabel(o)
			if err != nil {
				return "", err
			}
			labels = append(labels, label)
		}
	}
	slices.Sort(labels)
	labels = slices.Compact(labels)
	switch {
	case len(labels) > 1:
		return "", &MultipleLabelsError{Labels: labels}
	case len(labels) == 0 || recursive(pod):
		return "", nil
	}
	return labels[0], nil
}

// recursive reports whether a pod wants its volumes relabeled, file by file.
func recursive(pod *corev1.Pod) bool {
	policy := optional.OrZero(pod.Spec.SecurityContext).SELinuxChangePolicy
	return policy != nil && *policy == corev1.SELinuxChangePolicyRecursive
}

// Options returns the SELinux options of a container: its own or those of the pod; nil: there are none.
func Options(pod *corev1.Pod, c *corev1.Container) *corev1.SELinuxOptions {
	return optional.First(optional.OrZero(c.SecurityContext).SELinuxOptions, optional.OrZero(pod.Spec.SecurityContext).SELinuxOptions)
}

func mounts(c *corev1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume }) ||
		slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == volume })
}

// MountOption returns the option of mount(2) and mount(8) for a label, in quotes, as a level may have commas.
func MountOption(label string) string { return "context=" + strconv.Quote(label) }

// Conflict returns an error if a volume that is mounted with one label is wanted with another, by another pod; in the words of the
// kubelet.
func Conflict(volume, mounted, wanted string) error {
	if mounted == wanted {
		return nil
	}
	return fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q", volume, mounted, wanted)
}
