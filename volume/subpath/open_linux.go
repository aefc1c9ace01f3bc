// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of the way through a volume, those of the kernel and what a path of 4,096 bytes can have.
const (
	maxLinks    = 40
	maxElements = 4096
	maxLevels   = 256 // each takes a descriptor
)

// volume is a volume that is open.
type volume struct {
	fd    int
	mode  uint32   // of its root
	paths []string // by which links may name it: as it was asked for, and where that leads
	slow  bool     // go element by element even where the kernel could do it at once; tests
}

// openVolume opens a volume. What it is on the host is the agent's business, so links are followed.
func openVolume(path string) (*volume, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	v := &volume{fd: fd, paths: []string{filepath.Clean(path)}}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		v.close()
		return nil, err
	}
	v.mode = st.Mode & 0o7777
	if resolved, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err == nil && resolved != v.paths[0] {
		v.paths = append(v.paths, resolved)
	}
	return v, nil
}

func (v *volume) close() { _ = unix.Close(v.fd) }

// open opens what is at a path of the volume, and makes the directories that are missing.
func (v *volume) open(path string) (int, error) {
	if !v.slow {
		fd, err := v.openAtOnce(path)
		if err == nil {
			return fd, nil
		}
	}
	return v.walk(path)
}

// openAtOnce lets the kernel find the path (Linux 5.6). It follows links, and fails where one leads out of the volume or is
// absolute, where something is missing, and where directories are moved at the same time. O_DIRECTORY makes it mount what
// an automounter has at the path.
func (v *volume) openAtOnce(path string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(v.fd, path, &how)
	if errors.Is(err, unix.ENOTDIR) {
		how.Flags &^= unix.O_DIRECTORY
		fd, err = unix.Openat2(v.fd, path, &how)
	}
	return fd, err
}

// step is one element of a path that is still to go.
type step struct {
	name string
	own  bool // it is of the subPath, and not of a link: it is made if it is missing
}

// walk goes through a volume element by element. It opens each without following it, and reads where a link leads itself,
// so that nothing that happens at the same time can lead it out of the volume.
func (v *volume) walk(path string) (int, error) {
	w := &walk{volume: v}
	defer w.close()
	w.add(path, true)
	for links, steps := 0, 0; len(w.todo) > 0; steps++ {
		if steps > maxElements || len(w.open) > maxLevels {
			return -1, unix.ENAMETOOLONG
		}
		next := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if next.name == ".." {
			if len(w.open) == 0 {
				return -1, ErrOutside
			}
			w.up()
			continue
		}
		link, err := w.enter(next)
		if err != nil {
			return -1, err
		}
		if link == "" {
			continue
		}
		if links++; links > maxLinks {
			return -1, unix.ELOOP
		}
		if err := w.follow(link); err != nil {
			return -1, err
		}
	}
	return w.take()
}

// walk is the state of a way through a volume.
type walk struct {
	volume *volume
	open   []int  // the elements of the volume that lead to where it is, without the root
	todo   []step // what is still to go, the next one last
}

func (w *walk) close() {
	for len(w.open) > 0 {
		w.up()
	}
}

// up goes to the directory above by the way that it has come, whatever ".." is now.
func (w *walk) up() {
	_ = unix.Close(w.open[len(w.open)-1])
	w.open = w.open[:len(w.open)-1]
}

// at is where the walk is.
func (w *walk) at() int {
	if len(w.open) == 0 {
		return w.volume.fd
	}
	return w.open[len(w.open)-1]
}

// take returns where the walk is, for the caller to close.
func (w *walk) take() (int, error) {
	if len(w.open) == 0 {
		return unix.FcntlInt(uintptr(w.volume.fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	fd := w.at()
	w.open = w.open[:len(w.open)-1]
	return fd, nil
}

// add puts the elements of a path before what is still to go.
func (w *walk) add(path string, own bool) {
	for _, e := range slices.Backward(strings.Split(path, "/")) {
		if e != "" && e != "." {
			w.todo = append(w.todo, step{e, own})
		}
	}
}

// enter goes to an entry of the directory where the walk is, or returns where it leads if it is a link.
func (w *walk) enter(s step) (link string, err error) {
	fd, err := openElement(w.at(), s.name)
	if errors.Is(err, unix.ENOENT) && s.own {
		fd, err = w.mkdir(s.name)
	}
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		w.open = append(w.open, fd)
		return "", nil
	}
	defer unix.Close(fd)
	buf := make([]byte, maxPath)
	n, err := unix.Readlinkat(fd, "", buf)
	switch {
	case err != nil:
		return "", err
	case n == 0 || n == len(buf):
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

// openElement opens an entry of a directory, and the link itself if it is one. It tries that as a directory first, which
// makes the kernel mount what an automounter has there.
func openElement(dir int, name string) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return unix.Openat(dir, name, flags, 0)
	}
	return fd, err
}

// mkdir makes a directory with the mode of the root of the volume, whatever the umask, or opens what somebody else has made
// there meanwhile.
func (w *walk) mkdir(name string) (int, error) {
	err := unix.Mkdirat(w.at(), name, w.volume.mode&0o777)
	if errors.Is(err, unix.EEXIST) {
		return openElement(w.at(), name)
	}
	if err != nil {
		return -1, err
	}
	fd, err := unix.Openat(w.at(), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Fchmod(fd, w.volume.mode); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// follow goes where a link leads: from the directory that it is in, or from the root of the volume if it is absolute and
// names that.
func (w *walk) follow(link string) error {
	if !strings.HasPrefix(link, "/") {
		w.add(link, false)
		return nil
	}
	for _, path := range w.volume.paths {
		rest, ok := strings.CutPrefix(link, path)
		if ok && (rest == "" || rest[0] == '/') {
			w.close()
			w.add(rest, false)
			return nil
		}
	}
	return ErrOutside
}
