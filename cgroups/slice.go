// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"fmt"
	"strings"
)

const (
	sliceSuffix = ".slice"
	maxUnitName = 255 // bytes that systemd takes as the name of a unit
)

// Systemd returns the path as the directory that systemd gives to its slice: "kubepods/burstable/pod1234-ab" is
// "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_ab.slice", and the root is "/". In the name of
// a slice "-" stands between parent and child, so a "-" of the path becomes "_" (pkg/kubelet/cm/cgroup_manager_linux.go).
//
// The way back must be the only one, so a component that holds a "_" itself is an error; so are characters and lengths
// that systemd does not take in the name of a slice.
func (p Path) Systemd() (string, error) {
	if p == "" {
		return "/", nil
	}
	if err := p.validateSlice(); err != nil {
		return "", err
	}
	return p.slices(), nil
}

// slices is Systemd for a path that is known to be valid.
func (p Path) slices() string {
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

// validateSlice says why the path, which is not the root, can be no slice.
func (p Path) validateSlice() error {
	if err := p.Validate(); err != nil {
		return err
	}
	if len(p)+len(sliceSuffix) > maxUnitName {
		return fmt.Errorf("cgroup path %q: its slice has a name of more than %d bytes", string(p), maxUnitName)
	}
	for i, r := range string(p) {
		if r != '/' && r != '-' && !inSlice(r) {
			component, _, _ := strings.Cut(string(p[strings.LastIndexByte(string(p[:i]), '/')+1:]), "/")
			return fmt.Errorf("cgroup path %q: a slice of systemd cannot hold the %q of %q", string(p), r, component)
		}
	}
	return nil
}

// inSlice tells the characters that a component may hold under systemd: letters, digits, ":", "." and "\"
// (systemd.unit(5)). An "@" would make the slice a template, which a slice cannot be.
func inSlice(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || r == ':' || r == '.' || r == '\\'
}

// Slice returns the name of the unit that holds the cgroup, which is the last directory of [Path.Systemd]:
// "kubepods-burstable-pod1234_ab.slice". The root is "-.slice".
func (p Path) Slice() (string, error) {
	if p == "" {
		return "-" + sliceSuffix, nil
	}
	dirs, err := p.Systemd()
	return dirs[strings.LastIndexByte(dirs, '/')+1:], err
}

// ParseSystemd returns the path of a slice, given by the name of its unit or by its directory in the form of
// [Path.Systemd]. What is no slice, such as a scope, is an error, and so is a directory that is not where systemd puts
// that slice. "/", "-.slice" and "" are the root.
func ParseSystemd(name string) (Path, error) {
	dirs := strings.TrimPrefix(name, "/")
	if dirs == "" || dirs == "-"+sliceSuffix {
		return "", nil
	}
	unit, ok := strings.CutSuffix(dirs[strings.LastIndexByte(dirs, '/')+1:], sliceSuffix)
	if !ok || unit == "" {
		return "", fmt.Errorf("cgroup %q is no slice of systemd", name)
	}
	p := fromSlice(unit)
	if err := p.validateSlice(); err != nil {
		return "", fmt.Errorf("cgroup %q is no slice of systemd: %w", name, err)
	}
	if strings.Contains(dirs, "/") {
		if want := p.slices(); "/"+dirs != want {
			return "", fmt.Errorf("cgroup %q is not where systemd puts that slice: %q", name, want)
		}
	}
	return p, nil
}

// fromSlice turns the name of a slice, without its suffix, into a path.
func fromSlice(unit string) Path {
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
