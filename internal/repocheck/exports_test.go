// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/seed81659283/nodeagent/internal/repocheck"
)

// The archive is a module with used and unused exported names. Its last section lists the unused names.
func TestUnusedExports(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join("testdata", "exports.txtar"))
	require.NoError(t, err)
	dir, last := t.TempDir(), len(archive.Files)-1
	require.Equal(t, "want", archive.Files[last].Name, "name of the last section")
	want := strings.Fields(string(archive.Files[last].Data))
	files, err := txtar.FS(&txtar.Archive{Files: archive.Files[:last]})
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(dir, files))

	unused, err := repocheck.UnusedExports(t.Context(), dir)
	require.NoError(t, err)
	assert.Equal(t, want, unused)
}
