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

// holdImages protects the image of the container, and the images of its image volumes, from garbage collection until
// release.
func (p *puller) holdImages(pod *corev1.Pod, container *corev1.Container) (release func()) {
	if p.node.holder == nil {
		return func() {}
	}
	releases := []func(){p.node.holder.Hold(container.Image)}
	for _, v := range imageVolumesOf(pod, container) {
		releases = append(releases, p.node.holder.Hold(v.Image.Reference))
	}
	return func() {
		for _, release := range releases {
			release()
		}
	}
}

// imageVolumesOf returns the image volumes of pod that the container mounts.
func imageVolumesOf(pod *corev1.Pod, container *corev1.Container) (volumes []*corev1.Volume) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		mounts := func(m corev1.VolumeMount) bool { return m.Name == v.Name }
		if v.Image != nil && slices.ContainsFunc(container.VolumeMounts, mounts) {
			volumes = append(volumes, v)
		}
	}
	return volumes
}

// ensureVolumeImages pulls the missing images of the container's image volumes, and returns these volumes by name. Source:
// KEP-4639.
func (p *puller) ensureVolumeImages(
	ctx context.Context, pod *corev1.Pod, container *corev1.Container, sandbox *cri.SandboxConfig,
) (map[string]podspec.Volume, error) {
	volumes := map[string]podspec.Volume{}
	for _, v := range imageVolumesOf(pod, container) {
		wanted := &corev1.Container{Name: container.Name, Image: v.Image.Reference, ImagePullPolicy: v.Image.PullPolicy}
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

// ensureImage returns the image of the container, and pulls it if necessary. During the pull, other pods can start.
func (p *puller) ensureImage(
	ctx context.Context, pod *corev1.Pod, container *corev1.Container, sandbox *cri.SandboxConfig,
) (image cri.Image, err error) {
	err = p.slot.pullWithoutSlot(ctx, func() error {
		image, err = p.node.Images.Ensure(ctx, pod, container, sandbox)
		return err
	})
	return image, err
}
