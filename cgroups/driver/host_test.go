// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

// Each file in testdata/mounts has the mountinfo of a host and the expected result.
func TestParseMountsOfHosts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/mounts/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(script)
			require.NoError(t, err)
			require.Len(t, archive.Files, 2)
			mode, mounts, err := selectMounts(parseMounts(string(archive.Files[0].Data)))
			var got strings.Builder
			if err != nil {
				got.WriteString(err.Error() + "\n")
			} else {
				got.WriteString("mode " + string(mode) + "\n")
			}
			for _, m := range mounts {
				controllers := strings.Join(m.controllers, " ")
				if m.v2 {
					controllers = "v2"
				}
				got.WriteString(m.dir + ": " + controllers + "\n")
			}
			if os.Getenv("UPDATE") != "" {
				archive.Files[1].Data = []byte(got.String())
				require.NoError(t, os.WriteFile(script, txtar.Format(archive), 0o644))
			}
			assert.Equal(t, string(archive.Files[1].Data), got.String())
		})
	}
}

func TestSetMissingListsMissingControllers(t *testing.T) {
	all := map[string]string{"cpu": "/", "cpuset": "/", "hugetlb": "/", "memory": "/", "pids": "/"}
	without := func(controllers ...string) map[string]string {
		dirs := maps.Clone(all)
		for _, c := range controllers {
			delete(dirs, c)
		}
		return dirs
	}
	for _, c := range []struct {
		name     string
		host     Host
		noSwap   bool
		optional []string
		missing  string
		err      string
	}{
		{name: "all", host: Host{Dirs: all}},
		{name: "no swap", host: Host{Dirs: all}, noSwap: true, missing: "swap"},
		{name: "no memory means no swap", host: Host{Dirs: without("memory")}, missing: "memory swap"},
		{name: "controllers that may always be missing", host: Host{Dirs: without("hugetlb", "cpuset")}, missing: "cpuset hugetlb"},
		{name: "no pids", host: Host{Dirs: without("pids")}, missing: "pids", err: "controller pids is not available"},
		{name: "optional pids is missing", host: Host{Dirs: without("pids")}, optional: []string{"pids"}, missing: "pids"},
	} {
		err := c.host.setMissing(!c.noSwap, c.optional)
		assert.Equal(t, c.missing, strings.Join(c.host.Missing, " "), c.name)
		if c.err == "" {
			assert.NoError(t, err, c.name)
		} else {
			assert.ErrorContains(t, err, c.err, c.name)
		}
	}
}

func FuzzParseMounts(f *testing.F) {
	scripts, err := filepath.Glob("testdata/mounts/*.txtar")
	require.NoError(f, err)
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		require.NoError(f, err)
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		seen := map[string]bool{}
		for _, m := range parseMounts(text) {
			assert.False(t, seen[m.device], "tree %s twice", m.device)
			seen[m.device] = true
			assert.NotEmpty(t, m.dir)
			assert.NotEqual(t, m.v2, len(m.controllers) > 0)
		}
		// Duplicate mounts show the same hierarchies.
		assert.Equal(t, parseMounts(text), parseMounts(text+"\n"+text))
	})
}
