// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/probe/podprobe"
)

func ExampleTargets() {
	pod := newPod(corev1.Container{
		Name:           "web",
		ReadinessProbe: tcpProbe(intstr.FromInt32(8080)),
		LivenessProbe:  tcpProbe(intstr.FromString("https")),
	})
	targets, errs := podprobe.Targets(pod, &pod.Status, nil, podprobe.Options{})
	for _, t := range targets {
		fmt.Println(t.Container, t.Kind, t.ContainerID)
	}
	for _, err := range errs {
		fmt.Println(err)
	}
	// Output:
	// web Readiness id-web
	// web Liveness id-web
	// pod shop/web: container "web": livenessProbe.tcpSocket: field Port: "https" names no port of the container
}
