// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/lab"
)

// mountExt4 mounts a new file system, with a size in MiB and a number of inodes, on a directory until the test ends.
func mountExt4(t *testing.T, dir string, size, inodes int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ext4")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, int64(size)<<20))
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-N", fmt.Sprint(inodes), file},
		{"mount", "-o", "loop", file, dir},
	} {
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%s: %s", args, out)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// A disk of the node runs out of bytes or of inodes. Only the pod that fills it is evicted, whether it writes to a volume on
// nodefs or to its root on imagefs. Unused images are removed before.
func TestIntegrationDiskPressure(t *testing.T) {
	requireVM(t)
	// The disk fills within half a minute: before it is full, the agent must measure which pod fills it.
	const bytes, files = "while :; do head -c 1000000 /dev/zero >> %[1]s/full; sleep 0.3; done",
		"i=0; while :; do for j in 1 2 3 4 5 6 7 8 9 10; do touch %[1]s/$i.$j; done; i=$((i+1)); sleep 0.3; done"
	for _, c := range []struct {
		name, signal, threshold, write, dir string
		images                              bool // fill imagefs instead of nodefs
		size, inodes                        int
		resource                            string
	}{
		{name: "bytes of nodefs", signal: "nodefs.available", threshold: "20Mi", write: bytes, dir: "/dir", size: 64, inodes: 4000, resource: "ephemeral-storage"},
		{name: "inodes of nodefs", signal: "nodefs.inodesFree", threshold: "100", write: files, dir: "/dir", size: 64, inodes: 700, resource: "inodes"},
		{name: "bytes of imagefs", signal: "imagefs.available", threshold: "15%", write: bytes, dir: "", images: true, size: 96, inodes: 8000, resource: "ephemeral-storage"},
		{name: "inodes of imagefs", signal: "imagefs.inodesFree", threshold: "150", write: files, dir: "", images: true, size: 96, inodes: 1500, resource: "inodes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.images {
				home, err := lab.FindHome()
				require.NoError(t, err)
				mountExt4(t, filepath.Join(home, "instances"), c.size, c.inodes)
			}
			s := newStarvedNode(t)
			if !c.images {
				mountExt4(t, s.state, c.size, c.inodes)
			}
			s.manifests.Write("calm.yaml", resourcesYAML("calm", "{}"))
			s.writePod("writer", fmt.Sprintf(c.write, c.dir), "{}")

			a := s.start(map[string]string{c.signal: c.threshold}, nil)
			before := s.awaitRunning(vmTimeout, "calm-n1", "writer-n1")
			s.startScript("writer")

			s.awaitEvicted(a, "writer-n1", vmTimeout)
			a.AwaitLine(vmTimeout, "reason=Evicted", "pod=writer-n1", "The node was low on resource: "+c.resource+". Threshold quantity: ", "starved_resource:"+c.resource)
			a.AwaitLine(vmTimeout, `msg="node conditions"`, "conditions=[DiskPressure]")
			a.AwaitLine(vmTimeout, `msg="node conditions"`, "conditions=[]")
			s.manifests.Remove("writer.yaml")
			a.AwaitLine(vmTimeout, "pod is removed", "writer-n1")
			delete(before, "writer-n1")
			s.requireSameContainers(before)
			require.Equal(t, 1, strings.Count(a.Output(), `msg="evict pod" pod=default/`), "only one pod is evicted")
			s.drain(a)
		})
	}
}
