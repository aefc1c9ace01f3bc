// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// creator creates containers. It first pulls their images and prepares their volumes, devices, files and environment.
type creator struct {
	node     *Node
	reporter *Reporter
	puller   *puller
	volumes  *Volumes
	devices  *Devices
	quota    *Quota
	resizer  *Resizer
	mounts   poddir.Dir // directory of the hosts file and the termination message files; empty: containers get neither
}

// createContainer pulls missing images, creates a container and returns its ID. A failed creation is a
// [podstatus.StartError].
func (c *creator) createContainer(ctx context.Context, pod *corev1.Pod, start plan.Start, sb *sandbox) (id string, err error) {
	launch := podspec.Launch{Attempt: start.Attempt, PodIPs: sb.ips, Annotations: start.Annotations(), TargetID: start.TargetID}
	size := resize.SizeOf(&pod.Spec, start.Container)
	launch.Annotations[resize.AnnotationResources] = resize.FormatSize(size)
	release := c.puller.holdImages(pod, start.Container)
	defer release()
	if c.node.Images != nil {
		image, err := c.puller.ensureImage(ctx, pod, start.Container, &sb.config)
		if err != nil {
			return "", err
		}
		launch.Image, launch.ImageRef = &image, image.ID
	}
	if launch.Volumes, err = c.puller.ensureVolumeImages(ctx, pod, start.Container, &sb.config); err != nil {
		return "", err
	}
	config, err := c.buildConfig(ctx, pod, start, sb.id, launch)
	if err != nil {
		return "", &podstatus.StartError{Reason: podstatus.ReasonCreateConfigError, Err: err}
	}
	c.node.MarkOwner(config.Labels)
	if logs := sb.config.LogDirectory; logs != "" && config.LogPath != "" {
		if err := os.MkdirAll(filepath.Join(logs, filepath.Dir(config.LogPath)), 0o755); err != nil {
			return "", &podstatus.StartError{Reason: podstatus.ReasonCreateError, Err: err}
		}
	}
	c.quota.liftBeforeStart(ctx, pod)
	if id, err = c.node.Runtime.CreateContainer(ctx, sb.id, &config, &sb.config); err != nil {
		return "", &podstatus.StartError{Reason: podstatus.ReasonCreateError, Err: err}
	}
	c.volumes.relabeled.recordRelabeled(sb.id, pod, start.Container)
	c.resizer.recordCreatedSize(id, size)
	return id, nil
}

// buildConfig returns the CRI config of a container, and completes launch with volumes, devices, references, hosts and message
// file.
func (c *creator) buildConfig(
	ctx context.Context, pod *corev1.Pod, start plan.Start, sandboxID string, launch podspec.Launch,
) (config cri.ContainerConfig, err error) {
	if err = c.volumes.addToLaunch(ctx, pod, start.Container, sandboxID, &launch); err != nil {
		return config, err
	}
	if err = c.devices.addToLaunch(ctx, pod, start.Container, &launch); err != nil {
		return config, err
	}
	if launch.References, err = podspec.ResolveReferences(ctx, pod, start.Container, c.node.Objects, launch.Volumes); err != nil {
		return config, err
	}
	if launch.HostsPath, err = c.mounts.WriteHostsFile(pod, launch.PodIPs, c.node.Spec); err != nil {
		return config, err
	}
	if launch.TerminationLogPath, err = c.mounts.CreateMessageFile(start.Container.Name, start.Attempt); err != nil {
		return config, err
	}
	return podspec.Container(pod, start.Container, launch, c.node.Spec)
}
