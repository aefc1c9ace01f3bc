// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memreturn

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestCgroupLimitIsLowestOfCgroupAndParents(t *testing.T) {
	const (
		v1 = "30 25 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
			"31 25 0:27 / /sys/fs/cgroup/memory rw,relatime shared:10 - cgroup cgroup rw,memory\n" +
			"32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		v2        = "30 25 0:26 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
		container = "30 25 0:26 /kubepods/pod1 /sys/fs/cgroup rw,relatime shared:9 master:2 - cgroup2 cgroup2 rw\n"
		unlimited = "9223372036854771712\n"
	)
	for _, c := range []struct {
		name, mounts, cgroup string
		files                map[string]string
		want                 int64
	}{
		{"v1", v1, "9:cpu,cpuacct:/a\n8:memory:/a/b\n0::/c\n", map[string]string{
			"memory/a/b/memory.limit_in_bytes": unlimited, "memory/a/memory.limit_in_bytes": "268435456\n", "memory/memory.limit_in_bytes": unlimited,
			"cpu/a/memory.limit_in_bytes": "1\n",
		}, 256 << 20},
		{"v1 without a limit", v1, "8:memory:/a\n", map[string]string{"memory/a/memory.limit_in_bytes": unlimited}, 0},
		{"v2", v2, "0::/system.slice/agent.service\n", map[string]string{
			"system.slice/agent.service/memory.max": "max\n", "system.slice/memory.max": "1073741824\n",
		}, 1 << 30},
		{"v2 without a limit", v2, "0::/a\n", map[string]string{"a/memory.max": "max\n"}, 0},
		{"v2 with only the cgroup of the container mounted", container, "0::/kubepods/pod1/c\n", map[string]string{
			"c/memory.max": "300\n", "memory.max": "200\n", "kubepods/pod1/c/memory.max": "1\n",
		}, 200},
		{"cgroup namespace of another cgroup", v2, "0::/../other\n", map[string]string{"memory.max": "500\n"}, 500},
		{"no cgroups mounted", "", "0::/a\n", nil, 0},
		{"damaged", "- - - cgroup2\n30 25 0:26 / /sys/fs/cgroup - cgroup2 x y\n", "0\n:\n0::\n", map[string]string{"memory.max": "-5\n"}, 0},
	} {
		root := fstest.MapFS{
			"proc/self/mountinfo": {Data: []byte(c.mounts)}, "proc/self/cgroup": {Data: []byte(c.cgroup)},
		}
		for name, text := range c.files {
			root["sys/fs/cgroup/"+name] = &fstest.MapFile{Data: []byte(text)}
		}
		limit, ok := cgroupLimit(root)
		require.Equal(t, c.want > 0, ok, c.name)
		if ok {
			require.Equal(t, c.want, limit, c.name)
		}
	}
}
