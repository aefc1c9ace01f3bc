// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/internal/suite"
	"github.com/seed81659283/nodeagent/internal/suite/suitetest"
)

const variable = "SUITE_MUTANT"

// checks are failing checks, one for each method of Check.
var checks = map[string]struct {
	check func(c *suite.Check)
	words string // part of the failure message
}{
	"hold":    {func(c *suite.Check) { c.Hold(false, "a sentence", "two is %d", 3) }, "two is 3"},
	"succeed": {func(c *suite.Check) { c.Succeed(errors.New("it is away"), "a sentence", "Call") }, "Call: it is away"},
	"until": {func(c *suite.Check) {
		c.Until("a sentence", func() (bool, string) { return false, "nothing comes" })
	}, "after 10ms: nothing comes"},
}

// TestMutant runs one failing check in a child process of TestBroken.
func TestMutant(t *testing.T) {
	m, ok := checks[os.Getenv(variable)]
	if !ok {
		t.Skip("for TestBroken")
	}
	t.Run("case", func(t *testing.T) { m.check(newCheck(t, 10*time.Millisecond)) })
}

func newCheck(t *testing.T, timeout time.Duration) *suite.Check {
	return &suite.Check{T: t, Timeout: timeout, Poll: time.Millisecond}
}

func TestBroken(t *testing.T) {
	for name, m := range checks {
		t.Run(name, func(t *testing.T) { suitetest.FindsFault(t, variable, name, "case", m.words) })
	}
}

func TestHolds(t *testing.T) {
	c, looks := newCheck(t, time.Minute), 0
	c.Hold(true, "a sentence", "two is two")
	c.Succeed(nil, "a sentence", "Call")
	c.Until("a sentence", func() (bool, string) { looks++; return looks == 3, "a third look" })
	if looks != 3 {
		t.Errorf("%d calls, not 3", looks)
	}
}
