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

// A program that lists the containers of a runtime finds the containers that the agent will replace because the image in the
// pod has changed.
func ExampleHasHash() {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx:1"}}}}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "1234"
	podapi.Default(pod)
	c := &pod.Spec.Containers[0]
	config, err := podspec.Container(pod, c, podspec.Launch{Image: &cri.Image{}, Attempt: 2}, podspec.Options{})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println("restarts:", config.Annotations[podspec.AnnotationRestartCount])
	fmt.Println("outdated:", !podspec.HasHash(c, config.Annotations[podspec.AnnotationHash]))
	c.Image = "nginx:2"
	fmt.Println("outdated:", !podspec.HasHash(c, config.Annotations[podspec.AnnotationHash]))
	// Output:
	// restarts: 2
	// outdated: false
	// outdated: true
}

// A node whose /etc/resolv.conf names a stub resolver gives pods another file, like resolvConf in the kubelet's configuration.
func ExampleParseResolvConf() {
	dns, err := podspec.ParseResolvConf([]byte("# from the DHCP server\nnameserver 192.0.2.53\nsearch example.com.\noptions ndots:2\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	options := podspec.Options{ResolvConf: func() (*cri.DNSConfig, error) { return dns, nil }}
	host, err := options.ResolvConf()
	fmt.Println(host.Servers, host.Searches, host.Options, err)
	// Output: [192.0.2.53] [example.com] [ndots:2] <nil>
}
