// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package dirent reads the entries of an open directory one block at a time, with their types, and without a string for
// each: package os makes all three of them. It is for walks over directories that somebody else writes to and that may
// have any number of entries. It opens nothing.
package dirent

// Type is what a directory says that an entry is. The zero value says that the file system does not know.
type Type uint8

// Types of entries, those of getdents64.
const (
	Unknown   Type = 0
	Directory Type = 4
	Regular   Type = 8
	Link      Type = 10
)

// BufferSize is a good size for the buffer of [Next]. The smallest that works is [MaxRecord].
const BufferSize = 32 << 10

// MaxRecord is how many bytes of a buffer one entry takes at most.
const MaxRecord = 280

// Next reads as many entries of a directory as fit into buf and calls f with each but "." and "..". The name is in buf, so
// that it is f's until f returns. The descriptor remembers where to go on. Next returns how many bytes of buf were used: at
// the end of the directory none, and before that usually all that one more entry would not fit into.
func Next(dir int, buf []byte, f func(name []byte, t Type)) (used int, err error) {
	return next(dir, buf, f)
}
