// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/suite"
)

const (
	poll = 10 * time.Millisecond // between looks
	mib  = 1 << 20
)

// trial is what one case works with. Its methods that fail the test name the rule that is broken.
type trial struct {
	*suite.Check
	f   Fixture
	d   Driver
	ctx context.Context
}

func newTrial(t *testing.T, f Fixture) *trial {
	return &trial{Check: &suite.Check{T: t, Timeout: f.Timeout, Poll: poll}, f: f, d: f.New(t), ctx: t.Context()}
}

// refused fails the test unless a call failed with an error as package cgroups promises it.
func (t *trial) refused(err error, p cgroups.Path, rule, call string) {
	t.Helper()
	t.Hold(err != nil, rule, "%s succeeds", call)
	e, ok := errors.AsType[*cgroups.Error](err)
	t.Hold(ok && e.Op != "" && e.Path == p, ruleError, "%s: error %v is no *cgroups.Error of cgroup %q", call, err, string(p))
}

// apply applies what has to work.
func (t *trial) apply(p cgroups.Path, r cgroups.Resources) {
	t.Helper()
	t.Succeed(t.d.Apply(t.ctx, p, r), ruleCreate, "Apply "+string(p))
}

func (t *trial) remove(p cgroups.Path) {
	t.Helper()
	t.Succeed(t.d.Remove(t.ctx, p), ruleRemove, "Remove "+string(p))
}

func (t *trial) limits(p cgroups.Path) cgroups.Resources {
	t.Helper()
	r, err := t.d.Limits(t.ctx, p)
	t.Succeed(err, ruleLimits, "Limits "+string(p))
	return r
}

func (t *trial) stats(p cgroups.Path) cgroups.Stats {
	t.Helper()
	s, err := t.d.Stats(t.ctx, p)
	t.Succeed(err, ruleStats, "Stats "+string(p))
	return s
}

func (t *trial) children(p cgroups.Path) []string {
	t.Helper()
	names, err := t.d.Children(t.ctx, p)
	t.Succeed(err, ruleChildren, "Children "+string(p))
	return names
}

func (t *trial) procs(p cgroups.Path) []int {
	t.Helper()
	pids, err := t.d.Procs(t.ctx, p)
	t.Succeed(err, ruleProcs, "Procs "+string(p))
	return pids
}

// exists fails the test unless there is a cgroup at p, or none.
func (t *trial) exists(p cgroups.Path, want bool, rule string) {
	t.Helper()
	_, err := t.d.Children(t.ctx, p)
	if want {
		t.Hold(err == nil, rule, "cgroup %s is not there: %v", p, err)
		return
	}
	t.Hold(errors.Is(err, fs.ErrNotExist), rule, "cgroup %s is there, or not to be read: %v", p, err)
}

// start runs a process.
func (t *trial) start(p cgroups.Path, memory int64) int {
	t.Helper()
	if t.f.Start == nil {
		t.Skip("the fixture starts no processes")
	}
	return t.f.Start(t.T, t.d, p, memory)
}

// need skips the test where the host lacks a controller.
func (t *trial) need(controllers ...string) {
	t.Helper()
	for _, c := range controllers {
		if !slices.Contains(t.f.Controllers, c) {
			t.Skipf("the host has no %s controller", c)
		}
	}
}

func (t *trial) needV2() {
	t.Helper()
	if t.f.Mode != V2 {
		t.Skip("cgroup v1 has no such thing")
	}
}

// number compares a limit that was read with what it should be.
func (t *trial) number(got *int64, want int64, rule, name string) {
	t.Helper()
	t.Hold(got != nil, rule, "%s is unset, want %d", name, want)
	t.Hold(*got == want, rule, "%s is %d, want %d", name, *got, want)
}

// together calls f from several goroutines at once, each with its number, and fails with the first error.
func (t *trial) together(n int, rule string, f func(ctx context.Context, i int) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, t.f.Timeout)
	defer cancel()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := f(ctx, i); err != nil {
				errs[i] = fmt.Errorf("goroutine %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	t.Succeed(errors.Join(errs...), rule, "all at once")
}
