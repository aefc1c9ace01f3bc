// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
	"github.com/seed81659283/nodeagent/cri/process/internal/translate"
)

// defaultCgroupParent is below the root of Options.Cgroups, for sandboxes without a parent of their own.
const defaultCgroupParent cgroups.Path = "nodeagent"

// confine gives a new container its place in the tree of cgroups.
func (r *Runtime) confine(c *container, s *sandbox, res *cri.Resources, spec *shim.Spec) error {
	if r.options.Cgroups == nil {
		return nil
	}
	parent := defaultCgroupParent
	if s.CgroupParent != "" {
		var err error
		if parent, err = r.options.Cgroups.Parse(s.CgroupParent); err != nil {
			return fmt.Errorf("cgroup_parent %q: %w", s.CgroupParent, err)
		}
	}
	limits, err := translate.Limits(res)
	if err != nil {
		return err
	}
	c.Cgroup = parent.Join(c.ID)
	if spec.Cgroups, err = r.options.Cgroups.Dirs(c.Cgroup); err != nil {
		return err
	}
	c.Limits = limits
	if res != nil {
		spec.OOMScoreAdj = new(int(res.OOMScoreAdj))
		c.Resources = new(*res)
		c.Resources.Unified, c.Resources.HugepageLimits = maps.Clone(res.Unified), slices.Clone(res.HugepageLimits)
	}
	return nil
}

// applyLimits makes the cgroup of a container that is about to start.
func (r *Runtime) applyLimits(ctx context.Context, c *container) error {
	switch {
	case c.Cgroup == "":
		return nil
	case r.options.Cgroups == nil:
		return c.errNoTree()
	}
	return r.options.Cgroups.Apply(ctx, c.Cgroup, c.Limits)
}

// removeCgroup removes the cgroup of a container that does not run, and what has escaped its shim with it. Without
// Options.Cgroups it can only see that there is none.
func (r *Runtime) removeCgroup(ctx context.Context, c *container) error {
	switch {
	case c.Cgroup == "":
		return nil
	case r.options.Cgroups != nil:
		return r.options.Cgroups.Remove(ctx, c.Cgroup)
	}
	spec, err := shim.ReadSpec(c.dir)
	if err != nil {
		return fmt.Errorf("%w; its directories are not known: %w", c.errNoTree(), err)
	}
	for _, dir := range spec.Cgroups {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			return c.errNoTree()
		}
	}
	return nil
}

// errNoTree says that a container has a cgroup, and the runtime no tree of them.
func (c *container) errNoTree() error {
	return fmt.Errorf("cgroup %s: Options.Cgroups is nil: open the runtime with the one that the container was created with", c.Cgroup)
}
