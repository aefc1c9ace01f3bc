// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package projquota

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxTries is how many project IDs are checked. Few of the 2^31 are in use.
const maxTries = 100

func (p *Projects) setLimit(dir string, bytes uint64) error {
	f, err := openDir(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	a, own, err := readProject(f, dir)
	if err != nil {
		return wrapError("look at project of", dir, err)
	}
	if own {
		return wrapError("limit", dir, writeLimit(f, a.project, bytes))
	}
	if err := checkEnforced(f); err != nil {
		return wrapError("look at quotas of", dir, err)
	}
	if _, err := f.Readdirnames(1); !errors.Is(err, io.EOF) {
		return wrapError("limit", dir, fmt.Errorf("it is not empty: %w", errors.ErrUnsupported))
	}
	id, err := p.findFreeID(f)
	if err == nil {
		err = writeLimit(f, id, bytes) // before any file can be written
	}
	if err == nil {
		a.project, a.flags = id, a.flags|flagInherit
		err = setAttr(f, a)
	}
	return wrapError("limit", dir, err)
}

// findFreeID returns a project ID that has neither usage nor a limit on the file system of f.
func (p *Projects) findFreeID(f *os.File) (uint32, error) {
	id := p.firstCandidate()
	for range maxTries {
		id = FirstID + (id-FirstID)%(lastID-FirstID+1)
		q, err := getQuota(f, id)
		if err != nil {
			return 0, err
		}
		if q == (projectQuota{valid: q.valid}) {
			return id, nil
		}
		id++
	}
	return 0, fmt.Errorf("no free project after %d tries", maxTries)
}

func usageOf(dir string) (u Usage, err error) {
	f, err := openDir(dir)
	if err != nil {
		return u, err
	}
	defer f.Close()
	a, own, err := readProject(f, dir)
	if err != nil || !own {
		return u, wrapError("look at project of", dir, errors.Join(err, errors.ErrUnsupported))
	}
	q, err := getQuota(f, a.project)
	if err != nil {
		return u, wrapError("read quota of", dir, err)
	}
	return Usage{Bytes: q.space, Inodes: q.inodes, Limit: q.hard * blockSize}, nil
}

func projectOf(dir string) uint32 {
	f, err := openDir(dir)
	if err != nil {
		return 0
	}
	defer f.Close()
	if a, own, err := readProject(f, dir); err == nil && own {
		return a.project
	}
	return 0
}

func releaseProject(dir string, id uint32) error {
	f, err := openDir(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return wrapError("release project on", dir, writeLimit(f, id, 0))
}

// readProject returns the project attributes of a directory. own means that Limit has assigned the project, not a parent.
func readProject(f *os.File, dir string) (a fileAttr, own bool, err error) {
	if a, err = getAttr(f); err != nil {
		return a, false, err
	}
	if a.flags&flagInherit == 0 || a.project < FirstID || a.project > lastID {
		return a, false, nil
	}
	parent, err := openDir(filepath.Dir(dir))
	if err != nil {
		return a, false, err
	}
	defer parent.Close()
	above, err := getAttr(parent)
	return a, err == nil && above.project != a.project, err
}

// wrapError returns err with action and dir, wrapping errors.ErrUnsupported without project quotas. nil remains nil.
func wrapError(action, dir string, err error) error {
	if err == nil {
		return nil
	}
	if isUnsupported(err) {
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return fmt.Errorf("%s %s: %w", action, dir, err)
}
