// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// imageVolumes makes the images present that a container mounts, and returns them by the names of their volumes. What
// cannot be pulled holds up the containers that mount it and no other (KEP-4639).
func (x *Executor) imageVolumes(
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
		image, err := x.ensureImage(ctx, pod, wanted, sandbox)
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

// pullAfter is how long an image may take to be made present before that counts as a pull.
const pullAfter = 100 * time.Millisecond

// ensureImage makes an image present. A pull is no start: while it goes on, the start slot is another pod's, and the
// start that follows waits for one again.
func (x *Executor) ensureImage(
	ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig,
) (cri.Image, error) {
	timer := time.AfterFunc(pullAfter, x.slot.release)
	image, err := x.node.Images.Ensure(ctx, pod, c, sandbox)
	x.slot.gone = !timer.Stop() || x.slot.gone
	if err != nil || !x.slot.gone {
		return image, err
	}
	x.slot.release() // in any case before there is another
	if err := x.takeSlot(ctx); err != nil {
		return cri.Image{}, err
	}
	return image, nil
}

// takeSlot waits for a start slot, which x.slot.release releases.
func (x *Executor) takeSlot(ctx context.Context) error {
	release, err := x.acquireSlot(ctx)
	if err == nil {
		x.slot = slot{release: release}
	}
	return err
}
