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
	poll = 10 * time.Millisecond // pause between polls
	mib  = 1 << 20
)

// trial is the environment of one test case of [TestDriver]: the driver, the fixture and checks. The failure messages of its
// checks contain the argument rule, the documented rule that the driver has violated.
type trial struct {
	*suite.Check
	fixture Fixture
	driver  Driver
	ctx     context.Context
}

func newTrial(t *testing.T, f Fixture) *trial {
	return &trial{Check: &suite.Check{T: t, Timeout: f.Timeout, Poll: poll}, fixture: f, driver: f.New(t), ctx: t.Context()}
}

// requireRefused fails the test unless err is a [cgroups.Error] for cgroup p. The failure message contains rule and call, a
// text for the driver call that has returned err.
func (t *trial) requireRefused(err error, p cgroups.Path, rule, call string) {
	t.Helper()
	t.Hold(err != nil, rule, "%s succeeds", call)
	e, ok := errors.AsType[*cgroups.Error](err)
	t.Hold(ok && e.Op != "" && e.Path == p, ruleError, "%s: error %v is no *cgroups.Error of cgroup %q", call, err, string(p))
}

// mustApply calls Apply and fails the test if it returns an error.
func (t *trial) mustApply(p cgroups.Path, resources cgroups.Resources) {
	t.Helper()
	t.Succeed(t.driver.Apply(t.ctx, p, resources), ruleCreate, "Apply "+string(p))
}

func (t *trial) mustRemove(p cgroups.Path) {
	t.Helper()
	t.Succeed(t.driver.Remove(t.ctx, p), ruleRemove, "Remove "+string(p))
}

func (t *trial) readLimits(p cgroups.Path) cgroups.Resources {
	t.Helper()
	r, err := t.driver.Limits(t.ctx, p)
	t.Succeed(err, ruleLimits, "Limits "+string(p))
	return r
}

func (t *trial) readStats(p cgroups.Path) cgroups.Stats {
	t.Helper()
	s, err := t.driver.Stats(t.ctx, p)
	t.Succeed(err, ruleStats, "Stats "+string(p))
	return s
}

func (t *trial) readChildren(p cgroups.Path) []string {
	t.Helper()
	names, err := t.driver.Children(t.ctx, p)
	t.Succeed(err, ruleChildren, "Children "+string(p))
	return names
}

func (t *trial) readProcs(p cgroups.Path) []int {
	t.Helper()
	pids, err := t.driver.Procs(t.ctx, p)
	t.Succeed(err, ruleProcs, "Procs "+string(p))
	return pids
}

// requireExists fails the test if cgroup p does not exist although want is true, or exists although want is false. The failure
// message contains rule.
func (t *trial) requireExists(p cgroups.Path, want bool, rule string) {
	t.Helper()
	_, err := t.driver.Children(t.ctx, p)
	if want {
		t.Hold(err == nil, rule, "cgroup %s is not there: %v", p, err)
		return
	}
	t.Hold(errors.Is(err, fs.ErrNotExist), rule, "cgroup %s is there, or not to be read: %v", p, err)
}

// startProc starts a process with this number of bytes of memory in cgroup p, and returns its PID. It skips the test if
// Fixture.Start is nil.
func (t *trial) startProc(p cgroups.Path, memory int64) int {
	t.Helper()
	if t.fixture.Start == nil {
		t.Skip("the fixture starts no processes")
	}
	return t.fixture.Start(t.T, t.driver, p, memory)
}

// needControllers skips the test unless the host has all these cgroup controllers.
func (t *trial) needControllers(controllers ...string) {
	t.Helper()
	for _, c := range controllers {
		if !slices.Contains(t.fixture.Controllers, c) {
			t.Skipf("the host has no %s controller", c)
		}
	}
}

func (t *trial) needV2() {
	t.Helper()
	if t.fixture.Mode != V2 {
		t.Skip("cgroup v1 has no such thing")
	}
}

// requireLimit fails the test unless the limit got, which was read back, equals want. The failure message contains rule and
// name, the name of the limit.
func (t *trial) requireLimit(got *int64, want int64, rule, name string) {
	t.Helper()
	t.Hold(got != nil, rule, "%s is unset, want %d", name, want)
	t.Hold(*got == want, rule, "%s is %d, want %d", name, *got, want)
}

// runConcurrently calls f(ctx, i) for each i from 0 to n-1 in its own goroutine, and waits for all calls. If a call returns an
// error, it fails the test with a message that contains rule, the violated rule.
func (t *trial) runConcurrently(n int, rule string, f func(ctx context.Context, i int) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, t.fixture.Timeout)
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
