// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// RequiredEnv is an environment variable. With the value "required", tests fail instead of being skipped if no lab can run.
const RequiredEnv = "NODEAGENT_LAB"

// idleTimeout is the time after which an on-demand lab without a user stops. Within this time, the next test binary of a test run
// is linked and starts.
const idleTimeout = time.Minute

// Start returns the lab that all tests on the machine share, and starts it if necessary. The lab stops a minute after the end of
// the last test that uses it. If a lab cannot run, the test is skipped.
func Start(t testing.TB) *Lab {
	t.Helper()
	l, release, err := Use(t.Context(), homeFor(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return l
}

// Use returns the shared lab of the .lab directory home, and starts it if necessary. The lab keeps running until the caller calls
// release.
func Use(ctx context.Context, home string) (l *Lab, release func(), err error) {
	use, err := useLock(ctx, home, MainName, true)
	if err != nil {
		return nil, nil, err
	}
	l, err = startLab(ctx, home, MainName, true)
	if err != nil {
		use.Close()
		return nil, nil, err
	}
	return l, func() { use.Close() }, nil
}

// StartPrivate starts a lab that only this test uses, and removes it when the test ends. If a lab cannot run, the test is
// skipped.
func StartPrivate(t testing.TB) *Lab {
	t.Helper()
	home := homeFor(t)
	if err := removeLeftovers(t.Context(), home); err != nil {
		t.Fatal(err)
	}
	name := "private-" + strings.ToLower(rand.Text()[:8])
	use, err := useLock(t.Context(), home, name, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context()) // the cleanup runs after the end of the test's context
	t.Cleanup(func() { use.Close(); _ = os.Remove(use.Name()) })
	l, err := Up(t.Context(), home, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(l.logTail())
		}
		if err := l.Down(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

// homeFor returns the .lab directory. If a lab cannot run here, it skips the test, or fails it if the environment requires a lab.
func homeFor(t testing.TB) string {
	t.Helper()
	reason := unsupportedReason()
	if reason == "" {
		home, err := FindHome()
		if err == nil {
			err = Built(home)
		}
		if err == nil {
			return home
		}
		reason = err.Error()
	}
	if os.Getenv(RequiredEnv) == "required" {
		t.Fatalf("no lab, and %s says that one is required: %s", RequiredEnv, reason)
	}
	t.Skip("no lab: " + reason)
	return ""
}

// useLock marks the lab called name as used until the returned file is closed. If shared is true, other processes can use the lab
// too.
func useLock(ctx context.Context, home, name string, shared bool) (*os.File, error) {
	if err := os.MkdirAll(filepath.Join(home, "use"), 0o700); err != nil {
		return nil, err
	}
	return acquireLock(ctx, usePath(home, name), shared)
}

func usePath(home, name string) string { return filepath.Join(home, "use", name+".lock") }

// DownAll stops the shared lab, even if tests use it. It also stops every private lab whose test process has exited.
func DownAll(ctx context.Context, home string) error {
	return errors.Join(newLab(home, MainName).Down(ctx), removeLeftovers(ctx, home))
}

// DownUnused stops the shared lab, unless tests use it or it was started by [Up]. It also stops every private lab whose test
// process has exited.
func DownUnused(ctx context.Context, home string) error {
	removed := removeLeftovers(ctx, home)
	use, err := tryAcquireLock(usePath(home, MainName), false)
	if errors.Is(err, errLocked) {
		return removed // its watcher stops it after the last user
	}
	if err != nil {
		return errors.Join(removed, err)
	}
	return errors.Join(removed, newLab(home, MainName).downIfOnDemand(ctx), use.Close())
}

// removeLeftovers removes each private lab whose test process was killed before it could remove the lab.
func removeLeftovers(ctx context.Context, home string) error {
	names, err := Instances(home)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if name == MainName {
			continue
		}
		use, err := tryAcquireLock(usePath(home, name), false)
		if errors.Is(err, errLocked) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, newLab(home, name).Down(ctx), use.Close(), os.Remove(use.Name()))
	}
	return errors.Join(errs...)
}

// Watch stops the on-demand lab called name after a minute without a user. It returns when it has stopped the lab, or when [Up]
// was called for the lab, which then runs until Down.
func Watch(ctx context.Context, home, name string) error {
	idle := time.Now()
	for {
		l, err := Open(home, name)
		if err != nil || !l.record.OnDemand {
			return nil
		}
		use, err := tryAcquireLock(usePath(home, name), false)
		switch {
		case errors.Is(err, errLocked):
			idle = time.Now()
		case err != nil:
			return fmt.Errorf("watch lab %s: %w", name, err)
		case time.Since(idle) >= idleTimeout:
			// A new user waits for the lock, and then starts a new lab.
			return errors.Join(l.downIfOnDemand(ctx), use.Close())
		default:
			use.Close()
		}
		if err := sleepFor(ctx, time.Second); err != nil {
			return nil
		}
	}
}
