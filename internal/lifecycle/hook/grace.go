// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// MinimumGrace is the least grace period of every container, even if the grace period of the pod is used up. Source:
// minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime/kuberuntime_manager.go.
const MinimumGrace = 2 * time.Second

// Budget returns the grace period that remains for stopping a container. It subtracts hookTook, the run time of the preStop
// handler, and waited, the time spent waiting for other containers, from grace, the grace period of the pod. It subtracts whole
// seconds only. The result is at least [MinimumGrace]. Source: killContainer in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func Budget(grace, hookTook, waited time.Duration) time.Duration {
	return max(subtractSeconds(subtractSeconds(grace, hookTook), waited), MinimumGrace)
}

// subtractSeconds subtracts the whole seconds of d from grace. It ignores a negative d, which a clock change can cause.
func subtractSeconds(grace, d time.Duration) time.Duration {
	return grace - max(d, 0).Truncate(time.Second)
}
