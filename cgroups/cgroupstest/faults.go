// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Driver is what every driver of cgroups can do: what [TestDriver] checks and [Faults] wraps.
type Driver interface {
	cgroups.CgroupWriter
	cgroups.Lister
	cgroups.Reader
}

// Faults is a driver whose calls can go wrong. A func that is set answers the call in the place of the wrapped
// target, which it is handed: it may call it and change the answer, lose the answer, call it late, or not at all.
//
//	f := &cgroupstest.Faults{Target: tree}
//	f.ApplyFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
//		r.MemoryMax = nil // the limit is lost, and nobody says so
//		return next.Apply(ctx, p, r)
//	}
//
// The funcs are called from the goroutines that make the calls and may not be changed while there are any: a fault
// that comes and goes decides inside its func.
//
// A Faults is a [Driver] and nothing else, so that what it cannot fault it does not claim. Capabilities of the
// wrapped target are passed on by embedding them beside it:
//
//	struct {
//		*cgroupstest.Faults
//		cgroups.Killer
//	}{f, tree}
type Faults struct {
	Driver Driver // the wrapped target

	// Around is called for every call, before the func of its own; call makes it. op is the name of the method. When
	// call succeeded and Around returns an error, the caller gets no result.
	Around func(ctx context.Context, op string, p cgroups.Path, call func() error) error

	ApplyFunc    func(ctx context.Context, next Driver, p cgroups.Path, r cgroups.Resources) error
	RemoveFunc   func(ctx context.Context, next Driver, p cgroups.Path) error
	ChildrenFunc func(ctx context.Context, next Driver, p cgroups.Path) ([]string, error)
	ProcsFunc    func(ctx context.Context, next Driver, p cgroups.Path) ([]int, error)
	LimitsFunc   func(ctx context.Context, next Driver, p cgroups.Path) (cgroups.Resources, error)
	StatsFunc    func(ctx context.Context, next Driver, p cgroups.Path) (cgroups.Stats, error)
}

var _ Driver = (*Faults)(nil)

// Hang blocks until ctx ends, as a call to a kernel that is stuck does.
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Apply calls ApplyFunc or the wrapped target.
func (f *Faults) Apply(ctx context.Context, p cgroups.Path, r cgroups.Resources) error {
	_, err := around(ctx, f, "Apply", p, func() (struct{}, error) {
		if f.ApplyFunc != nil {
			return struct{}{}, f.ApplyFunc(ctx, f.Driver, p, r)
		}
		return struct{}{}, f.Driver.Apply(ctx, p, r)
	})
	return err
}

// Remove calls RemoveFunc or the wrapped target.
func (f *Faults) Remove(ctx context.Context, p cgroups.Path) error {
	_, err := around(ctx, f, "Remove", p, func() (struct{}, error) {
		if f.RemoveFunc != nil {
			return struct{}{}, f.RemoveFunc(ctx, f.Driver, p)
		}
		return struct{}{}, f.Driver.Remove(ctx, p)
	})
	return err
}

// Children calls ChildrenFunc or the wrapped target.
func (f *Faults) Children(ctx context.Context, p cgroups.Path) ([]string, error) {
	return read(ctx, f, "Children", p, f.ChildrenFunc, f.Driver.Children)
}

// Procs calls ProcsFunc or the wrapped target.
func (f *Faults) Procs(ctx context.Context, p cgroups.Path) ([]int, error) {
	return read(ctx, f, "Procs", p, f.ProcsFunc, f.Driver.Procs)
}

// Limits calls LimitsFunc or the wrapped target.
func (f *Faults) Limits(ctx context.Context, p cgroups.Path) (cgroups.Resources, error) {
	return read(ctx, f, "Limits", p, f.LimitsFunc, f.Driver.Limits)
}

// Stats calls StatsFunc or the wrapped target.
func (f *Faults) Stats(ctx context.Context, p cgroups.Path) (cgroups.Stats, error) {
	return read(ctx, f, "Stats", p, f.StatsFunc, f.Driver.Stats)
}

// read makes a call that takes a path and has a result.
func read[T any](ctx context.Context, f *Faults, op string, p cgroups.Path,
	fault func(context.Context, Driver, cgroups.Path) (T, error), call func(context.Context, cgroups.Path) (T, error),
) (T, error) {
	return around(ctx, f, op, p, func() (T, error) {
		if fault != nil {
			return fault(ctx, f.Driver, p)
		}
		return call(ctx, p)
	})
}

// around makes a call inside Around.
func around[T any](ctx context.Context, f *Faults, op string, p cgroups.Path, call func() (T, error)) (result T, err error) {
	if f.Around == nil {
		return call()
	}
	err = f.Around(ctx, op, p, func() (err error) {
		result, err = call()
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}
