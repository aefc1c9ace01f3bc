// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

const (
	maxFiles = 1000 // names in a directory of configuration files

	// settle is how old a bad file has to be to count where there was a good one: it may be half written.
	settle = time.Second
	// DefaultPeriod is how often [Dir.Run] looks. A look costs about as much as a file has to be read.
	DefaultPeriod = time.Second
)

// Config is what a directory of configuration files holds.
type Config struct {
	Networks []*Network   // in the order of the names of their files; the first of a name counts
	Problems []*FileError // files that were left out, each with the reason
}

// Dir reads networks from the files of a directory: .conflist files, and .conf and .json files of one plugin, in lexical
// order. A bad file is a problem and hides no other one. Links are followed.
//
// It is read anew at each use, and not watched: nothing is out of date, and a directory that is removed and made again is
// like any other change.
type Dir struct {
	path string

	mu   sync.Mutex          // guards good
	good map[string]*Network // by file, as read last
}

// NewDir returns a Dir for a path, which need not exist.
func NewDir(path string) *Dir { return &Dir{path: path, good: map[string]*Network{}} }

// Load reads the directory. A directory that does not exist has no networks and no problems.
func (d *Dir) Load() Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	files, err := confFiles(d.path, ".conf", ".conflist", ".json")
	if err != nil {
		return Config{Problems: []*FileError{{File: d.path, Err: err}}}
	}
	var c Config
	good := map[string]*Network{}
	for _, file := range files {
		n, err := d.load(file, time.Now())
		if err == nil {
			good[file] = n
			if at := slices.IndexFunc(c.Networks, func(o *Network) bool { return o.Name == n.Name }); at >= 0 {
				err = fmt.Errorf("name: %q is that of %s", n.Name, c.Networks[at].File)
			}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed since it was listed
		case err != nil:
			c.Problems = append(c.Problems, &FileError{File: file, Err: err})
		default:
			c.Networks = append(c.Networks, n)
		}
	}
	d.good = good
	return c
}

// load reads one file. One that was good is taken as it was while it is being written.
func (d *Dir) load(file string, now time.Time) (*Network, error) {
	n, err := readNetwork(file)
	if err == nil {
		return n, nil
	}
	before := d.good[file]
	if info, statErr := os.Stat(file); statErr == nil && before != nil && now.Sub(info.ModTime()).Abs() < settle {
		return before, nil
	}
	return nil, err
}

// readNetwork reads a file and, for a list, the files of single plugins in the directory that is named after the network.
func readNetwork(file string) (*Network, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	if filepath.Ext(file) != ".conflist" {
		n, err := parsePlugin(data)
		if err == nil {
			n.File = file
		}
		return n, err
	}
	list, err := parseList(data)
	if err != nil {
		return nil, err
	}
	if !list.LoadOnlyInlinedPlugins && validName.MatchString(list.Name) {
		more, err := readPlugins(filepath.Join(filepath.Dir(file), list.Name))
		if err != nil {
			return nil, err
		}
		if list, err = withPlugins(list, more); err != nil {
			return nil, err
		}
	}
	n, err := newNetwork(list)
	if err == nil {
		n.File = file
	}
	return n, err
}

func readPlugins(dir string) ([][]byte, error) {
	files, err := confFiles(dir, ".conf")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if len(files) > maxPlugins {
		return nil, fmt.Errorf("%s: %d plugins exceed the limit of %d", dir, len(files), maxPlugins)
	}
	var found [][]byte
	for _, file := range files {
		data, err := readFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		found = append(found, data)
	}
	return found, nil
}

// confFiles returns the paths in a directory that have one of the extensions and are no directories, sorted. There are
// none in what is no directory, or does not exist.
func confFiles(dir string, extensions ...string) ([]string, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	entries, err := f.ReadDir(maxFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, cause(err)
	}
	if len(entries) > maxFiles {
		return nil, fmt.Errorf("more than %d files", maxFiles)
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(extensions, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(files)
	return files, nil
}

// readFile returns the content of a regular file.
func readFile(file string) ([]byte, error) {
	// Not to block, should it be a named pipe.
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(cause(err), errors.New("it is no regular file"))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, cause(err)
	}
	return data, checkSize(data)
}

// Run calls sink with the content of the directory, first at once and then after each change, until ctx ends. It returns
// nil.
func (d *Dir) Run(ctx context.Context, sink func(Config)) error {
	last := d.Load()
	sink(last)
	for sleep.For(ctx, DefaultPeriod) == nil {
		if now := d.Load(); !now.equal(last) {
			last = now
			sink(now)
		}
	}
	return nil
}

// equal reports whether two looks came to the same.
func (c Config) equal(o Config) bool {
	return slices.EqualFunc(c.Networks, o.Networks, func(a, b *Network) bool {
		return a.File == b.File && bytes.Equal(a.configJSON(), b.configJSON())
	}) && slices.EqualFunc(c.Problems, o.Problems, func(a, b *FileError) bool {
		return strings.Compare(a.Error(), b.Error()) == 0
	})
}
