// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/mount"
)

func TestParseTable(t *testing.T) {
	for _, test := range []struct {
		name, line string
		want       mount.Info
	}{
		{
			"private", `26 24 0:24 / /dev/pts rw,relatime - devpts devpts rw,mode=600`,
			mount.Info{ID: 26, Parent: 24, Dev: "0:24", Root: "/", Point: "/dev/pts", Options: "rw,relatime", Type: "devpts", Source: "devpts", SuperOptions: "rw,mode=600"},
		},
		{
			"propagation", `36 35 98:0 /mnt1 /mnt2 ro master:1 propagate_from:2 - ext3 /dev/root rw`,
			mount.Info{ID: 36, Parent: 35, Dev: "98:0", Root: "/mnt1", Point: "/mnt2", Options: "ro", Propagation: []string{"master:1", "propagate_from:2"}, Type: "ext3", Source: "/dev/root", SuperOptions: "rw"},
		},
		{
			"escapes", `1 2 0:1 /a\040b /tab\011end\012back\134slash\0 rw - tmpfs with\040blank rw`,
			mount.Info{ID: 1, Parent: 2, Dev: "0:1", Root: "/a b", Point: "/tab\tend\nback\\slash\\0", Options: "rw", Type: "tmpfs", Source: "with blank", SuperOptions: "rw"},
		},
		{
			"no source", `1 2 0:1 / /x rw - tmpfs  rw`,
			mount.Info{ID: 1, Parent: 2, Dev: "0:1", Root: "/", Point: "/x", Options: "rw", Type: "tmpfs", SuperOptions: "rw"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			table, err := mount.ParseTable(strings.NewReader(test.line + "\n"))
			require.NoError(t, err)
			require.Equal(t, []mount.Info{test.want}, table)
		})
	}
	for _, line := range []string{"", "1", "x 2 0:1 / /x rw - tmpfs a rw", "1 x 0:1 / /x rw - tmpfs a rw", "1 2 0:1 / /x rw", "1 2 0:1 / /x - tmpfs a rw", "1 2 0:1 / /x rw - tmpfs a"} {
		_, err := mount.ParseTable(strings.NewReader("1 2 0:1 / /x rw - tmpfs a rw\n" + line + "\n"))
		require.ErrorContains(t, err, "line 2: not an entry of the mount table", line)
	}
	_, err := mount.ParseTable(io.LimitReader(endless{}, 10<<20))
	require.ErrorContains(t, err, "line 1: ")
}

// endless is a reader of one endless line.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestMountsBelow(t *testing.T) {
	table, err := mount.ParseTable(strings.NewReader(`1 0 0:1 / / rw - ext4 root rw
2 1 0:2 / /pods rw shared:1 - tmpfs a rw
3 2 0:3 / /pods/1/a rw - tmpfs b rw
4 2 0:4 / /pods/1/a rw - tmpfs c rw
5 4 0:5 / /pods/1/a/deep/er rw - tmpfs d rw
6 2 0:6 / /pods/11 rw - tmpfs e rw
`))
	require.NoError(t, err)
	ids := func(path string) (ids []int) {
		for _, m := range mount.MountsBelow(table, path) {
			ids = append(ids, m.ID)
		}
		return ids
	}
	require.Equal(t, []int{5, 4, 3}, ids("/pods/1"))
	require.Equal(t, []int{5, 4, 3}, ids("/pods/1/a"))
	require.Equal(t, []int{5, 4, 3, 6, 2, 1}, ids("/"))
	require.Empty(t, ids("/pods/1/b"))
	require.True(t, table[1].IsShared())
	require.False(t, table[2].IsShared())
}

func TestOtherMounts(t *testing.T) {
	table, err := mount.ParseTable(strings.NewReader(`1 0 8:1 / / rw - ext4 disk rw
2 1 8:1 /srv/a /stage/bind rw - ext4 disk rw
3 1 8:1 /srv/a /pods/1/bind rw - ext4 disk rw
4 1 8:1 /srv/a/sub /pods/2/sub rw - ext4 disk rw
5 1 8:1 /srv/ab /pods/3/namesake rw - ext4 disk rw
6 1 0:9 /one /stage/one rw - nfs4 server:/one rw
7 1 0:9 /two /stage/two rw - nfs4 server:/two rw
8 1 8:2 / /stage/disk rw - ext4 under rw
9 1 8:3 / /stage/disk rw - ext4 top rw
10 9 8:3 / /stage/disk/below rw - ext4 top rw
11 1 8:2 / /pods/4/under rw - ext4 under rw
12 1 8:3 /dir /pods/4/top rw - ext4 top rw
`))
	require.NoError(t, err)
	for path, want := range map[string][]int{
		"/stage/bind": {3, 4}, "/pods/2/sub": nil, // neither mounts of the whole file system nor of its other directories
		"/stage/one": nil, "/stage/two": nil, // two NFS exports with one superblock
		"/stage/disk": {12}, // only the topmost mount counts
		"/nowhere":    nil,
	} {
		var got []int
		for _, m := range mount.OtherMounts(table, path) {
			got = append(got, m.ID)
		}
		require.Equal(t, want, got, path)
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt2 ro master:1 - ext3 /dev/root rw\n")
	f.Add("1 2 0:1 /\\040 /tab\\011 rw - tmpfs  rw\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := mount.ParseTable(strings.NewReader(text))
		if err != nil && table != nil {
			t.Fatal("an error with a table")
		}
		mount.MountsBelow(table, "/")
	})
}
