// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeletconfig reads the configuration of a node, sets its defaults, checks it, and translates it into the options of this module's
// engines. It starts nothing.
//
//	d, err := kubeletconfig.Load("/etc/nodeagent/agent.yaml")
//	err = d.SetDefaults()
//	err = d.Validate()
//	rules, err := d.Kubelet.EvictionRules() // for eviction.Options
//
// The file has two documents: the Configuration is that of the kubelet, and the NodeConfiguration has the settings that a kubelet takes from its
// flags, and settings that no kubelet has. Parse reads a Configuration alone.
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
//   - enableServer, authentication.webhook.enabled and registerNode are true only for a node of a cluster: without an API server no client can
//     be authenticated.
//   - cgroupsPerQOS is true only with a remote container runtime: plain processes have no cgroup.
//   - maxParallelImagePulls is 5; the kubelet pulls one image after the other unless it is set.
//
// All functions may be called from any goroutine; a Configuration is not safe for concurrent writes.
//
// Test kit: none is needed; only Load reads a file.
package kubeletconfig
