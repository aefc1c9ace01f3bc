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

// defaultCgroupParent is the parent, below the root of Options.Cgroups, for sandboxes without a CgroupParent.
const defaultCgroupParent cgroups.Path = "nodeagent"

// setCgroup sets the cgroup path and the limits of a new container, in c and in its shim's spec.
func (r *Runtime) setCgroup(c *container, s *sandbox, res *cri.Resources, spec *shim.Spec) error {
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

// createCgroup creates the cgroup of a container and applies its limits, before the start.
func (r *Runtime) createCgroup(ctx context.Context, c *container) error {
	switch {
	case c.Cgroup == "":
		return nil
	case r.options.Cgroups == nil:
		return c.errNoCgroups()
	}
	return r.options.Cgroups.Apply(ctx, c.Cgroup, c.Limits)
}

// removeCgroup removes the cgroup of a container that does not run, and kills processes that escaped its shim. Without
// Options.Cgroups it only checks that the cgroup does not exist.
func (r *Runtime) removeCgroup(ctx context.Context, c *container) error {
	switch {
	case c.Cgroup == "":
		return nil
	case r.options.Cgroups != nil:
		return r.options.Cgroups.Remove(ctx, c.Cgroup)
	}
	spec, err := shim.ReadSpec(c.dir)
	if err != nil {
		return fmt.Errorf("%w; its directories are not known: %w", c.errNoCgroups(), err)
	}
	for _, dir := range spec.Cgroups {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			return c.errNoCgroups()
		}
	}
	return nil
}

// errNoCgroups returns the error for a container that has a cgroup in a runtime without Options.Cgroups.
func (c *container) errNoCgroups() error {
	return fmt.Errorf("cgroup %s: Options.Cgroups is nil: open the runtime with the one that the container was created with", c.Cgroup)
}
