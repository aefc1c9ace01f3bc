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
	"github.com/seed81659283/nodeagent/internal/crilimits"
)

// defaultCgroupParent is the parent, below the root of Options.Cgroups, for sandboxes without a CgroupParent.
const defaultCgroupParent cgroups.Path = "nodeagent"

// setCgroup assigns a cgroup to a new container: path and limits in ctr, and directories in the spec of the shim.
func (r *Runtime) setCgroup(ctr *container, sb *sandbox, res *cri.Resources, spec *shim.Spec) error {
	if r.options.Cgroups == nil {
		return nil
	}
	parent := defaultCgroupParent
	if sb.CgroupParent != "" {
		var err error
		if parent, err = r.options.Cgroups.Parse(sb.CgroupParent); err != nil {
			return fmt.Errorf("cgroup_parent %q: %w", sb.CgroupParent, err)
		}
	}
	limits, err := crilimits.Convert(res)
	if err != nil {
		return err
	}
	ctr.Cgroup = parent.Join(ctr.ID)
	if spec.Cgroups, err = r.options.Cgroups.Dirs(ctr.Cgroup); err != nil {
		return err
	}
	ctr.Limits = limits
	if res != nil {
		spec.OOMScoreAdj = new(int(res.OOMScoreAdj))
		ctr.Resources = new(*res)
		ctr.Resources.Unified, ctr.Resources.HugepageLimits = maps.Clone(res.Unified), slices.Clone(res.HugepageLimits)
	}
	return nil
}

// createCgroup creates the cgroup of a container that is about to start, if it has one, with the container's limits.
func (r *Runtime) createCgroup(ctx context.Context, ctr *container) error {
	switch {
	case ctr.Cgroup == "":
		return nil
	case r.options.Cgroups == nil:
		return ctr.errNoCgroups()
	}
	return r.options.Cgroups.Apply(ctx, ctr.Cgroup, ctr.Limits)
}

// removeCgroup removes the cgroup of a stopped container, and kills processes in it that the shim did not kill.
func (r *Runtime) removeCgroup(ctx context.Context, ctr *container) error {
	switch {
	case ctr.Cgroup == "":
		return nil
	case r.options.Cgroups != nil:
		return r.options.Cgroups.Remove(ctx, ctr.Cgroup)
	}
	// without Options.Cgroups, a cgroup that exists is an error
	spec, err := shim.ReadSpec(ctr.dir)
	if err != nil {
		return fmt.Errorf("%w; its directories are not known: %w", ctr.errNoCgroups(), err)
	}
	for _, dir := range spec.Cgroups {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			return ctr.errNoCgroups()
		}
	}
	return nil
}

// errNoCgroups returns the error for a container that was created with a cgroup, although Options.Cgroups is nil now.
func (c *container) errNoCgroups() error {
	return fmt.Errorf("cgroup %s: Options.Cgroups is nil: open the runtime with the one that the container was created with", c.Cgroup)
}
