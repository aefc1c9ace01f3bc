// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// makeHealth returns count devices, of which every tenth is unhealthy.
func makeHealth(resource corev1.ResourceName, count int) []corev1.ResourceStatus {
	r := corev1.ResourceStatus{Name: resource}
	for i := range count {
		d := corev1.ResourceHealth{ResourceID: corev1.ResourceID(fmt.Sprintf("GPU-%05d", i)), Health: corev1.ResourceHealthStatusHealthy}
		if i%10 == 9 {
			d.Health = corev1.ResourceHealthStatusUnhealthy
		}
		r.Resources = append(r.Resources, d)
	}
	return []corev1.ResourceStatus{r}
}

// describeCounts returns the number of healthy and unhealthy devices of each container.
func describeCounts(health map[string][]corev1.ResourceStatus) string {
	text := ""
	for _, name := range []string{"a", "b"} {
		counts := map[corev1.ResourceHealthStatus]int{}
		for _, d := range health[name][0].Resources {
			counts[d.Health]++
		}
		text += fmt.Sprintf("%s: %d healthy, %d unhealthy; ", name, counts[corev1.ResourceHealthStatusHealthy], counts[corev1.ResourceHealthStatusUnhealthy])
	}
	return text
}

func TestLimitDeviceHealthOmitsHealthyDevicesFirst(t *testing.T) {
	size := len("GPU-00000") + deviceHealthOverhead
	for _, tc := range []struct {
		limit int
		want  string
	}{
		{2000 * size, "a: 900 healthy, 100 unhealthy; b: 900 healthy, 100 unhealthy; "},
		{2000*size - 1, "a: 900 healthy, 100 unhealthy; b: 899 healthy, 100 unhealthy; "},
		{700 * size, "a: 500 healthy, 100 unhealthy; b: 0 healthy, 100 unhealthy; "},
		{150 * size, "a: 0 healthy, 100 unhealthy; b: 0 healthy, 50 unhealthy; "},
		{0, "a: 0 healthy, 0 unhealthy; b: 0 healthy, 0 unhealthy; "},
	} {
		health := map[string][]corev1.ResourceStatus{"a": makeHealth("example.com/gpu", 1000), "b": makeHealth("example.com/gpu", 1000)}
		require.Equal(t, tc.want, describeCounts(limitDeviceHealth(health, tc.limit)), "limit %d", tc.limit)
		require.Equal(t, "a: 900 healthy, 100 unhealthy; b: 900 healthy, 100 unhealthy; ", describeCounts(health), "the argument is unchanged")
	}
	require.Nil(t, limitDeviceHealth(nil, 1))
}

// The status of a pod with 10,000 devices fits into an object of the API server. A resource without devices stays, so that its name is known.
func TestDeviceHealthOf10000DevicesFitsIntoAStatus(t *testing.T) {
	health := map[string][]corev1.ResourceStatus{"a": makeHealth("example.com/gpu", 10_000), "b": makeHealth("example.com/nic", 10_000)}
	limited := limitDeviceHealth(health, maxDeviceHealth)
	text, err := json.Marshal(limited)
	require.NoError(t, err)
	require.Less(t, len(text), maxDeviceHealth+200)
	require.Greater(t, len(text), maxDeviceHealth*9/10)
	require.Equal(t, corev1.ResourceName("example.com/nic"), limited["b"][0].Name)
}
