// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Limits of a payload.
const (
	// maxFiles is the maximum number of files.
	maxFiles = 100_000
	// maxBytes is the maximum total size: 64 times the maximum size of a config map or secret.
	maxBytes = 64 << 20
	// maxDepth is the maximum number of elements of a path.
	maxDepth = 128

	maxPath = 4096 // bytes of a path
	maxName = 255  // bytes of an element
)

// entry is a file or a directory of a payload. It is a node of the tree that [Write] creates.
type entry struct {
	name     string
	file     *File
	children []entry // entries of a directory, sorted by name
	owner    *int64  // owner of the file, or of the first file below that has an owner
}

// payloadFile is a file of a payload and its path after path.Clean.
type payloadFile struct {
	path string
	file *File
}

// parsePayload validates a payload and returns it as a tree.
func parsePayload(payload map[string]File) ([]entry, error) {
	if len(payload) > maxFiles {
		return nil, fmt.Errorf("payload of %d files, not at most %d", len(payload), maxFiles)
	}
	items := make([]payloadFile, 0, len(payload))
	files := make([]File, 0, len(payload))
	total := 0
	for name, file := range payload {
		if err := checkPath(name); err != nil {
			return nil, fmt.Errorf("path %s: %w", quotePath(name), err)
		}
		if file.Mode&^fs.ModePerm != 0 {
			return nil, fmt.Errorf("path %s: mode %v has more than permission bits", quotePath(name), file.Mode)
		}
		if total += len(file.Data); total > maxBytes {
			return nil, fmt.Errorf("payload of more than %d bytes", maxBytes)
		}
		files = append(files, file)
		items = append(items, payloadFile{path.Clean(name), &files[len(files)-1]})
	}
	slices.SortFunc(items, func(a, b payloadFile) int { return comparePaths(a.path, b.path) })
	return buildTree(items, 0)
}

// quotePath returns a shortened, quoted path for errors.
func quotePath(name string) string {
	if len(name) > maxName {
		return fmt.Sprintf("%q...", name[:maxName])
	}
	return fmt.Sprintf("%q", name)
}

// checkPath returns an error if name is not a valid path of a file in a payload.
func checkPath(name string) error {
	switch {
	case name == "":
		return errors.New("must not be empty")
	case len(name) > maxPath:
		return fmt.Errorf("must not be longer than %d bytes", maxPath)
	case path.IsAbs(name):
		return errors.New("must be relative")
	case strings.IndexByte(name, 0) >= 0:
		return errors.New("must not contain a zero byte")
	}
	for element := range strings.SplitSeq(name, "/") {
		switch {
		case element == "..":
			return errors.New("must not contain '..'")
		case len(element) > maxName:
			return fmt.Errorf("elements must not be longer than %d bytes", maxName)
		}
	}
	clean := path.Clean(name)
	switch {
	case clean == ".":
		return errors.New("must name a file")
	case strings.HasPrefix(clean, ".."):
		return errors.New("must not begin with '..'")
	case strings.Count(clean, "/") >= maxDepth:
		return fmt.Errorf("must not have more than %d elements", maxDepth)
	}
	return nil
}

// comparePaths compares clean paths like cmp.Compare, in an order in which all files of a directory are neighbors.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// buildTree returns the files and subdirectories of a directory from all files below it. skip is the length of its path with the
// last "/".
func buildTree(items []payloadFile, skip int) ([]entry, error) {
	var entries []entry
	for len(items) > 0 {
		name, _, nested := strings.Cut(items[0].path[skip:], "/")
		if n := len(entries); n > 0 && entries[n-1].name == name {
			return nil, fmt.Errorf("path %s: another file is a directory of it, or has the same path", quotePath(items[0].path))
		}
		if !nested {
			entries = append(entries, entry{name: name, file: items[0].file, owner: items[0].file.Owner})
			items = items[1:]
			continue
		}
		prefix, n := items[0].path[:skip+len(name)+1], 1
		for n < len(items) && strings.HasPrefix(items[n].path, prefix) {
			n++
		}
		children, err := buildTree(items[:n], len(prefix))
		if err != nil {
			return nil, err
		}
		dir := entry{name: name, children: children}
		if i := slices.IndexFunc(children, func(e entry) bool { return e.owner != nil }); i >= 0 {
			dir.owner = children[i].owner
		}
		entries = append(entries, dir)
		items = items[n:]
	}
	return entries, nil
}
