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

// Names of D-Bus errors of systemd that the client handles.
const (
	errUnitExists = busName + ".UnitExists"
	errNoSuchUnit = busName + ".NoSuchUnit"
)

// defaultWeight is the kernel's default cpu.weight.
const defaultWeight uint64 = 100

// replace is the job mode in which a job replaces a conflicting one.
const replace = "replace"

// Values of the unit property ActiveState.
const (
	active   = "active"
	inactive = "inactive"
	failed   = "failed"
)

// Slice is the desired state of a systemd slice.
type Slice struct {
	Unit        string // "kubepods-burstable.slice"
	Parent      string // "kubepods.slice"; "-.slice" for the root
	Description string // shown by systemctl
	V1          bool   // the host has cgroup v1
	Properties  []Property
}

// Ensure starts a slice with its properties. If the slice is running, it changes the properties that differ, until the next
// boot. It skips properties that this version of systemd does not have.
func (c *Client) Ensure(ctx context.Context, slice Slice) (started bool, err error) {
	// Starting first needs one call and one job for a new slice. For a running slice the resulting error is cheap.
	err = c.startTransient(ctx, slice)
	if err == nil {
		return true, nil
	}
	if isError(err, errUnitExists) {
		err = c.updateKnown(ctx, slice)
	}
	if err != nil {
		return false, fmt.Errorf("start unit %s: %w", slice.Unit, err)
	}
	return false, nil
}

// updateKnown changes the properties of a slice that systemd has loaded. If the slice is not active, it starts the slice
// first.
func (c *Client) updateKnown(ctx context.Context, slice Slice) error {
	current, err := c.getProperties(ctx, slice.Unit)
	if err != nil {
		return err
	}
	if current["ActiveState"].Value() != active {
		if err := c.startKnown(ctx, slice); err != nil {
			return err
		}
		if current, err = c.getProperties(ctx, slice.Unit); err != nil {
			return err
		}
	}
	return c.updateProperties(ctx, slice, current)
}

// startKnown starts a slice that systemd has loaded but that is not active, for example because it has failed.
func (c *Client) startKnown(ctx context.Context, slice Slice) error {
	if err := c.startTransient(ctx, slice); !isError(err, errUnitExists) {
		return err
	}
	return c.runJob(ctx, slice.Unit, active, "StartUnit", func(*conn) []any { return []any{slice.Unit, replace} })
}

// startTransient creates and starts a slice. Its limits are in force from the start.
func (c *Client) startTransient(ctx context.Context, slice Slice) error {
	return c.runJob(ctx, slice.Unit, active, "StartTransientUnit", func(conn *conn) []any {
		return []any{slice.Unit, replace, conn.dropUnsupported(append(slice.creationProperties(), slice.changeableProperties()...)), []auxiliary{}}
	})
}

// auxiliary is an additional unit to create, the last argument of StartTransientUnit. The client passes none.
type auxiliary struct {
	Unit       string
	Properties []Property
}

// creationProperties returns the properties that must be set when the unit is created.
func (s Slice) creationProperties() []Property {
	props := []Property{
		newProperty("Description", s.Description),
		newProperty("Wants", []string{s.Parent}),
		newProperty("DefaultDependencies", false),
		newProperty("CollectMode", "inactive-or-failed"), // unloads the unit even after a failure
	}
	// accounting alone does not enable the cpu controller
	if !s.V1 && !slices.ContainsFunc(s.Properties, func(p Property) bool { return p.Name == "CPUWeight" }) {
		props = append(props, newProperty("CPUWeight", defaultWeight))
	}
	return props
}

// changeableProperties returns the properties that can be changed while the slice runs. They include the accounting
// properties, which make systemd enable the controllers.
func (s Slice) changeableProperties() []Property {
	io := "IOAccounting"
	if s.V1 {
		io = "BlockIOAccounting"
	}
	return append([]Property{
		newProperty("CPUAccounting", true),
		newProperty("MemoryAccounting", true),
		newProperty("TasksAccounting", true),
		newProperty(io, true),
	}, s.Properties...)
}

// updateProperties sets the properties of a running slice whose current values differ from the values in slice.
func (c *Client) updateProperties(ctx context.Context, slice Slice, current map[string]dbus.Variant) error {
	return c.callWithRetry(ctx, func(ctx context.Context, conn *conn) error {
		differ := slices.DeleteFunc(conn.dropUnsupported(slice.changeableProperties()), func(p Property) bool { return p.isEqual(current[p.Name]) })
		if len(differ) == 0 {
			return nil
		}
		const untilReboot = true
		return conn.callManager(ctx, "SetUnitProperties", slice.Unit, untilReboot, differ).Err
	})
}

// dropUnsupported removes the properties that this version of systemd does not have. It returns the remaining properties.
func (c *conn) dropUnsupported(props []Property) []Property {
	return slices.DeleteFunc(props, func(p Property) bool { return c.version < minVersion(p.Name) })
}

// Stop stops a slice and all units in it, and makes systemd unload it. An unknown slice is no error. The caller must kill
// the processes first, because systemd waits a long time before it does.
func (c *Client) Stop(ctx context.Context, unit string) error {
	err := c.runJob(ctx, unit, inactive, "StopUnit", func(*conn) []any { return []any{unit, replace} })
	if isError(err, errNoSuchUnit) {
		return nil
	}
	if err == nil {
		err = c.resetFailed(ctx, unit) // a job does not reset a previous failure
	}
	if err != nil {
		return fmt.Errorf("stop unit %s: %w", unit, err)
	}
	return nil
}

// resetFailed clears the failed state of a unit, so that systemd unloads the unit.
func (c *Client) resetFailed(ctx context.Context, unit string) error {
	err := c.callWithRetry(ctx, func(ctx context.Context, conn *conn) error {
		return conn.callManager(ctx, "ResetFailedUnit", unit).Err
	})
	if isError(err, errNoSuchUnit) {
		return nil
	}
	return err
}

// getProperties returns all properties of a unit by name. For an unknown unit, systemd returns the properties of an inactive
// unit.
func (c *Client) getProperties(ctx context.Context, unit string) (all map[string]dbus.Variant, err error) {
	err = c.callWithRetry(ctx, func(ctx context.Context, conn *conn) error {
		const everyInterface = ""
		return conn.busObject(unitPath(unit)).CallWithContext(ctx, getAll, 0, everyInterface).Store(&all)
	})
	return all, err
}

// getState returns the ActiveState of a unit. busy is true if the unit has a queued or running job.
func (c *Client) getState(ctx context.Context, unit string) (state string, busy bool, err error) {
	var job struct {
		ID   uint32
		Path dbus.ObjectPath
	}
	err = c.callWithRetry(ctx, func(ctx context.Context, conn *conn) error {
		// the job first, because the end of a job changes the state
		if err := conn.readProperty(ctx, unitPath(unit), anyUnit, "Job", &job); err != nil {
			return err
		}
		return conn.readProperty(ctx, unitPath(unit), anyUnit, "ActiveState", &state)
	})
	return state, job.ID != 0, err
}

// unitPath returns the D-Bus object path of a unit, in which characters are escaped like "_2e".
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

// isError reports whether err is a D-Bus error with this name.
func isError(err error, name string) bool {
	answer, ok := errors.AsType[dbus.Error](err)
	return ok && answer.Name == name
}
