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

// Options configures a [Tree]. Only Capacity is required.
type Options struct {
	// Root is the parent cgroup of kubepods. It must exist. Empty means the root of the driver.
	Root cgroups.Path
	// Node has the settings for the limits of pods. Zero: the kubelet's default configuration.
	Node qos.Node
	// Capacity is the capacity of the node: cpu, memory, and other resources with reservations. Required.
	Capacity corev1.ResourceList
	// MaxPIDs is the maximum of processes and threads on the node, see func MaxPIDs. Zero: kubepods gets no PID limit.
	MaxPIDs int64
	// CPUs is the cpuset of kubepods and the reserved cgroups, for example "0-3". The kubelet writes all CPUs, so that systemd
	// does not disable the controller. Empty: not written.
	CPUs string
	// Reserved holds the resources that pods must not use. Zero: none.
	Reserved Reserved
	// QOSReserved is the percentage of the memory requests of a QoS class that lower classes must not use, see
	// [ParseQOSReserved]. Nil: no limits.
	QOSReserved *int64
	// Enforce selects the cgroups to limit. Nil: EnforcePods; empty: none.
	Enforce []Enforcement
	// QuotaFromStart writes the CPU quota of a pod when its cgroup is created, as the kubelet does. Otherwise a quota below 1 CPU
	// is not in force while a container starts, see [Tree.Ensure].
	QuotaFromStart bool
	// SystemCgroup and KubeCgroup are the reserved cgroups to limit. They must exist. Empty: none.
	SystemCgroup, KubeCgroup cgroups.Path

	// HasVolumes reports whether volumes of a pod are mounted. Its cgroup then stays, because otherwise the kernel would charge
	// memory of the volumes (for example tmpfs) to the parent. Nil: never.
	HasVolumes func(uid string) bool

	// Period is the interval at which all limits are checked and corrected. Zero: 1 minute.
	Period time.Duration
	// OrphanPeriod is the interval of the search for orphaned pod cgroups. Zero: 10 s.
	OrphanPeriod time.Duration
	// Timeout limits each call of the driver. Zero: 30 s.
	Timeout time.Duration
	// Parallel limits the concurrent removals of orphans. Zero: 16.
	Parallel int
	// Logger receives results and errors. Nil discards them.
	Logger *slog.Logger
	// Hooks are called after writes and removals.
	Hooks Hooks
}

// withDefaults returns a copy of o with the default values in its zero fields.
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

// Validate returns the joined errors of all invalid options. It returns nil if all are valid. Each error names the field and
// its value.
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
