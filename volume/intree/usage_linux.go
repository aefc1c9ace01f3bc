// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/volume"
)

// maxWalked is how many files a walk counts at most. A volume with more is not measured.
const maxWalked = 10_000_000

// usage measures a directory: its file system where something is mounted on it, else what is in it.
func usage(ctx context.Context, dir string) (u volume.Usage, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return u, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	size := uint64(fs.Bsize)
	u = volume.Usage{CapacityBytes: fs.Blocks * size, AvailableBytes: fs.Bavail * size, Inodes: fs.Files, FreeInodes: fs.Ffree}
	mounted, err := mount.IsMountPoint(dir)
	switch {
	case err != nil:
		return u, err
	case mounted:
		u.UsedBytes, u.UsedInodes = (fs.Blocks-fs.Bfree)*size, fs.Files-fs.Ffree
		return u, nil
	}
	w := &walk{seen: map[[2]uint64]bool{}}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return u, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return u, err
	}
	w.dev = st.Dev
	w.count(&st)
	err = w.dir(ctx, fd, dir, 0)
	u.UsedBytes, u.UsedInodes = w.bytes, w.inodes
	return u, err
}

// walk counts what is in a tree, each file with several names once. It follows no links and enters nothing that is mounted.
type walk struct {
	dev           uint64
	seen          map[[2]uint64]bool // files with several names
	bytes, inodes uint64
}

// count counts one file, and reports whether it was not counted before.
func (w *walk) count(st *unix.Stat_t) {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		id := [2]uint64{st.Dev, st.Ino}
		if w.seen[id] {
			return
		}
		w.seen[id] = true
	}
	w.bytes += uint64(st.Blocks) * 512
	w.inodes++
}

// maxLevels is how deep a walk goes: each level takes a descriptor.
const maxLevels = 200

// dir counts what is in a directory, and closes it.
func (w *walk) dir(ctx context.Context, fd int, path string, level int) error {
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if level > maxLevels {
		return fmt.Errorf("%s: more than %d levels", path, maxLevels)
	}
	for {
		names, err := f.Readdirnames(1000)
		for _, name := range names {
			if err := w.entry(ctx, fd, name, path, level); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case w.inodes > maxWalked:
			return fmt.Errorf("%s: more than %d files", path, maxWalked)
		}
	}
}

// entry counts one entry of a directory. One that is removed meanwhile does not count.
func (w *walk) entry(ctx context.Context, parent int, name, path string, level int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT); err != nil || st.Dev != w.dev {
		return nil //nolint:nilerr // removed, or mounted there
	}
	w.count(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil //nolint:nilerr // likewise
	}
	return w.dir(ctx, fd, path+"/"+name, level+1)
}
