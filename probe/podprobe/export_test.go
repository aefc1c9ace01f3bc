// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// GracePeriod returns the grace period of a container whose probe p has failed.
func GracePeriod(pod *corev1.Pod, p *corev1.Probe) time.Duration { return gracePeriod(pod, p) }
