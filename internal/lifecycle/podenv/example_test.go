// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
)

func ExampleNew() {
	container := corev1.Container{
		Name: "web", Command: []string{"serve", "--url=$(URL)"},
		Env: []corev1.EnvVar{
			{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}},
			{Name: "URL", Value: "http://$(IP):8080"},
		},
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}
	c := &pod.Spec.Containers[0]
	env, err := podenv.New(pod, c, podenv.Sources{PodIPs: []string{"10.0.0.2"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	command, err := env.Expand(c.Command, field.NewPath("spec", "containers").Index(0).Child("command"))
	fmt.Println(env.List(), command, err)
	// Output: [{IP 10.0.0.2} {URL http://10.0.0.2:8080}] [serve --url=http://10.0.0.2:8080] <nil>
}
