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

// Options configure a [Collector]. The zero value is that of a node with the kubelet's directories.
type Options struct {
	NodeName string // in summaries; empty where nobody needs it
	// Root is the directory of the agent: its file system is nodefs. Empty: /var/lib/kubelet.
	Root string
	// LogRoot is where the directories with the logs of the pods are. Empty: /var/log/pods.
	LogRoot string
	// CgroupRoot is the cgroup that kubepods is in, as for [cgroups.PodPath]. Empty: the root of the driver.
	CgroupRoot cgroups.Path
	// Machine reads the cgroup of the whole machine, whose usage is the node's. Nil: Cgroups do, which must not be confined to a
	// part of the tree then, as a driver.Driver with another Options.Root than "/" is.
	Machine cgroups.Sampler
	// System are cgroups that summaries list beside that of all pods. One that is absent is left out. Nil: none.
	System []SystemContainer
	// Volumes returns what is mounted into a pod, such as [VolumesOf] does. Nil: summaries have no volumes.
	Volumes func(uid string) []Volume
	// HostsFile returns the file that the containers of a pod have as /etc/hosts. Nil: Root/pods/UID/etc-hosts.
	HostsFile func(uid string) string
	// MessageDir returns the directory with the termination messages of a pod, which its containers write. Nil: Root/pods/UID/containers.
	TerminationMessageDir func(uid string) string

	// Proc is /proc. Nil: that of this machine.
	Proc fs.FS
	// Statfs asks a file system how full it is. Nil: the kernel is asked.
	Statfs func(path string) (Filesystem, error)

	VolumePeriod  time.Duration // how often a volume is measured, at most; zero means 1 min
	LogPeriod     time.Duration // how often logs are measured, at most; zero means 10 s
	RuntimePeriod time.Duration // how often the runtime is asked, for lists and layers; zero means 10 s
	Timeout       time.Duration // how long a file system or the runtime is waited for; zero means 2 s
	SignalTimeout time.Duration // the same for Signals; zero means 100 ms
	CPUFraction   float64       // how much of a CPU measuring directories may take; zero means 0.05, 1 means all of one

	Logger *slog.Logger // nil discards
}

// SystemContainer is a cgroup that is not that of a pod.
type SystemContainer struct {
	Name string       // such as [statsapi.SystemContainerKubelet]
	Path cgroups.Path // the cgroup, or the one that Leaf is in
	Leaf string       // such as "containerd.service" in "system" under systemd; empty: Path itself
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
	if err := checkSystem(o.System); err != nil {
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

func checkSystem(all []SystemContainer) error {
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
