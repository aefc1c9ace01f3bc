// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
)

// Launch is what is known of a container only when it is about to be created.
type Launch struct {
	Attempt  uint32     // how often it was restarted
	ImageRef string     // what to run, as the pull or the image's status gave it; empty: the name in the pod
	Image    *cri.Image // the image, for its user; nil where the runtime holds no images
	PodIPs   []string   // of the sandbox, in any order; none on the host's network, where the node's are taken

	// Env are variables that the node adds, such as those of services. Those of the container win, and can refer to
	// them.
	Env []cri.EnvVar
	// Annotations are those that devices ask for. The package's own win.
	Annotations map[string]string
}

// Container returns the config of a container of the pod. The pod has been through [Default], [Validate] and
// [Unsupported], and c points into it.
func Container(pod *corev1.Pod, c *corev1.Container, l Launch, o Options) (cri.ContainerConfig, error) {
	path := containerPath(pod, c)
	env, err := environment(pod, c, path.Child("env"), l, o)
	if err != nil {
		return cri.ContainerConfig{}, err
	}
	security, err := containerSecurity(pod, c, path.Child("securityContext"), l, o)
	if err != nil {
		return cri.ContainerConfig{}, err
	}
	resources, err := containerResources(pod, c, o)
	if err != nil {
		return cri.ContainerConfig{}, err
	}
	config := cri.ContainerConfig{
		Name:        c.Name,
		Attempt:     l.Attempt,
		Image:       cri.ImageSpec{Image: cmp.Or(l.ImageRef, c.Image), UserSpecifiedImage: c.Image},
		Command:     expandAll(c.Command, env.lookup),
		Args:        expandAll(c.Args, env.lookup),
		WorkingDir:  c.WorkingDir,
		Env:         env.list(),
		Labels:      containerLabels(pod, c),
		Annotations: containerAnnotations(pod, c, l),
		LogPath:     LogPath(c.Name, l.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		TTY:         c.TTY,
		Resources:   resources,
		Security:    security,
	}
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		config.StopSignal = cri.Signal(*c.Lifecycle.StopSignal)
	}
	return config, nil
}

// containerPath returns where a container is in its pod.
func containerPath(pod *corev1.Pod, c *corev1.Container) *field.Path {
	i := slices.IndexFunc(pod.Spec.Containers, func(other corev1.Container) bool { return other.Name == c.Name })
	return field.NewPath("spec", "containers").Index(i)
}

// expandAll expands a command. An empty one becomes nil, which leaves the choice to the image.
func expandAll(words []string, env func(string) (string, bool)) []string {
	var expanded []string
	for _, w := range words {
		expanded = append(expanded, Expand(w, env))
	}
	return expanded
}
