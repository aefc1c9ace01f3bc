// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Limits of a directory of drop-ins.
const (
	maxDropIns = 256  // files with the suffix .conf
	maxEntries = 4096 // files and directories of all names
	maxDepth   = 8    // nested directories
)

// mainFile is the key of the main file in the origins of fields.
const mainFile = ""

// dropInSuffix is the suffix of the files that LoadDir reads in the directory of drop-ins.
const dropInSuffix = ".conf"

// Load reads a YAML file with at most one KubeletConfiguration and one NodeConfiguration document. Relative paths in the KubeletConfiguration are
// relative to the directory of the file, as in the kubelet. An error names the file and the invalid field; so do errors of Validate.
func Load(path string) (Documents, error) { return LoadDir(path, "") }

// LoadDir reads a file like [Load] and merges the drop-ins of a directory into it: the regular files with suffix .conf in dir and its
// subdirectories, in lexical order. An empty dir means no drop-ins; an empty path means drop-ins alone.
//
// A drop-in has a KubeletConfiguration, a NodeConfiguration, or both. Its fields are a JSON merge patch: objects are merged field by field, lists
// are replaced, and null restores the default. A drop-in does not change defaults that follow from fields of the main file. Symbolic links are
// errors. If only values are not supported, LoadDir returns the documents with the remaining fields, and an error that joins one for each value. Source:
// cmd/kubelet/app/server.go, mergeKubeletConfigurations.
func LoadDir(path, dir string) (Documents, error) {
	l := loader{origins: map[string]string{mainFile: cmp.Or(path, dir)}}
	if path != "" {
		if err := l.readMain(path); err != nil {
			return Documents{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	if dir != "" {
		if l.base.kubelet == nil {
			l.base.kubelet = object{"apiVersion": APIVersion, "kind": Kind}
		}
		setMergeDefaults(l.base.kubelet)
		if err := l.readDir(dir); err != nil {
			return Documents{}, err
		}
		if l.base.kubelet["evictionHard"] == nil { // removed by a drop-in: no threshold
			l.base.kubelet["evictionHard"] = object{}
		}
	}
	return l.decodeMerged()
}

// loader collects the documents of the configuration file and its drop-ins.
type loader struct {
	base    documentSet
	origins map[string]string // file that has set a field, by name of the field in its document
	entries int               // entries of the directory of drop-ins so far
	dropIns int               // drop-ins so far
}

func (l *loader) readMain(path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO would wait for its writer
	if err != nil {
		return errors.Unwrap(err) // without the path, which the caller adds
	}
	data, err := readRegular(file)
	if err != nil {
		return err
	}
	if l.base, err = parseDocumentSet(data, false); err != nil {
		return err
	}
	if err := l.base.requireDocument(); err != nil {
		return err
	}
	if err := checkGatesOf(l.base.kubelet); err != nil {
		return err
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	resolvePaths(l.base.kubelet, filepath.Dir(absolute))
	l.recordOrigins(l.base, path)
	return nil
}

// checkGatesOf returns an error for feature gates of the main file that the kubelet refuses. A drop-in cannot correct such a gate.
func checkGatesOf(fields object) error {
	var gates struct {
		FeatureGates map[string]bool `json:"featureGates"`
	}
	if err := decodeFields(fields, &gates); err != nil {
		return err
	}
	return errors.Join(invalidGates(gates.FeatureGates)...)
}

// readRegular reads and closes a file. It returns an error for a file that is not regular, too large, or empty.
func readRegular(file *os.File) ([]byte, error) {
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxSize:
		return nil, fmt.Errorf("must not be larger than %d bytes", maxSize)
	case len(data) == 0:
		return nil, errors.New("is empty")
	}
	return data, nil
}

// recordOrigins records path as the file that sets the fields in set.
func (l *loader) recordOrigins(set documentSet, path string) {
	for _, fields := range []object{set.kubelet, set.node} {
		for name := range fields {
			l.origins[name] = path
		}
	}
}

// readDir merges the drop-ins of a directory and its subdirectories, in lexical order.
func (l *loader) readDir(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s: is no directory", dir)
	}
	if err != nil {
		return fmt.Errorf("read drop-ins: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("read drop-ins: %w", err)
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		path := filepath.Join(dir, name)
		if err == nil {
			err = l.checkEntry(name, entry)
		}
		if err == nil && !entry.IsDir() && filepath.Ext(name) == dropInSuffix {
			err = l.readDropIn(root, name, path, entry)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
}

// checkEntry counts an entry of the directory of drop-ins. It returns an error above maxEntries, and for a directory nested deeper than maxDepth.
func (l *loader) checkEntry(name string, entry fs.DirEntry) error {
	if l.entries++; l.entries > maxEntries {
		return fmt.Errorf("is one of more than %d files and directories", maxEntries)
	}
	if entry.IsDir() && strings.Count(name, "/") >= maxDepth {
		return fmt.Errorf("is below more than %d directories", maxDepth)
	}
	return nil
}

// readDropIn merges one drop-in. It returns an error for a symbolic link, and for a file that was replaced during the call.
func (l *loader) readDropIn(root *os.Root, name, path string, entry fs.DirEntry) error {
	if l.dropIns++; l.dropIns > maxDropIns {
		return fmt.Errorf("is one of more than %d drop-ins", maxDropIns)
	}
	if !entry.Type().IsRegular() {
		return errors.New("is no regular file")
	}
	before, err := root.Lstat(name)
	if err != nil {
		return errors.Unwrap(err)
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return errors.Unwrap(err)
	}
	if opened, err := file.Stat(); err != nil || !os.SameFile(before, opened) {
		return errors.Join(errors.New("was replaced"), err, file.Close())
	}
	data, err := readRegular(file)
	if err != nil {
		return err
	}
	set, err := parseDocumentSet(data, true)
	if err != nil {
		return err
	}
	if err := set.requireDocument(); err != nil {
		return err
	}
	l.recordOrigins(set, path)
	l.base.kubelet = mergePatch(l.base.kubelet, set.kubelet)
	if set.node != nil {
		l.base.node = mergePatch(l.base.node, set.node)
	}
	return nil
}

// decodeMerged decodes the merged documents. Each error names the file that has set the invalid field. The documents have the other fields.
func (l *loader) decodeMerged() (Documents, error) {
	d, errs := l.base.decodeDocuments()
	d.origins = l.origins
	return d, errors.Join(d.nameFiles(errs)...)
}

// nameFiles adds the name of a file to each error. An error starts with the name of a field, and gets the file that has set this field. If no file
// has set the field, the error gets the main file.
func (d *Documents) nameFiles(errs []error) (named []error) {
	for _, err := range errs {
		if joined, ok := err.(interface{ Unwrap() []error }); ok { // not those that err wraps
			named = append(named, d.nameFiles(joined.Unwrap())...)
			continue
		}
		field := err.Error()
		if end := strings.IndexAny(field, " :.["); end >= 0 {
			field = field[:end]
		}
		if path := cmp.Or(d.origins[field], d.origins[mainFile]); path != "" {
			err = fmt.Errorf("%s: %w", path, err)
		}
		named = append(named, err)
	}
	return named
}
