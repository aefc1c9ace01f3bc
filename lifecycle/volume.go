// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// imageVolumes makes the images present that a container mounts, and returns them by the names of their volumes. What
// cannot be pulled holds up the containers that mount it and no other (KEP-4639).
func (w *worker) imageVolumes(
	ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig,
) (map[string]podspec.Volume, error) {
	volumes := map[string]podspec.Volume{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		mounts := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name })
		if v.Image == nil || !mounts {
			continue
		}
		wanted := &corev1.Container{Name: c.Name, Image: v.Image.Reference, ImagePullPolicy: v.Image.PullPolicy}
		image, err := w.ensureImage(ctx, pod, wanted, sandbox)
		if err != nil {
			return nil, err
		}
		volumes[v.Name] = podspec.Volume{Image: &cri.ImageSpec{
			Image: image.ID, UserSpecifiedImage: v.Image.Reference, RuntimeHandler: sandbox.RuntimeHandler,
			Annotations: pod.Annotations,
		}}
	}
	return volumes, nil
}
