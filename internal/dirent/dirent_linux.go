// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package dirent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// nameAt is where the name is in a linux_dirent64: after an inode number and an offset of eight bytes each, the length of
// the record in two, and the type.
const nameAt = 19

func next(dir int, buf []byte, f func(name []byte, t Type)) (used int, err error) {
	n, err := unix.Getdents(dir, buf)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Getdents(dir, buf)
	}
	if err != nil {
		return 0, os.NewSyscallError("getdents", err)
	}
	return n, parse(buf[:n], f)
}

// parse goes through records of the kernel.
func parse(records []byte, f func(name []byte, t Type)) error {
	for len(records) > 0 {
		if len(records) <= nameAt {
			return os.NewSyscallError("getdents", unix.EIO)
		}
		size := int(binary.NativeEndian.Uint16(records[16:]))
		if size <= nameAt || size > len(records) {
			return os.NewSyscallError("getdents", unix.EIO)
		}
		name := records[nameAt:size]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		if string(name) != "." && string(name) != ".." {
			f(name, Type(records[18]))
		}
		records = records[size:]
	}
	return nil
}
