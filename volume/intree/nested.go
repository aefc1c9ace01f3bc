// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
)

// mountPoints returns the directories that a volume needs because containers mount other volumes below it, which the runtime
// could not make in a read-only volume. What is mounted below another of them is not among them (pkg/volume/util,
// getNestedMountpoints).
func mountPoints(name string, spec *corev1.PodSpec) []string {
	var found []string
	for c := range containers.All(spec) {
		var all, mine []string
		for _, m := range c.VolumeMounts {
			at := path.Clean("/" + m.MountPath)
			all = append(all, at)
			if m.Name == name {
				mine = append(mine, at)
			}
		}
		slices.Sort(all)
		for _, at := range mine {
			found = append(found, below(at, all)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// below returns the paths that are below another one, relative to it and without those that are below one of them.
func below(at string, sorted []string) []string {
	var found []string
	prefix := at + "/" // nothing is below a volume that is mounted at the root
	for _, other := range sorted {
		rest, ok := strings.CutPrefix(other, prefix)
		if !ok || slices.ContainsFunc(found, func(outer string) bool { return strings.HasPrefix(rest, outer+"/") }) {
			continue
		}
		found = append(found, rest)
	}
	return found
}

// makeMountPoints makes directories in a volume. They are not in the way of files: package atomicwriter leaves names alone that
// are there.
func makeMountPoints(dir string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range names {
		if err := root.MkdirAll(name, 0o755); err != nil {
			return fmt.Errorf("mount point %.256q: %w", name, err)
		}
	}
	return nil
}
