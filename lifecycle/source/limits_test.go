// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Many small manifests must not exhaust the memory of the agent. A manifest beyond the limit is rejected while existing pods
// stay. It is accepted once other manifests become smaller.
func TestManifestsOfDirectoryLimitedInTotal(t *testing.T) {
	s := newScanner(t)
	comment := "# " + strings.Repeat("x", 9<<20) + "\n"
	for _, name := range []string{"a", "b", "c", "d"} {
		s.write(name+".yaml", manifest(name, "i")+comment)
	}
	u := s.scanUntilStable()
	assert.Equal(t, "a=i b=i c=i", images(u))
	assert.Equal(t, []string{filepath.Join(s.path, "d.yaml") + ":1: the manifests have more than 300000 values or 33554432 bytes together"}, errorTexts(u, "-"))
	assert.True(t, u.Incomplete)

	s.write("a.yaml", manifest("a", "j")+comment)
	assert.Equal(t, "a=j b=i c=i", images(s.scanUntilStable()))
	s.write("a.yaml", manifest("a", "k"))
	s.scanUntilStable()
	u = s.scanUntilStable()
	assert.Equal(t, "a=k b=i c=i d=i", images(u))
	assert.False(t, u.Incomplete)
	require.NoError(t, os.Remove(filepath.Join(s.path, "b.yaml")))
	s.write("e.yaml", manifest("e", "i")+comment)
	s.scanUntilStable()
	assert.Equal(t, "a=k c=i d=i e=i", images(s.scanUntilStable()))
}

// A directory with too many files is not read, and its previous pods stay.
func TestDirectoryWithTooManyFilesIsError(t *testing.T) {
	s := newScanner(t)
	s.write("a.yaml", manifest("a", "i"))
	s.scanUntilStable()
	for i := range 10_000 {
		require.NoError(t, os.WriteFile(filepath.Join(s.path, fmt.Sprintf(".%d", i)), nil, 0o600))
	}
	u := s.scanUntilStable()
	assert.Equal(t, "a=i", images(u))
	assert.Equal(t, []string{s.path + ": list manifests: more than 10000 files"}, errorTexts(u, "-"))
}

// The number of duplicate errors of a file is limited.
func TestErrorsOfDuplicatesAreLimited(t *testing.T) {
	s := newScanner(t)
	s.write("a.yaml", strings.Repeat("---\n"+manifest("a", "i"), 300))
	u := s.scanUntilStable()
	assert.Equal(t, "a=i", images(u))
	assert.Len(t, u.Errs, 100)
}
