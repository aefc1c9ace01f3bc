// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeletconfig reads the configuration file of a kubelet and translates it into the options of this module's engines. It starts
// nothing, and reads no file but the bytes it is given.
//
//	c, err := kubeletconfig.Parse(data)
//	c.SetDefaults(kubeletconfig.Defaults{Cluster: true, RemoteRuntime: true})
//	err = c.Validate()
//	thresholds, err := c.Thresholds() // for eviction.Options
//
// Configuration has the Go types and the JSON of k8s.io/kubelet/config/v1beta1, without the 157 packages that package imports. Package
// conformance compares the two field by field, and the defaults.
//
// # Fields that are not supported
//
// Parse refuses a field of the kubelet that Configuration lacks, with its name, unless its value is empty (null, "", 0, "0s", {} or []), which
// means the kubelet's default. Unsupported lists these fields. A name that the kubelet does not know either is refused as well.
//
// # Defaults that differ from the kubelet's
//
//   - enableServer, authentication.webhook.enabled and registerNode are true only for a node of a cluster: without an API server there is
//     nobody to ask who a client is.
//   - cgroupsPerQOS is true only with a remote container runtime: plain processes have no cgroup.
//   - maxParallelImagePulls is 5; the kubelet pulls one image after the other unless it is set.
//
// All functions may be called from any goroutine; a Configuration is not safe for concurrent writes.
//
// Test kit: none is needed, as everything here is a pure function.
package kubeletconfig
