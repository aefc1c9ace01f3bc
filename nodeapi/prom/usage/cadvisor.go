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

// Cadvisor returns the page /metrics/cadvisor: the kernel's counters for the node, its pods and containers, and the machine
// information in [Options].Machine.
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

// procParts is a set of the data that a metric needs in addition to cgroups.
type procParts int

const (
	procOpenFiles procParts = 1 << iota // open files of processes
	procLimits                          // limits of processes
	procDisks                           // counters of disks
	procMounts                          // mounted file systems
	procCapacity                        // size and usage of file systems
)

// partsProcs is the cgroup data with the processes of a cgroup.
const partsProcs = cgroups.PartProcs

// measurement has all data of a page.
type measurement struct {
	samples   []stats.Sample
	processes []processInfo // one for each of samples
	disks     machineDisks
}

// processInfo has the open files and limits of the processes of a cgroup.
type processInfo struct {
	open          openCounts
	openFileLimit int64 // soft limit of the first process
	hasLimit      bool  // openFileLimit was read
}

// measureAll measures the data that the families need. Data that cannot be measured is missing and named by the error.
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

// cgroupRow is the measured data of a cgroup with its labels. Each family writes its series from it.
type cgroupRow struct {
	*stats.Sample
	processInfo
	mounts     []mountedFS   // set only for the root cgroup, which stands for the machine
	machine    *machine.Info // nil: not the root cgroup
	labels     string
	kind       rowKind
	interfaces []stats.Interface
	devices    []string // a label for each element of Stats.IO.Devices
	now        time.Time
}

// rowKind is what a cgroup contains.
type rowKind int

const (
	ofNode rowKind = iota // the node, all pods, a QoS class, or a part of the system
	ofPod
	ofSandbox
	ofContainer
)

// newRows returns a row for each cgroup, without duplicates.
func newRows(all *measurement, o Options) []cgroupRow {
	without := make(map[string]bool, len(o.WithoutLabels))
	for _, l := range o.WithoutLabels {
		without[l] = true
	}
	samples := all.samples
	rows, seen, now := make([]cgroupRow, 0, len(samples)), make(map[string]bool, len(samples)), time.Now()
	var traffic []stats.Interface // of the pod whose sandbox follows
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
		case ofPod: // cAdvisor shows the network of a pod at its sandbox
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

// cgroupID returns the path of a cgroup in the hierarchy, for the label id.
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

// buildLabels returns the labels of a cgroup. All cgroups have the same label names; unknown values are empty.
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

// family is a metric of /metrics/cadvisor with a series for each cgroup.
type family struct {
	name, help, kind string
	parts            cgroups.Parts // cgroup data that it needs
	procParts        procParts
	emit             func(e *emitter, r *cgroupRow)
}

// emitter writes the series of one cgroup.
type emitter struct {
	*text
	row *cgroupRow
	at  time.Time
}

// writeValue writes a series without additional labels.
func (e *emitter) writeValue(v float64) { e.writeSeries(e.row.labels, "", v, e.at) }

// writeWithLabels writes a series with additional labels.
func (e *emitter) writeWithLabels(labels string, v float64) {
	e.writeSeries(e.row.labels, labels, v, e.at)
}

// writeFamily writes the metric for all rows, and nothing if it has no series.
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

// writeVersion writes the kernel and operating system version of the machine.
func writeVersion(t *text, o Options) {
	const name = "cadvisor_version_info"
	if !o.isIncluded(name) || o.Machine.KernelVersion == "" {
		return
	}
	t.startFamily(name, "The kernel and the operating system of the machine. The value is always 1.", gauge)
	t.writeSeries(formatLabel("cadvisorRevision", "")+","+formatLabel("cadvisorVersion", "")+","+formatLabel("dockerVersion", "")+","+
		formatLabel("kernelVersion", o.Machine.KernelVersion)+","+formatLabel("osVersion", o.Machine.OSImage), "", 1, time.Time{})
}

// writeMachine writes the hardware of the machine.
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

// writeMachineScrapeError writes 0: Options.Machine was read before without an error.
func writeMachineScrapeError(t *text, o Options) {
	const name = "machine_scrape_error"
	if o.isIncluded(name) {
		t.startFamily(name, "1 if there was an error while getting machine metrics, 0 otherwise.", gauge)
		t.writeSeries("", "", 0, time.Time{})
	}
}
