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

// A log 0.log is rotated to 0.log.20260102-150405, and that is compressed to 0.log.20260102-150405.gz by way of
// 0.log.20260102-150405.tmp, as the kubelet does. The second rotation of a second is 20260102-150405_001: an
// underscore sorts after the dot of .gz, so that names are in the order of time for whoever sorts them as strings.
const (
	stampInName = "20060102-150405"
	maxSequence = 999
	compressed  = ".gz"
	temporary   = ".tmp"
)

// rotated is the name of a rotated file.
type rotated struct {
	name   string // of the file
	key    string // the time, and the number where a second has several; sorts by age
	suffix string // "", compressed or temporary
}

// parseName reads the name of a file that may have been rotated from log. Files of others are left alone, so the
// whole name must be what nextKey could have made.
func parseName(log, name string) (rotated, bool) {
	key, ok := strings.CutPrefix(name, log+".")
	if !ok {
		return rotated{}, false
	}
	r := rotated{name: name}
	for _, suffix := range []string{compressed, temporary} {
		if rest, ok := strings.CutSuffix(key, suffix); ok {
			key, r.suffix = rest, suffix
			break
		}
	}
	r.key = key
	stamp, number, numbered := strings.Cut(key, "_")
	if n, _ := strconv.Atoi(number); numbered && (n < 1 || n > maxSequence || number != fmt.Sprintf("%03d", n)) {
		return rotated{}, false
	}
	_, err := time.Parse(stampInName, stamp)
	return r, err == nil && len(stamp) == len(stampInName)
}

// nextKey returns the key of a file that is rotated now. It sorts after newest, also when the clock was set back.
func nextKey(newest string, now time.Time) string {
	key := now.Format(stampInName)
	if key > newest {
		return key
	}
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

// rotatedFrom returns the files that were rotated from log, oldest first and without temporary ones. A file that has
// just been compressed appears twice.
func rotatedFrom(log string, names []string) (found []rotated) {
	for _, name := range names {
		if r, ok := parseName(log, name); ok && r.suffix != temporary {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b rotated) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.suffix, b.suffix))
	})
	return found
}

// listRotated returns the files on disk that were rotated from the log at path, oldest first.
func listRotated(path string) ([]rotated, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	return rotatedFrom(filepath.Base(path), names), nil
}

// ListFiles returns the paths of all files of the log at path, oldest first: those rotated from it, compressed or not, and
// path itself. Of a file that is there in both forms it returns the compressed one, which rotation keeps.
func ListFiles(path string) ([]string, error) {
	found, err := listRotated(path)
	if err != nil {
		return nil, err
	}
	var paths []string
	for i, r := range found {
		if i+1 < len(found) && found[i+1].key == r.key {
			continue // a plain file whose compressed form is complete: rotation removes it
		}
		paths = append(paths, filepath.Join(filepath.Dir(path), r.name))
	}
	return append(paths, path), nil
}
