// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
)

func ExampleNewReporter() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	reporter, err := heartbeat.NewReporter(server.Config(), heartbeat.ReporterOptions{
		Config: nodestatus.Config{Name: "edge-1"},
		Hooks: heartbeat.ReporterHooks{Registered: func(node *corev1.Node) {
			fmt.Println("registered", node.Name, node.UID != "")
			cancel()
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := reporter.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: registered edge-1 true
}

func ExampleNewLease() {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	if err := server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	lease, err := heartbeat.NewLease(server.Config(), heartbeat.LeaseOptions{
		NodeName: "edge-1",
		Hooks:    heartbeat.LeaseHooks{Renewed: func(time.Time) { cancel() }},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := lease.Run(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("renewed")
	// Output: renewed
}
