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

// Container returns the CRI config of a container of the pod. c must point into pod, and pod must have passed podapi.Default,
// podapi.Validate and podapi.Unsupported.
func Container(pod *corev1.Pod, c *corev1.Container, l Launch, o Options) (cri.ContainerConfig, error) {
	env, err := podenv.New(pod, c, l.envSources(o))
	if err != nil {
		return cri.ContainerConfig{}, err
	}
	config, err := containerConfig(pod, c, podfield.PathOf(&pod.Spec, c.Name), env, l, o)
	return config, fielderr.ShortOne(err)
}

// containerConfig builds the config of container c with its environment env. path is the field path of c in the pod, for errors.
func containerConfig(
	pod *corev1.Pod, c *corev1.Container, path *field.Path, env *podenv.Environment, l Launch, o Options,
) (cri.ContainerConfig, error) {
	command, err := env.Expand(c.Command, path.Child("command"))
	if err != nil {
		return cri.ContainerConfig{}, err
	}
	args, err := env.Expand(c.Args, path.Child("args"))
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
		Env:         env.List(),
		CDIDevices:  l.CDIDevices,
		Labels:      containerLabels(pod, c),
		Annotations: containerAnnotations(pod, c, l),
		LogPath:     o.logPath(c.Name, l.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		TTY:         c.TTY,
		StopSignal:  cri.Signal(*optional.OrZero(optional.OrZero(c.Lifecycle).StopSignal)),
	}
	if err = checkMetadataSize(path, config.Labels, config.Annotations, podfield.MaxListed); err != nil {
		return cri.ContainerConfig{}, err
	}
	if config.Mounts, err = containerMounts(pod, c, path, env, l, o); err != nil {
		return cri.ContainerConfig{}, err
	}
	if config.Devices, err = containerDevices(c, path, l); err != nil {
		return cri.ContainerConfig{}, err
	}
	if config.Security, err = containerSecurity(pod, c, path.Child("securityContext"), l, o); err != nil {
		return cri.ContainerConfig{}, err
	}
	if config.Resources, err = Resources(pod, c, o); err != nil {
		return cri.ContainerConfig{}, err
	}
	setIDMappings(config.Mounts, config.Security.Namespaces.User)
	return config, nil
}

// checkMetadataSize returns an error if labels and annotations together exceed limit bytes: the runtime returns them in its
// lists, whose size is limited.
func checkMetadataSize(path *field.Path, labels, annotations map[string]string, limit int) error {
	if podfield.MapSize(labels)+podfield.MapSize(annotations) > limit {
		return fielderr.TooLong(path, "labels and annotations may not be more than %d bytes in all", limit)
	}
	return nil
}
