// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/latest"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
	"github.com/seed81659283/nodeagent/stats"
)

// Cadvisor returns the page /metrics/cadvisor: what the kernel counts for the node, its pods and their containers, and what
// [Options].Machine says.
func Cadvisor(source Source, o Options) (*Page, error) {
	if err := required.Args("usage.Cadvisor", required.Arg{Name: "source", Value: source, Hint: "a *stats.Collector"}); err != nil {
		return nil, err
	}
	if err := o.validateOptions("usage.Cadvisor"); err != nil {
		return nil, err
	}
	o = o.withProc()
	families := slices.DeleteFunc(containerFamilies(), func(f family) bool { return !o.isIncluded(f.name) })
	last := latest.New(o.MaxAge, func(ctx context.Context) (measurement, error) { return measureAll(ctx, source, o, families) })
	return newPage(func(ctx context.Context, t *text) {
		writeVersion(t, o)
		now, err := last.Get(ctx)
		o.reportError("/metrics/cadvisor", err)
		rows := newRows(&now, o)
		for i := range families {
			families[i].writeFamily(t, rows)
		}
		writeScrapeError(t, o, "container_scrape_error", err)
		writeMachine(t, o)
	}), nil
}

// reads says what a family is made of beside cgroups.
type procParts int

const (
	procOpenFiles procParts = 1 << iota // open files of processes
	procLimits                          // limits of processes
	procDisks                           // what the kernel counts for disks
	procMounts                          // what is mounted
	procCapacity                        // how full file systems are
)

// partsProcs is where the processes of a cgroup are known from.
const partsProcs = cgroups.PartProcs

// reading is all that a page is made of.
type measurement struct {
	samples   []stats.Sample
	processes []processInfo // of each of the samples
	disks     machineDisks
}

// processes is what is known of the processes of a cgroup.
type processInfo struct {
	open          openCounts
	openFileLimit int64 // limit of the first one
	hasLimit      bool  // openFiles is known
}

// readAll reads what families are made of. What cannot be read is missing, and named by the error.
func measureAll(ctx context.Context, source Source, o Options, families []family) (now measurement, err error) {
	var parts cgroups.Parts
	var reads procParts
	for i := range families {
		parts |= families[i].parts
		reads |= families[i].procParts
	}
	now.samples, err = source.Samples(ctx, parts)
	now.processes = make([]processInfo, len(now.samples))
	look := procReader{o.Proc, maxPerPage}
	for i := range now.samples {
		if ctx.Err() != nil {
			break
		}
		now.processes[i] = look.readProcesses(&now.samples[i], reads)
	}
	if reads&procDisks == 0 {
		return now, err
	}
	var failed, unanswered error
	now.disks, failed = readDisks(o.Proc, reads&procMounts != 0)
	if asks, ok := source.(Filesystems); ok && reads&procCapacity != 0 {
		unanswered = now.disks.measureCapacity(ctx, asks)
	}
	return now, errors.Join(err, failed, unanswered)
}

// row is a cgroup with its labels.
type cgroupRow struct {
	*stats.Sample
	processInfo
	mounts     []mountedFS   // the machine has them
	machine    *machine.Info // nil: it is not the cgroup of the machine
	labels     string
	kind       rowKind
	interfaces []stats.Interface
	devices    []string // a label for each of Stats.IO.Devices
	now        time.Time
}

// rowKind says what a cgroup is of.
type rowKind int

const (
	ofNode rowKind = iota // the whole node, all pods, a class, or a part of the system
	ofPod
	ofSandbox
	ofContainer
)

// newRows returns every cgroup once.
func newRows(all *measurement, o Options) []cgroupRow {
	without := make(map[string]bool, len(o.WithoutLabels))
	for _, l := range o.WithoutLabels {
		without[l] = true
	}
	samples := all.samples
	rows, seen, now := make([]cgroupRow, 0, len(samples)), make(map[string]bool, len(samples)), time.Now()
	var traffic []stats.Interface // of the pod whose sandbox comes next
	for i := range samples {
		s := &samples[i]
		id := cgroupID(s, o.CgroupRoot, o.SystemdNames)
		if seen[id] {
			continue
		}
		seen[id] = true
		r := cgroupRow{Sample: s, processInfo: all.processes[i], kind: kindOf(s), interfaces: s.Interfaces, now: now}
		if id == "/" {
			r.mounts, r.machine = all.disks.mounts, &o.Machine
		}
		switch r.kind {
		case ofPod: // in cAdvisor the network is the sandbox's
			traffic, r.interfaces = s.Interfaces, nil
		case ofSandbox:
			traffic, r.interfaces = nil, traffic
		case ofNode, ofContainer:
		}
		r.labels = r.buildLabels(id, o, without)
		for _, d := range s.Stats.IO.Devices {
			r.devices = append(r.devices, formatLabel("device", deviceName(o, &all.disks, d)))
		}
		rows = append(rows, r)
	}
	return rows
}

func kindOf(s *stats.Sample) rowKind {
	switch {
	case s.Container.ID != "":
		return ofContainer
	case s.Pod.UID == "":
		return ofNode
	case s.Leaf != "":
		return ofSandbox
	}
	return ofPod
}

// cgroupID returns the path of a cgroup as it is in the hierarchy.
func cgroupID(s *stats.Sample, root cgroups.Path, systemd bool) string {
	if s.Path == "" && s.Leaf == "" {
		return "/"
	}
	p := s.Path
	if root != "" {
		p = root.Join(s.Path.Components()...)
	}
	id := p.Cgroupfs()
	if systemd && p != "" {
		if slice, err := p.Systemd(); err == nil {
			id = slice
		}
	}
	switch {
	case s.Leaf == "":
		return id
	case id == "/":
		return id + s.Leaf
	}
	return id + "/" + s.Leaf
}

// describe returns the labels of a cgroup. All have the same ones; what is not known is empty.
func (r *cgroupRow) buildLabels(id string, o Options, without map[string]bool) string {
	var image, name string
	switch r.kind {
	case ofContainer:
		image, name = r.Container.Image.Image, r.Container.ID
	case ofSandbox:
		image, name = o.SandboxImage, r.Sandbox.ID
	case ofNode, ofPod:
	}
	out := formatLabel("container", r.Container.Name) + "," + formatLabel("id", id)
	if !without["image"] {
		out += "," + formatLabel("image", image)
	}
	if !without["name"] {
		out += "," + formatLabel("name", name)
	}
	return out + "," + formatLabel("namespace", r.Pod.Namespace) + "," + formatLabel("pod", r.Pod.Name)
}

func deviceName(o Options, disks *machineDisks, d cgroups.IODevice) string {
	if o.Device != nil {
		if name := o.Device(d.Major, d.Minor); name != "" {
			return name
		}
	}
	if name := disks.devicePath([2]uint32{d.Major, d.Minor}); name != "" {
		return name
	}
	return fmt.Sprintf("%d:%d", d.Major, d.Minor)
}

// family is a family of /metrics/cadvisor about cgroups.
type family struct {
	name, help, kind string
	parts            cgroups.Parts // that it is made of
	procParts        procParts
	emit             func(e *emitter, r *cgroupRow)
}

// emitter takes the values of a row.
type emitter struct {
	*text
	row *cgroupRow
	at  time.Time
}

// value is a series without further labels.
func (e *emitter) writeValue(v float64) { e.writeSeries(e.row.labels, "", v, e.at) }

// with is a series with more labels.
func (e *emitter) writeWithLabels(labels string, v float64) {
	e.writeSeries(e.row.labels, labels, v, e.at)
}

// write writes the family, if any cgroup has it.
func (f *family) writeFamily(t *text, rows []cgroupRow) {
	begun := t.startFamily(f.name, f.help, f.kind)
	header := len(t.buf)
	for i := range rows {
		e := emitter{text: t, row: &rows[i], at: rows[i].Time}
		f.emit(&e, &rows[i])
	}
	if len(t.buf) == header {
		t.buf = t.buf[:begun]
	}
}

// writeVersion writes what the machine runs.
func writeVersion(t *text, o Options) {
	const name = "cadvisor_version_info"
	if !o.isIncluded(name) || o.Machine.KernelVersion == "" {
		return
	}
	t.startFamily(name, "The kernel and the operating system of the machine. The value is always 1.", gauge)
	t.writeSeries(formatLabel("cadvisorRevision", "")+","+formatLabel("cadvisorVersion", "")+","+formatLabel("dockerVersion", "")+","+
		formatLabel("kernelVersion", o.Machine.KernelVersion)+","+formatLabel("osVersion", o.Machine.OSImage), "", 1, time.Time{})
}

// writeMachine writes what the machine is.
func writeMachine(t *text, o Options) {
	m := o.Machine
	if m.CPUs == 0 && m.Memory == 0 {
		return
	}
	labels := formatLabel("boot_id", m.BootID) + "," + formatLabel("machine_id", m.MachineID) + "," + formatLabel("system_uuid", m.SystemUUID)
	for _, f := range []struct {
		name, help string
		value      int64
	}{
		{"machine_cpu_books", "Books of CPUs of the machine, which only a mainframe has.", int64(m.Books)},
		{"machine_cpu_cores", "Logical CPUs of the machine.", int64(m.CPUs)},
		{"machine_cpu_drawers", "Drawers of CPUs of the machine, which only a mainframe has.", int64(m.Drawers)},
		{"machine_cpu_physical_cores", "Cores of the machine.", int64(m.Cores)},
		{"machine_cpu_sockets", "Sockets of CPUs of the machine.", int64(m.Sockets)},
		{"machine_memory_bytes", "Memory of the machine.", m.Memory},
		{"machine_swap_bytes", "Swap of the machine.", m.Swap},
	} {
		if o.isIncluded(f.name) {
			t.startFamily(f.name, f.help, gauge)
			t.writeSeries(labels, "", float64(f.value), time.Time{})
		}
	}
	writeMachineScrapeError(t, o)
}

// scrapeErrorOfMachine writes that nothing of the machine is missing: it was read before.
func writeMachineScrapeError(t *text, o Options) {
	const name = "machine_scrape_error"
	if o.isIncluded(name) {
		t.startFamily(name, "1 if there was an error while getting machine metrics, 0 otherwise.", gauge)
		t.writeSeries("", "", 0, time.Time{})
	}
}
