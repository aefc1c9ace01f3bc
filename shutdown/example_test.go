// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shutdown_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/shutdown"
)

// A program with its own reconciler stops pods with the reason of the kubelet, which controllers evaluate. For a
// lifecycle.Reconciler, NewForPods and Inhibitor.Admit use these reasons.
func ExampleNew() {
	stopped := &podstatus.Eviction{Reason: shutdown.ReasonTerminated, Message: shutdown.MessageTerminated}
	rejected := &podstatus.Rejection{Reason: shutdown.ReasonRejected, Message: shutdown.MessageRejected} // for pods that are added during the shutdown
	inhibitor, err := shutdown.New(shutdown.Options{
		Periods: shutdown.Periods(30*time.Second, 10*time.Second),
		Pods:    func() []*corev1.Pod { return nil },
		Stop: func(_ context.Context, pod *corev1.Pod, grace time.Duration) error {
			fmt.Println("stop", pod.Name, "within", grace, stopped.Reason)
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(inhibitor.ShuttingDown(), inhibitor.WatchError())
	fmt.Println(rejected)
	// Output:
	// false logind was not reached yet
	// NodeShutdown: Pod was rejected as the node is shutting down.
}

func ExampleGroups() {
	web, dns := pod("web", 0, 30), pod("dns", shutdown.CriticalPriority, 30)
	for _, group := range shutdown.Groups(shutdown.Periods(30*time.Second, 10*time.Second), []*corev1.Pod{dns, web}) {
		for _, pod := range group.Pods {
			fmt.Println(pod.Name, group.Grace(pod))
		}
	}
	// Output:
	// web 20s
	// dns 10s
}
