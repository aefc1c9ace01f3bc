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

// creator creates containers, with their images, volumes, files and environment.
type creator struct {
	node     *Node
	reporter *Reporter
	puller   *puller
	volumes  *Volumes
	quota    *Quota
	resizer  *Resizer
	mounts   poddir.Dir // of the files that containers mount; empty: they mount none
}

// create creates a container, with its image, and returns its ID.
func (c *creator) create(ctx context.Context, pod *corev1.Pod, s plan.Start, sb *sandbox) (id string, err error) {
	launch := podspec.Launch{Attempt: s.Attempt, PodIPs: sb.ips, Annotations: s.Annotations(), TargetID: s.TargetID}
	size := resize.SizeOf(&pod.Spec, s.Container)
	launch.Annotations[resize.AnnotationResources] = resize.FormatSize(size)
	release := c.puller.hold(pod, s.Container)
	defer release()
	if c.node.Images != nil {
		image, err := c.puller.pull(ctx, pod, s.Container, &sb.config)
		if err != nil {
			return "", err
		}
		launch.Image, launch.ImageRef = &image, image.ID
	}
	if launch.Volumes, err = c.puller.pullVolumes(ctx, pod, s.Container, &sb.config); err != nil {
		return "", err
	}
	config, err := c.configure(ctx, pod, s, sb.id, launch)
	if err != nil {
		return "", &podstatus.StartError{Reason: podstatus.ReasonCreateConfigError, Err: err}
	}
	c.node.Mark(config.Labels)
	if logs := sb.config.LogDirectory; logs != "" && config.LogPath != "" {
		if err := os.MkdirAll(filepath.Join(logs, filepath.Dir(config.LogPath)), 0o755); err != nil {
			return "", &podstatus.StartError{Reason: podstatus.ReasonCreateError, Err: err}
		}
	}
	c.quota.liftAgain(ctx, pod)
	if id, err = c.node.Runtime.CreateContainer(ctx, sb.id, &config, &sb.config); err != nil {
		return "", &podstatus.StartError{Reason: podstatus.ReasonCreateError, Err: err}
	}
	c.volumes.relabeled.created(sb.id, pod, s.Container)
	c.resizer.created(id, size)
	return id, nil
}

// configure returns the config of a container, with its volumes, its environment and its files.
func (c *creator) configure(
	ctx context.Context, pod *corev1.Pod, s plan.Start, sandboxID string, l podspec.Launch,
) (config cri.ContainerConfig, err error) {
	if err = c.volumes.addTo(ctx, pod, s.Container, sandboxID, &l); err != nil {
		return config, err
	}
	if l.References, err = podspec.ResolveReferences(ctx, pod, s.Container, c.node.Objects, l.Volumes); err != nil {
		return config, err
	}
	if l.HostsPath, err = c.mounts.Hosts(pod, l.PodIPs, c.node.Spec); err != nil {
		return config, err
	}
	if l.TerminationLogPath, err = c.mounts.MakeMessageFile(s.Container.Name, s.Attempt); err != nil {
		return config, err
	}
	return podspec.Container(pod, s.Container, l, c.node.Spec)
}
