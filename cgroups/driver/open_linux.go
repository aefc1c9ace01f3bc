// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	oci "github.com/opencontainers/cgroups"

	"github.com/seed81659283/nodeagent/cgroups"
)

// hierarchies holds the cgroup hierarchies of the host and the code that is common to v1 and v2, which has one hierarchy.
type hierarchies struct {
	host    Host
	timeout time.Duration
	all     []*hierarchy
	readers sync.Pool // of *reader
}

// openTree finds the cgroup mounts of the host, and opens the driver's root, relative to the mount point, in each.
func openTree(rootDir string, opts Options) (tree, Host, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, Host{}, err
	}
	mode, mounts, err := selectMounts(parseMounts(string(mountinfo)))
	if err != nil {
		return nil, Host{}, err
	}
	s := &hierarchies{timeout: opts.Timeout, host: Host{Mode: mode, Dirs: map[string]string{}, HugepageSizes: slices.Clone(oci.HugePageSizes())}}
	if _, err := os.Stat("/proc/pressure"); err == nil {
		s.host.Pressure = true
	}
	if err := s.openAll(mounts, rootDir); err != nil {
		return nil, Host{}, errors.Join(err, s.close())
	}
	if err := s.host.setMissing(s.countsSwap(), opts.OptionalControllers); err != nil {
		return nil, Host{}, errors.Join(err, s.close())
	}
	if mode == V2 {
		return &treeV2{hierarchies: s, h: s.all[0], controllers: strings.Join(s.all[0].controllers, " ") + "\n", formula: opts.WeightFormula}, s.host, nil
	}
	return &treeV1{hierarchies: s, top: rootDir == ""}, s.host, nil
}

// openAll opens the root of the driver in each mount.
func (s *hierarchies) openAll(mounts []mount, rootDir string) error {
	var absent error
	for _, m := range mounts {
		h, err := openHierarchy(path.Join(m.dir, rootDir), m.controllers)
		if errors.Is(err, fs.ErrNotExist) {
			absent = err // on v1: the driver lacks the controllers of this hierarchy
			continue
		}
		if err != nil {
			return err
		}
		s.all = append(s.all, h)
		if m.v2 && s.host.Mode == V2 {
			text, err := h.readFile(nil, "", "cgroup.controllers")
			if err == nil {
				h.controllers, err = cgroups.ParseControllers(text)
			}
			if err != nil {
				return fmt.Errorf("%s/cgroup.controllers: %w", h.dir, err)
			}
		}
		for _, c := range h.controllers {
			s.host.Dirs[c] = h.dir
		}
	}
	if len(s.all) == 0 {
		return absent
	}
	return nil
}

// countsSwap reports whether the kernel can limit swap.
func (s *hierarchies) countsSwap() bool {
	memory := s.forController("memory")
	if memory == nil {
		return false
	}
	if s.host.Mode != V2 {
		return memory.fileExists("", "memory.memsw.limit_in_bytes")
	}
	// on v2 the root has no limit files, so the child cgroups are checked, or else the kernel command line
	below, _ := memory.listChildren("")
	for _, dir := range append([]string{""}, below...) {
		if memory.fileExists(dir, "memory.max") {
			return memory.fileExists(dir, "memory.swap.max")
		}
	}
	_, err := os.Stat("/proc/swaps")
	cmdline, _ := os.ReadFile("/proc/cmdline")
	return err == nil && !slices.Contains(strings.Fields(string(cmdline)), "swapaccount=0")
}

// forController returns the hierarchy that has this controller, or nil if there is none.
func (s *hierarchies) forController(controller string) *hierarchy {
	for _, h := range s.all {
		if h.hasController(controller) {
			return h
		}
	}
	return nil
}

func (s *hierarchies) close() error {
	var errs []error
	for _, h := range s.all {
		errs = append(errs, h.close())
	}
	return errors.Join(errs...)
}
