// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// flagOption is a mount option that sets or clears a flag of mount(2).
type flagOption struct {
	flag  uintptr
	clear bool
}

// flagOptions maps the mount options that are flags of mount(2) to these flags. The options are described under
// FILESYSTEM-INDEPENDENT MOUNT OPTIONS in mount(8).
func flagOptions() map[string]flagOption {
	return map[string]flagOption{
		"ro": {unix.MS_RDONLY, false}, "rw": {unix.MS_RDONLY, true}, "nosuid": {unix.MS_NOSUID, false}, "suid": {unix.MS_NOSUID, true},
		"nodev": {unix.MS_NODEV, false}, "dev": {unix.MS_NODEV, true}, "noexec": {unix.MS_NOEXEC, false}, "exec": {unix.MS_NOEXEC, true},
		"sync": {unix.MS_SYNCHRONOUS, false}, "async": {unix.MS_SYNCHRONOUS, true}, "dirsync": {unix.MS_DIRSYNC, false},
		"noatime": {unix.MS_NOATIME, false}, "atime": {unix.MS_NOATIME, true}, "nodiratime": {unix.MS_NODIRATIME, false},
		"diratime": {unix.MS_NODIRATIME, true}, "relatime": {unix.MS_RELATIME, false}, "norelatime": {unix.MS_RELATIME, true},
		"strictatime": {unix.MS_STRICTATIME, false}, "lazytime": {unix.MS_LAZYTIME, false}, "silent": {unix.MS_SILENT, false},
	}
}

// isMountCommandOption reports whether only the program mount(8) interprets the option, for example "noauto" or
// "x-systemd.automount". The kernel would refuse such an option.
func isMountCommandOption(option string) bool {
	switch option {
	case "", "defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "_netdev", "nofail":
		return true
	}
	return strings.HasPrefix(option, "x-") || strings.HasPrefix(option, "X-") || strings.HasPrefix(option, "comment=")
}

// splitOptions splits mount options into flags of mount(2) and data, the comma-separated options for the file system. It
// omits options that only mount(8) interprets.
func splitOptions(options []string) (flags uintptr, data string) {
	var rest []string
	known := flagOptions()
	for _, o := range options {
		f, ok := known[o]
		switch {
		case ok && f.clear:
			flags &^= f.flag
		case ok:
			flags |= f.flag
		case !isMountCommandOption(o):
			rest = append(rest, o)
		}
	}
	return flags, strings.Join(rest, ",")
}

func mountDisk(source, target, kind string, options []string) error {
	at, err := openTarget(target)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	flags, data := splitOptions(options)
	if len(data) >= unix.Getpagesize() {
		return errors.New("too many mount options")
	}
	return unix.Mount(source, fdPath(at), kind, flags, data)
}
