// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// host returns the files of a machine.
func host() fstest.MapFS {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"etc/machine-id":                    "0123456789abcdef\n",
		"etc/os-release":                    "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n",
		"sys/class/dmi/id/product_uuid":     "4C4C4544-0043\n",
		"proc/sys/kernel/random/boot_id":    "b0e71c5a\n",
		"proc/sys/kernel/osrelease":         "6.12.0-amd64\n",
		"proc/self/uid_map":                 "         0          0 4294967295\n",
		"proc/meminfo":                      "MemTotal:       16384 kB\nMemFree:  1 kB\nSwapTotal:   2048 kB\nSwapFree: 0 kB\n",
		"sys/devices/system/cpu/online":     "0-3,8\n",
		"sys/kernel/mm/hugepages/README":    "",
		"sys/kernel/mm/hugepages/x/y":       "",
		"proc/cpuinfo":                      "processor\t: 0\nmodel name\t: x\n\nprocessor\t: 1\nmodel name\t: x\n",
		hugePages(2048) + "nr_hugepages":    "512\n",
		hugePages(1048576) + "nr_hugepages": "0\n",
	} {
		files[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o444}
	}
	delete(files, "sys/kernel/mm/hugepages/README")
	delete(files, "sys/kernel/mm/hugepages/x/y")
	return files
}

func hugePages(kilobytes int) string {
	return "sys/kernel/mm/hugepages/hugepages-" + map[int]string{2048: "2048", 1048576: "1048576"}[kilobytes] + "kB/"
}

// The threads of a core count as one core. Cores with equal numbers on two sockets count as two.
func TestReadCountsCoresAndSockets(t *testing.T) {
	cpu := func(files fstest.MapFS, n int, ids map[string]string) {
		for name, id := range ids {
			files[fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/%s", n, name)] = &fstest.MapFile{Data: []byte(id + "\n"), Mode: 0o444}
		}
	}
	for name, c := range map[string]struct {
		online                         string
		ids                            func(n int) map[string]string
		cores, sockets, books, drawers int
	}{
		"two sockets, two cores each, two threads each": {"0-7", func(n int) map[string]string {
			return map[string]string{"physical_package_id": fmt.Sprint(n % 2), "core_id": fmt.Sprint(n / 4)}
		}, 4, 2, 0, 0},
		"offline CPU is not counted": {"0,2", func(n int) map[string]string {
			return map[string]string{"physical_package_id": "0", "core_id": fmt.Sprint(n)}
		}, 2, 1, 0, 0},
		"ARM board without packages": {"0-3", func(n int) map[string]string {
			return map[string]string{"physical_package_id": "-1", "core_id": fmt.Sprint(n)}
		}, 4, 1, 0, 0},
		"a mainframe": {"0-3", func(n int) map[string]string {
			return map[string]string{"physical_package_id": "0", "core_id": "0", "book_id": fmt.Sprint(n % 2), "drawer_id": fmt.Sprint(n / 2)}
		}, 4, 4, 4, 2},
		"no topology":      {"0-3", func(int) map[string]string { return nil }, 0, 0, 0, 0},
		"invalid CPU list": {"3-0", func(int) map[string]string { return map[string]string{"physical_package_id": "0"} }, 0, 0, 0, 0},
		"largest number of CPUs": {"0-65535", func(int) map[string]string {
			return map[string]string{"physical_package_id": "0", "core_id": "0"}
		}, 1, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			files := host()
			files["sys/devices/system/cpu/online"] = &fstest.MapFile{Data: []byte(c.online + "\n"), Mode: 0o444}
			for n := range 8 {
				cpu(files, n, c.ids(n))
			}
			m, _ := machine.Read(files)
			assert.Equal(t, [4]int{c.cores, c.sockets, c.books, c.drawers}, [4]int{m.Cores, m.Sockets, m.Books, m.Drawers})
		})
	}
}

func TestRead(t *testing.T) {
	m, err := machine.Read(host())
	require.NoError(t, err)
	assert.Equal(t, machine.Info{
		MachineID: "0123456789abcdef", SystemUUID: "4C4C4544-0043", BootID: "b0e71c5a", KernelVersion: "6.12.0-amd64",
		OSImage: "Debian GNU/Linux 13 (trixie)", CPUs: 5, Memory: 16 << 20, Swap: 2 << 20,
		HugePages: map[int64]int64{2 << 20: 1 << 30, 1 << 30: 0}, UserNS: new(false),
	}, m)
}

// If one file is missing or invalid, all other values are read.
func TestReadKeepsOtherValuesWithoutOneFile(t *testing.T) {
	const gone = "\x00gone"
	for _, test := range []struct {
		name  string
		files map[string]string
		want  func(*machine.Info)
		err   string
	}{
		{
			"machine ID of D-Bus",
			map[string]string{"etc/machine-id": gone, "var/lib/dbus/machine-id": "d\n", "sys/class/dmi/id/product_uuid": "u"},
			func(m *machine.Info) { m.MachineID, m.SystemUUID = "d", "u" }, "",
		},
		{
			"no DMI",
			map[string]string{"sys/class/dmi/id/product_uuid": gone},
			func(m *machine.Info) { m.SystemUUID = "0123456789abcdef" }, "",
		},
		{
			"UUID of a device tree",
			map[string]string{"sys/class/dmi/id/product_uuid": gone, "proc/device-tree/vm,uuid": "pp\x00"},
			func(m *machine.Info) { m.SystemUUID = "pp" }, "",
		},
		{
			"os-release of a stateless system",
			map[string]string{"etc/os-release": gone, "usr/lib/os-release": "PRETTY_NAME=Clear\n"},
			func(m *machine.Info) { m.OSImage = "Clear" }, "",
		},
		{"os-release without PRETTY_NAME", map[string]string{"etc/os-release": "NAME=x\n"}, func(m *machine.Info) { m.OSImage = "Linux" }, ""},
		{"no system", map[string]string{"etc/os-release": gone}, func(m *machine.Info) { m.OSImage = "Unknown" }, ""},
		{"user namespace", map[string]string{"proc/self/uid_map": "0 1000 1\n"}, func(m *machine.Info) { m.UserNS = new(true) }, ""},
		{"user namespace without a mapping", map[string]string{"proc/self/uid_map": ""}, func(m *machine.Info) { m.UserNS = new(true) }, ""},
		{"kernel without user namespaces", map[string]string{"proc/self/uid_map": gone}, func(*machine.Info) {}, ""},
		{"no topology", map[string]string{"sys/devices/system/cpu/online": gone}, func(m *machine.Info) { m.CPUs = 2 }, ""},
		{
			"no CPUs",
			map[string]string{"sys/devices/system/cpu/online": gone, "proc/cpuinfo": "x"},
			func(m *machine.Info) { m.CPUs = 0 },
			"read machine: proc/cpuinfo: has 0 processors",
		},
		{
			"no huge pages",
			map[string]string{hugePages(2048) + "nr_hugepages": gone, hugePages(1048576) + "nr_hugepages": gone},
			func(m *machine.Info) { m.HugePages = nil }, "",
		},
		{
			"too many huge pages",
			map[string]string{hugePages(2048) + "nr_hugepages": "9999999999999999"},
			func(m *machine.Info) { m.HugePages = nil },
			"read machine: sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages: is no number of pages: \"9999999999999999\"",
		},
		{
			"no boot ID",
			map[string]string{"proc/sys/kernel/random/boot_id": gone},
			func(m *machine.Info) { m.BootID = "" },
			"read machine: open proc/sys/kernel/random/boot_id: file does not exist",
		},
		{
			"invalid boot ID",
			map[string]string{"proc/sys/kernel/random/boot_id": "a\nb"},
			func(m *machine.Info) { m.BootID = "" },
			`read machine: proc/sys/kernel/random/boot_id: is no ID: "a\nb"`,
		},
		{
			"no memory",
			map[string]string{"proc/meminfo": "SwapTotal: 1 kB\n"},
			func(m *machine.Info) { m.Memory, m.Swap = 0, 0 },
			"read machine: proc/meminfo: has no MemTotal",
		},
		{
			"memory without a unit",
			map[string]string{"proc/meminfo": "MemTotal: 1\n"},
			func(m *machine.Info) { m.Memory, m.Swap = 0, 0 },
			`read machine: proc/meminfo: MemTotal: is no number of kB: " 1\n"`,
		},
		{
			"too much memory",
			map[string]string{"proc/meminfo": "MemTotal: 99999999999999999999 kB\n"},
			func(m *machine.Info) { m.Memory, m.Swap = 0, 0 }, "read machine: proc/meminfo: MemTotal: is no number of kB",
		},
		{
			"endless file",
			map[string]string{"proc/sys/kernel/osrelease": strings.Repeat("x", 1<<20)},
			func(m *machine.Info) { m.KernelVersion = "" }, "read machine: proc/sys/kernel/osrelease: has more than 65536 bytes",
		},
		{"a long ID", map[string]string{"etc/machine-id": strings.Repeat("x", 1000)}, func(m *machine.Info) { m.MachineID = "" }, ""},
		{
			"a long name",
			map[string]string{"etc/os-release": "PRETTY_NAME=" + strings.Repeat("é", 1000)},
			func(m *machine.Info) { m.OSImage = strings.Repeat("é", 126) }, "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := host()
			for name, text := range test.files {
				if delete(files, name); text != gone {
					files[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o444}
				}
			}
			want, err := machine.Read(host())
			require.NoError(t, err)
			test.want(&want)
			m, err := machine.Read(files)
			assert.Equal(t, want, m)
			if test.err == "" {
				assert.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.err)
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestCountCPUList(t *testing.T) {
	for list, want := range map[string]int{
		"0": 1, "0-1": 2, "0-3,8,10-11": 7, "0-65535": 65536,
		"": 0, "1,1": 0, "3-1": 0, "0-1,1-2": 0, "a": 0, "-1": 0, "0-": 0, "0,": 0, "0-99999": 0,
	} {
		files := host()
		files["sys/devices/system/cpu/online"] = &fstest.MapFile{Data: []byte(list + "\n"), Mode: 0o444}
		m, err := machine.Read(files)
		assert.Equal(t, want, m.CPUs, list)
		if want == 0 {
			assert.EqualError(t, err, fmt.Sprintf("read machine: sys/devices/system/cpu/online: is no list of CPUs: %q", list))
		} else {
			assert.NoError(t, err, list)
		}
	}
}

// A pipe is not opened, because a read could block.
func TestReadDoesNotOpenPipes(t *testing.T) {
	files := host()
	files["proc/sys/kernel/osrelease"] = &fstest.MapFile{Mode: fs.ModeNamedPipe | 0o444}
	m, err := machine.Read(noPipes{files})
	assert.ErrorContains(t, err, "proc/sys/kernel/osrelease: is not a file: p")
	assert.Empty(t, m.KernelVersion)
}

// noPipes is a file system that fails when a pipe is opened.
type noPipes struct{ fstest.MapFS }

func (n noPipes) Open(name string) (fs.File, error) {
	if f := n.MapFS[name]; f != nil && f.Mode&fs.ModeNamedPipe != 0 {
		panic("opened " + name)
	}
	return n.MapFS.Open(name)
}

// Stat replaces the method of MapFS, which opens the file.
func (n noPipes) Stat(name string) (fs.FileInfo, error) { return n.MapFS.Stat(name) }

func TestReadReturnsErrorForNilFileSystem(t *testing.T) {
	_, err := machine.Read(nil)
	assert.ErrorContains(t, err, `hand in that of its root, on a host os.DirFS("/")`)
	m, err := machine.Read(fstest.MapFS{})
	assert.Error(t, err)
	assert.Equal(t, machine.Info{OSImage: "Unknown", UserNS: new(false)}, m)
}

// A directory may contain any number of huge page sizes.
func TestReadLimitsHugePageSizes(t *testing.T) {
	files := host()
	for size := range 1000 {
		files[strings.Replace(hugePages(2048), "2048", strings.Repeat("1", size%12+1), 1)+"nr_hugepages"] = &fstest.MapFile{Data: []byte("1")}
	}
	maps.DeleteFunc(files, func(name string, _ *fstest.MapFile) bool { return strings.Contains(name, "1048576") })
	m, err := machine.Read(files)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(m.HugePages), 64)
}

func TestReadOfThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		_, err := os.Stat("/proc/meminfo")
		require.ErrorIs(t, err, fs.ErrNotExist, "all other tests must use the file system of a fake machine")
		return
	}
	m, err := machine.Read(os.DirFS("/"))
	require.NoError(t, err)
	assert.GreaterOrEqual(t, m.CPUs, runtime.NumCPU())
	assert.Positive(t, m.Memory)
	assert.NotEmpty(t, m.BootID)
	assert.NotEmpty(t, m.KernelVersion)
}

func FuzzRead(f *testing.F) {
	f.Add("sys/devices/system/cpu/online", []byte("0-3,8"))
	f.Add("sys/devices/system/cpu/online", []byte("3-0"))
	f.Add("proc/meminfo", []byte("MemTotal: 1 kB\n"))
	f.Add("proc/self/uid_map", []byte("0 0 4294967295"))
	f.Add(hugePages(2048)+"nr_hugepages", []byte("-1"))
	f.Add("etc/os-release", []byte("PRETTY_NAME=\xff"))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		if !fs.ValidPath(name) || name == "." {
			t.Skip("not a file name")
		}
		files := host()
		files[name] = &fstest.MapFile{Data: text, Mode: 0o444}
		m, _ := machine.Read(files)
		assert.GreaterOrEqual(t, m.CPUs, 0)
		assert.LessOrEqual(t, m.CPUs, 1<<16)
		assert.GreaterOrEqual(t, min(m.Memory, m.Swap), int64(0))
		assert.LessOrEqual(t, max(len(m.MachineID), len(m.BootID), len(m.OSImage), len(m.SystemUUID), len(m.KernelVersion)), 253)
		for size, bytes := range m.HugePages {
			assert.Positive(t, size)
			assert.GreaterOrEqual(t, bytes, int64(0))
		}
	})
}
