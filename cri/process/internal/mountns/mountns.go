// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package mountns moves a thread to a new mount namespace: a copy of the host's, with the mounts of one container. The host does
// not see these mounts, except below mounts with propagation Shared.
//
// # Mount points
//
// An existing mount point is used. A missing one is created without changing a file of the host:
//
//   - Inside another mount of the container it is created in the mounted directory, as other container runtimes do.
//   - On the host's files, a tmpfs replaces the deepest existing directory, in the namespace only. It has the same entries: each
//     is a bind mount of the host's entry, and symbolic links are copied. The mount point is created beside them. Entries
//     that the host adds to that directory later are not visible, and entries that the container adds are lost at its end.
//
// Symbolic links of the host are followed on the way to a mount point. Links in a volume are not, because the pod controls them.
//
// # Concurrency
//
// [Enter] changes the calling thread permanently. The thread must be locked and end with its goroutine.
//
// # Errors
//
// An error names source, target and the failing path element. Kernels before Linux 5.12 return [errors.ErrUnsupported].
//
// Test kit: package mounttest.
package mountns

// Propagation determines whether later mounts, at the source or below the target, are visible on the other side.
type Propagation string

// The propagations. Slave and Shared require a source on a shared mount of the host.
const (
	Private Propagation = ""       // in neither direction
	Slave   Propagation = "slave"  // from the host to the container
	Shared  Propagation = "shared" // in both directions
)

// Mount is a bind mount of a file or directory of the host, including the mounts below it.
type Mount struct {
	Source    string // created as a directory if missing; links are followed
	MustExist bool   // a missing Source is an error, as for a device
	Target    string // absolute and clean path
	ReadOnly  bool
	// Recursive makes the mounts below the source read-only too.
	Recursive             bool
	NoExec, NoDev, NoSuid bool // of the mount itself, not of mounts below it
	Propagation           Propagation
}
