// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Summary returns a one-line text about the status for logs: ready containers, restarts, and the reason of the last container
// that is not ready, or of the pod.
func Summary(status *corev1.PodStatus) string {
	ready, restarts, reason := 0, int32(0), status.Reason
	for _, c := range status.ContainerStatuses {
		restarts += c.RestartCount
		switch s := c.State; {
		case c.Ready:
			ready++
		case s.Waiting != nil:
			reason = s.Waiting.Reason
		case s.Terminated != nil:
			reason = s.Terminated.Reason + " " + s.Terminated.Message
		}
	}
	return fmt.Sprintf("%d/%d restarts=%d %s", ready, len(status.ContainerStatuses), restarts, reason)
}
