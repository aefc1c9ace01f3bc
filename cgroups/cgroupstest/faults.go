// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Driver is the set of interfaces that every cgroup driver implements. [TestDriver] checks it and [Faults] wraps it.
type Driver interface {
	cgroups.CgroupWriter
	cgroups.Lister
	cgroups.Reader
}

// Faults wraps a driver and injects faults. A func that is set replaces the call of the wrapped driver, which it gets as next: it
// may call next and change or drop the result, call it later, or not at all.
//
//	f := &cgroupstest.Faults{Driver: tree}
//	f.ApplyFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
//		r.MemoryMax = nil // lose the limit without an error
//		return next.Apply(ctx, p, r)
//	}
//
// The funcs run in the goroutines of the callers and must not be changed during calls. Faults implements [Driver] only. To add an
// optional interface of the wrapped driver, embed it:
//
//	struct {
//		*cgroupstest.Faults
//		cgroups.Killer
//	}{f, tree}
type Faults struct {
	Driver Driver // the wrapped driver

	// Around is called for every call, around the func of the method. It runs call to execute it. op is the name of the method.
	// If Around returns an error, the caller gets that error and no result.
	Around func(ctx context.Context, op string, p cgroups.Path, call func() error) error

	ApplyFunc    func(ctx context.Context, next Driver, p cgroups.Path, r cgroups.Resources) error
	RemoveFunc   func(ctx context.Context, next Driver, p cgroups.Path) error
	ChildrenFunc func(ctx context.Context, next Driver, p cgroups.Path) ([]string, error)
	ProcsFunc    func(ctx context.Context, next Driver, p cgroups.Path) ([]int, error)
	LimitsFunc   func(ctx context.Context, next Driver, p cgroups.Path) (cgroups.Resources, error)
	StatsFunc    func(ctx context.Context, next Driver, p cgroups.Path) (cgroups.Stats, error)
}

var _ Driver = (*Faults)(nil)

// Hang blocks until ctx ends and returns its error. Use it as a fault that simulates a hanging kernel.
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Apply calls ApplyFunc, or Apply of the wrapped driver if ApplyFunc is nil.
func (f *Faults) Apply(ctx context.Context, p cgroups.Path, resources cgroups.Resources) error {
	_, err := callAround(ctx, f, "Apply", p, func() (struct{}, error) {
		if f.ApplyFunc != nil {
			return struct{}{}, f.ApplyFunc(ctx, f.Driver, p, resources)
		}
		return struct{}{}, f.Driver.Apply(ctx, p, resources)
	})
	return err
}

// Remove calls RemoveFunc, or Remove of the wrapped driver if RemoveFunc is nil.
func (f *Faults) Remove(ctx context.Context, p cgroups.Path) error {
	_, err := callAround(ctx, f, "Remove", p, func() (struct{}, error) {
		if f.RemoveFunc != nil {
			return struct{}{}, f.RemoveFunc(ctx, f.Driver, p)
		}
		return struct{}{}, f.Driver.Remove(ctx, p)
	})
	return err
}

// Children calls ChildrenFunc, or Children of the wrapped driver if ChildrenFunc is nil.
func (f *Faults) Children(ctx context.Context, p cgroups.Path) ([]string, error) {
	return callRead(ctx, f, "Children", p, f.ChildrenFunc, f.Driver.Children)
}

// Procs calls ProcsFunc, or Procs of the wrapped driver if ProcsFunc is nil.
func (f *Faults) Procs(ctx context.Context, p cgroups.Path) ([]int, error) {
	return callRead(ctx, f, "Procs", p, f.ProcsFunc, f.Driver.Procs)
}

// Limits calls LimitsFunc, or Limits of the wrapped driver if LimitsFunc is nil.
func (f *Faults) Limits(ctx context.Context, p cgroups.Path) (cgroups.Resources, error) {
	return callRead(ctx, f, "Limits", p, f.LimitsFunc, f.Driver.Limits)
}

// Stats calls StatsFunc, or Stats of the wrapped driver if StatsFunc is nil.
func (f *Faults) Stats(ctx context.Context, p cgroups.Path) (cgroups.Stats, error) {
	return callRead(ctx, f, "Stats", p, f.StatsFunc, f.Driver.Stats)
}

// callRead calls fault, or call if fault is nil. Faults.Around may skip the call.
func callRead[T any](ctx context.Context, f *Faults, op string, p cgroups.Path,
	fault func(context.Context, Driver, cgroups.Path) (T, error), call func(context.Context, cgroups.Path) (T, error),
) (T, error) {
	return callAround(ctx, f, op, p, func() (T, error) {
		if fault != nil {
			return fault(ctx, f.Driver, p)
		}
		return call(ctx, p)
	})
}

// callAround returns the result of call. Faults.Around may skip the call.
func callAround[T any](ctx context.Context, f *Faults, op string, p cgroups.Path, call func() (T, error)) (result T, err error) {
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
