// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package suite has the helpers of the conformance suites in test kits: checks that name the violated rule. A rule is a sentence
// in the documentation of the checked interface; package suitetest verifies that it is there.
package suite

import (
	"testing"
	"time"
)

// Check is a test of a conformance suite.
type Check struct {
	*testing.T
	Timeout time.Duration // longest wait of Until
	Poll    time.Duration // between two calls of the condition in Until
}

// Hold fails the test if ok is false. The message of the failure is format with args, followed by rule, the sentence of the
// documentation that is violated.
func (c *Check) Hold(ok bool, rule, format string, args ...any) {
	c.Helper()
	if !ok {
		c.Fatalf(format+"\n\tbroken: %q", append(args, rule)...)
	}
}

// Succeed fails the test if err is not nil. call is the text of the call that returned err. rule is the documented rule that
// is broken.
func (c *Check) Succeed(err error, rule, call string) {
	c.Helper()
	c.Hold(err == nil, rule, "%s: %v", call, err)
}

// Until calls cond repeatedly until ok is true. After c.Timeout it fails the test. The message of the failure contains
// missing, which cond returned last, and rule, the sentence of the documentation that is violated.
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
