// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
)

// Container returns the config of a container of the pod. The pod has been through [Default], [Validate] and
// [Unsupported], and c points into it.
func Container(pod *corev1.Pod, c *corev1.Container, l Launch, o Options) (cri.ContainerConfig, error) {
	config, err := containerConfig(pod, c, containerPath(pod, c), l, o)
	return config, conciseError(err)
}

func containerConfig(pod *corev1.Pod, c *corev1.Container, path *field.Path, l Launch, o Options) (cri.ContainerConfig, error) {
	env, err := environment(pod, c, path, l, o)
	if err != nil {
		return cri.ContainerConfig{}, err
	}
	command, err := env.room.expand(c.Command, path.Child("command"), env.lookup)
	if err != nil {
		return cri.ContainerConfig{}, err
	}
	args, err := env.room.expand(c.Args, path.Child("args"), env.lookup)
	if err != nil {
		return cri.ContainerConfig{}, err
	}
	config := cri.ContainerConfig{
		Name:        c.Name,
		Attempt:     l.Attempt,
		Image:       cri.ImageSpec{Image: cmp.Or(l.ImageRef, c.Image), UserSpecifiedImage: c.Image},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Env:         env.list(),
		CDIDevices:  l.CDIDevices,
		Labels:      containerLabels(pod, c),
		Annotations: containerAnnotations(pod, c, l),
		LogPath:     o.logPath(c.Name, l.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		TTY:         c.TTY,
		StopSignal:  cri.Signal(*orZero(orZero(c.Lifecycle).StopSignal)),
	}
	if err = checkListed(path, config.Labels, config.Annotations, MaxListed); err != nil {
		return cri.ContainerConfig{}, err
	}
	if config.Mounts, err = mounts(pod, c, path, env, l, o); err != nil {
		return cri.ContainerConfig{}, err
	}
	if config.Devices, err = devices(c, path, l); err != nil {
		return cri.ContainerConfig{}, err
	}
	if config.Security, err = containerSecurity(pod, c, path.Child("securityContext"), l, o); err != nil {
		return cri.ContainerConfig{}, err
	}
	if config.Resources, err = Resources(pod, c, o); err != nil {
		return cri.ContainerConfig{}, err
	}
	mapMounts(config.Mounts, config.Security.Namespaces.User)
	return config, nil
}

// containerPath returns where a container is in its pod.
func containerPath(pod *corev1.Pod, c *corev1.Container) *field.Path {
	return find(&pod.Spec, c.Name).path
}
