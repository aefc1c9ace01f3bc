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

// Property is a unit property and its value.
type Property struct {
	Name  string
	Value dbus.Variant
}

// infinity means no limit in systemd properties.
const infinity uint64 = math.MaxUint64

func newProperty(name string, value any) Property {
	return Property{Name: name, Value: dbus.MakeVariant(value)}
}

// isEqual reports whether a unit already has the value of p.
func (p Property) isEqual(current dbus.Variant) bool {
	if want, ok := p.Value.Value().([]byte); ok {
		got, ok := current.Value().([]byte)
		return ok && bytes.Equal(bytes.TrimRight(got, "\x00"), want) // systemd may pad a CPU set
	}
	return current.Value() == p.Value.Value()
}

// minVersion returns the first systemd version with this property, or zero if all versions have it. Earlier versions reject
// a unit with this property.
func minVersion(name string) int {
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

// Properties converts limits to properties of a slice. It also returns the limits to write to the kernel's files afterwards;
// they contain the quota as systemd rounds it, see [cgroups.SystemdQuota].
//
// Files in Unified that have a property are converted too if their value is a simple one. The following have no property:
// swap on v1, huge pages, memory.oom.group, and all other files in Unified. On v1 the names of properties are those before
// cgroup v2, as in runc, and CPU shares keep their unit.
func Properties(resources cgroups.Resources, v1 bool, formula cgroups.WeightFormula) ([]Property, cgroups.Resources, error) {
	var props propertyList
	if v1 {
		if resources.CPUShares != 0 {
			props.addProperty("CPUShares", min(max(resources.CPUShares, cgroups.MinShares), cgroups.MaxShares))
		}
		props.addLimit("MemoryLimit", resources.MemoryMax, 1)
	} else {
		resources = moveUnifiedToFields(resources)
		if w := effectiveWeight(resources, formula); w != 0 {
			props.addProperty("CPUWeight", w)
		}
		props.addLimit("MemoryMin", resources.MemoryMin, 0)
		props.addLimit("MemoryLow", resources.MemoryLow, 0)
		props.addLimit("MemoryHigh", resources.MemoryHigh, 1)
		props.addLimit("MemoryMax", resources.MemoryMax, 1)
		props.addLimit("MemorySwapMax", resources.SwapMax, 0)
	}
	resources.CPUQuota, resources.CPUPeriod = props.addQuota(resources.CPUQuota, resources.CPUPeriod)
	props.addLimit("TasksMax", resources.PidsMax, 1)
	if err := props.addSet("AllowedCPUs", resources.CpusetCPUs); err != nil {
		return nil, resources, err
	}
	if err := props.addSet("AllowedMemoryNodes", resources.CpusetMems); err != nil {
		return nil, resources, err
	}
	return props, resources, nil
}

// propertyList is a list of properties under construction.
type propertyList []Property

func (l *propertyList) addProperty(name string, value any) { *l = append(*l, newProperty(name, value)) }

// addLimit adds a limit of bytes or tasks: nil means none to add, and a negative value no limit.
func (l *propertyList) addLimit(name string, value *int64, least uint64) {
	switch {
	case value == nil:
	case *value < 0:
		l.addProperty(name, infinity)
	default:
		// systemd rejects zero for some properties, and a limit of 1 allows nothing to run either
		l.addProperty(name, max(uint64(*value), least))
	}
}

// addQuota adds the CPU quota and period, of which zero means not set, and returns both as systemd rounds them.
func (l *propertyList) addQuota(quota int64, period uint64) (roundedQuota int64, roundedPeriod uint64) {
	if quota != 0 && period == 0 {
		// even if the slice has another period at present
		period = cgroups.DefaultPeriod
	}
	if period != 0 {
		l.addProperty("CPUQuotaPeriodUSec", period)
	}
	if quota != 0 {
		perSec, rounded := cgroups.SystemdQuota(quota, period)
		l.addProperty("CPUQuotaPerSecUSec", perSec)
		quota = rounded
	}
	return quota, period
}

// addSet adds a list of CPUs or memory nodes. For systemd it is a bit mask with eight numbers per byte, the lowest bit
// first.
func (l *propertyList) addSet(name, text string) error {
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
	l.addProperty(name, bits)
	return nil
}

// effectiveWeight returns the cpu.weight that follows from resources. A valid weight in Unified replaces the weight that
// follows from CPUShares, because it is written later.
func effectiveWeight(resources cgroups.Resources, formula cgroups.WeightFormula) uint64 {
	w, err := strconv.ParseUint(strings.TrimSpace(resources.Unified["cpu.weight"]), 10, 64)
	if err == nil && w >= cgroups.MinWeight && w <= cgroups.MaxWeight {
		return w
	}
	return cgroups.WeightFromShares(resources.CPUShares, formula)
}

// moveUnifiedToFields moves values in Unified to the fields with the same meaning, so that they become properties.
func moveUnifiedToFields(resources cgroups.Resources) cgroups.Resources {
	limits := map[string]**int64{
		"memory.min": &resources.MemoryMin, "memory.low": &resources.MemoryLow, "memory.high": &resources.MemoryHigh, "memory.max": &resources.MemoryMax,
		"memory.swap.max": &resources.SwapMax, "pids.max": &resources.PidsMax,
	}
	sets := map[string]*string{"cpuset.cpus": &resources.CpusetCPUs, "cpuset.mems": &resources.CpusetMems}
	rest := maps.Clone(resources.Unified)
	for file, text := range resources.Unified {
		text = strings.TrimSpace(text)
		value, err := cgroups.ParseValue([]byte(text))
		switch limit, set := limits[file], sets[file]; {
		case limit != nil && err == nil:
			*limit = &value
		case set != nil && text != "":
			*set = text
		case file == "cpu.max" && setQuotaFromText(&resources, text):
		default: // the kernel accepts more formats, and rejects invalid values itself
			continue
		}
		delete(rest, file)
	}
	resources.Unified = rest
	return resources
}

// setQuotaFromText sets CPUQuota and CPUPeriod from the content of cpu.max. It returns false if the text is invalid.
func setQuotaFromText(resources *cgroups.Resources, text string) bool {
	if !strings.Contains(text, " ") {
		text += " " + strconv.Itoa(cgroups.DefaultPeriod)
	}
	quota, period, err := cgroups.ParseCPUMax([]byte(text))
	if err != nil || quota == 0 || period == 0 {
		return false
	}
	resources.CPUQuota, resources.CPUPeriod = quota, period
	return true
}
