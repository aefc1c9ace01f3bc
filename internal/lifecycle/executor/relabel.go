// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// relabeledVolumes records the volumes of a pod that the runtime has relabeled for SELinux. The runtime relabels each file of a
// volume when it creates a container, which takes long for a large volume.
type relabeledVolumes map[relabeling]bool

// relabeling identifies a volume with an SELinux label. The sandbox ID is part of it, because the runtime chooses an MCS level
// per sandbox if the pod sets none.
type relabeling struct {
	sandbox, volume string
	label           corev1.SELinuxOptions
}

// keyOf returns the key of a volume of a sandbox with the SELinux options of the container or pod.
func (relabeledVolumes) keyOf(sandboxID string, pod *corev1.Pod, container *corev1.Container, volume string) relabeling {
	k := relabeling{sandbox: sandboxID, volume: volume}
	var own, whole *corev1.SELinuxOptions
	if sc := container.SecurityContext; sc != nil {
		own = sc.SELinuxOptions
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		whole = sc.SELinuxOptions
	}
	if o := cmp.Or(own, whole); o != nil {
		k.label = *o
	}
	return k
}

// skipRelabeled turns off SELinux relabeling of volumes that the runtime has relabeled for this sandbox and label.
func (r relabeledVolumes) skipRelabeled(sandboxID string, pod *corev1.Pod, container *corev1.Container, launch *podspec.Launch) {
	for name, v := range launch.Volumes {
		if v.SELinuxRelabel && r[r.keyOf(sandboxID, pod, container, name)] {
			v.SELinuxRelabel = false
			launch.Volumes[name] = v
		}
	}
}

// recordRelabeled records the volumes that the runtime relabeled when it created the container.
func (r relabeledVolumes) recordRelabeled(sandboxID string, pod *corev1.Pod, container *corev1.Container) {
	for i := range container.VolumeMounts {
		// Of a volume with a subPath, the runtime relabels only that part.
		if m := &container.VolumeMounts[i]; m.SubPath == "" && m.SubPathExpr == "" {
			r[r.keyOf(sandboxID, pod, container, m.Name)] = true
		}
	}
}
