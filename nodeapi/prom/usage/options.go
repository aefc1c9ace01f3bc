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

// Source measures the node and its containers. If data is missing in a result, the error names it. *stats.Collector implements
// Source.
type Source interface {
	// Samples returns the counters of each cgroup.
	Samples(ctx context.Context, parts cgroups.Parts) ([]stats.Sample, error)
	// CPUAndMemory returns a Summary with only CPU, memory and swap.
	CPUAndMemory(ctx context.Context) (*statsapi.Summary, error)
}

var _ Source = (*stats.Collector)(nil)

// Options configure the pages and [Storage]. The zero value has all metrics of the kubelet except machine_*.
type Options struct {
	// Without are names of metrics to exclude. A name may be a pattern of path.Match, such as container_fs_*. Nil means none.
	Without []string
	// WithoutLabels are labels of containers to exclude: "image" or "name", by which no series differ. Nil means none.
	WithoutLabels []string
	// MaxAge is how long a page may show earlier measurements, because measuring is most of the cost; in the kubelet it is up to
	// 15 s. Timestamps show the time of the measurement. Zero means that each request measures.
	MaxAge time.Duration
	// Machine is shown by machine_* and cadvisor_version_info. If it is the zero value, machine_* is absent.
	Machine machine.Info
	// CgroupRoot is the cgroup that contains the paths of samples, for the label id; the machine always has "/". Empty means
	// the root of the hierarchy.
	CgroupRoot cgroups.Path
	// SystemdNames shows the names of systemd slices in the label id.
	SystemdNames bool
	// SandboxImage is the image label of sandboxes. Empty: unknown.
	SandboxImage string
	// Device returns the name of a block device, such as "/dev/sda". Nil or an empty result: the name in /proc/diskstats, else
	// the numbers, such as "8:0".
	Device func(major, minor uint32) string
	// Proc is /proc, from which open files, mounts and disks are read. Nil: /proc of this machine.
	Proc fs.FS
	// Error is called with the errors of a page and its path, once for each scrape. Nil ignores errors.
	Error func(page string, err error)
}

// validateOptions returns an error that names the invalid option, or nil. caller is the name of the calling function, with
// which the error text starts.
func (o Options) validateOptions(caller string) error {
	for _, pattern := range o.Without {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%s: Options.Without: %q: %w", caller, pattern, err)
		}
	}
	if err := o.CgroupRoot.Validate(); err != nil {
		return fmt.Errorf("%s: Options.CgroupRoot: %w", caller, err)
	}
	if o.MaxAge < 0 {
		return fmt.Errorf("%s: Options.MaxAge %v must not be negative", caller, o.MaxAge)
	}
	for _, label := range o.WithoutLabels {
		if label != "image" && label != "name" {
			return fmt.Errorf("%s: Options.WithoutLabels: %q: must be image or name: series of several containers would be one", caller, label)
		}
	}
	return nil
}

// withProc sets Proc to /proc if it is nil.
func (o Options) withProc() Options {
	if o.Proc == nil {
		o.Proc = os.DirFS("/proc")
	}
	return o
}

// isIncluded reports whether a metric is on the page: no pattern in Without matches its name.
func (o Options) isIncluded(name string) bool {
	return !slices.ContainsFunc(o.Without, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}

// reportError calls Error if err is not nil.
func (o Options) reportError(page string, err error) {
	if err != nil && o.Error != nil {
		o.Error(page, err)
	}
}
