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

// holdImages keeps the image of a container, and those that it mounts, on the node until release is called.
func (x *Executor) holdImages(pod *corev1.Pod, c *corev1.Container) (release func()) {
	if x.node.holder == nil {
		return func() {}
	}
	releases := []func(){x.node.holder.Hold(c.Image)}
	for _, v := range imageVolumesOf(pod, c) {
		releases = append(releases, x.node.holder.Hold(v.Image.Reference))
	}
	return func() {
		for _, release := range releases {
			release()
		}
	}
}

// imageVolumesOf returns the volumes of images that a container mounts.
func imageVolumesOf(pod *corev1.Pod, c *corev1.Container) (volumes []*corev1.Volume) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		mounts := func(m corev1.VolumeMount) bool { return m.Name == v.Name }
		if v.Image != nil && slices.ContainsFunc(c.VolumeMounts, mounts) {
			volumes = append(volumes, v)
		}
	}
	return volumes
}

// imageVolumes makes the images present that a container mounts, and returns them by the names of their volumes. What
// cannot be pulled holds up the containers that mount it and no other (KEP-4639).
func (x *Executor) imageVolumes(
	ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig,
) (map[string]podspec.Volume, error) {
	volumes := map[string]podspec.Volume{}
	for _, v := range imageVolumesOf(pod, c) {
		wanted := &corev1.Container{Name: c.Name, Image: v.Image.Reference, ImagePullPolicy: v.Image.PullPolicy}
		image, err := x.ensureImage(ctx, pod, wanted, sandbox)
		x.tellImageVolume(err)
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
