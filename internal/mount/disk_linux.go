// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// option is what a mount option does to the flags of mount(2).
type option struct {
	flag  uintptr
	clear bool
}

// optionFlags returns the options that are flags of mount(2) (mount(8), FILESYSTEM-INDEPENDENT MOUNT OPTIONS).
func optionFlags() map[string]option {
	return map[string]option{
		"ro": {unix.MS_RDONLY, false}, "rw": {unix.MS_RDONLY, true}, "nosuid": {unix.MS_NOSUID, false}, "suid": {unix.MS_NOSUID, true},
		"nodev": {unix.MS_NODEV, false}, "dev": {unix.MS_NODEV, true}, "noexec": {unix.MS_NOEXEC, false}, "exec": {unix.MS_NOEXEC, true},
		"sync": {unix.MS_SYNCHRONOUS, false}, "async": {unix.MS_SYNCHRONOUS, true}, "dirsync": {unix.MS_DIRSYNC, false},
		"noatime": {unix.MS_NOATIME, false}, "atime": {unix.MS_NOATIME, true}, "nodiratime": {unix.MS_NODIRATIME, false},
		"diratime": {unix.MS_NODIRATIME, true}, "relatime": {unix.MS_RELATIME, false}, "norelatime": {unix.MS_RELATIME, true},
		"strictatime": {unix.MS_STRICTATIME, false}, "lazytime": {unix.MS_LAZYTIME, false}, "silent": {unix.MS_SILENT, false},
	}
}

// ofCommand reports whether an option is one for mount(8) alone.
func ofCommand(o string) bool {
	switch o {
	case "", "defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "_netdev", "nofail":
		return true
	}
	return strings.HasPrefix(o, "x-") || strings.HasPrefix(o, "X-") || strings.HasPrefix(o, "comment=")
}

// flagsOf parts mount options into the flags of mount(2) and what is left for the file system.
func flagsOf(options []string) (flags uintptr, data string) {
	var rest []string
	known := optionFlags()
	for _, o := range options {
		f, ok := known[o]
		switch {
		case ok && f.clear:
			flags &^= f.flag
		case ok:
			flags |= f.flag
		case !ofCommand(o):
			rest = append(rest, o)
		}
	}
	return flags, strings.Join(rest, ",")
}

func disk(source, target, kind string, options []string) error {
	at, err := openTarget(target)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	flags, data := flagsOf(options)
	if len(data) >= unix.Getpagesize() {
		return errors.New("too many mount options")
	}
	return unix.Mount(source, fdPath(at), kind, flags, data)
}
