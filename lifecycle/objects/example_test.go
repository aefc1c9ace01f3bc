// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

func ExampleMemory() {
	app := &corev1.ConfigMap{Data: map[string]string{"LEVEL": "info"}}
	app.Namespace, app.Name = "shop", "app"
	known := &objects.Memory{}
	if err := known.PutConfigMap(app); err != nil {
		fmt.Println(err)
	}

	source := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", EnvFrom: []corev1.EnvFromSource{source}}}}}
	pod.Namespace = "shop"
	c := &pod.Spec.Containers[0]
	refs, err := podspec.ResolveReferences(context.Background(), pod, c, known, nil)
	if err != nil {
		fmt.Println(err)
	}
	config, err := podspec.Container(pod, c, podspec.Launch{References: refs}, podspec.Options{})
	fmt.Println(config.Env, err)
	// Output:
	// [{LEVEL info}] <nil>
}
