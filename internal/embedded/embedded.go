// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package embedded opens the runtime of plain processes for package agent, with the cgroups that the configuration of the node asks
// for. It does not create the cgroups of pods, which package cgroups/podtree does.
//
// Test kit: none is needed; without cgroups, the runtime needs only a directory.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
)

// Open opens the runtime with its state in dir. With cgroupsPerQOS, containers run in cgroups below cgroupRoot, and the agent must be
// root. An error names the field that this machine or this user refuses. Call SetDefaults and Validate of config first.
func Open(ctx context.Context, dir string, config *kubeletconfig.Configuration, logger *slog.Logger) (cri.Runtime, error) {
	if !*config.CgroupsPerQOS {
		runtime, err := process.Open(dir, process.Options{Logger: logger})
		if err != nil {
			return nil, err // not the nil pointer
		}
		return runtime, nil
	}
	cgroups, err := driver.Open(ctx, driver.Options{Root: config.CgroupRoot, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("cgroupsPerQOS: true: %w", err)
	}
	if err := checkCpuset(config, cgroups.Host().HasController("cpuset")); err != nil {
		return nil, errors.Join(err, cgroups.Close())
	}
	runtime, err := process.Open(dir, process.Options{Cgroups: cgroups, Logger: logger})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cgroupsPerQOS: true: %w", err), cgroups.Close())
	}
	return runtime, nil
}

// checkCpuset returns an error for a policy that gives containers CPUs or memory of their own, unless the machine has cpusets.
func checkCpuset(config *kubeletconfig.Configuration, hasCpuset bool) error {
	switch {
	case hasCpuset:
		return nil
	case config.CPUManagerPolicy == cpus.PolicyStatic:
		return fmt.Errorf("cpuManagerPolicy: %q needs the cgroup controller cpuset, which this machine does not have", config.CPUManagerPolicy)
	case config.MemoryManagerPolicy == numa.PolicyStatic:
		return fmt.Errorf("memoryManagerPolicy: %q needs the cgroup controller cpuset, which this machine does not have", config.MemoryManagerPolicy)
	}
	return nil
}
