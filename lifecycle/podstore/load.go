// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// ErrCorrupt is wrapped by the error of [Store.Load] if the file is damaged or has another format version. Load has then renamed
// the file.
var ErrCorrupt = errors.New("the file is damaged")

// The limits of the file are far above the size of a node's pods. Pods beyond them are not stored.
const (
	maxLines  = 32 << 20         // bytes of all lines after the first
	maxSize   = maxLines + 1<<10 // bytes of the whole file
	maxValues = 400_000          // number of JSON values, as counted by package safeyaml
)

// maxDamagedFiles is the number of damaged files that are kept.
const maxDamagedFiles = 3

// Load returns the stored pods of each source, as sets that are marked as incomplete. Call it once, before [Store.Update]
// and [Store.Run]. See "Errors" in the package documentation for a file that is missing, damaged or unreadable.
func (s *Store) Load() ([]lifecycle.PodSet, error) {
	if err := atomicfile.Clean(s.path); err != nil {
		s.opts.Logger.Warn("remove temporary files", "error", err)
	}
	data, err := readFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load pods from %s: %w", s.path, err)
	}
	sets, sum, err := decodeFile(data)
	if err != nil {
		return nil, fmt.Errorf("load pods from %s: %w: %w; %s", s.path, ErrCorrupt, err, renameDamaged(s.path, time.Now()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written = sum
	for _, set := range sets {
		if len(s.opts.Sources) > 0 && !slices.Contains(s.opts.Sources, set.Source) {
			continue
		}
		s.sets = append(s.sets, set)
		s.loaded[set.Source] = set.Pods
	}
	s.opts.Logger.Info("pods loaded", "path", s.path, "pods", countPods(s.sets))
	return slices.Clone(s.sets), nil
}

// readFile returns the content of the pod file, but at most maxSize bytes. If the path is not a regular file, it returns an
// error.
func readFile(path string) ([]byte, error) {
	// Opening a named pipe blocks until there is a writer.
	if info, err := os.Lstat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no regular file: %s", info.Mode())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// A buffer of the right size: a growing buffer needs several times the memory.
	data := bytes.NewBuffer(make([]byte, 0, min(info.Size(), maxSize)+bytes.MinRead))
	_, err = data.ReadFrom(io.LimitReader(f, maxSize))
	return data.Bytes(), err
}

// renameDamaged renames a damaged file for inspection and removes the oldest such files. The result describes the new name for
// the error message.
func renameDamaged(path string, now time.Time) string {
	dir, prefix := filepath.Dir(path), filepath.Base(path)+".corrupt-"
	entries, err := os.ReadDir(dir) // sorted by name, which sorts by time
	if err == nil {
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !strings.HasPrefix(e.Name(), prefix) })
		for _, e := range entries[:max(0, len(entries)-maxDamagedFiles+1)] {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	aside := filepath.Join(dir, prefix+now.UTC().Format("20060102T150405.000000000Z"))
	if err := os.Rename(path, aside); err != nil {
		return "it cannot be renamed: " + err.Error()
	}
	return "it is renamed to " + aside
}
