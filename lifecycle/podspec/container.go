// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// Container returns the CRI config of a container of the pod. container must point into the pod. The pod must have passed
// podapi.Default, podapi.Validate and podapi.Unsupported.
func Container(pod *corev1.Pod, container *corev1.Container, launch Launch, opts Options) (cri.ContainerConfig, error) {
	env, err := podenv.New(pod, container, launch.envSources(opts))
	if err != nil {
		return cri.ContainerConfig{}, err
	}
	config, err := containerConfig(pod, container, podfield.PathOf(&pod.Spec, container.Name), env, launch, opts)
	return config, fielderr.ShortOne(err)
}

// containerConfig returns the CRI config of a container with the environment env. Errors start with path, the field path of
// the container.
func containerConfig(
	pod *corev1.Pod, container *corev1.Container, path *field.Path, env *podenv.Environment, launch Launch, opts Options,
) (cri.ContainerConfig, error) {
	command, err := env.Expand(container.Command, path.Child("command"))
	if err != nil {
		return cri.ContainerConfig{}, err
	}
	args, err := env.Expand(container.Args, path.Child("args"))
	if err != nil {
		return cri.ContainerConfig{}, err
	}
	config := cri.ContainerConfig{
		Name:        container.Name,
		Attempt:     launch.Attempt,
		Image:       cri.ImageSpec{Image: cmp.Or(launch.ImageRef, container.Image), UserSpecifiedImage: container.Image},
		Command:     command,
		Args:        args,
		WorkingDir:  container.WorkingDir,
		Env:         env.List(),
		CDIDevices:  launch.CDIDevices,
		Labels:      containerLabels(pod, container),
		Annotations: containerAnnotations(pod, container, launch),
		LogPath:     opts.logPath(container.Name, launch.Attempt),
		Stdin:       container.Stdin,
		StdinOnce:   container.StdinOnce,
		TTY:         container.TTY,
		StopSignal:  cri.Signal(*optional.OrZero(optional.OrZero(container.Lifecycle).StopSignal)),
	}
	if err = checkMetadataSize(path, config.Labels, config.Annotations, podfield.MaxListed); err != nil {
		return cri.ContainerConfig{}, err
	}
	if config.Mounts, err = containerMounts(pod, container, path, env, launch, opts); err != nil {
		return cri.ContainerConfig{}, err
	}
	if config.Devices, err = containerDevices(container, path, launch); err != nil {
		return cri.ContainerConfig{}, err
	}
	if config.Security, err = containerSecurity(pod, container, path.Child("securityContext"), launch, opts); err != nil {
		return cri.ContainerConfig{}, err
	}
	if config.Resources, err = Resources(pod, container, opts); err != nil {
		return cri.ContainerConfig{}, err
	}
	config.Resources.CpusetCPUs, config.Resources.CpusetMems = launch.CPUs, launch.MemoryNodes
	setIDMappings(config.Mounts, config.Security.Namespaces.User)
	return config, nil
}

// checkMetadataSize returns an error for the field at path if the labels and annotations together exceed limit bytes.
func checkMetadataSize(path *field.Path, labels, annotations map[string]string, limit int) error {
	// The runtime returns them in its lists, whose size is limited.
	if podfield.MapSize(labels)+podfield.MapSize(annotations) > limit {
		return fielderr.TooLong(path, "labels and annotations may not be more than %d bytes in all", limit)
	}
	return nil
}
