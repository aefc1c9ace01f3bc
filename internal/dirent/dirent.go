// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package dirent reads the entries of an open directory block by block, with their types and without allocating a string per
// entry. It is for scans of directories that other programs write to and that may have any number of entries.
package dirent

// Type is the type of a directory entry. The zero value means that the file system does not report it.
type Type uint8

// Types of entries, as in getdents64(2).
const (
	Unknown   Type = 0
	Directory Type = 4
	Regular   Type = 8
	Link      Type = 10
)

// BufferSize is a good size for the buffer of [Next]. The minimum is [MaxRecord].
const BufferSize = 32 << 10

// MaxRecord is the maximum size of one entry in the buffer, in bytes.
const MaxRecord = 280

// Next reads as many further entries of the open directory dir as fit into buf, and calls f for each except "." and "..".
// The name that f gets is part of buf, and valid only during the call. used is the number of bytes read, zero at the end of
// the directory.
func Next(dir int, buf []byte, f func(name []byte, t Type)) (used int, err error) {
	return readBlock(dir, buf, f)
}
