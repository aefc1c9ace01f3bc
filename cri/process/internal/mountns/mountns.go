// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package mountns gives a thread a mount namespace of its own: that of the host, with the mounts of one container in it.
// Nothing that is mounted in it is seen on the host, but for what a mount with propagation Shared is told to show.
//
// # Mount points
//
// A mount point that is there is used. One that is missing is made without touching a file of the host:
//
//   - Inside another mount of the container it is made in what is mounted there, as container runtimes do.
//   - On the host's files, the deepest directory that is there is replaced, in the namespace alone, by a tmpfs that has the
//     same entries: each is the host's own, with what is mounted below it, and symbolic links are copied. The mount point
//     is made beside them. What the host adds to that very directory later is not seen, and what the container adds to it
//     ends with the container; below the entries all is as on the host.
//
// Symbolic links of the host are followed on the way to a mount point, those in a volume are not: their owner is the pod.
//
// # Concurrency
//
// [Enter] changes its thread for good, which must be locked and end with its goroutine. Others are not concerned.
//
// # Errors
//
// An error names source, target and the element that is to blame. Linux 5.12 is needed; an older kernel is
// [errors.ErrUnsupported].
//
// Test kit: package mounttest.
package mountns

// Propagation says in which directions mounts that are made later, at the source or below the target, are seen.
type Propagation string

// The propagations. Slave and Shared need a source that is on a shared mount of the host.
const (
	Private Propagation = ""       // neither way
	Slave   Propagation = "slave"  // those of the host in the container
	Shared  Propagation = "shared" // both ways
)

// Mount puts a file or a directory of the host, with what is mounted below it, at another path.
type Mount struct {
	Source    string // a directory is made there if nothing is there; links are followed
	MustExist bool   // where nothing is at Source is an error, as for a device
	Target    string // absolute and clean
	ReadOnly  bool
	// Recursive makes what is mounted below the source read-only too.
	Recursive             bool
	NoExec, NoDev, NoSuid bool // of the mount itself
	Propagation           Propagation
}
