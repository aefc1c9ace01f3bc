// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Found has the volumes of a pod without a record. Another program, such as a kubelet, has set up these volumes.
type Found struct {
	Pod             // with the UID as name, and the volumes whose directories have the names of volumes in the pod spec
	Others []string // directories of the other volumes, relative to the directory of the pod; sorted
}

// maxFound is the maximum number of directories below the directory of a pod that Find reads.
const maxFound = 10_000

// Find returns the volumes of the pods that have a directory in root and no record. damaged has the errors of unreadable directories by pod UID. err
// is the error of reading root. isNamed reports whether a plugin names its directories like the volumes in the pod spec. Directories of claims have
// the names of PVs.
func Find(root string, isNamed func(plugin string) bool) (all []Found, damaged map[string]error, err error) {
	uids, err := readNames(root, maxUIDs, fs.DirEntry.IsDir)
	if err != nil {
		return nil, nil, err
	}
	damaged = map[string]error{}
	for _, uid := range uids {
		if _, err := os.Lstat(filepath.Join(root, uid, recordName)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		f, err := findPod(root, uid, isNamed)
		switch {
		case err != nil:
			damaged[uid] = err
		case len(f.Volumes)+len(f.Others) > 0:
			all = append(all, f)
		}
	}
	return all, damaged, nil
}

// findPod returns the volumes of the pod with this UID, from the directories in root/uid.
func findPod(root, uid string, isNamed func(plugin string) bool) (Found, error) {
	f := Found{Pod: Pod{UID: uid, Name: uid}}
	for _, kind := range []string{volumesDir, devicesDir} {
		plugins, err := readNames(filepath.Join(root, uid, kind), maxFound, fs.DirEntry.IsDir)
		if err != nil {
			return f, err
		}
		for _, escaped := range plugins {
			names, err := readNames(filepath.Join(root, uid, kind, escaped), maxFound, func(e fs.DirEntry) bool {
				return kind == devicesDir || e.IsDir() // a block volume is a link or a device
			})
			if err != nil {
				return f, err
			}
			plugin := strings.ReplaceAll(escaped, "~", "/")
			for _, name := range names {
				dir := filepath.Join(kind, escaped, name)
				if kind == volumesDir && isNamed(plugin) {
					f.Volumes = append(f.Volumes, Volume{Name: name, Plugin: plugin, Dir: dir})
				} else {
					f.Others = append(f.Others, dir)
				}
			}
			if len(f.Volumes)+len(f.Others) > maxFound {
				return f, fmt.Errorf("directory of pod %s has more than %d volumes", uid, maxFound)
			}
		}
	}
	slices.Sort(f.Others)
	return f, nil
}

// readNames returns the sorted plain names of the entries in dir for which keep returns true. It does not follow a link at dir. A missing dir has no
// entries.
func readNames(dir string, limit int, keep func(fs.DirEntry) bool) (names []string, err error) {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() || isNotDir(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > limit {
		return nil, fmt.Errorf("%s: more than %d entries", dir, limit)
	}
	for _, e := range entries {
		if keep(e) && IsPlainName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}
