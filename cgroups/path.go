// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"errors"
	"fmt"
	"strings"
)

// Path names a cgroup below the root of a tree, independently of the driver: components joined by "/", for example
// "kubepods/burstable/pod1234-ab". The zero value is the root.
//
// A Path may hold any text. Callers check untrusted input with [Path.Validate], so that no ".." leads out of the tree.
type Path string

// NewPath joins components to a path. Without components it returns the root. It returns an error if a component is empty,
// "." or "..", or if it contains "/", a newline or NUL.
func NewPath(components ...string) (Path, error) {
	p := Path("").Join(components...)
	if err := p.Validate(); err != nil {
		return "", err
	}
	return p, nil
}

// ParseCgroupfs returns the path of a cgroup, given its name in the format of [Path.Cgroupfs], for example
// "/kubepods/burstable". The leading slash may be missing. The names "/" and "" stand for the root.
func ParseCgroupfs(name string) (Path, error) {
	p := Path(strings.TrimPrefix(name, "/"))
	if err := p.Validate(); err != nil {
		return "", err
	}
	return p, nil
}

// Validate returns an error that names the first invalid component of the path: one that is empty, "." or "..", or contains
// a newline or NUL. So a leading or trailing slash is an error.
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

// checkComponent returns an error if the component cannot be the name of a cgroup directory. The kernel forbids newlines,
// because they would make /proc/PID/cgroup ambiguous.
func checkComponent(component string) error {
	switch {
	case component == "":
		return errors.New("empty component")
	case component == "." || component == "..":
		return fmt.Errorf("component %q is not a name", component)
	case strings.ContainsAny(component, "\x00\n"):
		return fmt.Errorf("component %q holds a newline or a NUL", component)
	}
	return nil
}

// Join returns the path of a descendant of p. It does not check the components: if one is invalid, [Path.Validate] rejects
// the result.
func (p Path) Join(components ...string) Path {
	for i, component := range components {
		// Double a slash inside a component, and keep the slash of an empty component: both leave an empty
		// component, which Validate rejects. Otherwise "a/b" would become two components.
		component = strings.ReplaceAll(component, "/", "//")
		if p != "" || component == "" || i > 0 {
			p += "/"
		}
		p += Path(component)
	}
	return p
}

// Parent returns the path of the parent cgroup. The parent of the root is the root.
func (p Path) Parent() Path {
	i := strings.LastIndexByte(string(p), '/')
	return p[:max(i, 0)]
}

// Base returns the last component of p, empty for the root.
func (p Path) Base() string {
	return string(p[strings.LastIndexByte(string(p), '/')+1:])
}

// Components returns the components of p from the top down. It returns nil for the root.
func (p Path) Components() []string {
	if p == "" {
		return nil
	}
	return strings.Split(string(p), "/")
}

// Cgroupfs returns the name of the cgroup in the format of the cgroupfs driver, for example "/kubepods/burstable". The name
// of the root is "/". The kubelet and CRI runtimes use this format. Source: pkg/kubelet/cm/cgroup_manager_linux.go.
func (p Path) Cgroupfs() string { return "/" + string(p) }
