// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/nodetest"
)

// A hundred nodes join an API server, which binds a pod to one of them.
func ExampleFleet() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	options := nodetest.FleetOptions{API: server, Events: nodetest.EventsNone}
	for i := range 100 {
		options.Nodes = append(options.Nodes, nodetest.Options{Name: fmt.Sprintf("n%02d", i)})
	}
	options.EventRecorded = func(node string, pod cri.PodIdentity, e podevents.Event) {
		if e.Reason == podevents.ReasonStartedContainer {
			fmt.Println(node, "runs", pod.Name)
			cancel()
		}
	}
	fleet, err := nodetest.NewFleet(ctx, options)
	if err != nil {
		panic(err)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n42", Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	pod.Namespace, pod.Name = "default", "web"
	podapi.Default(pod) // as a real API server does
	if err := server.Put(pod); err != nil {
		panic(err)
	}
	if err := fleet.Run(ctx); err != nil {
		panic(err)
	}
	// Output: n42 runs web
}
