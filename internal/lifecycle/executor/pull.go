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

// puller makes the images of containers and of image volumes present.
type puller struct {
	node     *Node
	reporter *Reporter
	slot     *startSlot
}

// hold keeps the image of a container, and those that it mounts, on the node until release is called.
func (p *puller) hold(pod *corev1.Pod, c *corev1.Container) (release func()) {
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

// pullVolumes makes the images present that a container mounts, and returns them by the names of their volumes. An image that cannot be
// pulled delays the containers that mount it and no other (KEP-4639).
func (p *puller) pullVolumes(
	ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig,
) (map[string]podspec.Volume, error) {
	volumes := map[string]podspec.Volume{}
	for _, v := range imageVolumesOf(pod, c) {
		wanted := &corev1.Container{Name: c.Name, Image: v.Image.Reference, ImagePullPolicy: v.Image.PullPolicy}
		image, err := p.pull(ctx, pod, wanted, sandbox)
		p.reporter.imageVolumePulled(err)
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

// pull makes the image of a container present. It needs no start slot: another pod has the slot meanwhile.
func (p *puller) pull(
	ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig,
) (image cri.Image, err error) {
	err = p.slot.lend(ctx, func() error {
		image, err = p.node.Images.Ensure(ctx, pod, c, sandbox)
		return err
	})
	return image, err
}
