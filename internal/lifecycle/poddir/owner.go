// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/dirlock"
)

// Files of a root beside the directories of pods. No pod has such a UID.
const (
	lockName  = ".lock"
	ownerName = ".owner"
)

// Claimed is a root that one agent has locked.
type Claimed struct {
	Owner string // of the pods: the name of the agent or, where it has none, the ID that is kept in the root

	lock *dirlock.Lock
}

// Release unlocks the root.
func (c *Claimed) Release() error { return c.lock.Release() }

// Claim locks a root, which it creates when needed, until the result is released. named is the owner of the pods; empty: the ID that is
// kept in the root.
func Claim(root, named string) (*Claimed, error) {
	if err := os.MkdirAll(root, 0o750); err != nil {
		return nil, fmt.Errorf("directory of pods: %w", err)
	}
	lock, err := dirlock.Take(root, lockName)
	if err != nil {
		return nil, fmt.Errorf("directory of pods %s: %w", root, err)
	}
	_ = fillSpare(root) // on a disk that is full already there are fewer, or none
	if named != "" {
		return &Claimed{Owner: named, lock: lock}, nil
	}
	owner, err := keptOwner(filepath.Join(root, ownerName))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("owner of pods: %w", err), lock.Release())
	}
	return &Claimed{Owner: owner, lock: lock}, nil
}

// keptOwner returns the owner that a file names. Where there is no file it makes up an owner and writes it: the file is
// on the disk before anything is marked.
func keptOwner(path string) (string, error) {
	if err := atomicfile.Clean(path); err != nil {
		return "", err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		var id [8]byte
		rand.Read(id[:]) // which never fails
		owner := hex.EncodeToString(id[:])
		return owner, atomicfile.WriteFile(path, []byte(owner+"\n"), 0o600)
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: it is no regular file: %s", path, info.Mode())
	case info.Size() > 100:
		return "", fmt.Errorf("%s: it has %d bytes, not 16 hexadecimal digits", path, info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	kept := regexp.MustCompile(`^([0-9a-f]{16})\n?$`).FindSubmatch(data)
	if kept == nil {
		return "", fmt.Errorf("%s: %.32q is not 16 hexadecimal digits", path, data)
	}
	return string(kept[1]), nil
}
