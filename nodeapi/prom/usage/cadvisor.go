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

// Cadvisor returns the page /metrics/cadvisor. It contains the kernel's counters for the cgroups of the node, of pods and of
// containers, which source measures. It also contains the machine information in opts.Machine. The error names the invalid
// option.
func Cadvisor(source Source, opts Options) (*Page, error) {
	if err := required.Args("usage.Cadvisor", required.Arg{Name: "source", Value: source, Hint: "a *stats.Collector"}); err != nil {
		return nil, err
	}
	if err := opts.validateOptions("usage.Cadvisor"); err != nil {
		return nil, err
	}
	opts = opts.withProc()
	families := slices.DeleteFunc(containerFamilies(), func(f family) bool { return !opts.isIncluded(f.name) })
	last := latest.New(opts.MaxAge, func(ctx context.Context) (measurement, error) { return measureAll(ctx, source, opts, families) })
	return newPage(func(ctx context.Context, t *text) {
		writeVersion(t, opts)
		now, err := last.Get(ctx)
		opts.reportError("/metrics/cadvisor", err)
		rows := newRows(&now, opts)
		for i := range families {
			families[i].writeFamily(t, rows)
		}
		writeScrapeError(t, opts, "container_scrape_error", err)
		writeMachine(t, opts)
	}), nil
}

// procParts is a set of values in /proc that a metric needs in addition to cgroup counters.
type procParts int

const (
	procOpenFiles procParts = 1 << iota // open files of processes
	procLimits                          // limits of processes
	procDisks                           // counters of disks
	procMounts                          // mounted file systems
	procCapacity                        // size and usage of file systems
)

// partsProcs selects the processes of a cgroup.
const partsProcs = cgroups.PartProcs

// measurement has all measured values for the page /metrics/cadvisor.
type measurement struct {
	samples   []stats.Sample
	processes []processInfo // one for each of samples
	disks     machineDisks
}

// processInfo has the open files of the processes of a cgroup, and their limit.
type processInfo struct {
	open          openCounts
	openFileLimit int64 // soft limit of the first process
	hasLimit      bool  // openFileLimit was read
}

// measureAll measures the data that the given metrics need. Data that cannot be measured is missing, and the error names it.
func measureAll(ctx context.Context, source Source, opts Options, families []family) (result measurement, err error) {
	var parts cgroups.Parts
	var reads procParts
	for i := range families {
		parts |= families[i].parts
		reads |= families[i].procParts
	}
	result.samples, err = source.Samples(ctx, parts)
	result.processes = make([]processInfo, len(result.samples))
	look := procReader{opts.Proc, maxPerPage}
	for i := range result.samples {
		if ctx.Err() != nil {
			break
		}
		result.processes[i] = look.readProcesses(&result.samples[i], reads)
	}
	if reads&procDisks == 0 {
		return result, err
	}
	var failed, unanswered error
	result.disks, failed = readDisks(opts.Proc, reads&procMounts != 0)
	if asks, ok := source.(Filesystems); ok && reads&procCapacity != 0 {
		unanswered = result.disks.measureCapacity(ctx, asks)
	}
	return result, errors.Join(err, failed, unanswered)
}

// cgroupRow has the measured values and the labels of a cgroup. Each family writes its series for the cgroup from it.
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

// rowKind is the kind of the object whose cgroup it is: node, pod, sandbox or container.
type rowKind int

const (
	ofNode rowKind = iota // the node, all pods, a QoS class, or a part of the system
	ofPod
	ofSandbox
	ofContainer
)

// newRows returns a row for each cgroup, without duplicates.
func newRows(measured *measurement, opts Options) []cgroupRow {
	without := make(map[string]bool, len(opts.WithoutLabels))
	for _, l := range opts.WithoutLabels {
		without[l] = true
	}
	samples := measured.samples
	rows, seen, now := make([]cgroupRow, 0, len(samples)), make(map[string]bool, len(samples)), time.Now()
	var traffic []stats.Interface // of the pod whose sandbox follows
	for i := range samples {
		s := &samples[i]
		id := cgroupID(s, opts.CgroupRoot, opts.SystemdNames)
		if seen[id] {
			continue
		}
		seen[id] = true
		r := cgroupRow{Sample: s, processInfo: measured.processes[i], kind: kindOf(s), interfaces: s.Interfaces, now: now}
		if id == "/" {
			r.mounts, r.machine = measured.disks.mounts, &opts.Machine
		}
		switch r.kind {
		case ofPod: // cAdvisor shows the network of a pod at its sandbox
			traffic, r.interfaces = s.Interfaces, nil
		case ofSandbox:
			traffic, r.interfaces = nil, traffic
		case ofNode, ofContainer:
		}
		r.labels = r.buildLabels(id, opts, without)
		for _, d := range s.Stats.IO.Devices {
			r.devices = append(r.devices, formatLabel("device", deviceName(opts, &measured.disks, d)))
		}
		rows = append(rows, r)
	}
	return rows
}

func kindOf(sample *stats.Sample) rowKind {
	switch {
	case sample.Container.ID != "":
		return ofContainer
	case sample.Pod.UID == "":
		return ofNode
	case sample.Leaf != "":
		return ofSandbox
	}
	return ofPod
}

// cgroupID returns the absolute path of a sample's cgroup for the label id, with the names of systemd slices if systemd is true.
func cgroupID(sample *stats.Sample, root cgroups.Path, systemd bool) string {
	if sample.Path == "" && sample.Leaf == "" {
		return "/"
	}
	p := sample.Path
	if root != "" {
		p = root.Join(sample.Path.Components()...)
	}
	id := p.Cgroupfs()
	if systemd && p != "" {
		if slice, err := p.Systemd(); err == nil {
			id = slice
		}
	}
	switch {
	case sample.Leaf == "":
		return id
	case id == "/":
		return id + sample.Leaf
	}
	return id + "/" + sample.Leaf
}

// buildLabels returns the labels of the cgroup. All cgroups have the same label names, with empty values where one does not
// apply.
func (r *cgroupRow) buildLabels(id string, opts Options, excluded map[string]bool) string {
	var image, name string
	switch r.kind {
	case ofContainer:
		image, name = r.Container.Image.Image, r.Container.ID
	case ofSandbox:
		image, name = opts.SandboxImage, r.Sandbox.ID
	case ofNode, ofPod:
	}
	out := formatLabel("container", r.Container.Name) + "," + formatLabel("id", id)
	if !excluded["image"] {
		out += "," + formatLabel("image", image)
	}
	if !excluded["name"] {
		out += "," + formatLabel("name", name)
	}
	return out + "," + formatLabel("namespace", r.Pod.Namespace) + "," + formatLabel("pod", r.Pod.Name)
}

func deviceName(opts Options, disks *machineDisks, d cgroups.IODevice) string {
	if opts.Device != nil {
		if name := opts.Device(d.Major, d.Minor); name != "" {
			return name
		}
	}
	if name := disks.devicePath([2]uint32{d.Major, d.Minor}); name != "" {
		return name
	}
	return fmt.Sprintf("%d:%d", d.Major, d.Minor)
}

// family is a metric of the page /metrics/cadvisor. Its function emit writes the series of one cgroup.
type family struct {
	name, help, kind string
	parts            cgroups.Parts // cgroup data that it needs
	procParts        procParts
	emit             func(e *emitter, r *cgroupRow)
}

// emitter appends the series of one cgroup to a page.
type emitter struct {
	*text
	row *cgroupRow
	at  time.Time
}

// writeValue writes a series with this value and only the labels of the cgroup.
func (e *emitter) writeValue(value float64) { e.writeSeries(e.row.labels, "", value, e.at) }

// writeWithLabels writes a series with this value. It has the labels of the cgroup and the given labels, such as device.
func (e *emitter) writeWithLabels(labels string, value float64) {
	e.writeSeries(e.row.labels, labels, value, e.at)
}

// writeFamily writes the metric f with a series for each row. It writes nothing if there is no series.
func (f *family) writeFamily(page *text, rows []cgroupRow) {
	begun := page.startFamily(f.name, f.help, f.kind)
	header := len(page.buf)
	for i := range rows {
		e := emitter{text: page, row: &rows[i], at: rows[i].Time}
		f.emit(&e, &rows[i])
	}
	if len(page.buf) == header {
		page.buf = page.buf[:begun]
	}
}

// writeVersion writes cadvisor_version_info, with the versions of the kernel and the operating system as labels.
func writeVersion(page *text, opts Options) {
	const name = "cadvisor_version_info"
	if !opts.isIncluded(name) || opts.Machine.KernelVersion == "" {
		return
	}
	page.startFamily(name, "The kernel and the operating system of the machine. The value is always 1.", gauge)
	page.writeSeries(formatLabel("cadvisorRevision", "")+","+formatLabel("cadvisorVersion", "")+","+formatLabel("dockerVersion", "")+","+
		formatLabel("kernelVersion", opts.Machine.KernelVersion)+","+formatLabel("osVersion", opts.Machine.OSImage), "", 1, time.Time{})
}

// writeMachine writes the hardware of the machine.
func writeMachine(page *text, opts Options) {
	m := opts.Machine
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
		if opts.isIncluded(f.name) {
			page.startFamily(f.name, f.help, gauge)
			page.writeSeries(labels, "", float64(f.value), time.Time{})
		}
	}
	writeMachineScrapeError(page, opts)
}

// writeMachineScrapeError writes machine_scrape_error. The value is always 0, because the page does not measure the machine.
func writeMachineScrapeError(page *text, opts Options) {
	const name = "machine_scrape_error"
	if opts.isIncluded(name) {
		page.startFamily(name, "1 if there was an error while getting machine metrics, 0 otherwise.", gauge)
		page.writeSeries("", "", 0, time.Time{})
	}
}
