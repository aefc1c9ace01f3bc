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

// FileLabel returns the SELinux label for the files of a container: the default label of the node with the user and level of
// options. Role and type are for processes. The label is "" if SELinux is disabled or options have no level.
func (n Node) FileLabel(options *corev1.SELinuxOptions) (string, error) {
	if !n.Enabled || n.DefaultFileLabel == "" || options == nil || options.Level == "" {
		return "", nil
	}
	parts := strings.SplitN(n.DefaultFileLabel, ":", 4) // user, role, type and, with MLS, level
	if len(parts) < 3 {
		return "", fmt.Errorf("construct SELinux label: default label %.256q of the node has no type", n.DefaultFileLabel)
	}
	for _, part := range []string{options.User, options.Level} {
		if strings.ContainsAny(part, "\"\n\x00") {
			return "", fmt.Errorf("construct SELinux label: %.256q is invalid", part)
		}
	}
	if options.User != "" {
		parts[0] = options.User
	}
	return strings.Join(append(parts[:3:3], options.Level), ":"), nil
}

// MultipleLabelsError means that containers of a pod mount the same volume with different labels.
type MultipleLabelsError struct {
	Labels []string // sorted
}

// Error returns the message of the kubelet.
func (e *MultipleLabelsError) Error() string {
	return "multiple SELinux labels found: " + strings.Join(e.Labels, ",")
}

// MountLabel returns the SELinux label for mounting a volume of pod, or "" for none. The error is a [MultipleLabelsError] if
// the containers of pod need different labels.
func (n Node) MountLabel(pod *corev1.Pod, volume string) (string, error) {
	if !n.Enabled {
		return "", nil
	}
	var labels []string
	for c := range containers.All(&pod.Spec) {
		if !usesVolume(c.Container, volume) {
			continue
		}
		if o := ContainerOptions(pod, c.Container); o != nil {
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
	case len(labels) == 0 || isRecursive(pod):
		return "", nil
	}
	return labels[0], nil
}

// isRecursive reports whether the seLinuxChangePolicy of pod demands that the container runtime relabels each file of a
// volume.
func isRecursive(pod *corev1.Pod) bool {
	policy := optional.OrZero(pod.Spec.SecurityContext).SELinuxChangePolicy
	return policy != nil && *policy == corev1.SELinuxChangePolicyRecursive
}

// ContainerOptions returns the SELinux options of the container, or else the SELinux options of pod. It returns nil if
// neither has any.
func ContainerOptions(pod *corev1.Pod, container *corev1.Container) *corev1.SELinuxOptions {
	return optional.First(optional.OrZero(container.SecurityContext).SELinuxOptions, optional.OrZero(pod.Spec.SecurityContext).SELinuxOptions)
}

func usesVolume(container *corev1.Container, volume string) bool {
	return slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume }) ||
		slices.ContainsFunc(container.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == volume })
}

// MountOption returns the mount option context="LABEL". The quotes are necessary because label may contain commas.
func MountOption(label string) string { return "context=" + strconv.Quote(label) }

// CheckConflict returns an error, with the text of the kubelet, if mounted, the SELinux label with which the volume is
// mounted, is not the wanted label.
func CheckConflict(volume, mounted, wanted string) error {
	if mounted == wanted {
		return nil
	}
	return fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q", volume, mounted, wanted)
}
