// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
)

// Defaults of a [Spec].
const (
	defaultCPUs   = 4
	defaultMemory = 8 << 30   // bytes
	defaultTasks  = 32768     // processes and threads
	defaultDisk   = 100 << 30 // bytes
	defaultInodes = 6_553_600
)

// Spec describes a [Machine]. The zero value is a machine with 4 CPUs, 8 GiB of memory, no swap, and a disk of 100 GiB.
type Spec struct {
	CPUs   int           // zero: 4
	Memory int64         // bytes; zero: 8 GiB
	Swap   int64         // bytes; zero: none
	Tick   time.Duration // tick of the scheduler, 1/CONFIG_HZ; zero: 4 ms
	Tasks  int64         // most processes and threads; zero: 32,768
	Disk   Disk          // logs, volumes, and without ImageDisk also images and writable layers
	// ImageDisk has the images and the writable layers of containers. Nil: they are on Disk.
	ImageDisk *Disk

	// Killed is called for each process that the OOM killer or a kill of its cgroup has ended. It runs in the goroutine whose call caused the kill,
	// and may call the machine. Nil is not called.
	Killed func(cgroupstest.KilledProc)
}

// Disk is the size of a file system.
type Disk struct {
	Bytes, Inodes int64 // zero: 100 GiB and 6,553,600 inodes
}

// Validate returns an error that names each invalid field and its value, or nil.
func (s *Spec) Validate() error {
	var errs []error
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"CPUs", int64(s.CPUs)}, {"Memory", s.Memory}, {"Swap", s.Swap}, {"Tasks", s.Tasks}, {"Disk.Bytes", s.Disk.Bytes}, {"Disk.Inodes", s.Disk.Inodes},
	} {
		if field.value < 0 || field.value > maxAmount {
			errs = append(errs, fmt.Errorf("machine.Spec.%s %d: not between 0 and %d", field.name, field.value, int64(maxAmount)))
		}
	}
	if d := s.ImageDisk; d != nil && (min(d.Bytes, d.Inodes) < 0 || max(d.Bytes, d.Inodes) > maxAmount) {
		errs = append(errs, fmt.Errorf("machine.Spec.ImageDisk %+v: not between 0 and %d", *d, int64(maxAmount)))
	}
	return errors.Join(errs...)
}

// maxAmount is more than any machine has; sums of it do not overflow.
const maxAmount = 1 << 50

// withDefaults returns a copy of s in which fields that are zero have their default values.
func (s Spec) withDefaults() Spec {
	s.CPUs, s.Memory, s.Tasks = cmp.Or(s.CPUs, defaultCPUs), cmp.Or(s.Memory, defaultMemory), cmp.Or(s.Tasks, defaultTasks)
	s.Disk = s.Disk.withDefaults()
	if s.ImageDisk != nil {
		s.ImageDisk = new(s.ImageDisk.withDefaults())
	}
	return s
}

// withDefaults returns a copy of d in which fields that are zero have their default values.
func (d Disk) withDefaults() Disk {
	return Disk{Bytes: cmp.Or(d.Bytes, defaultDisk), Inodes: cmp.Or(d.Inodes, defaultInodes)}
}

// Machine is a simulated machine. Create it with [New].
type Machine struct {
	spec Spec
	tree *cgroupstest.Tree

	mu        sync.Mutex // guards the fields below
	processes []process  // sorted by PID
	disks     map[DiskName]*disk
	elapsed   time.Duration
	removed   bool   // files were removed since the last step
	reclaims  uint64 // of the tree, at the end of the last step

	stepping []process // processes of the present Step call, kept for its memory

	killsMu sync.Mutex
	kills   []int // PIDs of killed processes in processes
}

// process is a process with a demand.
type process struct {
	pid int
	Process
	demand   Demand
	hasCache bool // it has demanded page cache: a later demand of zero frees the cache
	met      bool // it has all memory, tasks and files that it demands
}

// Process describes a process to start.
type Process struct {
	Cgroup      cgroups.Path // where it runs
	Name        string       // for reports of kills
	OOMScoreAdj int          // -1000 to 1000
}

// Demand has the resources that a process demands from the machine. The zero value is a process that sleeps and has no memory.
type Demand struct {
	CPU    float64 // CPUs that it uses while no other process competes and no quota applies
	Memory int64   // bytes of anonymous memory
	Cache  int64   // bytes of page cache in its cgroup, for files that it reads
	Tasks  int     // processes and threads; zero: one
	Files  []Files // the files that it has written, by directory
}

// New returns a machine without processes. The error names the invalid field of spec.
func New(spec Spec) (*Machine, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	spec = spec.withDefaults()
	m := &Machine{spec: spec, disks: map[DiskName]*disk{NodeDisk: newDisk(spec.Disk)}}
	m.disks[ImageDisk] = m.disks[NodeDisk]
	if spec.ImageDisk != nil {
		m.disks[ImageDisk] = newDisk(*spec.ImageDisk)
	}
	m.tree = cgroupstest.New(cgroupstest.Options{
		CPUs: spec.CPUs, Tick: spec.Tick, Memory: spec.Memory, Swap: spec.Swap, Tasks: spec.Tasks, Killed: m.recordKill, WeightFormula: cgroups.WeightLogQuadratic,
	})
	return m, nil
}

// recordKill calls Spec.Killed for the killed process p. It also stores the PID, so that endStep removes the process from
// the machine.
func (m *Machine) recordKill(p cgroupstest.KilledProc) {
	m.killsMu.Lock()
	m.kills = append(m.kills, p.PID)
	m.killsMu.Unlock()
	if m.spec.Killed != nil {
		m.spec.Killed(p)
	}
}

// Spec returns the description of the machine, with its defaults.
func (m *Machine) Spec() Spec { return m.spec }

// Cgroups returns the cgroups of the machine. They implement all driver interfaces of package cgroups.
func (m *Machine) Cgroups() *cgroupstest.Tree { return m.tree }

// Elapsed returns the total duration of all steps.
func (m *Machine) Elapsed() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.elapsed
}

// Start starts a process that demands nothing, and returns its PID; see SetDemand. The errors are those of
// [cgroupstest.Tree.Start].
func (m *Machine) Start(p Process) (pid int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pid, err = m.tree.Start(cgroupstest.Proc{Cgroup: p.Cgroup, Name: p.Name, OOMScoreAdj: p.OOMScoreAdj})
	if err != nil {
		return 0, err
	}
	m.processes = append(m.processes, process{pid: pid, Process: p}) // PIDs increase
	return pid, nil
}

// SetDemand sets the demand of the process with this PID. The next Step applies the demand. If the process is not running,
// the error wraps ESRCH.
func (m *Machine) SetDemand(pid int, d Demand) error {
	if err := d.validate(); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i, found := m.searchProcess(pid)
	if !found {
		return fmt.Errorf("process %d: %w", pid, syscall.ESRCH)
	}
	m.processes[i].demand, m.processes[i].met = d, false
	m.processes[i].hasCache = m.processes[i].hasCache || d.Cache > 0
	return nil
}

// validate returns an error that names the first invalid field of d.
func (d *Demand) validate() error {
	switch {
	case !(d.CPU >= 0 && d.CPU <= 1<<20):
		return fmt.Errorf("demand of %g CPUs: %w", d.CPU, syscall.EINVAL)
	case min(d.Memory, d.Cache) < 0 || max(d.Memory, d.Cache) > maxAmount:
		return fmt.Errorf("demand of %d bytes of memory and %d bytes of page cache: %w", d.Memory, d.Cache, syscall.EINVAL)
	case d.Tasks < 0 || d.Tasks > 1<<22:
		return fmt.Errorf("demand of %d tasks: %w", d.Tasks, syscall.EINVAL)
	}
	for _, f := range d.Files {
		if min(f.Bytes, f.Inodes) < 0 || max(f.Bytes, f.Inodes) > maxAmount {
			return fmt.Errorf("directory %s with %d bytes and %d inodes: %w", f.Directory, f.Bytes, f.Inodes, syscall.EINVAL)
		}
	}
	return nil
}

// Exit ends the process with this PID. Its files and page cache remain. If the process is not running, the error wraps
// ESRCH.
func (m *Machine) Exit(pid int) error {
	m.mu.Lock()
	if i, found := m.searchProcess(pid); found {
		m.processes = slices.Delete(m.processes, i, i+1)
	}
	m.mu.Unlock()
	return m.tree.Exit(pid)
}

// searchProcess returns the index of the process with this PID in m.processes. The caller holds m.mu.
func (m *Machine) searchProcess(pid int) (i int, found bool) {
	return slices.BinarySearchFunc(m.processes, pid, func(p process, pid int) int { return cmp.Compare(p.pid, pid) })
}

// Step simulates the machine for the duration d. Each process, in the order of PIDs, gets its demand of tasks, page cache, memory and files, as far
// as limits and disks allow. The OOM killer may end processes. Then all processes share the CPUs for d, if it is positive.
func (m *Machine) Step(d time.Duration) {
	caches := m.beginStep(d)
	for i := range m.stepping {
		p := &m.stepping[i]
		if bytes, ok := caches[p.Cgroup]; ok { // the first process of the cgroup reads for all
			_ = m.tree.SetCache(p.Cgroup, bytes) // fails only for a cgroup that was removed
			delete(caches, p.Cgroup)
		}
		if !p.met {
			p.met = m.applyDemand(p, d)
		}
	}
	m.tree.Schedule(d)
	m.endStep()
}

// beginStep sets m.stepping to the processes with an unmet demand or page cache. It returns the page cache demanded in each
// cgroup.
func (m *Machine) beginStep(d time.Duration) (caches map[cgroups.Path]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.elapsed += max(d, 0)
	m.stepping = m.stepping[:0]
	for i := range m.processes {
		p := &m.processes[i]
		p.met = p.met && (!m.removed || len(p.demand.Files) == 0)
		if p.hasCache {
			if caches == nil {
				caches = map[cgroups.Path]int64{}
			}
			caches[p.Cgroup] += p.demand.Cache
		}
		if p.hasCache || !p.met {
			m.stepping = append(m.stepping, *p)
		}
	}
	m.removed = false
	return caches
}

// applyDemand sets the demand of p for a step of duration d. p gets the memory, tasks and files that it demands, as far as they fit. met is true if
// all fit.
func (m *Machine) applyDemand(p *process, d time.Duration) (met bool) {
	met, err := m.tree.SetDemand(p.pid, cgroupstest.Demand{CPUs: p.demand.CPU, Memory: p.demand.Memory, Tasks: max(p.demand.Tasks, 1)}, max(d, 0))
	switch {
	case errors.Is(err, syscall.ENOMEM):
	case err != nil:
		m.killsMu.Lock()
		m.kills = append(m.kills, p.pid) // it does not run
		m.killsMu.Unlock()
		return false
	}
	return m.writeFiles(p.demand.Files) && met
}

// endStep records which processes have all the memory, tasks and files that they demand, and removes killed processes.
func (m *Machine) endStep() {
	reclaims := m.tree.Reclaims()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reclaims = reclaims
	for j := range m.stepping {
		p := &m.stepping[j]
		if i, found := m.searchProcess(p.pid); found && p.met {
			m.processes[i].met = sameDemand(&m.processes[i].demand, &p.demand) // else SetDemand was called meanwhile
		}
	}
	m.killsMu.Lock()
	defer m.killsMu.Unlock()
	for _, pid := range m.kills {
		if i, found := m.searchProcess(pid); found {
			m.processes = slices.Delete(m.processes, i, i+1)
		}
	}
	m.kills = m.kills[:0]
}

// sameDemand reports whether a and b are equal.
func sameDemand(a, b *Demand) bool {
	return a.CPU == b.CPU && a.Memory == b.Memory && a.Cache == b.Cache && a.Tasks == b.Tasks && slices.Equal(a.Files, b.Files)
}

// Settled reports whether a further step with the present demands would change only CPU time and counters. One long step then has the effect of many
// short steps.
func (m *Machine) Settled() bool {
	reclaims := m.tree.Reclaims()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.removed || reclaims != m.reclaims {
		return false
	}
	for i := range m.processes {
		if !m.processes[i].met {
			return false
		}
	}
	return true
}
