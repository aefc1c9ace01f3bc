// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package freshfile parses files, and parses them again after a change: by a rename, a replaced symbolic link, or a write in
// place. It has no watch and no goroutine: [Value.Get] reads the files, at most once per second. It compares contents, because
// names and times do not show all changes.
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

// MaxSize is the largest size of a file, in bytes.
const MaxSize = 1 << 20

// MaxAge is the longest time between two reads of the files, while Get is called.
const MaxAge = time.Second

// Value is the parsed content of a group of files. Create one with [New]. Its methods may be called from any goroutine.
type Value[T any] struct {
	parse func(contents [][]byte) (T, error)
	paths []string
	fail  func(error)

	mu       sync.Mutex // guards the fields below
	value    T
	contents [][]byte  // of the files that value was parsed from
	refused  [][]byte  // last contents that parse rejected; reported once
	missing  string    // last error of reading a file; reported once
	checked  time.Time // last read of the files
}

// New reads the files at paths and calls parse with their contents. All files must exist and have at most [MaxSize] bytes
// each. When changed files cannot be read or parsed, [Value.Get] calls fail once with the error and returns the previous
// value. fail may be nil and must not call Get, which holds a lock.
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

// Get returns the value of the files, at most [MaxAge] old.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := time.Now(); now.Sub(v.checked) >= MaxAge {
		v.checked = now
		v.refreshValue()
	}
	return v.value
}

// refreshValue reads the files. If their contents have changed and can be parsed, it replaces the value.
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

// readRegular reads a regular file. It follows symbolic links, which mounted secrets consist of, and does not block on a pipe.
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
