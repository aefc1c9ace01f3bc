// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

// Rate limits requests: PerSecond on average, and Burst at once. A negative PerSecond means no limit.
type Rate struct {
	PerSecond float32
	Burst     int
}

// defaultClientQPS is the limit of client-go for a client with the limit zero, such as a kubelet with kubeAPIQPS: 0.
const defaultClientQPS = 5

// APIRate returns the limit of requests to the API server, in kubeAPIQPS and kubeAPIBurst. Call it after SetDefaults.
func (c *Configuration) APIRate() Rate {
	if *c.KubeAPIQPS == 0 {
		return Rate{PerSecond: defaultClientQPS, Burst: int(c.KubeAPIBurst)}
	}
	return newRate(*c.KubeAPIQPS, c.KubeAPIBurst)
}

// EventRate returns the limit of requests for events, in eventRecordQPS and eventBurst. Call it after SetDefaults.
func (c *Configuration) EventRate() Rate { return newRate(*c.EventRecordQPS, c.EventBurst) }

// PullRate returns the limit of image pulls, in registryPullQPS and registryBurst. Call it after SetDefaults.
func (c *Configuration) PullRate() Rate { return newRate(*c.RegistryPullQPS, c.RegistryBurst) }

// newRate returns a rate in which zero means no limit.
func newRate(perSecond, burst int32) Rate {
	if perSecond == 0 {
		return Rate{PerSecond: -1, Burst: int(burst)}
	}
	return Rate{PerSecond: float32(perSecond), Burst: int(burst)}
}
