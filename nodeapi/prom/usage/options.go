// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/stats"
)

// Source measures, such as a stats.Collector does. An error names what is missing in an answer.
type Source interface {
	// Samples returns the numbers of the kernel for each cgroup.
	Samples(ctx context.Context, parts cgroups.Parts) ([]stats.Sample, error)
	// CPUAndMemory returns the short form of a summary.
	CPUAndMemory(ctx context.Context) (*statsapi.Summary, error)
}

var _ Source = (*stats.Collector)(nil)

// Options are the settings of pages and of [Storage]. The zero value has all that the kubelet has.
type Options struct {
	// Without are names of families that are left out. A name may be a pattern as path.Match has it, such as container_fs_*. Nil: none.
	Without []string
	// WithoutLabels are labels of containers that are left out: "image" or "name", which tell no two series apart. Nil: none.
	WithoutLabels []string
	// MaxAge is for how long a page is made of what was measured before, as the kubelet's is for up to 15 s: measuring is what a page
	// costs. Time stamps say when that was. Zero: each page is measured.
	MaxAge time.Duration
	// Machine is what machine_* and cadvisor_version_info say. Zero: there is no machine_*.
	Machine machine.Info
	// CgroupRoot is the cgroup that the paths of samples begin at, for the IDs of cgroups; the machine's is "/" all the same. Empty: the
	// root of the hierarchy.
	CgroupRoot cgroups.Path
	// Systemd says that the IDs of cgroups are those of slices.
	SystemdNames bool
	// SandboxImage is the image of sandboxes, for their label. Empty: it is not known.
	SandboxImage string
	// Device returns the name of a block device, such as "/dev/sda". Nil, or what it does not know: as /proc/diskstats has it, or else
	// the numbers, as in "8:0".
	Device func(major, minor uint32) string
	// Proc is /proc, for open files, mounts and disks. Nil: that of this machine.
	Proc fs.FS
	// Error is told what a page lacks, once for each scrape, with the path of the page. Nil: nobody is.
	Error func(page string, err error)
}

func (o Options) validateOptions(who string) error {
	for _, pattern := range o.Without {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%s: Options.Without: %q: %w", who, pattern, err)
		}
	}
	if err := o.CgroupRoot.Validate(); err != nil {
		return fmt.Errorf("%s: Options.CgroupRoot: %w", who, err)
	}
	if o.MaxAge < 0 {
		return fmt.Errorf("%s: Options.MaxAge %v must not be negative", who, o.MaxAge)
	}
	for _, label := range o.WithoutLabels {
		if label != "image" && label != "name" {
			return fmt.Errorf("%s: Options.WithoutLabels: %q: must be image or name: series of several containers would be one", who, label)
		}
	}
	return nil
}

// withProc returns the options with a /proc.
func (o Options) withProc() Options {
	if o.Proc == nil {
		o.Proc = os.DirFS("/proc")
	}
	return o
}

// wants reports whether a family is on a page.
func (o Options) isIncluded(name string) bool {
	return !slices.ContainsFunc(o.Without, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}

// fail tells of an error.
func (o Options) reportError(page string, err error) {
	if err != nil && o.Error != nil {
		o.Error(page, err)
	}
}
