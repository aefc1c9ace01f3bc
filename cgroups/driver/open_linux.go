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

// shared is what the trees of both versions have: the hierarchies, of which v2 has one.
type shared struct {
	host    Host
	timeout time.Duration
	all     []*hierarchy
	readers sync.Pool // of *reader
}

// openTree opens the hierarchies of the host at a directory below each mount.
func openTree(rootDir string, o Options) (tree, Host, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, Host{}, err
	}
	mode, mounts, err := arrange(parseMounts(string(mountinfo)))
	if err != nil {
		return nil, Host{}, err
	}
	s := &shared{timeout: o.Timeout, host: Host{Mode: mode, Dirs: map[string]string{}, HugepageSizes: slices.Clone(oci.HugePageSizes())}}
	if _, err := os.Stat("/proc/pressure"); err == nil {
		s.host.Pressure = true
	}
	if err := s.open(mounts, rootDir); err != nil {
		return nil, Host{}, errors.Join(err, s.close())
	}
	if err := s.host.lacks(s.countsSwap(), o.OptionalControllers); err != nil {
		return nil, Host{}, errors.Join(err, s.close())
	}
	if mode == V2 {
		return &v2{shared: s, h: s.all[0], controllers: strings.Join(s.all[0].controllers, " ") + "\n", formula: o.WeightFormula}, s.host, nil
	}
	return &v1{shared: s, top: rootDir == ""}, s.host, nil
}

// open opens the root in each mount. On v1 it may be absent in some: their controllers are not the driver's.
func (s *shared) open(mounts []mount, rootDir string) error {
	var absent error
	for _, m := range mounts {
		h, err := openHierarchy(path.Join(m.dir, rootDir), m.controllers)
		if errors.Is(err, fs.ErrNotExist) {
			absent = err
			continue
		}
		if err != nil {
			return err
		}
		s.all = append(s.all, h)
		if m.v2 && s.host.Mode == V2 {
			text, err := h.read(nil, "", "cgroup.controllers")
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

// countsSwap reports whether the kernel counts swap. The top of v2 has no limits to tell it by, but what is below it
// may, and else it is a matter of how the kernel was built and started.
func (s *shared) countsSwap() bool {
	memory := s.of("memory")
	if memory == nil {
		return false
	}
	if s.host.Mode != V2 {
		return memory.existsFile("", "memory.memsw.limit_in_bytes")
	}
	below, _ := memory.children("")
	for _, dir := range append([]string{""}, below...) {
		if memory.existsFile(dir, "memory.max") {
			return memory.existsFile(dir, "memory.swap.max")
		}
	}
	_, err := os.Stat("/proc/swaps")
	cmdline, _ := os.ReadFile("/proc/cmdline")
	return err == nil && !slices.Contains(strings.Fields(string(cmdline)), "swapaccount=0")
}

// of returns the hierarchy of a controller, nil where there is none.
func (s *shared) of(controller string) *hierarchy {
	for _, h := range s.all {
		if h.has(controller) {
			return h
		}
	}
	return nil
}

func (s *shared) close() error {
	var errs []error
	for _, h := range s.all {
		errs = append(errs, h.close())
	}
	return errors.Join(errs...)
}
