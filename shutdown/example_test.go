// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shutdown_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/shutdown"
)

func ExampleNew() {
	inhibitor, err := shutdown.New(shutdown.Options{
		Periods: shutdown.Periods(30*time.Second, 10*time.Second),
		Pods:    func() []*corev1.Pod { return nil },
		Stop:    func(context.Context, *corev1.Pod, time.Duration) error { return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(inhibitor.ShuttingDown(), inhibitor.Watching())
	// Output: false logind was not reached yet
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
