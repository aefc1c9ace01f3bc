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

// Start returns the lab that all tests on the machine share, and starts it if necessary. It stops a minute after the last
// test. If a lab cannot run on this host, Start skips the test.
func Start(t testing.TB) *Lab {
	t.Helper()
	l, release, err := Use(t.Context(), homeFor(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return l
}

// Use returns the shared lab in the .lab directory home, and starts it if necessary. The lab keeps running until the caller
// calls release.
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

// StartPrivate starts a lab for this test only, and removes it when the test ends. If a lab cannot run on this host,
// StartPrivate skips the test.
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

// homeFor returns the .lab directory. If no lab can run on this host, the test is skipped, or fails if a lab is required.
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

// useLock marks a lab as in use until the returned file is closed. With shared, several processes can use it.
func useLock(ctx context.Context, home, name string, shared bool) (*os.File, error) {
	if err := os.MkdirAll(filepath.Join(home, "use"), 0o700); err != nil {
		return nil, err
	}
	return acquireLock(ctx, usePath(home, name), shared)
}

func usePath(home, name string) string { return filepath.Join(home, "use", name+".lock") }

// DownAll stops the shared lab, even if tests use it. It also removes every private lab whose test process has exited.
func DownAll(ctx context.Context, home string) error {
	return errors.Join(newLab(home, MainName).Down(ctx), removeLeftovers(ctx, home))
}

// DownUnused stops the shared lab if no test uses it and it was not started by [Up]. It also removes every private lab whose
// test process has exited.
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

// removeLeftovers removes the private labs whose test processes were killed before they could remove their labs.
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

// Watch stops the lab called name when no process has used it for a minute, and returns. If [Up] is called for the lab,
// Watch returns without stopping it, because the lab then runs until [Lab.Down].
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
