// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/admission"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// advice returns how a user can make room for a rejected pod.
func advice(reason string) string {
	switch reason {
	case admission.ReasonOS, admission.ReasonOSSelector, admission.ReasonSupplementalGroups:
		return "the pod cannot run on this machine"
	case admission.ReasonNodeAffinity, admission.ReasonNodeName:
		return "change the labels of the node, or the pod"
	case admission.ReasonTaintToleration:
		return "remove the taint, or add a toleration"
	case admission.ReasonNodePorts:
		return "stop the pod that uses the port"
	}
	return "too little of a resource: " + reason
}

func ExampleAdmit() {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "edge-1"},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoExecute}}},
	}
	options := lifecycle.Options{Admit: admission.Admit(func() *corev1.Node { return node }), AdmitChecksNodeAffinity: true}
	port := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				Tolerations: []corev1.Toleration{{Key: "maintenance", Operator: corev1.TolerationOpExists}},
				Containers:  []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}},
			},
		}
	}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
	for _, pod := range []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, port("proxy")} {
		err := options.Admit(context.Background(), pod, []*corev1.Pod{port("other")})
		if rejection, ok := errors.AsType[*podstatus.Rejection](err); ok {
			fmt.Println(pod.Name, advice(rejection.Reason))
		}
	}
	// Output:
	// web remove the taint, or add a toleration
	// proxy stop the pod that uses the port
}

// A device plugin is not connected yet after a restart of its node. Its pods wait in lifecycle.Options.Devices, and are not rejected here.
func ExampleWithoutResources() {
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("10"), "example.com/gpu": resource.MustParse("0"),
	}}}
	gpu := corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: gpu, Limits: gpu}}}}}
	fmt.Println(admission.Check(pod, node, nil)[0].Reason)

	hasPlugin := func(name corev1.ResourceName) bool { return name == "example.com/gpu" }
	fmt.Println(admission.Check(pod, admission.WithoutResources(node, hasPlugin), nil))
	// Output:
	// OutOfexample.com/gpu
	// []
}
