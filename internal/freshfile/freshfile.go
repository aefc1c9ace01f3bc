// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package freshfile has what files say, and reads them again when they may have changed: replaced by a rename, by a link that was
// swapped, or written in place. It watches nothing and starts no goroutine: whoever asks reads, at most once in a period. What is
// compared is the content, because neither names nor times tell all changes.
package freshfile

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// MaxSize is how many bytes a file may have.
const MaxSize = 1 << 20

// MaxAge is how old an answer may be.
const MaxAge = time.Second

// Value is what a group of files says. Make one with [New]. Its methods may be called from any goroutine.
type Value[T any] struct {
	parse func(contents [][]byte) (T, error)
	paths []string
	fail  func(error)

	mu       sync.Mutex // guards what follows
	value    T
	contents [][]byte  // that value is from
	refused  [][]byte  // that were reported last, because parse refused them
	missing  string    // the error that was reported last, because a file could not be read
	checked  time.Time // when the files were read last
}

// New reads files that are there, and parses them together. Each file has [Most] bytes at most. Later changes that cannot be read, or that
// parse refuses, are reported to fail, once each, and leave the value as it was; fail may be nil, and is called with the lock held.
func New[T any](parse func(contents [][]byte) (T, error), fail func(error), paths ...string) (*Value[T], error) {
	v := &Value[T]{parse: parse, paths: paths, fail: fail}
	contents, err := readAll(paths)
	if err != nil {
		return nil, err
	}
	if v.value, err = parse(contents); err != nil {
		return nil, err
	}
	v.contents, v.checked = contents, time.Now()
	return v, nil
}

// Get returns what the files say, as of [Period] ago at most.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := time.Now(); now.Sub(v.checked) >= MaxAge {
		v.checked = now
		v.refreshValue()
	}
	return v.value
}

func (v *Value[T]) refreshValue() {
	contents, err := readAll(v.paths)
	if err != nil {
		if err.Error() != v.missing {
			v.missing = err.Error()
			v.reportError(err)
		}
		return
	}
	v.missing = ""
	if equalContents(contents, v.contents) || equalContents(contents, v.refused) {
		return
	}
	value, err := v.parse(contents)
	if err != nil {
		v.refused = contents
		v.reportError(err)
		return
	}
	v.value, v.contents, v.refused = value, contents, nil
}

func (v *Value[T]) reportError(err error) {
	if v.fail != nil {
		v.fail(err)
	}
}

func equalContents(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func readAll(paths []string) ([][]byte, error) {
	contents := make([][]byte, len(paths))
	for i, path := range paths {
		var err error
		if contents[i], err = readRegular(path); err != nil {
			return nil, err
		}
	}
	return contents, nil
}

// read reads a regular file, which may be behind links: that is how secrets are mounted. A pipe is not waited for.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("is no regular file: %s", info.Mode())}
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(data) > MaxSize {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("has more than %d bytes", MaxSize)}
	}
	return data, err
}
