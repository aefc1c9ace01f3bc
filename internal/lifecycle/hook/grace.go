// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import "time"

// MinimumGrace is what every container gets to end by itself, also where nothing is left of the grace period.
// Source: minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime/kuberuntime_manager.go.
const MinimumGrace = 2 * time.Second

// Budget returns the grace with which a container is stopped: that of the pod, less what its preStop handler took and
// less what it then waited for other containers. Of both only whole seconds count, and at least [MinimumGrace] is left.
// Source: killContainer in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func Budget(grace, hookTook, waited time.Duration) time.Duration {
	return max(less(less(grace, hookTook), waited), MinimumGrace)
}

// less takes the whole seconds of d from a grace period. A clock that was set back adds none.
func less(grace, d time.Duration) time.Duration {
	return grace - max(d, 0).Truncate(time.Second)
}
