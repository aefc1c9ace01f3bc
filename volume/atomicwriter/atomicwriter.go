// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter

import (
	"io/fs"
	"strings"
)

// File is one file of a payload.
type File struct {
	Data  []byte
	Mode  fs.FileMode // permission bits, whatever the umask; no others
	Owner *int64      // user ID; nil: the user of this process
}

// Options says what else is to be done.
type Options struct {
	// SetPerms is called with the path of a new version before it is published, for what depends on more than the payload,
	// such as groups. Its error fails the write. Nil does nothing.
	SetPerms func(dir string) error
}

// Write makes a payload, by relative path, the content of a directory that exists, and removes what is of an older
// payload. It reports whether it has published a new version; if the current one has the same paths with the same content
// it does not, even if a mode or an owner is another.
func Write(dir string, payload map[string]File, o Options) (changed bool, err error) {
	entries, err := parse(payload)
	if err != nil {
		return false, err
	}
	return write(dir, entries, o, nil)
}

// Validate reports why a payload would be refused: a path that is empty, absolute, too long or too deep, that has an
// element "..", or a first element that begins with two dots, as the names of the writer do; two paths that are the same
// or of which one is a directory of the other; a mode with other than permission bits; too many files or bytes.
func Validate(payload map[string]File) error {
	_, err := parse(payload)
	return err
}

// Names in a directory that are the writer's.
const (
	dataName = "..data"     // the link to the current version
	nextName = "..data_tmp" // what is renamed to it
)

// versionLayout is the time in the name of a version; digits follow.
const versionLayout = "..2006_01_02_15_04_05."

// isVersion reports whether a name is that of a version, the kubelet's included.
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
