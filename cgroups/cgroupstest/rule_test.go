// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"testing"

	"github.com/seed81659283/nodeagent/internal/suite/suitetest"
)

// TestRulesAreDocumented checks that each rule is a sentence of package cgroups' comments.
func TestRulesAreDocumented(t *testing.T) { suitetest.Documented(t, "rule.go", "../*.go", 29) }
