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
	maxFiles = 1000 // maximum number of names in a directory of configuration files

	// partialWriteAge is the age below which a bad file does not replace its last good version, because it may be incomplete.
	partialWriteAge = time.Second
	// DefaultPeriod is the period at which [Dir.Run] reads the directory.
	DefaultPeriod = time.Second
)

// Config is the content of a directory of configuration files.
type Config struct {
	Networks []*Network   // sorted by file name; for a duplicate name, the first file counts
	Problems []*FileError // skipped files, each with the reason
}

// Dir reads networks from configuration files in a directory: .conflist files, and .conf and .json files with a single plugin, in
// lexical order. A bad file is skipped and reported. Symbolic links are followed.
//
// The directory is read at each use and not watched, so that a removed and recreated directory needs no special handling.
type Dir struct {
	path string

	mu       sync.Mutex          // guards good
	lastGood map[string]*Network // last good version of each file
}

// NewDir returns a Dir that reads the directory at path. The directory need not exist.
func NewDir(path string) *Dir { return &Dir{path: path, lastGood: map[string]*Network{}} }

// Load reads all configuration files in the directory. If the directory does not exist, the result is empty.
func (d *Dir) Load() Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	files, err := listConfFiles(d.path, ".conf", ".conflist", ".json")
	if err != nil {
		return Config{Problems: []*FileError{{File: d.path, Err: err}}}
	}
	var c Config
	good := map[string]*Network{}
	for _, file := range files {
		n, err := d.loadFile(file, time.Now())
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
	d.lastGood = good
	return c
}

// loadFile reads one configuration file, or returns its last valid version if it is invalid and was just modified.
func (d *Dir) loadFile(file string, now time.Time) (*Network, error) {
	n, err := readNetworkFile(file)
	if err == nil {
		return n, nil
	}
	// a file that was modified in the last second may be incomplete
	before := d.lastGood[file]
	if info, statErr := os.Stat(file); statErr == nil && before != nil && now.Sub(info.ModTime()).Abs() < partialWriteAge {
		return before, nil
	}
	return nil, err
}

// readNetworkFile reads a configuration file, and for a plugin list also the files in the directory with the network's name.
func readNetworkFile(file string) (*Network, error) {
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
		more, err := readPluginFiles(filepath.Join(filepath.Dir(file), list.Name))
		if err != nil {
			return nil, err
		}
		if list, err = appendPlugins(list, more); err != nil {
			return nil, err
		}
	}
	n, err := newNetwork(list)
	if err == nil {
		n.File = file
	}
	return n, err
}

func readPluginFiles(dir string) ([][]byte, error) {
	files, err := listConfFiles(dir, ".conf")
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

// listConfFiles returns the sorted paths of the files in dir with one of these extensions. A missing directory has no files.
func listConfFiles(dir string, extensions ...string) ([]string, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, stripPath(err)
	}
	defer f.Close()
	entries, err := f.ReadDir(maxFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, stripPath(err)
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

// readFile returns the content of a regular file. It returns an error if the file is not regular, or has more than maxConfig
// bytes.
func readFile(file string) ([]byte, error) {
	// O_NONBLOCK: opening a named pipe must not block.
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, stripPath(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(stripPath(err), errors.New("not a regular file"))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, stripPath(err)
	}
	return data, checkSize(data)
}

// Run calls sink with the content of the directory, at once and after each change. It returns nil when ctx ends.
func (d *Dir) Run(ctx context.Context, sink func(Config)) error {
	last := d.Load()
	sink(last)
	for sleep.For(ctx, DefaultPeriod) == nil {
		if now := d.Load(); !now.isEqual(last) {
			last = now
			sink(now)
		}
	}
	return nil
}

// isEqual reports whether two configurations have equal networks and equal problems.
func (c Config) isEqual(config Config) bool {
	return slices.EqualFunc(c.Networks, config.Networks, func(a, b *Network) bool {
		return a.File == b.File && bytes.Equal(a.configJSON(), b.configJSON())
	}) && slices.EqualFunc(c.Problems, config.Problems, func(a, b *FileError) bool {
		return strings.Compare(a.Error(), b.Error()) == 0
	})
}
