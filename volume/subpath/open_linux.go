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

// Limits for opening a path in a volume: symbolic links, as in the kernel, path elements, and levels of directories.
const (
	maxLinks    = 40
	maxElements = 4096
	maxLevels   = 256 // open directories, each of which needs a descriptor
)

// volume is the open root directory of a volume.
type volume struct {
	fd       int
	mode     uint32   // mode of the root directory
	paths    []string // paths of the volume on the host, which absolute symbolic links may begin with
	stepwise bool     // resolve each path stepwise, without openat2; for tests
}

// openVolume opens the root of the volume at path.
func openVolume(path string) (*volume, error) {
	// Symbolic links are followed: the agent chooses the path, and containers cannot change it.
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

// openPath opens a path inside the volume and returns its descriptor. It creates missing directories, and never leaves the
// volume.
func (v *volume) openPath(path string) (int, error) {
	if !v.stepwise {
		fd, err := v.openAtOnce(path)
		if err == nil {
			return fd, nil
		}
	}
	return v.openStepwise(path)
}

// openAtOnce opens a path inside the volume with openat2 (Linux 5.6). It can fail where openStepwise succeeds.
func (v *volume) openAtOnce(path string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_DIRECTORY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	// This fails for a missing directory, an absolute symbolic link, or during a concurrent rename.
	fd, err := unix.Openat2(v.fd, path, &how)
	if errors.Is(err, unix.ENOTDIR) {
		how.Flags &^= unix.O_DIRECTORY
		fd, err = unix.Openat2(v.fd, path, &how)
	}
	return fd, err
}

// pathElement is an element of a path that openStepwise has not opened yet.
type pathElement struct {
	name   string
	create bool // part of the subPath, not of a symbolic link: a missing directory is created
}

// openStepwise opens a path inside the volume element by element. It resolves symbolic links itself, so that no concurrent
// change leads out of the volume.
func (v *volume) openStepwise(path string) (int, error) {
	w := &walk{volume: v}
	defer w.closeAll()
	w.addPath(path, true)
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
			w.leaveDir()
			continue
		}
		link, err := w.enterElement(next)
		if err != nil {
			return -1, err
		}
		if link == "" {
			continue
		}
		if links++; links > maxLinks {
			return -1, unix.ELOOP
		}
		if err := w.followLink(link); err != nil {
			return -1, err
		}
	}
	return w.takeCurrent()
}

// walk is the state of one call of openStepwise.
type walk struct {
	volume *volume
	open   []int         // descriptors of the directories below the root, down to the current directory
	todo   []pathElement // elements that are not opened yet, in reverse order
}

func (w *walk) closeAll() {
	for len(w.open) > 0 {
		w.leaveDir()
	}
}

// leaveDir closes the current directory and makes its parent the current directory. It does not resolve "..", which a concurrent
// rename could direct elsewhere.
func (w *walk) leaveDir() {
	_ = unix.Close(w.open[len(w.open)-1])
	w.open = w.open[:len(w.open)-1]
}

// currentDir returns the descriptor of the current directory. The caller must not close it.
func (w *walk) currentDir() int {
	if len(w.open) == 0 {
		return w.volume.fd
	}
	return w.open[len(w.open)-1]
}

// takeCurrent returns the descriptor of the current file or directory, and removes it from w. The caller must close the
// descriptor.
func (w *walk) takeCurrent() (int, error) {
	if len(w.open) == 0 {
		return unix.FcntlInt(uintptr(w.volume.fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	fd := w.currentDir()
	w.open = w.open[:len(w.open)-1]
	return fd, nil
}

// addPath adds the elements of a path to those that w opens next. Missing directories are created if the path is the subPath
// (own).
func (w *walk) addPath(path string, own bool) {
	for _, e := range slices.Backward(strings.Split(path, "/")) {
		if e != "" && e != "." {
			w.todo = append(w.todo, pathElement{e, own})
		}
	}
}

// enterElement opens a path element in the current directory and makes it the current one, or returns the target of a symbolic
// link.
func (w *walk) enterElement(element pathElement) (link string, err error) {
	fd, err := openElement(w.currentDir(), element.name)
	if errors.Is(err, unix.ENOENT) && element.create {
		fd, err = w.createDir(element.name)
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

// openElement opens an entry of the directory dir, also a symbolic link itself.
func openElement(dir int, name string) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	// O_DIRECTORY makes autofs mount the directory.
	fd, err := unix.Openat(dir, name, flags|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return unix.Openat(dir, name, flags, 0)
	}
	return fd, err
}

// createDir creates a directory in the current directory and opens it. Its mode is that of the volume's root, regardless of the
// umask.
func (w *walk) createDir(name string) (int, error) {
	err := unix.Mkdirat(w.currentDir(), name, w.volume.mode&0o777)
	if errors.Is(err, unix.EEXIST) { // another process has created it
		return openElement(w.currentDir(), name)
	}
	if err != nil {
		return -1, err
	}
	fd, err := unix.Openat(w.currentDir(), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Fchmod(fd, w.volume.mode); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// followLink adds the elements of a link's target to those that w opens next. An absolute target outside the volume is
// ErrOutside.
func (w *walk) followLink(link string) error {
	if !strings.HasPrefix(link, "/") {
		w.addPath(link, false)
		return nil
	}
	for _, path := range w.volume.paths {
		rest, ok := strings.CutPrefix(link, path)
		if ok && (rest == "" || rest[0] == '/') {
			w.closeAll()
			w.addPath(rest, false)
			return nil
		}
	}
	return ErrOutside
}
