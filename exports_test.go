// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeagent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/repocheck"
)

// Every exported name is used by an example or another area, so that readers find a use of it: see repocheck.UnusedExports.
func TestExportedNamesAreUsed(t *testing.T) {
	unused, err := repocheck.UnusedExports(t.Context(), ".")
	require.NoError(t, err)
	for _, name := range unused {
		t.Errorf("%s: no example and no other area uses it: unexport it, remove it, or add an example", name)
	}
}
