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

// fileAttr is struct fsxattr (linux/fs.h).
type fileAttr struct {
	flags, extentSize, extents uint32
	project                    uint32
	copyExtentSize             uint32
	_                          [8]byte
}

// ioctls that read and write fileAttr, and the flag that makes new files inherit the project of a directory.
const (
	ioctlGetAttr = 0x801c581f // FS_IOC_FSGETXATTR
	ioctlSetAttr = 0x401c5820 // FS_IOC_FSSETXATTR
	flagInherit  = 0x200      // FS_XFLAG_PROJINHERIT
)

// projectQuota is struct if_dqblk (linux/quota.h). Limits are in blocks of 1 KiB, space is in bytes.
type projectQuota struct {
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

// quotaState is the beginning of struct fs_quota_statv (linux/dqblk_xfs.h); its padding is larger than the remaining fields.
type quotaState struct {
	version int8
	_       uint8
	flags   uint16
	_       [252]byte
}

// openDir opens the directory dir. A symbolic link is an error.
func openDir(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

func getAttr(f *os.File) (a fileAttr, err error) {
	return a, callIoctl(f, ioctlGetAttr, &a)
}

func setAttr(f *os.File, a fileAttr) error { return callIoctl(f, ioctlSetAttr, &a) }

func callIoctl(f *os.File, request uintptr, a *fileAttr) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(a))); errno != 0 {
		return errno
	}
	return nil
}

// callQuotactl calls quotactl_fd(2), which requires Linux 5.14, for the project id on the file system of f.
func callQuotactl(f *os.File, cmd, id uint32, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), uintptr(cmd), uintptr(id), uintptr(arg), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// getQuota returns the limits and the usage of the project id on the file system of f. For an unused project it returns zero
// values.
func getQuota(f *os.File, id uint32) (q projectQuota, err error) {
	err = callQuotactl(f, cmdGet, id, unsafe.Pointer(&q))
	if errors.Is(err, unix.ENOENT) {
		return projectQuota{}, nil
	}
	return q, err
}

func writeLimit(f *os.File, id uint32, bytes uint64) error {
	blocks := bytes / blockSize
	if bytes%blockSize > 0 {
		blocks++
	}
	q := projectQuota{hard: blocks, valid: validLimits}
	return callQuotactl(f, cmdSet, id, unsafe.Pointer(&q))
}

// checkEnforced returns an error unless the file system of f counts and enforces project quotas.
func checkEnforced(f *os.File) error {
	s := quotaState{version: stateVersion}
	if err := callQuotactl(f, cmdState, 0, unsafe.Pointer(&s)); err != nil {
		return err
	}
	if s.flags&(stateAccount|stateEnforced) != stateAccount|stateEnforced {
		return unix.ESRCH
	}
	return nil
}

// isUnsupported reports whether err means that the kernel or the file system has no project quotas, or that this process may
// not use them.
func isUnsupported(err error) bool {
	for _, errno := range []unix.Errno{
		unix.ENOSYS, unix.ENOTTY, unix.EOPNOTSUPP, unix.ESRCH, unix.EPERM, unix.EACCES, unix.ENOTBLK, unix.EINVAL, unix.ENODEV,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
