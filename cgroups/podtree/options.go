// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/qos"
)

// Options is what a [Tree] is made for. Only Capacity has no default.
type Options struct {
	// Root is the cgroup that kubepods is in. It must exist. Empty means the root of the writer's tree.
	Root cgroups.Path
	// Node is how pods become limits. Its zero value is the kubelet's default configuration.
	Node qos.Node
	// Capacity is what the node has of cpu and memory, and of what else shall count. Required.
	Capacity corev1.ResourceList
	// MaxPIDs is how many processes the node can have, see the function of that name. Zero leaves kubepods without
	// a limit of its own.
	MaxPIDs int64
	// CPUs is written to kubepods and the reserved cgroups as their cpuset, such as "0-3". Empty leaves it alone. The
	// kubelet writes all CPUs, so that systemd keeps the controller on.
	CPUs string
	// Reserved is what pods may not use. Zero: pods may use all.
	Reserved Reserved
	// QOSReserved is the percentage of the memory requests of a class that the classes below it may not use, see
	// [ParseQOSReserved]. Nil sets no limits.
	QOSReserved *int64
	// Enforce names what is held to its share. Nil means EnforcePods alone; empty is EnforceNone.
	Enforce []Enforcement
	// QuotaFromStart writes the CPU quota of a pod when its cgroup is made, as the kubelet does. By default a small one is
	// in force only while no container is being started, see [Tree.Ensure].
	QuotaFromStart bool
	// SystemCgroup and KubeCgroup are what the reservations are enforced on. They must exist, and are never made. Empty: none.
	SystemCgroup, KubeCgroup cgroups.Path

	// HasVolumes reports whether volumes of a pod are still mounted: then its cgroup stays, so that their memory is not
	// charged to its parent. Nil means never.
	HasVolumes func(uid string) bool

	// Period is how often everything is written anew, where it differs. Zero means 1 minute.
	Period time.Duration
	// OrphanPeriod is how often the cgroups of orphaned pods are looked for. Zero means 10 s.
	OrphanPeriod time.Duration
	// Timeout ends a call to the writer. Zero means 30 s.
	Timeout time.Duration
	// Parallel is how many orphans are removed at the same time. Zero means 16.
	Parallel int
	// Logger gets what is done and what is refused. Nil discards.
	Logger *slog.Logger
	// Hooks are told what happens.
	Hooks Hooks
}

// withDefaults returns the options with their defaults filled in.
func (o Options) withDefaults() Options {
	if o.Enforce == nil {
		o.Enforce = []Enforcement{EnforcePods}
	}
	if o.HasVolumes == nil {
		o.HasVolumes = func(string) bool { return false }
	}
	if o.Period <= 0 {
		o.Period = time.Minute
	}
	if o.OrphanPeriod <= 0 {
		o.OrphanPeriod = 10 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Parallel <= 0 {
		o.Parallel = 16
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate returns everything that is wrong with the options, or nil. It names the setting and its value.
func (o Options) Validate() error {
	var errs []error
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q := o.Capacity[name]; q.Sign() <= 0 {
			errs = append(errs, fmt.Errorf("capacity %s %s: not positive", name, &q))
		}
	}
	for _, p := range []struct {
		name string
		path cgroups.Path
	}{{"root", o.Root}, {"cgroup of the system", o.SystemCgroup}, {"cgroup of the agent", o.KubeCgroup}} {
		if err := p.path.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	if o.MaxPIDs < 0 {
		errs = append(errs, fmt.Errorf("maximum of PIDs %d: negative", o.MaxPIDs))
	}
	if p := o.QOSReserved; p != nil && (*p < 0 || *p > 100) {
		errs = append(errs, fmt.Errorf("qosReserved memory %d%%: not between 0%% and 100%%", *p))
	}
	errs = append(errs, o.Reserved.Validate(o.Capacity), validateEnforcement(o.Enforce, o.SystemCgroup, o.KubeCgroup))
	_, err := PlanReserved(o)
	return errors.Join(append(errs, err)...)
}
