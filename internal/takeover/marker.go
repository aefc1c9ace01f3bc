// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package takeover finds out whether a kubelet has run on the node since this agent did, and removes the records that are then out of date. It
// interprets no file of the kubelet.
//
//	takeover.RemoveStale(dir, logger, checkpoints...) // at the start, before the records are read
//	err := takeover.Mark(temporary, path)              // before this agent renames a new socket to path, dir + "/pod-resources/kubelet.sock"
//
// # Model
//
// Each kubelet replaces the socket of the podresources API when it starts, and never removes it. [Mark] adds a hard link to the socket of this agent. If
// a socket is there at the next start, and is not marked, a kubelet has run. The link keeps the inode, so that no other socket gets its number. Two
// sockets are marked, the served one and the next one, because the agent may be killed before or after the rename. [RemoveStale] marks the socket of the
// kubelet, so that one run of a kubelet causes one removal.
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

// Ends of the names of the hard links to marked sockets.
const (
	markSuffix = ".nodeagent"      // the socket before the last one
	nextSuffix = ".nodeagent.next" // the last marked socket
)

// Mark marks a new socket, which the caller renames from temporary to path. The socket that path has until then stays marked.
func Mark(temporary, path string) error {
	next := path + nextSuffix
	isNext, err := isSameFile(path, next)
	if err == nil && isNext {
		err = os.Rename(next, path+markSuffix)
	}
	if err == nil {
		err = removeFile(next) // rename(2) keeps it if both names are links to one file
	}
	if err == nil {
		err = os.Link(temporary, next)
	}
	if err != nil {
		return fmt.Errorf("mark a socket of the podresources API: %w", err)
	}
	return nil
}

// hasKubeletRun reports whether the socket at path exists and is not marked.
func hasKubeletRun(path string) (bool, error) {
	served, err := statIfExists(path)
	if served == nil || err != nil { // an agent that stops removes its socket
		return false, err
	}
	isLast, err := isSameFile(path, path+markSuffix)
	isNext, nextErr := isSameFile(path, path+nextSuffix)
	return !isLast && !isNext, errors.Join(err, nextErr)
}

// isSameFile reports whether both files exist, and are links to one file.
func isSameFile(a, b string) (bool, error) {
	first, err := statIfExists(a)
	second, secondErr := statIfExists(b)
	if err = errors.Join(err, secondErr); err != nil || first == nil || second == nil {
		return false, err
	}
	return os.SameFile(first, second), nil
}

// statIfExists returns nil for a file that does not exist.
func statIfExists(path string) (fs.FileInfo, error) {
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
