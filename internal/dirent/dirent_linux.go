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

// nameAt is the offset of the name in struct linux_dirent64, after inode, offset, record length and type.
const nameAt = 19

func readBlock(dir int, buf []byte, f func(name []byte, t Type)) (used int, err error) {
	n, err := unix.Getdents(dir, buf)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Getdents(dir, buf)
	}
	if err != nil {
		return 0, os.NewSyscallError("getdents", err)
	}
	return n, parseRecords(buf[:n], f)
}

// parseRecords calls f for each entry in records, the output of getdents64(2), except "." and "..". The name is a part of
// records, so f must copy it to keep it.
func parseRecords(records []byte, f func(name []byte, t Type)) error {
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
