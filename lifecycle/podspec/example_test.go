// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

func ExampleContainer() {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name:    "web",
		Image:   "nginx",
		Command: []string{"serve", "--port=$(PORT)"},
		Env:     []corev1.EnvVar{{Name: "PORT", Value: "8080"}},
	}}}}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "1234"
	podapi.Default(pod)
	errs := append(podapi.Validate(pod), podapi.Unsupported(pod)...)
	config, err := podspec.Container(pod, &pod.Spec.Containers[0], podspec.Launch{Image: &cri.Image{Username: "www"}}, podspec.Options{LogRoot: podspec.DefaultLogRoot})
	fmt.Println(errs.ToAggregate(), err)
	fmt.Println(config.Command, config.LogPath, config.Security.RunAsUsername)
	// Output:
	// <nil> <nil>
	// [serve --port=8080] web/0.log www
}
