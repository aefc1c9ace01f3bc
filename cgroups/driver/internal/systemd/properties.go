// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bytes"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Property is a property of a unit and its value, as systemd takes them.
type Property struct {
	Name  string
	Value dbus.Variant
}

// infinity is no limit in the properties of systemd.
const infinity uint64 = math.MaxUint64

func property(name string, value any) Property {
	return Property{Name: name, Value: dbus.MakeVariant(value)}
}

// equals reports whether a unit has the property already. A set of CPUs may come with zeros behind it.
func (p Property) equals(is dbus.Variant) bool {
	if want, ok := p.Value.Value().([]byte); ok {
		got, ok := is.Value().([]byte)
		return ok && bytes.Equal(bytes.TrimRight(got, "\x00"), want)
	}
	return is.Value() == p.Value.Value()
}

// since is the version of systemd that brought a property. Older ones refuse a unit that has it.
func since(name string) int {
	switch name {
	case "MemoryMin":
		return 240
	case "CPUQuotaPeriodUSec":
		return 242
	case "AllowedCPUs", "AllowedMemoryNodes":
		return 244
	}
	return 0
}

// Properties returns the properties that hold a slice to the resources, and the resources as the files of the kernel
// are to be written then: with the quota that systemd makes of theirs, see [cgroups.SystemdQuota].
//
// Files of Unified that stand for a property become that property, if their value is a plain one. What systemd has no
// property for is left to the files: swap on v1, huge pages, memory.oom.group, and the rest of Unified. On v1 the names
// are those from before cgroup v2, as in runc: there CPU shares keep their unit.
func Properties(r cgroups.Resources, v1 bool, f cgroups.WeightFormula) ([]Property, cgroups.Resources, error) {
	var props list
	if v1 {
		if r.CPUShares != 0 {
			props.add("CPUShares", min(max(r.CPUShares, cgroups.MinShares), cgroups.MaxShares))
		}
		props.addLimit("MemoryLimit", r.MemoryMax, 1)
	} else {
		r = plain(r)
		if w := weight(r, f); w != 0 {
			props.add("CPUWeight", w)
		}
		props.addLimit("MemoryMin", r.MemoryMin, 0)
		props.addLimit("MemoryLow", r.MemoryLow, 0)
		props.addLimit("MemoryHigh", r.MemoryHigh, 1)
		props.addLimit("MemoryMax", r.MemoryMax, 1)
		props.addLimit("MemorySwapMax", r.SwapMax, 0)
	}
	r.CPUQuota, r.CPUPeriod = props.addQuota(r.CPUQuota, r.CPUPeriod)
	props.addLimit("TasksMax", r.PidsMax, 1)
	if err := props.addSet("AllowedCPUs", r.CpusetCPUs); err != nil {
		return nil, r, err
	}
	if err := props.addSet("AllowedMemoryNodes", r.CpusetMems); err != nil {
		return nil, r, err
	}
	return props, r, nil
}

// list is properties in the making.
type list []Property

func (l *list) add(name string, value any) { *l = append(*l, property(name, value)) }

// addLimit adds a limit of bytes or tasks. Where systemd does not take zero, one byte is as little, since the kernel
// counts pages, and so is one task, since a slice is not to run any.
func (l *list) addLimit(name string, value *int64, least uint64) {
	switch {
	case value == nil:
	case *value < 0:
		l.add(name, infinity)
	default:
		l.add(name, max(uint64(*value), least))
	}
}

// addQuota adds what is set of quota and period, and returns what systemd makes of them. A quota without a period is
// one in the default period, also where the slice has had another.
func (l *list) addQuota(quota int64, period uint64) (int64, uint64) {
	if quota != 0 && period == 0 {
		period = cgroups.DefaultPeriod
	}
	if period != 0 {
		l.add("CPUQuotaPeriodUSec", period)
	}
	if quota != 0 {
		perSec, rounded := cgroups.SystemdQuota(quota, period)
		l.add("CPUQuotaPerSecUSec", perSec)
		quota = rounded
	}
	return quota, period
}

// addSet adds a list of CPUs or memory nodes, which systemd takes as bits, eight to a byte, lowest first.
func (l *list) addSet(name, text string) error {
	if text == "" {
		return nil
	}
	ids, err := cgroups.ParseCPUList([]byte(text))
	if err != nil {
		return err
	}
	var bits []byte
	for _, id := range ids {
		for len(bits) <= id/8 {
			bits = append(bits, 0)
		}
		bits[id/8] |= 1 << (id % 8)
	}
	l.add(name, bits)
	return nil
}

// weight is the cpu.weight of resources: that of Unified if it has one, as it is written last.
func weight(r cgroups.Resources, f cgroups.WeightFormula) uint64 {
	w, err := strconv.ParseUint(strings.TrimSpace(r.Unified["cpu.weight"]), 10, 64)
	if err == nil && w >= cgroups.MinWeight && w <= cgroups.MaxWeight {
		return w
	}
	return cgroups.WeightFromShares(r.CPUShares, f)
}

// plain moves values of Unified to the fields that mean the same. A value that is not a plain one stays where it is:
// the kernel takes more forms, and says what is wrong with the others.
func plain(r cgroups.Resources) cgroups.Resources {
	limits := map[string]**int64{
		"memory.min": &r.MemoryMin, "memory.low": &r.MemoryLow, "memory.high": &r.MemoryHigh, "memory.max": &r.MemoryMax,
		"memory.swap.max": &r.SwapMax, "pids.max": &r.PidsMax,
	}
	sets := map[string]*string{"cpuset.cpus": &r.CpusetCPUs, "cpuset.mems": &r.CpusetMems}
	rest := maps.Clone(r.Unified)
	for file, text := range r.Unified {
		text = strings.TrimSpace(text)
		value, err := cgroups.ParseValue([]byte(text))
		switch limit, set := limits[file], sets[file]; {
		case limit != nil && err == nil:
			*limit = &value
		case set != nil && text != "":
			*set = text
		case file == "cpu.max" && plainQuota(&r, text):
		default:
			continue
		}
		delete(rest, file)
	}
	r.Unified = rest
	return r
}

// plainQuota sets quota and period from cpu.max. A period that is left out is the default one.
func plainQuota(r *cgroups.Resources, text string) bool {
	if !strings.Contains(text, " ") {
		text += " " + strconv.Itoa(cgroups.DefaultPeriod)
	}
	quota, period, err := cgroups.ParseCPUMax([]byte(text))
	if err != nil || quota == 0 || period == 0 {
		return false
	}
	r.CPUQuota, r.CPUPeriod = quota, period
	return true
}
