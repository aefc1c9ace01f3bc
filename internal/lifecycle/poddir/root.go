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

// Files in the root directory that belong to no pod. No pod UID starts with a dot.
const (
	lockName  = ".lock"
	ownerName = ".owner"
)

// LockedRoot is the root directory of pod directories, locked by this agent.
type LockedRoot struct {
	Owner string // marks the pods of this agent: its name or, if it has none, the ID stored in the root

	lock *dirlock.Lock
}

// Release unlocks the root directory, so that another agent can use it.
func (c *LockedRoot) Release() error { return c.lock.Release() }

// LockRoot creates the root directory if necessary, locks it, and creates its spare files. The directory belongs to the
// agent called agentName. If agentName is empty, the owner is a random ID that is stored in the directory.
func LockRoot(root, agentName string) (*LockedRoot, error) {
	if err := os.MkdirAll(root, 0o750); err != nil {
		return nil, fmt.Errorf("create directory of pods: %w", err)
	}
	lock, err := dirlock.Acquire(root, lockName)
	if err != nil {
		return nil, fmt.Errorf("lock directory of pods %s: %w", root, err)
	}
	_ = createSpares(root) // a full disk has fewer spare files or none
	if agentName != "" {
		return &LockedRoot{Owner: agentName, lock: lock}, nil
	}
	owner, err := loadOwner(filepath.Join(root, ownerName))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("owner of pods: %w", err), lock.Release())
	}
	return &LockedRoot{Owner: owner, lock: lock}, nil
}

// loadOwner returns the owner ID in the file at path, which it creates with a random ID if it is missing.
func loadOwner(path string) (string, error) {
	if err := atomicfile.Clean(path); err != nil {
		return "", err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		var id [8]byte
		rand.Read(id[:]) // never fails
		owner := hex.EncodeToString(id[:])
		// Synced to disk, because the pods will be labeled with this ID.
		return owner, atomicfile.WriteFile(path, []byte(owner+"\n"), 0o600)
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: not a regular file: %s", path, info.Mode())
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
