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
// "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_ab.slice". For the root it is "/". In the name of a
// slice, "-" separates parent and child, so that each "-" of p becomes "_". Source: pkg/kubelet/cm/cgroup_manager_linux.go.
//
// It returns an error if a component contains "_", because [ParseSystemd] could not restore it. Characters and lengths that
// systemd does not accept are errors too.
func (p Path) Systemd() (string, error) {
	if p == "" {
		return "/", nil
	}
	if err := p.validateSlice(); err != nil {
		return "", err
	}
	return p.systemdDirs(), nil
}

// systemdDirs returns the result of [Path.Systemd] without validating p. The path p must be valid and not the root.
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

// validateSlice returns an error if p cannot be a systemd slice. The path p must not be the root.
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

// isSliceRune reports whether systemd accepts a character in a component of a slice name. Source: systemd.unit(5).
func isSliceRune(r rune) bool {
	// not "@", because systemd does not allow slice templates
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || r == ':' || r == '.' || r == '\\'
}

// Slice returns the unit name of the systemd slice of p, for example "kubepods-burstable-pod1234_ab.slice". For the root it
// is "-.slice". The name is the last directory of [Path.Systemd].
func (p Path) Slice() (string, error) {
	if p == "" {
		return "-" + sliceSuffix, nil
	}
	dirs, err := p.Systemd()
	return dirs[strings.LastIndexByte(dirs, '/')+1:], err
}

// ParseSystemd returns the path of a systemd slice, from its unit name or the directory in the format of [Path.Systemd].
// The names "/", "-.slice" and "" are the root. Other types of units, and slices in a wrong directory, are errors.
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

// pathFromSlice returns the path of a slice. The argument is the unit name without the suffix ".slice".
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
