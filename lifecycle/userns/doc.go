// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package userns assigns a range of host user and group IDs to each pod with a user namespace. Ranges of pods do not overlap. It
// does not create namespaces; the runtime does.
//
//	ranges, err := userns.New("/var/lib/agent/pods", userns.Options{})
//	if err != nil {
//		return err
//	}
//	options.UserNamespace = ranges.Assign // podspec.Options: pods with hostUsers: false are supported
//
// # Model
//
// A range has 65,536 IDs, the kubelet's default. It is stored in the file "userns" in the pod's directory, in the kubelet's
// format, and is free again when package lifecycle removes that directory. No range is kept in memory, so a restarted agent does
// not assign a range that is in use. Package podspec puts the range into the config of the sandbox.
//
// # Concurrency
//
// [Ranges] may be used from several goroutines. Only one Ranges may use a directory at a time.
//
// # Errors
//
// An error names the pod. While the file of any pod cannot be read, no range is assigned, because the file may have any range. The
// error then names the file.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/userns/userns_manager.go of Kubernetes 1.37 and KEP-127. The number of IDs per pod is fixed. The
// subordinate IDs of the host (getsubids) are not read: Options.First and Options.Count limit the ranges.
//
// Test kit: use Ranges on a directory below testing.T.TempDir.
package userns
