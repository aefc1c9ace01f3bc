// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeagent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/repocheck"
)

// Every exported name has a user whom a reader can look at: see repocheck.UnusedExports.
func TestExportedNamesAreUsed(t *testing.T) {
	unused, err := repocheck.UnusedExports(t.Context(), ".")
	require.NoError(t, err)
	for _, name := range unused {
		t.Errorf("%s: no example, no Example and no other area uses it: unexport it, remove it, or show who needs it", name)
	}
}
