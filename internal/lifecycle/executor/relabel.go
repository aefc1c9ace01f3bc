// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// relabeled is which volumes of a pod the runtime has given an SELinux label, file by file. That is done when a container is
// created, and takes as long as the volume has files.
type relabeled map[relabeling]bool

// relabeling is a volume with a label. The runtime gives a sandbox a level of its own where the pod names none.
type relabeling struct {
	sandbox, volume string
	label           corev1.SELinuxOptions
}

// key returns what is done for a volume of a container.
func (relabeled) key(sandboxID string, pod *corev1.Pod, c *corev1.Container, volume string) relabeling {
	k := relabeling{sandbox: sandboxID, volume: volume}
	var own, whole *corev1.SELinuxOptions
	if sc := c.SecurityContext; sc != nil {
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

// skip takes from what a container is launched with that volumes are to be relabeled which are.
func (r relabeled) skip(sandboxID string, pod *corev1.Pod, c *corev1.Container, l *podspec.Launch) {
	for name, v := range l.Volumes {
		if v.SELinuxRelabel && r[r.key(sandboxID, pod, c, name)] {
			v.SELinuxRelabel = false
			l.Volumes[name] = v
		}
	}
}

// created notes what the runtime has relabeled: the volumes that a container mounts as a whole, now that it was created.
func (r relabeled) created(sandboxID string, pod *corev1.Pod, c *corev1.Container) {
	for i := range c.VolumeMounts {
		if m := &c.VolumeMounts[i]; m.SubPath == "" && m.SubPathExpr == "" {
			r[r.key(sandboxID, pod, c, m.Name)] = true
		}
	}
}
