// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A rotation renames 0.log to 0.log.20260102-150405. Compression writes 0.log.20260102-150405.tmp and renames it to
// 0.log.20260102-150405.gz, as in the kubelet. The second rotation within a second gets the suffix _001: the underscore sorts
// after the dot of .gz, so that names sorted as strings are in order of time.
const (
	stampInName      = "20060102-150405"
	maxSequence      = 999
	compressedSuffix = ".gz"
	temporarySuffix  = ".tmp"
)

// rotatedFile is the parsed name of a rotated file.
type rotatedFile struct {
	name   string // of the file
	key    string // time, and number for several rotations in a second; sorts by age
	suffix string // empty, compressedSuffix or temporarySuffix
}

// parseName parses the name of a file that was rotated from this log. ok is false for files of other programs.
func parseName(log, name string) (parsed rotatedFile, ok bool) {
	key, ok := strings.CutPrefix(name, log+".")
	if !ok {
		return rotatedFile{}, false
	}
	r := rotatedFile{name: name}
	for _, suffix := range []string{compressedSuffix, temporarySuffix} {
		if rest, ok := strings.CutSuffix(key, suffix); ok {
			key, r.suffix = rest, suffix
			break
		}
	}
	r.key = key
	stamp, number, numbered := strings.Cut(key, "_")
	if n, _ := strconv.Atoi(number); numbered && (n < 1 || n > maxSequence || number != fmt.Sprintf("%03d", n)) {
		return rotatedFile{}, false
	}
	_, err := time.Parse(stampInName, stamp)
	return r, err == nil && len(stamp) == len(stampInName)
}

// nextKey returns the key for the name of the next rotated file: the current time, perhaps with a number.
func nextKey(newest string, now time.Time) string {
	key := now.Format(stampInName)
	if key > newest {
		return key
	}
	// after the newest key, even if another file has this time or the clock was set back
	stamp, number, _ := strings.Cut(newest, "_")
	if n, _ := strconv.Atoi(number); n < maxSequence {
		return fmt.Sprintf("%s_%03d", stamp, n+1)
	}
	t, err := time.Parse(stampInName, stamp)
	if err != nil {
		return key
	}
	return t.Add(time.Second).Format(stampInName)
}

// filterRotated returns the files that were rotated from the log, oldest first. It omits temporary files.
func filterRotated(log string, names []string) (found []rotatedFile) {
	for _, name := range names {
		if r, ok := parseName(log, name); ok && r.suffix != temporarySuffix {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b rotatedFile) int {
		// a file whose compression has just finished has two: the original and the compressed file
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.suffix, b.suffix))
	})
	return found
}

// listRotated returns the files that were rotated from the log at path, oldest first.
func listRotated(path string) ([]rotatedFile, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	return filterRotated(filepath.Base(path), names), nil
}

// ListFiles returns the paths of all files of the log at path, oldest first: its rotated files, compressed or not, and the
// current file. If a rotated file exists in both forms, only the compressed file is returned.
func ListFiles(path string) ([]string, error) {
	found, err := listRotated(path)
	if err != nil {
		return nil, err
	}
	var paths []string
	for i, r := range found {
		if i+1 < len(found) && found[i+1].key == r.key {
			continue // the compressed form is complete: rotation removes this file
		}
		paths = append(paths, filepath.Join(filepath.Dir(path), r.name))
	}
	return append(paths, path), nil
}
