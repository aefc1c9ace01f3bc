// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package takeover finds out whether a kubelet has run on the node since this agent did, and removes the records that are then out of date. It reads
// nothing that the kubelet has written.
//
//	takeover.RemoveStale(dir, logger)                         // at the start, before the records are read
//	err := takeover.Mark(dir + "/pod-resources/kubelet.sock") // when this agent serves the socket
//
// # Model
//
// Each kubelet replaces the socket of the podresources API when it starts, and never removes it. [Mark] adds a hard link to the socket of this agent. If
// the socket is there at the next start, and is not the marked one, a kubelet has run. The link keeps the inode, so that no other socket gets its number.
// An agent that is killed before Mark is taken for a kubelet, which costs no more than its records.
//
// # Concurrency
//
// The functions may be called from any goroutine, one at a time for a directory.
//
// # Errors
//
// RemoveStale logs errors, and the agent continues: a record that cannot be removed is used.
//
// Test kit: none is needed; the sockets are real.
package takeover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// markSuffix is the end of the name of the hard link to the socket of this agent.
const markSuffix = ".nodeagent"

// Mark marks the socket at path as that of this agent.
func Mark(path string) error {
	mark := path + markSuffix
	temporary := mark + ".tmp"
	if err := removeFile(temporary); err != nil {
		return err
	}
	if err := os.Link(path, temporary); err != nil {
		return fmt.Errorf("mark the socket of this agent: %w", err)
	}
	// rename(2) does nothing if both names are links to one file.
	err := os.Rename(temporary, mark)
	return errors.Join(err, removeFile(temporary))
}

// hasKubeletRun reports whether another program than this agent has created the socket at path since the last Mark.
func hasKubeletRun(path string) (bool, error) {
	served, err := lstat(path)
	if err != nil {
		return false, err
	}
	marked, err := lstat(path + markSuffix)
	if err != nil {
		return false, err
	}
	return isForeign(served, marked), nil
}

// isForeign reports whether a socket was created by another program. served is the socket, which is nil after an agent has stopped; marked is the
// socket of this agent, which is nil before the first Mark.
func isForeign(served, marked fs.FileInfo) bool {
	return served != nil && (marked == nil || !os.SameFile(served, marked))
}

// lstat returns nil for a file that does not exist.
func lstat(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return info, err
}

// removeFile removes a file, which may be missing.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
