// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"fmt"
	"strings"
)

const (
	sliceSuffix = ".slice"
	maxUnitName = 255 // maximum length of a systemd unit name in bytes
)

// Systemd returns the directory that systemd gives to the slice of p. For "kubepods/burstable/pod1234-ab" it is
// "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_ab.slice"; for the root it is "/". In a slice name "-"
// separates parent and child, so each "-" of p becomes "_" (pkg/kubelet/cm/cgroup_manager_linux.go).
//
// A component that contains "_" is an error, because [ParseSystemd] could not restore it. Characters and lengths that systemd
// does not accept are errors too.
func (p Path) Systemd() (string, error) {
	if p == "" {
		return "/", nil
	}
	if err := p.validateSlice(); err != nil {
		return "", err
	}
	return p.systemdDirs(), nil
}

// systemdDirs returns [Path.Systemd] of p, which the caller has validated and which is not the root.
func (p Path) systemdDirs() string {
	depth := strings.Count(string(p), "/") + 1
	var dirs strings.Builder
	dirs.Grow(depth * (1 + len(p) + len(sliceSuffix)))
	unit := make([]byte, 0, maxUnitName)
	for component := range strings.SplitSeq(string(p), "/") {
		if len(unit) > 0 {
			unit = append(unit, '-')
		}
		for _, c := range []byte(component) {
			if c == '-' {
				c = '_'
			}
			unit = append(unit, c)
		}
		dirs.WriteByte('/')
		dirs.Write(unit)
		dirs.WriteString(sliceSuffix)
	}
	return dirs.String()
}

// validateSlice returns an error if p cannot be a systemd slice. p must not be the root.
func (p Path) validateSlice() error {
	if err := p.Validate(); err != nil {
		return err
	}
	if len(p)+len(sliceSuffix) > maxUnitName {
		return fmt.Errorf("cgroup path %q: its slice has a name of more than %d bytes", string(p), maxUnitName)
	}
	for i, r := range string(p) {
		if r != '/' && r != '-' && !isSliceRune(r) {
			component, _, _ := strings.Cut(string(p[strings.LastIndexByte(string(p[:i]), '/')+1:]), "/")
			return fmt.Errorf("cgroup path %q: a slice of systemd cannot hold the %q of %q", string(p), r, component)
		}
	}
	return nil
}

// isSliceRune reports whether a component may contain r with systemd: a letter, a digit, ":", "." or "\" (systemd.unit(5)). "@"
// is excluded, because it would make the slice a template, which systemd does not allow.
func isSliceRune(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || r == ':' || r == '.' || r == '\\'
}

// Slice returns the unit name of the systemd slice of p, for example "kubepods-burstable-pod1234_ab.slice", or "-.slice" for the
// root. It is the last directory of [Path.Systemd].
func (p Path) Slice() (string, error) {
	if p == "" {
		return "-" + sliceSuffix, nil
	}
	dirs, err := p.Systemd()
	return dirs[strings.LastIndexByte(dirs, '/')+1:], err
}

// ParseSystemd returns the path of a systemd slice. name is its unit name, or its directory in the format of [Path.Systemd]. "/",
// "-.slice" and "" are the root. It returns an error for another type of unit, such as a scope, and for a directory that systemd
// does not use for the slice.
func ParseSystemd(name string) (Path, error) {
	dirs := strings.TrimPrefix(name, "/")
	if dirs == "" || dirs == "-"+sliceSuffix {
		return "", nil
	}
	unit, ok := strings.CutSuffix(dirs[strings.LastIndexByte(dirs, '/')+1:], sliceSuffix)
	if !ok || unit == "" {
		return "", fmt.Errorf("cgroup %q is not a systemd slice", name)
	}
	p := pathFromSlice(unit)
	if err := p.validateSlice(); err != nil {
		return "", fmt.Errorf("cgroup %q is not a systemd slice: %w", name, err)
	}
	if strings.Contains(dirs, "/") {
		if want := p.systemdDirs(); "/"+dirs != want {
			return "", fmt.Errorf("cgroup %q is not the directory of that systemd slice: %q", name, want)
		}
	}
	return p, nil
}

// pathFromSlice returns the path of a slice. unit is the unit name without the suffix ".slice".
func pathFromSlice(unit string) Path {
	var p strings.Builder
	p.Grow(len(unit))
	for _, c := range []byte(unit) {
		switch c {
		case '-':
			c = '/'
		case '_':
			c = '-'
		}
		p.WriteByte(c)
	}
	return Path(p.String())
}
