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
		reason := st.Reason
		for _, c := range st.ContainerStatuses {
			restarts += c.RestartCount
			switch {
			case c.State.Waiting != nil:
				reason = strings.TrimSpace(c.State.Waiting.Reason + " " + c.State.Waiting.Message)
			case c.State.Terminated != nil:
				reason = fmt.Sprintf("%s exit=%d", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
			}
		}
		now := fmt.Sprint(st.Phase, restarts, reason)
		if before, _ := last.Swap(pod.UID, now); before != now {
			line(pod.Namespace, pod.Name, string(st.Phase), restarts, reason)
		}
	}
}

func line(namespace, name, phase string, restarts int32, reason string) {
	fmt.Printf("%s %s/%s %s restarts=%d %s\n", time.Now().Format(time.TimeOnly), namespace, name, phase, restarts, reason)
}
