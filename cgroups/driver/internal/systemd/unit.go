// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/godbus/dbus/v5"
)

// Names of the errors of systemd that are answers here.
const (
	errUnitExists = busName + ".UnitExists"
	errNoSuchUnit = busName + ".NoSuchUnit"
)

// defaultWeight is the kernel's.
const defaultWeight uint64 = 100

// replace lets a job take the place of one that conflicts with it.
const replace = "replace"

// Values of ActiveState.
const (
	active   = "active"
	inactive = "inactive"
	failed   = "failed"
)

// Slice is a slice as it should be.
type Slice struct {
	Unit        string // "kubepods-burstable.slice"
	Parent      string // "kubepods.slice"; "-.slice" at the top
	Description string // for those who list units
	V1          bool   // the host has cgroup v1
	Properties  []Property
}

// Ensure starts the slice with its properties, and reports that it did. Where it runs already, it sets the properties
// that differ, until the next boot. Properties that this systemd is too old for are left out.
func (c *Client) Ensure(ctx context.Context, s Slice) (started bool, err error) {
	// A new slice is one call and one job. For one that runs, the answer that it exists costs systemd little.
	err = c.startTransient(ctx, s)
	if err == nil {
		return true, nil
	}
	if isError(err, errUnitExists) {
		err = c.ensureKnown(ctx, s)
	}
	if err != nil {
		return false, fmt.Errorf("start unit %s: %w", s.Unit, err)
	}
	return false, nil
}

// ensureKnown sets a slice that systemd knows, and starts it where it does not run.
func (c *Client) ensureKnown(ctx context.Context, s Slice) error {
	now, err := c.properties(ctx, s.Unit)
	if err != nil {
		return err
	}
	if now["ActiveState"].Value() != active {
		if err := c.restart(ctx, s); err != nil {
			return err
		}
		if now, err = c.properties(ctx, s.Unit); err != nil {
			return err
		}
	}
	return c.update(ctx, s, now)
}

// restart starts a slice that systemd knows but that does not run: one that was about to be forgotten, and is by now,
// one that failed, one that is just stopping or starting, or one that has a unit file.
func (c *Client) restart(ctx context.Context, s Slice) error {
	if err := c.startTransient(ctx, s); !isError(err, errUnitExists) {
		return err
	}
	return c.runJob(ctx, s.Unit, active, "StartUnit", func(*conn) []any { return []any{s.Unit, replace} })
}

// startTransient makes the unit and starts it. Systemd is given the limits with it, so that they hold from the start.
func (c *Client) startTransient(ctx context.Context, s Slice) error {
	return c.runJob(ctx, s.Unit, active, "StartTransientUnit", func(conn *conn) []any {
		return []any{s.Unit, replace, conn.fit(append(s.fixed(), s.variable()...)), []auxiliary{}}
	})
}

// auxiliary is a unit to make along with another, which is the last argument of StartTransientUnit. There is none.
type auxiliary struct {
	Unit       string
	Properties []Property
}

// fixed are the properties that a unit is made with. CollectMode has systemd forget the unit also when it failed. On v2
// accounting alone does not have systemd enable the controller of CPU;
// a weight does, so each slice is given one.
func (s Slice) fixed() []Property {
	props := []Property{
		property("Description", s.Description),
		property("Wants", []string{s.Parent}),
		property("DefaultDependencies", false),
		property("CollectMode", "inactive-or-failed"),
	}
	if !s.V1 && !slices.ContainsFunc(s.Properties, func(p Property) bool { return p.Name == "CPUWeight" }) {
		props = append(props, property("CPUWeight", defaultWeight))
	}
	return props
}

// variable are the properties that can be set later. Accounting has systemd enable the controllers.
func (s Slice) variable() []Property {
	io := "IOAccounting"
	if s.V1 {
		io = "BlockIOAccounting"
	}
	return append([]Property{
		property("CPUAccounting", true),
		property("MemoryAccounting", true),
		property("TasksAccounting", true),
		property(io, true),
	}, s.Properties...)
}

// update sets the properties that differ.
func (c *Client) update(ctx context.Context, s Slice, now map[string]dbus.Variant) error {
	return c.do(ctx, func(ctx context.Context, conn *conn) error {
		differ := slices.DeleteFunc(conn.fit(s.variable()), func(p Property) bool { return p.equals(now[p.Name]) })
		if len(differ) == 0 {
			return nil
		}
		const untilReboot = true
		return conn.call(ctx, "SetUnitProperties", s.Unit, untilReboot, differ).Err
	})
}

// fit leaves out the properties that this systemd is too old for.
func (c *conn) fit(props []Property) []Property {
	return slices.DeleteFunc(props, func(p Property) bool { return c.version < since(p.Name) })
}

// Stop stops the slice with all units in it, and has systemd forget it. A unit that systemd does not know is success.
// What still runs in the slice is killed by systemd only after a long while, so the caller kills it before.
func (c *Client) Stop(ctx context.Context, unit string) error {
	err := c.runJob(ctx, unit, inactive, "StopUnit", func(*conn) []any { return []any{unit, replace} })
	if isError(err, errNoSuchUnit) {
		return nil
	}
	if err == nil {
		err = c.resetFailed(ctx, unit) // what had failed before is not in a job's power
	}
	if err != nil {
		return fmt.Errorf("stop unit %s: %w", unit, err)
	}
	return nil
}

// resetFailed has systemd forget that a unit failed.
func (c *Client) resetFailed(ctx context.Context, unit string) error {
	err := c.do(ctx, func(ctx context.Context, conn *conn) error {
		return conn.call(ctx, "ResetFailedUnit", unit).Err
	})
	if isError(err, errNoSuchUnit) {
		return nil
	}
	return err
}

// properties asks for all properties of a unit. Systemd makes up an inactive one where it knows none.
func (c *Client) properties(ctx context.Context, unit string) (all map[string]dbus.Variant, err error) {
	err = c.do(ctx, func(ctx context.Context, conn *conn) error {
		const everyInterface = ""
		return conn.object(unitPath(unit)).CallWithContext(ctx, getAll, 0, everyInterface).Store(&all)
	})
	return all, err
}

// state asks for the state of a unit, and whether a job of it waits or runs. The job is asked for first, since its end
// brings the state.
func (c *Client) state(ctx context.Context, unit string) (is string, busy bool, err error) {
	var job struct {
		ID   uint32
		Path dbus.ObjectPath
	}
	err = c.do(ctx, func(ctx context.Context, conn *conn) error {
		if err := conn.get(ctx, unitPath(unit), anyUnit, "Job", &job); err != nil {
			return err
		}
		return conn.get(ctx, unitPath(unit), anyUnit, "ActiveState", &is)
	})
	return is, job.ID != 0, err
}

// unitPath is the object of a unit: all but letters and digits as "_" and two hexadecimal digits, and so is a digit in
// front.
func unitPath(name string) dbus.ObjectPath {
	var path strings.Builder
	path.WriteString(managerPath + "/unit/")
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9' && i > 0:
			path.WriteByte(c)
		default:
			fmt.Fprintf(&path, "_%02x", c)
		}
	}
	return dbus.ObjectPath(path.String())
}

// isError reports whether systemd answered with an error of a name.
func isError(err error, name string) bool {
	answer, ok := errors.AsType[dbus.Error](err)
	return ok && answer.Name == name
}
