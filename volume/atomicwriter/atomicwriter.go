// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter

import (
	"io/fs"
	"strings"
)

// File is a file of the payload of [Write].
type File struct {
	Data  []byte
	Mode  fs.FileMode // permission bits only; the umask does not apply
	Owner *int64      // user ID; nil: the user of this process
}

// Options configure [Write].
type Options struct {
	// SetPerms is called with the path of a new version before it is published, to change groups or modes. An error fails the
	// write. May be nil.
	SetPerms func(dir string) error
}

// Write replaces the contents of the directory dir, which must exist, by the files of payload, with relative paths as keys.
// Readers see either all old or all new files. If paths and contents are unchanged, Write writes no file and returns false, even
// if modes or owners differ.
func Write(dir string, payload map[string]File, opts Options) (changed bool, err error) {
	entries, err := parsePayload(payload)
	if err != nil {
		return false, err
	}
	return writePayload(dir, entries, opts, nil)
}

// Validate returns an error if [Write] would refuse the payload. A path must not be empty, absolute, too long or too deep,
// contain or begin with "..", or be the directory of another file. A mode must have permission bits only. The number of files
// and bytes is limited.
func Validate(payload map[string]File) error {
	_, err := parsePayload(payload)
	return err
}

// Names of the links that Write creates.
const (
	dataName    = "..data"     // link to the current version
	newDataName = "..data_tmp" // temporary link that is renamed to dataName
)

// versionLayout is the first part of the name of a version, a directory with all files: the time of its creation. Random digits
// follow.
const versionLayout = "..2006_01_02_15_04_05."

// isVersion reports whether a name has the form of the name of a version, which is a directory that [Write] or the kubelet
// has created.
func isVersion(name string) bool {
	if len(name) <= len(versionLayout) || len(name) > maxName {
		return false
	}
	for i, c := range []byte(versionLayout) {
		switch {
		case '0' <= c && c <= '9':
			if name[i] < '0' || name[i] > '9' {
				return false
			}
		case name[i] != c:
			return false
		}
	}
	return strings.Trim(name[len(versionLayout):], "0123456789") == ""
}
