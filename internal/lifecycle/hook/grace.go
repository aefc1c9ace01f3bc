// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// MinimumGrace is the least grace period of every container, even if the grace period of the pod is used up. Source:
// minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime/kuberuntime_manager.go.
const MinimumGrace = 2 * time.Second

// Budget returns the time that a container gets to stop: the grace period minus the run time of its preStop handler and the
// wait for other containers. Only whole seconds are subtracted, and the result is at least [MinimumGrace]. Source:
// killContainer in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func Budget(grace, hookTook, waited time.Duration) time.Duration {
	return max(subtractSeconds(subtractSeconds(grace, hookTook), waited), MinimumGrace)
}

// subtractSeconds subtracts the whole seconds of d from grace. It ignores a negative d, which can result from a clock
// change.
func subtractSeconds(grace, d time.Duration) time.Duration {
	return grace - max(d, 0).Truncate(time.Second)
}
