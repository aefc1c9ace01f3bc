// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
)

// podOfLogs is the pod whose logs are tested.
var podOfLogs = cri.PodIdentity{Namespace: "default", Name: "a", UID: "uid-a"}

// filesBelow returns the paths of all files below a directory.
func filesBelow(t *testing.T, dir string) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			path, err = filepath.Rel(dir, path)
			paths = append(paths, path)
		}
		return err
	}))
	return paths
}

// The directory name joins three names by "_". A name that contains "_" or a slash would be ambiguous or escape the root.
func TestLogDirectory(t *testing.T) {
	tests := map[string]struct {
		root string
		pod  cri.PodIdentity
		want string
	}{
		"plain":                     {"/logs", podOfLogs, "/logs/default_a_uid-a"},
		"no root":                   {"", podOfLogs, ""},
		"namespace with underscore": {"/logs", cri.PodIdentity{Namespace: "default_a", Name: "a", UID: "u"}, ""},
		"name with underscore":      {"/logs", cri.PodIdentity{Namespace: "default", Name: "a_b", UID: "u"}, ""},
		"UID with underscore":       {"/logs", cri.PodIdentity{Namespace: "default", Name: "a", UID: "u_v"}, ""},
		"namespace with path":       {"/logs", cri.PodIdentity{Namespace: "../../etc", Name: "a", UID: "u"}, ""},
		"name with path":            {"/logs", cri.PodIdentity{Namespace: "default", Name: "a/../..", UID: "u"}, ""},
		"UID with path":             {"/logs", cri.PodIdentity{Namespace: "default", Name: "a", UID: "u/v"}, ""},
		"nothing":                   {"/logs", cri.PodIdentity{}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := poddir.Logs{Root: tt.root, Links: t.TempDir(), Pod: tt.pod}
			require.Equal(t, tt.want, l.Directory())
			if tt.want != "" {
				return
			}
			require.NoError(t, l.CreateLink("main", "id", 0))
			require.NoError(t, l.RemoveLinks([]cri.Container{{Name: "main", ID: "id"}}))
			require.NoError(t, l.Remove(cri.Pod{}, exited("main")))
			n, err := l.NextAttempt("main")
			require.NoError(t, err)
			require.Zero(t, n)
			require.Empty(t, filesBelow(t, l.Links))
		})
	}
}

func TestCreateAndRemoveLogLinks(t *testing.T) {
	l := poddir.Logs{Root: t.TempDir(), Links: filepath.Join(t.TempDir(), "containers"), Pod: podOfLogs}
	require.NoError(t, l.CreateLink("main", "id-0", 0))
	require.NoDirExists(t, l.Links, "no link is created for a missing log")

	log := filepath.Join(l.Directory(), "main/0.log")
	write(t, log, "")
	require.NoError(t, l.CreateLink("main", "id-0", 0))
	require.NoError(t, l.CreateLink("main", "id-0", 0), "the second call of a restarted agent succeeds")
	require.Equal(t, []string{"a_default_main-id-0.log"}, filesBelow(t, l.Links))
	to, err := os.Readlink(filepath.Join(l.Links, "a_default_main-id-0.log"))
	require.NoError(t, err)
	require.Equal(t, log, to)

	long := strings.Repeat("f", 300)
	require.NoError(t, l.CreateLink("main", long, 0))
	require.Equal(t, []string{
		"a_default_main-" + strings.Repeat("f", 255-len("a_default_main-.log")) + ".log", "a_default_main-id-0.log",
	}, filesBelow(t, l.Links), "the link name is cut to 255 bytes")
	for _, id := range []string{"", "../id", "a/b"} {
		require.NoError(t, l.CreateLink("main", id, 0))
	}
	require.Len(t, filesBelow(t, l.Links), 2)

	require.NoError(t, l.RemoveLinks([]cri.Container{
		{Name: "main", ID: long}, {Name: "main", ID: "another's"}, {Name: "../main", ID: "id-0"}, {Name: "main", ID: "id-0"},
	}))
	require.Empty(t, filesBelow(t, l.Links))
	require.FileExists(t, log, "RemoveLinks keeps the log")

	l.Links = ""
	require.NoError(t, l.CreateLink("main", "id-0", 0))
}

func TestRemoveLogsOfExitedContainer(t *testing.T) {
	first := cri.Container{ID: "c0", Name: "main", State: cri.ContainerExited}
	rest := []string{"main/0.log.d/kept", "main/0.logs", "main/1.log", "main/10.log", "side/0.log"}
	all := append([]string{"main/0.log", "main/0.log.20260102-150405", "main/0.log.20260102-150405.gz", "main/0.log.tmp"}, rest...)
	tests := map[string]struct {
		change func(c *cri.Container)
		others []cri.Container
		want   []string // remaining files
	}{
		"exited":        {want: rest},
		"created":       {change: func(c *cri.Container) { c.State = cri.ContainerCreated }, want: rest},
		"running":       {change: func(c *cri.Container) { c.State = cri.ContainerRunning }, want: all},
		"unknown state": {change: func(c *cri.Container) { c.State = cri.ContainerUnknown }, want: all},
		"without a log": {change: func(c *cri.Container) { c.Attempt = 5 }, want: all},
		"other name":    {change: func(c *cri.Container) { c.Name = "other" }, want: all},
		"unsafe name":   {change: func(c *cri.Container) { c.Name = "../default_a_uid-a/main" }, want: all},
		"other attempt exists": {
			others: []cri.Container{{ID: "c1", Name: "main", Attempt: 1, State: cri.ContainerRunning}}, want: rest,
		},
		"other container has this log": {
			others: []cri.Container{{ID: "c1", Name: "main", State: cri.ContainerRunning}}, want: all,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := poddir.Logs{Root: t.TempDir(), Pod: podOfLogs}
			for _, path := range all {
				write(t, filepath.Join(l.Directory(), path), "")
			}
			c := first
			if tt.change != nil {
				tt.change(&c)
			}
			require.NoError(t, l.Remove(cri.Pod{Containers: append([]cri.Container{c}, tt.others...)}, &c))
			assert.ElementsMatch(t, tt.want, filesBelow(t, l.Directory()))
		})
	}
	require.NoError(t, poddir.Logs{Root: filepath.Join(t.TempDir(), "none"), Pod: podOfLogs}.Remove(cri.Pod{}, &first))
}

// If the runtime has lost its containers, the next attempt does not overwrite their logs.
func TestNextAttemptAfterNewestLog(t *testing.T) {
	tests := map[string]struct {
		files []string
		want  uint32
	}{
		"no log":                       {},
		"first attempt":                {files: []string{"main/0.log"}, want: 1},
		"attempts compared as numbers": {files: []string{"main/9.log", "main/10.log"}, want: 11},
		"rotated":                      {files: []string{"main/3.log.20260102-150405.gz", "main/2.log"}, want: 4},
		"log of another container":     {files: []string{"side/7.log"}},
		"directory":                    {files: []string{"main/7.log/file"}},
		"other files":                  {files: []string{"main/7", "main/x.log", "main/-1.log", "main/.log", "main/1e9.log"}},
		"number too large":             {files: []string{"main/4294967295.log", "main/1073741824.log", "main/5.log"}, want: 6},
		"largest number":               {files: []string{"main/1073741823.log"}, want: 1 << 30},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := poddir.Logs{Root: t.TempDir(), Pod: podOfLogs}
			for _, path := range tt.files {
				write(t, filepath.Join(l.Directory(), path), "")
			}
			n, err := l.NextAttempt("main")
			require.NoError(t, err)
			require.Equal(t, tt.want, n)
			n, err = l.NextAttempt("../default_a_uid-a/main")
			require.NoError(t, err)
			require.Zero(t, n)
		})
	}
}
