// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"testing"

	"github.com/seed81659283/nodeagent/internal/suite/suitetest"
)

// TestRulesAreDocumented finds every rule of the suites in the comments of package cri.
func TestRulesAreDocumented(t *testing.T) { suitetest.Documented(t, "rule.go", "../*.go", 44) }
