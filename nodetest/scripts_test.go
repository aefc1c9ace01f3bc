// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"testing"

	"github.com/seed81659283/nodeagent/nodetest"
)

func TestScripts(t *testing.T) { nodetest.RunScripts(t, "testdata/*.txtar") }
