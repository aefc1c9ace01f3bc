// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"errors"
	"fmt"
	"strings"
)

// Path names a cgroup below the root of its tree in a form that no driver changes: components joined by "/", such as
// "kubepods/burstable/pod1234-ab". The zero value is the root.
//
// A Path is text and may hold anything; [Path.Validate] reports whether it names a cgroup. What takes a Path from
// outside validates it, so that no ".." leaves the tree.
type Path string

// NewPath joins components below the root of the tree. A component that is empty, "." or "..", or that holds a "/", a
// newline or a NUL is an error; no components at all are the root.
func NewPath(components ...string) (Path, error) {
	p := Path("").Join(components...)
	if err := p.Validate(); err != nil {
		return "", err
	}
	return p, nil
}

// ParseCgroupfs returns the path that a name in the form of [Path.Cgroupfs] stands for. The slash in front may be
// missing; "/" and "" are the root.
func ParseCgroupfs(name string) (Path, error) {
	p := Path(strings.TrimPrefix(name, "/"))
	if err := p.Validate(); err != nil {
		return "", err
	}
	return p, nil
}

// Validate returns an error that names the path and its first component that is none: one that is empty, "." or "..",
// or that holds a newline or a NUL. A path does not begin with a slash; one at its end makes an empty component.
func (p Path) Validate() error {
	if p == "" {
		return nil
	}
	if below := strings.TrimLeft(string(p), "/"); below != "" && below != string(p) {
		return fmt.Errorf("cgroup path %q: begins with a slash: a path is written from below the root, as %q", string(p), below)
	}
	for component := range strings.SplitSeq(string(p), "/") {
		if err := checkComponent(component); err != nil {
			return fmt.Errorf("cgroup path %q: %w", string(p), err)
		}
	}
	return nil
}

// checkComponent refuses what is no name of a directory, and the newline, which the kernel refuses because it would
// make /proc/PID/cgroup ambiguous.
func checkComponent(component string) error {
	switch {
	case component == "":
		return errors.New("empty component")
	case component == "." || component == "..":
		return fmt.Errorf("component %q is no name", component)
	case strings.ContainsAny(component, "\x00\n"):
		return fmt.Errorf("component %q holds a newline or a NUL", component)
	}
	return nil
}

// Join returns the path of a cgroup below p. It checks nothing, but a component that is no name, or that is more than
// one, makes a path that [Path.Validate] refuses.
func (p Path) Join(components ...string) Path {
	for i, component := range components {
		// A slash inside a component is doubled and an empty component keeps its slash: both leave an empty
		// component behind, so that "a/b" is never taken for two names.
		component = strings.ReplaceAll(component, "/", "//")
		if p != "" || component == "" || i > 0 {
			p += "/"
		}
		p += Path(component)
	}
	return p
}

// Parent returns the cgroup that p lies in. The parent of the root is the root.
func (p Path) Parent() Path {
	i := strings.LastIndexByte(string(p), '/')
	return p[:max(i, 0)]
}

// Base returns the last component, which is empty for the root.
func (p Path) Base() string {
	return string(p[strings.LastIndexByte(string(p), '/')+1:])
}

// Components returns the names from below the root down, none for the root.
func (p Path) Components() []string {
	if p == "" {
		return nil
	}
	return strings.Split(string(p), "/")
}

// Cgroupfs returns the path as the cgroupfs driver and CRI runtimes in that mode take it: "/kubepods/burstable". The
// root is "/". The form is that of pkg/kubelet/cm/cgroup_manager_linux.go.
func (p Path) Cgroupfs() string { return "/" + string(p) }
