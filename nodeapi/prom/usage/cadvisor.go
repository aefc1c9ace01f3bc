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
	if err := o.check("usage.Cadvisor"); err != nil {
		return nil, err
	}
	o = o.withProc()
	families := slices.DeleteFunc(containerFamilies(), func(f family) bool { return !o.wants(f.name) })
	last := latest.New(o.MaxAge, func(ctx context.Context) (reading, error) { return readAll(ctx, source, o, families) })
	return newPage(func(ctx context.Context, t *text) {
		writeVersion(t, o)
		now, err := last.Get(ctx)
		o.fail("/metrics/cadvisor", err)
		rows := newRows(&now, o)
		for i := range families {
			families[i].write(t, rows)
		}
		scrapeError(t, o, "container_scrape_error", err)
		writeMachine(t, o)
	}), nil
}

// reads says what a family is made of beside cgroups.
type reads int

const (
	readsOpened   reads = 1 << iota // open files of processes
	readsLimits                     // limits of processes
	readsDisks                      // what the kernel counts for disks
	readsMounts                     // what is mounted
	readsFullness                   // how full file systems are
)

// partsProcs is where the processes of a cgroup are known from.
const partsProcs = cgroups.PartProcs

// reading is all that a page is made of.
type reading struct {
	samples   []stats.Sample
	processes []processes // of each of the samples
	disks     machineDisks
}

// processes is what is known of the processes of a cgroup.
type processes struct {
	opened    opened
	openFiles int64 // limit of the first one
	limited   bool  // openFiles is known
}

// readAll reads what families are made of. What cannot be read is missing, and named by the error.
func readAll(ctx context.Context, source Source, o Options, families []family) (now reading, err error) {
	var parts cgroups.Parts
	var reads reads
	for i := range families {
		parts |= families[i].parts
		reads |= families[i].reads
	}
	now.samples, err = source.Samples(ctx, parts)
	now.processes = make([]processes, len(now.samples))
	look := procReader{o.Proc, maxLookedTotal}
	for i := range now.samples {
		if ctx.Err() != nil {
			break
		}
		now.processes[i] = look.processes(&now.samples[i], reads)
	}
	if reads&readsDisks == 0 {
		return now, err
	}
	var failed, unanswered error
	now.disks, failed = readDisks(o.Proc, reads&readsMounts != 0)
	if asks, ok := source.(Filesystems); ok && reads&readsFullness != 0 {
		unanswered = now.disks.ask(ctx, asks)
	}
	return now, errors.Join(err, failed, unanswered)
}

// row is a cgroup with its labels.
type row struct {
	*stats.Sample
	processes
	mounts     []mounted     // the machine has them
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
func newRows(all *reading, o Options) []row {
	without := make(map[string]bool, len(o.WithoutLabels))
	for _, l := range o.WithoutLabels {
		without[l] = true
	}
	samples := all.samples
	rows, seen, now := make([]row, 0, len(samples)), make(map[string]bool, len(samples)), time.Now()
	var traffic []stats.Interface // of the pod whose sandbox comes next
	for i := range samples {
		s := &samples[i]
		id := cgroupID(s, o.CgroupRoot, o.Systemd)
		if seen[id] {
			continue
		}
		seen[id] = true
		r := row{Sample: s, processes: all.processes[i], kind: kindOf(s), interfaces: s.Interfaces, now: now}
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
		r.labels = r.describe(id, o, without)
		for _, d := range s.Stats.IO.Devices {
			r.devices = append(r.devices, label("device", deviceName(o, &all.disks, d)))
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
func (r *row) describe(id string, o Options, without map[string]bool) string {
	var image, name string
	switch r.kind {
	case ofContainer:
		image, name = r.Container.Image.Image, r.Container.ID
	case ofSandbox:
		image, name = o.SandboxImage, r.Sandbox.ID
	case ofNode, ofPod:
	}
	out := label("container", r.Container.Name) + "," + label("id", id)
	if !without["image"] {
		out += "," + label("image", image)
	}
	if !without["name"] {
		out += "," + label("name", name)
	}
	return out + "," + label("namespace", r.Pod.Namespace) + "," + label("pod", r.Pod.Name)
}

func deviceName(o Options, disks *machineDisks, d cgroups.IODevice) string {
	if o.Device != nil {
		if name := o.Device(d.Major, d.Minor); name != "" {
			return name
		}
	}
	if name := disks.name([2]uint32{d.Major, d.Minor}); name != "" {
		return name
	}
	return fmt.Sprintf("%d:%d", d.Major, d.Minor)
}

// family is a family of /metrics/cadvisor about cgroups.
type family struct {
	name, help, kind string
	parts            cgroups.Parts // that it is made of
	reads            reads
	each             func(e *emitter, r *row)
}

// emitter takes the values of a row.
type emitter struct {
	*text
	row *row
	at  time.Time
}

// value is a series without further labels.
func (e *emitter) value(v float64) { e.series(e.row.labels, "", v, e.at) }

// with is a series with more labels.
func (e *emitter) with(labels string, v float64) { e.series(e.row.labels, labels, v, e.at) }

// write writes the family, if any cgroup has it.
func (f *family) write(t *text, rows []row) {
	begun := t.family(f.name, f.help, f.kind)
	header := len(t.buf)
	for i := range rows {
		e := emitter{text: t, row: &rows[i], at: rows[i].Time}
		f.each(&e, &rows[i])
	}
	if len(t.buf) == header {
		t.buf = t.buf[:begun]
	}
}

// writeVersion writes what the machine runs.
func writeVersion(t *text, o Options) {
	const name = "cadvisor_version_info"
	if !o.wants(name) || o.Machine.KernelVersion == "" {
		return
	}
	t.family(name, "The kernel and the operating system of the machine. The value is always 1.", gauge)
	t.series(label("cadvisorRevision", "")+","+label("cadvisorVersion", "")+","+label("dockerVersion", "")+","+
		label("kernelVersion", o.Machine.KernelVersion)+","+label("osVersion", o.Machine.OSImage), "", 1, time.Time{})
}

// writeMachine writes what the machine is.
func writeMachine(t *text, o Options) {
	m := o.Machine
	if m.CPUs == 0 && m.Memory == 0 {
		return
	}
	labels := label("boot_id", m.BootID) + "," + label("machine_id", m.MachineID) + "," + label("system_uuid", m.SystemUUID)
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
		if o.wants(f.name) {
			t.family(f.name, f.help, gauge)
			t.series(labels, "", float64(f.value), time.Time{})
		}
	}
	scrapeErrorOfMachine(t, o)
}

// scrapeErrorOfMachine writes that nothing of the machine is missing: it was read before.
func scrapeErrorOfMachine(t *text, o Options) {
	const name = "machine_scrape_error"
	if o.wants(name) {
		t.family(name, "1 if there was an error while getting machine metrics, 0 otherwise.", gauge)
		t.series("", "", 0, time.Time{})
	}
}
