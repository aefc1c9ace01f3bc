// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

// Simulate calls f in a bubble of testing/synctest without a test, for example in an Example. In f time is virtual, and nodes of
// [Open] run as fast as they compute. f must close its nodes and end its goroutines before it returns. Simulate returns the
// error of f, also for a panic. It works only in a test binary.
func Simulate(f func(ctx context.Context) error) (err error) {
	if !testing.Testing() {
		return errors.New("nodetest.Simulate: this program is no test binary, and only these have virtual time; use Open in real time")
	}
	err = errors.New("nodetest.Simulate: the function has not returned")
	all := func(string, string) (bool, error) { return true, nil }
	called := false // RunTests repeats the test as the flags -count and -cpu of the test binary say
	testing.RunTests(all, []testing.InternalTest{{Name: "nodetest.Simulate", F: func(t *testing.T) {
		if called {
			return
		}
		called = true
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("nodetest.Simulate: panic: %v\n%s", p, debug.Stack())
				}
			}()
			err = f(t.Context())
		})
	}}})
	return err
}
