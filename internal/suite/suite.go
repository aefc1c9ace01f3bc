// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package suite is what the conformance suites of the test kits share: checks that name the rule that is broken. A rule
// is a sentence of the documentation of the package whose interfaces the suite checks; package suitetest finds each
// there.
package suite

import (
	"testing"
	"time"
)

// Check is a test of a conformance suite.
type Check struct {
	*testing.T
	Timeout time.Duration // how long Until waits
	Poll    time.Duration // between its looks
}

// Hold fails the test when ok is false: what is tested breaks the rule.
func (c *Check) Hold(ok bool, rule, format string, args ...any) {
	c.Helper()
	if !ok {
		c.Fatalf(format+"\n\tbroken: %q", append(args, rule)...)
	}
}

// Succeed fails the test when a call failed that the rule lets succeed.
func (c *Check) Succeed(err error, rule, call string) {
	c.Helper()
	c.Hold(err == nil, rule, "%s: %v", call, err)
}

// Until waits for a condition that comes with words for what is missing.
func (c *Check) Until(rule string, cond func() (ok bool, missing string)) {
	c.Helper()
	for begin := time.Now(); ; time.Sleep(c.Poll) {
		ok, missing := cond()
		if ok {
			return
		}
		c.Hold(time.Since(begin) < c.Timeout, rule, "after %v: %s", c.Timeout, missing)
	}
}
