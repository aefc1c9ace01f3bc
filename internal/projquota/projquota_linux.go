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

// maxTries is how many IDs are looked at. Of two thousand million few are taken.
const maxTries = 100

func (p *Projects) limit(dir string, bytes uint64) error {
	f, err := open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	a, own, err := project(f, dir)
	if err != nil {
		return failed("look at project of", dir, err)
	}
	if own {
		return failed("limit", dir, setLimit(f, a.project, bytes))
	}
	if err := enforced(f); err != nil {
		return failed("look at quotas of", dir, err)
	}
	if _, err := f.Readdirnames(1); !errors.Is(err, io.EOF) {
		return failed("limit", dir, fmt.Errorf("it is not empty: %w", errors.ErrUnsupported))
	}
	id, err := p.free(f)
	if err == nil {
		err = setLimit(f, id, bytes) // before anything can be written
	}
	if err == nil {
		a.project, a.flags = id, a.flags|flagInherit
		err = setAttr(f, a)
	}
	return failed("limit", dir, err)
}

// free returns an ID that nobody has: nothing belongs to it, and it has no limit.
func (p *Projects) free(f *os.File) (uint32, error) {
	id := p.start()
	for range maxTries {
		id = FirstID + (id-FirstID)%(lastID-FirstID+1)
		q, err := getQuota(f, id)
		if err != nil {
			return 0, err
		}
		if q == (quota{valid: q.valid}) {
			return id, nil
		}
		id++
	}
	return 0, fmt.Errorf("no free project after %d tries", maxTries)
}

func usageOf(dir string) (u Usage, err error) {
	f, err := open(dir)
	if err != nil {
		return u, err
	}
	defer f.Close()
	a, own, err := project(f, dir)
	if err != nil || !own {
		return u, failed("look at project of", dir, errors.Join(err, errors.ErrUnsupported))
	}
	q, err := getQuota(f, a.project)
	if err != nil {
		return u, failed("read quota of", dir, err)
	}
	return Usage{Bytes: q.space, Inodes: q.inodes, Limit: q.hard * blockSize}, nil
}

func projectOf(dir string) uint32 {
	f, err := open(dir)
	if err != nil {
		return 0
	}
	defer f.Close()
	if a, own, err := project(f, dir); err == nil && own {
		return a.project
	}
	return 0
}

func release(dir string, id uint32) error {
	f, err := open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return failed("release project on", dir, setLimit(f, id, 0))
}

// project returns what is known of a directory, and whether it was given a project here: one that it has from its parent is not
// its own.
func project(f *os.File, dir string) (a attr, own bool, err error) {
	if a, err = getAttr(f); err != nil {
		return a, false, err
	}
	if a.flags&flagInherit == 0 || a.project < FirstID || a.project > lastID {
		return a, false, nil
	}
	parent, err := open(filepath.Dir(dir))
	if err != nil {
		return a, false, err
	}
	defer parent.Close()
	above, err := getAttr(parent)
	return a, err == nil && above.project != a.project, err
}

// failed says what could not be done, with errors.ErrUnsupported for what means that.
func failed(what, dir string, err error) error {
	if err == nil {
		return nil
	}
	if lacking(err) {
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return fmt.Errorf("%s %s: %w", what, dir, err)
}
