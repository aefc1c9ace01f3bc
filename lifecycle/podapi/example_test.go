// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

func ExampleValidate() {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "Web", Image: "nginx"}}}}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "1234"
	podapi.Default(pod)
	fmt.Println(pod.Spec.RestartPolicy, pod.Spec.Containers[0].ImagePullPolicy)
	for _, err := range podapi.Validate(pod) {
		fmt.Println(err.Field, err.BadValue)
	}
	// Output:
	// Always Always
	// spec.containers[0].name Web
}

func ExampleValidateUpdate() {
	old := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx:1"}}}}
	old.Name, old.Namespace, old.UID = "web", "default", "1234"
	pod := old.DeepCopy()
	pod.Spec.Containers[0].Image = "nginx:2"
	fmt.Println(podapi.ValidateUpdate(old, pod))
	pod.Spec.HostNetwork = true
	fmt.Println(podapi.ValidateUpdate(old, pod))
	// Output:
	// <nil>
	// pod default/web: UID 1234: spec.hostNetwork: Forbidden: may not change while the pod keeps its UID
}
