// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// If the startup probe of a container is invalid, its liveness probe does not run: it would kill a starting container.
func TestInvalidStartupProbeDisablesLivenessProbe(t *testing.T) {
	good, broken := tcpProbe(intstr.FromInt32(80)), tcpProbe(intstr.FromInt32(80))
	broken.PeriodSeconds = -1
	pod := newPod(corev1.Container{Name: "c", StartupProbe: broken, ReadinessProbe: good, LivenessProbe: good}, corev1.Container{Name: "d", LivenessProbe: good})
	for started, want := range map[bool]int{false: 1, true: 3} {
		pod.Status.ContainerStatuses[0].Started = &started
		list, errs := podprobe.Targets(pod, &pod.Status, nil, podprobe.Options{})
		require.Len(t, errs, 1)
		assert.ErrorContains(t, errs[0], `container "c": startupProbe.field Period: -1s`)
		assert.Len(t, list, want)
		assert.Equal(t, "d", list[len(list)-1].Container)
	}
}
