// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Options configures a [Collector]. The zero value is for a node with the directories of the kubelet.
type Options struct {
	NodeName string // for summaries; may be empty
	// Root is the directory of the agent, whose file system is nodefs. Empty: /var/lib/kubelet.
	Root string
	// LogRoot contains the log directories of the pods. Empty: /var/log/pods.
	LogRoot string
	// CgroupRoot is the parent of the cgroup kubepods, as for [cgroups.PodPath]. Empty: the root of the driver.
	CgroupRoot cgroups.Path
	// Machine reads the root cgroup of the machine, for the usage of the node. Nil: the Cgroups argument of [New] reads it, and
	// must not be limited to a subtree of the cgroup hierarchy.
	Machine cgroups.Sampler
	// System are additional cgroups for the systemContainers of summaries. A cgroup that does not exist is omitted. Nil: none.
	System []SystemContainer
	// Volumes returns the volumes of a pod, as [VolumesOf] does. Nil: summaries have no volumes.
	Volumes func(uid string) []Volume
	// HostsFile returns the path of the file mounted as /etc/hosts in the containers of a pod. Nil: Root/pods/UID/etc-hosts.
	HostsFile func(uid string) string
	// TerminationMessageDir returns the directory with the termination messages of a pod, which its containers write. Nil:
	// Root/pods/UID/containers.
	TerminationMessageDir func(uid string) string

	// Proc is the /proc file system. Nil: /proc of this machine.
	Proc fs.FS
	// Statfs returns size and free space of the file system of path. Nil: statfs(2) of the kernel.
	Statfs func(path string) (Filesystem, error)

	VolumePeriod  time.Duration // least time between measurements of a volume; zero means 1 min
	LogPeriod     time.Duration // least time between measurements of a log directory; zero means 10 s
	RuntimePeriod time.Duration // least time between calls of the runtime that list containers or measure layers; zero means 10 s
	Timeout       time.Duration // for a call to a file system or the runtime; zero means 2 s
	SignalTimeout time.Duration // for a call to a file system or the runtime in Signals; zero means 100 ms
	CPUFraction   float64       // largest fraction of a CPU for measuring directories; zero means 0.05, 1 means a whole CPU

	Logger *slog.Logger // nil discards
}

// SystemContainer is a cgroup outside of the pods, such as that of the container runtime, for [Options].System.
type SystemContainer struct {
	Name string       // such as [statsapi.SystemContainerKubelet]
	Path cgroups.Path // the cgroup, or the parent of Leaf
	Leaf string       // such as "containerd.service" in "system" under systemd; empty means Path itself
}

func (o Options) withDefaults() (Options, error) {
	o.Root, o.LogRoot = cmp.Or(o.Root, "/var/lib/kubelet"), cmp.Or(o.LogRoot, "/var/log/pods")
	for name, dir := range map[string]string{"Root": o.Root, "LogRoot": o.LogRoot} {
		if !filepath.IsAbs(dir) {
			return o, fmt.Errorf("stats: Options.%s %q must be absolute", name, dir)
		}
	}
	for name, d := range map[string]*time.Duration{
		"VolumePeriod": &o.VolumePeriod, "LogPeriod": &o.LogPeriod, "RuntimePeriod": &o.RuntimePeriod, "Timeout": &o.Timeout, "SignalTimeout": &o.SignalTimeout,
	} {
		if *d < 0 {
			return o, fmt.Errorf("stats: Options.%s %v must not be negative", name, *d)
		}
	}
	o.VolumePeriod = cmp.Or(o.VolumePeriod, time.Minute)
	o.LogPeriod, o.RuntimePeriod = cmp.Or(o.LogPeriod, 10*time.Second), cmp.Or(o.RuntimePeriod, 10*time.Second)
	o.Timeout, o.SignalTimeout = cmp.Or(o.Timeout, 2*time.Second), cmp.Or(o.SignalTimeout, 100*time.Millisecond)
	if o.CPUFraction = cmp.Or(o.CPUFraction, 0.05); !(o.CPUFraction > 0 && o.CPUFraction <= 1) {
		return o, fmt.Errorf("stats: Options.CPUFraction %v must be more than 0 and at most 1", o.CPUFraction)
	}
	if err := o.CgroupRoot.Validate(); err != nil {
		return o, fmt.Errorf("stats: Options.CgroupRoot: %w", err)
	}
	if err := validateSystem(o.System); err != nil {
		return o, err
	}
	if o.Proc == nil {
		o.Proc = os.DirFS("/proc")
	}
	if o.Statfs == nil {
		o.Statfs = statfs
	}
	if o.HostsFile == nil {
		root := o.Root
		o.HostsFile = func(uid string) string { return filepath.Join(root, "pods", uid, "etc-hosts") }
	}
	if o.TerminationMessageDir == nil {
		root := o.Root
		o.TerminationMessageDir = func(uid string) string { return filepath.Join(root, "pods", uid, "containers") }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func validateSystem(all []SystemContainer) error {
	seen := map[string]bool{statsapi.SystemContainerPods: true}
	for i, s := range all {
		if err := s.Path.Validate(); err != nil {
			return fmt.Errorf("stats: Options.System[%d]: %w", i, err)
		}
		if s.Name == "" {
			return fmt.Errorf("stats: Options.System[%d]: %w", i, errors.New("it has no name"))
		}
		if seen[s.Name] {
			return fmt.Errorf("stats: Options.System[%d]: name %q is taken", i, s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}
