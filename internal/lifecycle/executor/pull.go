// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// puller makes the images of containers and of image volumes present on the node.
type puller struct {
	node     *Node
	reporter *Reporter
	slot     *startSlot
}

// holdImages protects the image of c and the images of its image volumes from garbage collection until release is called.
func (p *puller) holdImages(pod *corev1.Pod, c *corev1.Container) (release func()) {
	if p.node.holder == nil {
		return func() {}
	}
	releases := []func(){p.node.holder.Hold(c.Image)}
	for _, v := range imageVolumesOf(pod, c) {
		releases = append(releases, p.node.holder.Hold(v.Image.Reference))
	}
	return func() {
		for _, release := range releases {
			release()
		}
	}
}

// imageVolumesOf returns the image volumes of pod that c mounts.
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

// ensureVolumeImages makes the images of the image volumes of c present, and returns them by volume name. An image that cannot be
// pulled delays only the containers that mount it (KEP-4639).
func (p *puller) ensureVolumeImages(
	ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig,
) (map[string]podspec.Volume, error) {
	volumes := map[string]podspec.Volume{}
	for _, v := range imageVolumesOf(pod, c) {
		wanted := &corev1.Container{Name: c.Name, Image: v.Image.Reference, ImagePullPolicy: v.Image.PullPolicy}
		image, err := p.ensureImage(ctx, pod, wanted, sandbox)
		p.reporter.reportImageVolume(err)
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

// ensureImage makes the image of c present. It releases the start slot of the pod while it pulls.
func (p *puller) ensureImage(
	ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig,
) (image cri.Image, err error) {
	err = p.slot.pullWithoutSlot(ctx, func() error {
		image, err = p.node.Images.Ensure(ctx, pod, c, sandbox)
		return err
	})
	return image, err
}
