// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// printer returns a hook that prints a line whenever what a user would look at has changed.
func printer() func(*corev1.Pod, *corev1.PodStatus) {
	var last sync.Map // of each pod's line, by UID
	return func(pod *corev1.Pod, st *corev1.PodStatus) {
		var restarts int32
		ready, reason := 0, st.Reason
		for _, c := range st.ContainerStatuses {
			restarts += c.RestartCount
			if c.Ready {
				ready++
			}
			switch {
			case c.State.Waiting != nil:
				reason = strings.TrimSpace(c.State.Waiting.Reason + " " + c.State.Waiting.Message)
			case c.State.Terminated != nil:
				reason = fmt.Sprintf("%s exit=%d", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
			}
		}
		now := fmt.Sprintf("%s ready=%d/%d restarts=%d %s", st.Phase, ready, len(st.ContainerStatuses), restarts, reason)
		if before, _ := last.Swap(pod.UID, now); before != now {
			line(pod.Namespace, pod.Name, now)
		}
	}
}

func line(namespace, name, what string) {
	fmt.Printf("%s %s/%s %s\n", time.Now().Format(time.TimeOnly), namespace, name, what)
}
