// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/nodeapi/prom/usage"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

const (
	id64   = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	limits = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max processes             47000                47000                processes \n" +
		"Max open files            1024                 524288               files     \n"
	mountinfo = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 27 254:1 / /bind rw - ext4 /dev/vda1 rw
24 27 0:24 / /with\040space rw - tmpfs tmpfs rw
25 27 0:30 / /over rw - overlay overlay rw
26 27 0:31 / /home rw - btrfs /dev/mapper/home rw
28 27 0:32 / /net rw - nfs4 server:/export rw
29 27 0:33 / /hangs rw - nfs4 server:/dead rw
30 27 0:34 / /run/x/sandboxes/` + id64 + `/shm rw - tmpfs shm rw
31 27 0:35 / /run/x/k8s.io/` + id64 + `/rootfs rw - overlay overlay rw
32 27 0:36 / /var/lib/kubelet/pods/u1/volumes/kubernetes.io~secret/s rw - tmpfs tmpfs rw
33 27 254:2 / /var/lib/kubelet/pods/u1/volume-subpaths/a/b/0 rw - ext4 /dev/vda2 rw
34 27 254:2 / /var/lib/kubelet/plugins/kubernetes.io/csi/d/h/globalmount rw - ext4 /dev/vda2 rw
`
	diskstats = ` 254       0 vda 1 1 1 1 1 1 1 1 1 1 1
 254       1 vda1 10 11 12 13000 14 15 16 17000 3 18000 19000 0 0 0 0 1 2
   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0
 253       0 mapper!home 1 2 3 4 5 6 7 8 9 10 11
`
)

// fakeProc returns a /proc with the two processes that every cgroup of a fakeSource has.
func fakeProc() fstest.MapFS {
	files := fstest.MapFS{
		"self/mountinfo": {Data: []byte(mountinfo)}, "diskstats": {Data: []byte(diskstats)},
		"1/limits": {Data: []byte(limits)}, "2/limits": {Data: []byte("Max open files  unlimited unlimited files\n")},
		"2/fd": {Mode: fs.ModeDir | 0o500},
	}
	for fd, link := range []string{"/dev/null", "socket:[4711]", "pipe:[1]"} {
		files[fmt.Sprintf("1/fd/%d", fd)] = &fstest.MapFile{Mode: fs.ModeSymlink | 0o700, Data: []byte(link)}
	}
	return files
}

// The root cgroup has the file systems that belong to no pod, by device, and the kernel's counters of their disks.
func TestMachineFilesystemsAndDisks(t *testing.T) {
	n := newFakeNode()
	n.samples[0].Stats.IO.Devices = append(n.samples[0].Stats.IO.Devices, cgroups.IODevice{Major: 254, Minor: 1, Reads: 77}, cgroups.IODevice{Major: 9, Minor: 9, Reads: 1})
	page := cadvisor(t, n, usage.Options{})
	const root, stamp = `container="",id="/",image="",name="",namespace="",pod=""`, " 1700000000123"
	devices := func(name string) (found []string) {
		for _, line := range seriesLines(page, name) {
			rest, ok := strings.CutPrefix(line, name+"{"+root+`,device="`)
			if ok {
				found = append(found, strings.TrimSuffix(rest, stamp))
			}
		}
		return found
	}
	assert.Equal(t, []string{
		`/dev/vda1"} 1000`, `/with space"} 1000`, `overlay_0-30"} 1000`, `/dev/mapper/home"} 1000`, `server:/export"} 1000`,
	}, devices("container_fs_limit_bytes"), "each device once, without file systems of pods and without hung ones")
	assert.Equal(t, []string{`/dev/vda1"} 600`, `/with space"} 600`, `overlay_0-30"} 600`, `/dev/mapper/home"} 600`, `server:/export"} 600`}, devices("container_fs_usage_bytes"))
	assert.Contains(t, devices("container_fs_inodes_free"), `/dev/vda1"} 15`)
	assert.Contains(t, devices("container_fs_inodes_total"), `/dev/vda1"} 20`)
	for name, want := range map[string][2]string{
		"container_fs_reads_merged_total": {"11", "2"}, "container_fs_sector_reads_total": {"12", "3"}, "container_fs_read_seconds_total": {"13", "0.004"},
		"container_fs_writes_merged_total": {"15", "6"}, "container_fs_sector_writes_total": {"16", "7"}, "container_fs_write_seconds_total": {"17", "0.008"},
		"container_fs_io_current": {"3", "9"}, "container_fs_io_time_seconds_total": {"18", "0.01"}, "container_fs_io_time_weighted_seconds_total": {"19", "0.011"},
	} {
		assert.Equal(t, []string{`/dev/vda1"} ` + want[0], `/dev/mapper/home"} ` + want[1]}, devices(name), name)
		assert.Len(t, seriesLines(page, name), 2, "no series for containers")
	}
	assert.Equal(t, []string{`8:1"} 1`, `/dev/vda1"} 77`, `9:9"} 1`, `/dev/mapper/home"} 1`}, devices("container_fs_reads_total"),
		"devices with counters of the cgroup are not repeated, and have the kernel's name if it is known")
}

// A file that cannot be read loses only its own series.
func TestUnreadableFilesCostTheirSeries(t *testing.T) {
	for name, c := range map[string]struct {
		change func(fstest.MapFS, *fakeSource)
		told   string
		absent string
	}{
		"no mounts":                     {func(p fstest.MapFS, _ *fakeSource) { delete(p, "self/mountinfo") }, "", "container_fs_limit_bytes"},
		"invalid mount line":            {func(p fstest.MapFS, _ *fakeSource) { p["self/mountinfo"].Data = []byte("22 27\n") }, `mountinfo: "22 27\n" is no mount`, "container_fs_limit_bytes"},
		"mount without a device number": {func(p fstest.MapFS, _ *fakeSource) { p["self/mountinfo"].Data = []byte("1 1 x:1 / / rw - ext4 d rw\n") }, "mountinfo: \"1 1 x:1 / / rw - ext4 d rw\\n\": device: strconv", "container_fs_limit_bytes"},
		"no disks":                      {func(p fstest.MapFS, _ *fakeSource) { delete(p, "diskstats") }, "", "container_fs_io_current"},
		"disk without counters":         {func(p fstest.MapFS, _ *fakeSource) { p["diskstats"].Data = []byte("8 0 sda\n") }, "diskstats: \"8 0 sda\\n\" has 3 fields, want at least 14", "container_fs_io_current"},
		"invalid disk counter":          {func(p fstest.MapFS, _ *fakeSource) { p["diskstats"].Data = []byte("8 0 sda 1 2 3 x 5 6 7 8 9 10 11\n") }, "counter 3: strconv", "container_fs_io_current"},
		"disk without a number":         {func(p fstest.MapFS, _ *fakeSource) { p["diskstats"].Data = []byte("x 0 sda 1 2 3 4 5 6 7 8 9 10 11\n") }, "device: strconv", "container_fs_io_current"},
		"hung file system":              {func(_ fstest.MapFS, n *fakeSource) { n.dead = errors.New("no answer from /hangs") }, "no answer from /hangs", "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			var told []string
			p, n := fakeProc(), newFakeNode()
			c.change(p, n)
			page := cadvisor(t, n, usage.Options{Proc: p, Error: func(_ string, err error) { told = append(told, err.Error()) }})
			assert.Empty(t, seriesLines(page, c.absent))
			assert.NotEmpty(t, seriesLines(page, "container_memory_rss"))
			if c.told == "" {
				assert.Empty(t, told)
				return
			}
			require.Len(t, told, 1)
			assert.Contains(t, told[0], c.told)
			assert.Contains(t, page, "container_scrape_error 1\n")
		})
	}
}

// The number of file systems is limited, because users of the machine can mount more.
func TestFilesystemsAreLimited(t *testing.T) {
	p := fakeProc()
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&b, "1 1 0:%d / /m%d rw - tmpfs t rw\n", i, i)
	}
	p["self/mountinfo"].Data = []byte(b.String())
	assert.Len(t, seriesLines(cadvisor(t, newFakeNode(), usage.Options{Proc: p}), "container_fs_limit_bytes"), 32)
}

// Open files are unknown if the agent may not read a process or if there are too many. Processes that have exited have no
// open files.
func TestOpenFilesOfProcesses(t *testing.T) {
	const main = `container="main",id="/kubepods/burstable/podu1/c1",image="nginx:1",name="c1",namespace="ns",pod="web"`
	for name, c := range map[string]struct {
		change        func(fstest.MapFS, *fakeSource)
		files, limits string
	}{
		"one process has exited": {func(p fstest.MapFS, _ *fakeSource) { delete(p, "2/fd") }, "3", "1024"},
		"all processes have exited": {func(p fstest.MapFS, _ *fakeSource) {
			for name := range p {
				if strings.HasPrefix(name, "1/") || strings.HasPrefix(name, "2/") {
					delete(p, name)
				}
			}
		}, "0", ""},
		"no process":           {func(_ fstest.MapFS, n *fakeSource) { n.samples[5].Stats.Pids.Procs = nil }, "0", ""},
		"no limit":             {func(_ fstest.MapFS, n *fakeSource) { n.samples[5].Stats.Pids.Procs = []int{2, 1} }, "3", "-1"},
		"limit line missing":   {func(p fstest.MapFS, _ *fakeSource) { p["1/limits"].Data = []byte("Max cpu time 1 2 seconds\n") }, "3", ""},
		"truncated limit line": {func(p fstest.MapFS, _ *fakeSource) { p["1/limits"].Data = []byte("Max open files 1024\n") }, "3", ""},
		"negative limit":       {func(p fstest.MapFS, _ *fakeSource) { p["1/limits"].Data = []byte("Max open files -5 1 files\n") }, "3", ""},
		"not a directory":      {func(p fstest.MapFS, _ *fakeSource) { p["2/fd"] = &fstest.MapFile{} }, "", "1024"},
		"too many processes":   {func(_ fstest.MapFS, n *fakeSource) { n.samples[5].Stats.Pids.Procs = make([]int, 10_001) }, "", ""},
		"too many files": {func(p fstest.MapFS, _ *fakeSource) {
			for fd := range 10_001 {
				p[fmt.Sprintf("2/fd/%d", fd)] = &fstest.MapFile{}
			}
		}, "", "1024"},
	} {
		t.Run(name, func(t *testing.T) {
			p, n := fakeProc(), newFakeNode()
			c.change(p, n)
			page := cadvisor(t, n, usage.Options{Proc: p})
			find := func(name, more string) string {
				for _, line := range seriesLines(page, name) {
					if value, ok := strings.CutPrefix(line, name+"{"+main+more+"} "); ok {
						return strings.TrimSuffix(value, " 1700000000123")
					}
				}
				return ""
			}
			assert.Equal(t, c.files, find("container_file_descriptors", ""))
			assert.Equal(t, c.limits, find("container_ulimits_soft", `,ulimit="max_open_files"`))
			assert.Contains(t, page, "container_scrape_error 0\n", "processes of containers cause no scrape error")
		})
	}
	page := cadvisor(t, newFakeNode(), usage.Options{})
	assert.Len(t, seriesLines(page, "container_ulimits_soft"), 3, "limits of the first process of the machine, the sandbox and the container")
	assert.Len(t, seriesLines(page, "container_file_descriptors"), 6, "the number of open files of every cgroup")
}

// Limits are those of the cgroup. Limits of the machine are its size. They have no timestamp.
func TestLimitsOfCgroups(t *testing.T) {
	const (
		main = `container="main",id="/kubepods/burstable/podu1/c1",image="nginx:1",name="c1",namespace="ns",pod="web"} `
		root = `container="",id="/",image="",name="",namespace="",pod=""} `
	)
	o := usage.Options{Machine: machine.Info{Memory: 8 << 30, Swap: 1 << 30}}
	page := cadvisor(t, newFakeNode(), o)
	for name, want := range map[string]string{
		"container_spec_cpu_period":                     main + "100000",
		"container_spec_cpu_quota":                      main + "20000",
		"container_spec_cpu_shares":                     main + "998",
		"container_spec_memory_limit_bytes":             main + "4096",
		"container_spec_memory_reservation_limit_bytes": main + "2048",
		"container_spec_memory_swap_limit_bytes":        main + "0",
	} {
		assert.Contains(t, seriesLines(page, name), name+"{"+want)
	}
	assert.Contains(t, page, "container_spec_memory_limit_bytes{"+root+"8589934592\n")
	assert.Contains(t, page, "container_spec_memory_swap_limit_bytes{"+root+"1073741824\n")

	n := newFakeNode()
	for i := range n.samples {
		n.samples[i].Stats.CPU.Limit = &cgroups.CPULimit{Shares: 512, Period: 100_000, Quota: cgroups.Unlimited}
		n.samples[i].Stats.Memory.SwapMax = new(int64(100))
	}
	page = cadvisor(t, n, o)
	assert.Contains(t, page, "container_spec_cpu_shares{"+main+"512\n")
	assert.Empty(t, seriesLines(page, "container_spec_cpu_quota"), "no container has a quota")
	assert.Empty(t, seriesLines(page, "container_cpu_cfs_periods_total"), "no quota, no periods")
	assert.Contains(t, page, "container_spec_memory_swap_limit_bytes{"+main+"4196\n", "the v1 limit is the sum of memory and swap")

	n.samples[len(n.samples)-1].Stats.CPU.Limit = nil
	assert.Contains(t, cadvisor(t, n, o), "container_spec_cpu_shares{"+main+"0\n", "without a CPU controller the shares are 0")
}

// Files that no metric needs are not read.
func TestUnneededFilesAreNotRead(t *testing.T) {
	p, read := fakeProc(), map[string]bool{}
	_ = cadvisor(t, newFakeNode(), usage.Options{Proc: recordingFS{p, read}, Without: []string{
		"container_fs_*", "container_blkio_*", "container_file_descriptors", "container_sockets", "container_ulimits_soft",
	}})
	assert.Empty(t, read)
	_ = cadvisor(t, newFakeNode(), usage.Options{Proc: recordingFS{p, read}})
	for _, name := range []string{"self/mountinfo", "diskstats", "1/fd", "1/limits"} {
		assert.True(t, read[name], name)
	}
}

// recordingFS records the opened files.
type recordingFS struct {
	fstest.MapFS
	opened map[string]bool
}

func (s recordingFS) Open(name string) (fs.File, error) {
	s.opened[name] = true
	return s.MapFS.Open(name)
}

// BenchmarkCadvisor measures a page of 100 pods with one container each, without reading cgroups. Each cgroup has a process of
// this machine.
func BenchmarkCadvisor(b *testing.B) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		b.Skip("needs /proc")
	}
	n := newFakeNode()
	one := n.samples[3:]
	n.samples = n.samples[:3]
	for i := range 100 {
		for _, s := range one {
			s.Path = cgroups.PodPath("", cgroups.Burstable, fmt.Sprintf("u%d", i))
			s.Stats.Pids.Procs = []int{os.Getpid()}
			n.samples = append(n.samples, s)
		}
	}
	for name, without := range map[string][]string{"whole": nil, "without processes": {"container_file_descriptors", "container_sockets", "container_ulimits_soft"}} {
		b.Run(name, func(b *testing.B) {
			p, err := usage.Cadvisor(n, usage.Options{Without: without})
			require.NoError(b, err)
			for b.Loop() {
				w := httptest.NewRecorder()
				p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				require.Equal(b, http.StatusOK, w.Code)
			}
		})
	}
}

func FuzzMachine(f *testing.F) {
	f.Add(mountinfo, diskstats, limits)
	f.Fuzz(func(t *testing.T, mountinfo, diskstats, limits string) {
		p := fakeProc()
		p["self/mountinfo"].Data, p["diskstats"].Data, p["1/limits"].Data = []byte(mountinfo), []byte(diskstats), []byte(limits)
		_ = cadvisor(t, newFakeNode(), usage.Options{Proc: p}) // cadvisor parses the page and rejects duplicate series
	})
}
