// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeletconfig reads the configuration of a node and its drop-ins, sets its defaults, checks it, and translates it into the options of
// this module's engines. It starts nothing, and parses no command line.
//
//	d, err := kubeletconfig.LoadDir("/etc/nodeagent/agent.yaml", "/etc/nodeagent/agent.conf.d")
//	err = d.SetDefaults()
//	err = d.Validate()
//	rules, err := d.Kubelet.EvictionRules() // for eviction.Options
//
// A file has two documents: the Configuration is that of the kubelet, and the NodeConfiguration has the settings that a kubelet takes from its
// flags, and settings that no kubelet has. Parse reads a Configuration alone.
//
// Configuration has the Go types and the JSON of k8s.io/kubelet/config/v1beta1, without the 157 packages that package imports. Package
// conformance compares fields, defaults, merging and validation with the kubelet.
//
// # Fields and gates that are not supported
//
// Each field and feature gate of the kubelet 1.37 has a [State], see [Fields], [Gates] and the page FIELDS.md. A value that is not supported is an
// error with name and value, unless it is the kubelet's default or has no effect here.
//
// # Differs from the kubelet
//
//   - Unknown and duplicate fields are errors; the kubelet ignores them in some files. Names are case-sensitive in drop-ins, too.
//   - Files and drop-ins are regular files of at most 1 MiB; at most 256 drop-ins are read. Links in the directory of drop-ins are errors, and so is
//     a link to this directory, from which the kubelet reads nothing.
//   - enableServer, authentication.webhook.enabled and registerNode are true by default only for a node of a cluster: without an API server no
//     client can be authenticated.
//   - cgroupsPerQOS is true by default only with a remote container runtime: plain processes have cgroups only with true, which takes root.
//     False does not need enforceNodeAllocatable.
//   - maxParallelImagePulls is 5 by default; the kubelet pulls one image after the other unless it is set.
//
// DIFFERENCES.md has the others.
//
// # Errors
//
// Errors of Load, LoadDir and, for documents that they return, of Validate have the file, the field and the value. Errors of Parse start with the
// field.
//
// All functions may be called from any goroutine; a Configuration is not safe for concurrent writes.
//
// Test kit: none is needed; only Load and LoadDir read files.
package kubeletconfig
