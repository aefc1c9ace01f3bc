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

// RequiredEnv is the environment variable that turns skipping into failing, with the value "required".
const RequiredEnv = "NODEAGENT_LAB"

// idleTimeout is how long a lab started on demand outlives its last user: long enough for the next test binary
// of the same run to be linked and started.
const idleTimeout = time.Minute

// Start returns the lab that all tests of the machine share. It starts it if it does not run yet; then it ends
// a minute after the last test that used it. The test is skipped where a lab cannot run.
func Start(t testing.TB) *Lab {
	t.Helper()
	l, release, err := Use(t.Context(), homeFor(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return l
}

// Use returns the shared lab, starts it if it does not run yet, and keeps it from ending until release is called.
func Use(ctx context.Context, home string) (l *Lab, release func(), err error) {
	use, err := useLock(ctx, home, MainName, true)
	if err != nil {
		return nil, nil, err
	}
	l, err = up(ctx, home, MainName, true)
	if err != nil {
		use.Close()
		return nil, nil, err
	}
	return l, func() { use.Close() }, nil
}

// StartPrivate starts a lab for this test alone and removes it when the test ends. The test is skipped where a
// lab cannot run.
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
	ctx := context.WithoutCancel(t.Context()) // cleanup runs after the test's own context has ended
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

// homeFor returns the .lab directory, and skips or fails the test if no lab can be started from it.
func homeFor(t testing.TB) string {
	t.Helper()
	reason := unsupported()
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

// useLock marks a lab as used for as long as the file is open.
func useLock(ctx context.Context, home, name string, shared bool) (*os.File, error) {
	if err := os.MkdirAll(filepath.Join(home, "use"), 0o700); err != nil {
		return nil, err
	}
	return acquire(ctx, usePath(home, name), shared)
}

func usePath(home, name string) string { return filepath.Join(home, "use", name+".lock") }

// DownAll stops the shared lab, and every private one whose test process is gone.
func DownAll(ctx context.Context, home string) error {
	return errors.Join(newLab(home, MainName).Down(ctx), removeLeftovers(ctx, home))
}

// DownUnused stops the shared lab unless it was started by [Up] or somebody uses it, and every private one whose
// test process is gone.
func DownUnused(ctx context.Context, home string) error {
	removed := removeLeftovers(ctx, home)
	use, err := tryAcquire(usePath(home, MainName), false)
	if errors.Is(err, errLocked) {
		return removed // its watcher ends it after its last user
	}
	if err != nil {
		return errors.Join(removed, err)
	}
	return errors.Join(removed, newLab(home, MainName).downIfOnDemand(ctx), use.Close())
}

// removeLeftovers removes private labs that a test process left behind when it died.
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
		use, err := tryAcquire(usePath(home, name), false)
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

// Watch ends the lab of that name once nobody has used it for a minute. It returns when the lab is gone, or is no
// longer one that was started on demand.
func Watch(ctx context.Context, home, name string) error {
	idle := time.Now()
	for {
		l, err := Open(home, name)
		if err != nil || !l.rec.OnDemand {
			return nil
		}
		use, err := tryAcquire(usePath(home, name), false)
		switch {
		case errors.Is(err, errLocked):
			idle = time.Now()
		case err != nil:
			return fmt.Errorf("watch lab %s: %w", name, err)
		case time.Since(idle) >= idleTimeout:
			// Whoever wants to use the lab now waits for the lock, and then starts a new one.
			return errors.Join(l.downIfOnDemand(ctx), use.Close())
		default:
			use.Close()
		}
		if err := pause(ctx, time.Second); err != nil {
			return nil
		}
	}
}
