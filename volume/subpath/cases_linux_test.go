// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath

import "strings"

// cases are subPaths of volumes. openat2 and the stepwise resolution must have equal results.
var cases = []struct {
	name, script, subPath string
	want                  string // result, relative to the volume
	err                   string // error in place of want
}{
	{name: "directory", script: "dir a/b", subPath: "a/b", want: "a/b"},
	{name: "file", script: "file a/f", subPath: "a/f", want: "a/f"},
	{name: "socket", script: "socket a/s", subPath: "a/s", want: "a/s"},
	{name: "pipe", script: "pipe a/p", subPath: "a/p", want: "a/p"},
	{name: "root", subPath: ".", want: "."},
	{name: "dots and slashes", script: "dir a/b", subPath: "./a//b/.", want: "a/b"},
	{name: "names that contain dots", script: "dir a..b/..c/...", subPath: "a..b/..c/...", want: "a..b/..c/..."},
	{name: "missing", subPath: "a/b/c", want: "a/b/c"},
	{name: "last element missing", script: "dir a", subPath: "a/b", want: "a/b"},
	{name: "missing below a link", script: "dir a; link l a", subPath: "l/b", want: "a/b"},
	{name: "link", script: "dir a/b; link l a/b", subPath: "l", want: "a/b"},
	{name: "link in the middle", script: "dir a/b/c; link l a/b", subPath: "l/c", want: "a/b/c"},
	{name: "link to a file", script: "file a/f; link l a/f", subPath: "l", want: "a/f"},
	{name: "link up", script: "dir a/b; dir c; link a/b/l ../../c", subPath: "a/b/l", want: "c"},
	{name: "link to the root", script: "dir a; link a/l ..", subPath: "a/l", want: "."},
	{name: "link to a link", script: "dir a; link l1 l2; link l2 a", subPath: "l1", want: "a"},
	{name: "absolute link into the volume", script: "dir a/b; link l VOLUME/a", subPath: "l/b", want: "a/b"},
	{name: "absolute link to the volume", script: "dir a; link l VOLUME", subPath: "l/a", want: "a"},
	{name: "absolute link by another name of the volume", script: "link ROOT/other VOLUME; dir a; link l ROOT/other/a", subPath: "l", err: "leads out of the volume"},

	{name: "absolute", subPath: "/etc", err: "must be relative"},
	{name: "up", subPath: "..", err: "must not contain '..'"},
	{name: "'..' in the middle", script: "dir a", subPath: "a/../b", err: "must not contain '..'"},
	{name: "empty", subPath: "", err: "must not be empty"},
	{name: "zero byte", subPath: "a\x00b", err: "must not contain a zero byte"},
	{name: "long", subPath: strings.Repeat("a/", 2049), err: "must not be longer than 4096 bytes"},
	{name: "long element", subPath: strings.Repeat("a", 256), err: "open: file name too long"},
	{name: "link out", script: "dir ROOT/outside; link l ROOT/outside", subPath: "l", err: "leads out of the volume"},
	{name: "link to the root of the host", script: "link l /", subPath: "l", err: "leads out of the volume"},
	{name: "below a link to the root of the host", script: "link l /", subPath: "l/etc", err: "leads out of the volume"},
	{name: "dangling link to outside", script: "link l /nowhere/at/all", subPath: "l", err: "leads out of the volume"},
	{name: "link out of the volume and back", script: "dir a; link l ../volume/a", subPath: "l", err: "leads out of the volume"},
	{name: "link to the parent of the volume", script: "link l ..", subPath: "l", err: "leads out of the volume"},
	{name: "absolute link to outside via the volume", script: "link l VOLUME/../outside; dir ROOT/outside", subPath: "l", err: "leads out of the volume"},
	{name: "link to a sibling with the volume's name as prefix", script: "dir ROOT/volume2; link l ROOT/volume2", subPath: "l", err: "leads out of the volume"},
	{name: "child outside", script: "file ROOT/child; link a ROOT", subPath: "a/child", err: "leads out of the volume"},
	{name: "missing child outside", script: "link a ROOT", subPath: "a/child", err: "leads out of the volume"},
	{name: "child of a link to outside", script: "file ROOT/child; dir a; link a/l ROOT", subPath: "a/l/child", err: "leads out of the volume"},
	{name: "link to itself", script: "link l l", subPath: "l", err: "open: too many levels of symbolic links"},
	{name: "links in a ring", script: "link l m; link m l/x", subPath: "l", err: "open: too many levels of symbolic links"},
	{name: "dangling link", script: "link l nothing", subPath: "l", err: "open: no such file or directory"},
	{name: "below a dangling link", script: "link l nothing", subPath: "l/a", err: "open: no such file or directory"},
	{name: "below a file", script: "file f", subPath: "f/a", err: "open: not a directory"},
	{name: "magic link", script: "link l /proc/self/root", subPath: "l/etc", err: "leads out of the volume"},
}
