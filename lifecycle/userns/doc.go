// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package userns assigns each pod that has a user namespace a range of user and group IDs of the host, which no other pod
// of the node has. It creates no namespace; the runtime does.
//
// # Model
//
// A range is written to the file "userns" in the pod's directory, in the format of the kubelet (with its default of 65,536
// IDs for each pod), and belongs to the pod until that directory is removed. Nothing is kept in memory, so an agent that
// restarts does not assign a range that is in use.
//
//	ranges, err := userns.New("/var/lib/agent/pods", userns.Options{})
//	options := podspec.Options{UserNamespace: ranges.Of}
//
// What belongs here: the choice of a range and its file. What does not: the mappings of a sandbox (package podspec), and the
// removal of a pod's directory (package lifecycle).
//
// # Concurrency
//
// [Ranges] may be used from several goroutines. For one directory there is one Ranges at a time.
//
// # Errors
//
// An error names the pod, and the file if one cannot be read: no range is assigned while one that is in use may be unknown.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/userns/userns_manager.go of Kubernetes 1.37 and KEP-127. The number of IDs for each pod is fixed,
// and the host's subordinate IDs (getsubids) are not read: Options.First and Options.Count say which ranges there are.
//
// Test kit: Ranges on a directory below testing.T.TempDir.
package userns
