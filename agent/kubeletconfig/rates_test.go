// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

// Zero means no limit of events and pulls, and the limit of client-go for other requests, as in the kubelet.
func TestRatesFollowFields(t *testing.T) {
	for text, want := range map[string][3]kubeletconfig.Rate{
		"": {{PerSecond: 50, Burst: 100}, {PerSecond: 50, Burst: 100}, {PerSecond: 5, Burst: 10}},
		"kubeAPIQPS: 0\neventRecordQPS: 0\nregistryPullQPS: 0": {{PerSecond: 5, Burst: 100}, {PerSecond: -1, Burst: 100}, {PerSecond: -1, Burst: 10}},
		"kubeAPIQPS: 1\nkubeAPIBurst: 2\neventRecordQPS: 3\neventBurst: 4\nregistryPullQPS: 6\nregistryBurst: 7": {
			{PerSecond: 1, Burst: 2}, {PerSecond: 3, Burst: 4}, {PerSecond: 6, Burst: 7},
		},
	} {
		c := parse(t, text)
		require.NoError(t, c.Validate())
		assert.Equal(t, want, [3]kubeletconfig.Rate{c.APIRate(), c.EventRate(), c.PullRate()}, text)
	}
}
