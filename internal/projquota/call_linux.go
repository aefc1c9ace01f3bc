// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package projquota

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attr is struct fsxattr (linux/fs.h).
type attr struct {
	flags, extentSize, extents uint32
	project                    uint32
	copyExtentSize             uint32
	_                          [8]byte
}

// The calls that read and write it, and the flag with which what is made in a directory gets its project.
const (
	ioctlGetAttr = 0x801c581f // FS_IOC_FSGETXATTR
	ioctlSetAttr = 0x401c5820 // FS_IOC_FSSETXATTR
	flagInherit  = 0x200      // FS_XFLAG_PROJINHERIT
)

// quota is struct if_dqblk (linux/quota.h). Limits are in blocks of 1 KiB, space is in bytes.
type quota struct {
	hard, soft           uint64
	space                uint64
	hardInodes           uint64
	softInodes           uint64
	inodes               uint64
	graceSpace, graceIno uint64
	valid                uint32
	_                    uint32
}

const (
	blockSize = 1024

	projectType = 2 // PRJQUOTA
	cmdGet      = 0x800007<<8 | projectType
	cmdSet      = 0x800008<<8 | projectType
	cmdState    = ('X'<<8|8)<<8 | projectType // Q_XGETQSTATV

	validLimits = 1 // QIF_BLIMITS

	stateVersion  = 1
	stateAccount  = 1 << 4 // FS_QUOTA_PDQ_ACCT
	stateEnforced = 1 << 5 // FS_QUOTA_PDQ_ENFD
)

// state is the beginning of struct fs_quota_statv (linux/dqblk_xfs.h), with more room than the rest takes.
type state struct {
	version int8
	_       uint8
	flags   uint16
	_       [252]byte
}

// open opens a directory, and follows no link at its end.
func open(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

func getAttr(f *os.File) (a attr, err error) {
	return a, ioctl(f, ioctlGetAttr, &a)
}

func setAttr(f *os.File, a attr) error { return ioctl(f, ioctlSetAttr, &a) }

func ioctl(f *os.File, request uintptr, a *attr) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(a))); errno != 0 {
		return errno
	}
	return nil
}

// quotactl is quotactl_fd(2), Linux 5.14.
func quotactl(f *os.File, cmd, id uint32, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), uintptr(cmd), uintptr(id), uintptr(arg), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// getQuota returns the quota of a project. One that nobody has heard of is empty.
func getQuota(f *os.File, id uint32) (q quota, err error) {
	err = quotactl(f, cmdGet, id, unsafe.Pointer(&q))
	if errors.Is(err, unix.ENOENT) {
		return quota{}, nil
	}
	return q, err
}

func setLimit(f *os.File, id uint32, bytes uint64) error {
	blocks := bytes / blockSize
	if bytes%blockSize > 0 {
		blocks++
	}
	q := quota{hard: blocks, valid: validLimits}
	return quotactl(f, cmdSet, id, unsafe.Pointer(&q))
}

// enforced returns an error unless the file system enforces the quotas of projects.
func enforced(f *os.File) error {
	s := state{version: stateVersion}
	if err := quotactl(f, cmdState, 0, unsafe.Pointer(&s)); err != nil {
		return err
	}
	if s.flags&(stateAccount|stateEnforced) != stateAccount|stateEnforced {
		return unix.ESRCH
	}
	return nil
}

// lacking reports whether an error means that there are no quotas here, or not for us.
func lacking(err error) bool {
	for _, errno := range []unix.Errno{
		unix.ENOSYS, unix.ENOTTY, unix.EOPNOTSUPP, unix.ESRCH, unix.EPERM, unix.EACCES, unix.ENOTBLK, unix.EINVAL, unix.ENODEV,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
