// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

// cgroupDirs returns the directories of cgroups, which do not exist.
type cgroupDirs struct {
	Cgroups
	dirs []string
}

func (p cgroupDirs) Dirs(cgroups.Path) ([]string, error) { return p.dirs, nil }

// The recorded resources of a container stay those of its creation, even if the caller modifies the config.
func TestSetCgroupCopiesResources(t *testing.T) {
	r := &Runtime{options: Options{Cgroups: cgroupDirs{}}}
	config := func() *cri.Resources {
		return &cri.Resources{
			MemoryLimit: 100, Unified: map[string]string{"memory.high": "1"}, HugepageLimits: []cri.HugepageLimit{{PageSize: "2MB", Limit: 7}},
		}
	}
	in := config()
	var c container
	require.NoError(t, r.setCgroup(&c, &sandbox{}, in, &shim.Spec{}))
	in.MemoryLimit, in.Unified["memory.high"], in.HugepageLimits[0].Limit = 5, "2", 8
	require.Equal(t, config(), c.Resources)
	require.Equal(t, "1", c.Limits.Unified["memory.high"])
	require.EqualValues(t, 100, *c.Limits.MemoryMax)
}

// Without Options.Cgroups an existing cgroup is an error, so that it is not lost.
func TestRemoveCgroupFailsWithoutOptionIfCgroupExists(t *testing.T) {
	dir := t.TempDir()
	cgroup := filepath.Join(dir, "cgroup")
	c := container{dir: dir}
	r := &Runtime{}
	require.NoError(t, r.removeCgroup(t.Context(), &c), "a container without cgroup")
	c.Cgroup = "pods/c"
	require.ErrorContains(t, r.removeCgroup(t.Context(), &c), "Options.Cgroups is nil", "the path of the cgroup is unknown")
	require.NoError(t, shim.WriteSpec(dir, shim.Spec{Cgroups: []string{filepath.Join(dir, "absent"), cgroup}}))
	require.NoError(t, r.removeCgroup(t.Context(), &c))
	require.NoError(t, os.Mkdir(cgroup, 0o700))
	require.EqualError(t, r.removeCgroup(t.Context(), &c),
		"cgroup pods/c: Options.Cgroups is nil: open the runtime with the one that the container was created with")
}
