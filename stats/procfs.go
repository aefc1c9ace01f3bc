// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	// maxFile is the number of bytes read of a file in /proc. A pod may have any number of network interfaces.
	maxFile = 256 << 10
	// maxInterfaces is the largest number of network interfaces reported per pod or node.
	maxInterfaces = 256
)

// procfs reads files of /proc.
type procfs struct{ root fs.FS }

// readFile returns at most maxFile bytes of a file in /proc.
func (p procfs) readFile(name string) ([]byte, error) {
	f, err := p.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// meminfo has values of /proc/meminfo, converted to bytes.
type meminfo struct {
	total, hugePages, swapTotal, swapFree uint64
	available                             *uint64 // nil before Linux 3.14
}

func (p procfs) readMeminfo() (m meminfo, err error) {
	text, err := p.readFile("meminfo")
	if err != nil {
		return m, err
	}
	return parseMeminfo(text)
}

func parseMeminfo(text []byte) (m meminfo, err error) {
	found := false
	var available uint64
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		var into *uint64
		switch string(key) {
		case "MemTotal":
			into, found = &m.total, true
		case "MemAvailable":
			into, m.available = &available, &available
		case "Hugetlb": // of all sizes, since Linux 4.19
			into = &m.hugePages
		case "SwapTotal":
			into = &m.swapTotal
		case "SwapFree":
			into = &m.swapFree
		default:
			continue
		}
		number, ok := strings.CutSuffix(strings.TrimSpace(string(value)), " kB")
		n, err := strconv.ParseUint(number, 10, 53)
		if !ok || err != nil {
			return meminfo{}, fmt.Errorf("meminfo: %s: no number of kB: %.40q", key, value)
		}
		*into = n << 10
	}
	if !found {
		return meminfo{}, errors.New("meminfo: no MemTotal")
	}
	return m, nil
}

// countTasks returns how many tasks (processes and threads) are running, and how many the kernel allows at most.
func (p procfs) countTasks() (running, most int64, err error) {
	most = math.MaxInt64
	for _, file := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		text, err := p.readFile(file)
		if err != nil {
			return 0, 0, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || n < 0 {
			return 0, 0, fmt.Errorf("%s: no number: %.40q", file, text)
		}
		most = min(most, n)
	}
	text, err := p.readFile("loadavg")
	if err != nil {
		return 0, 0, err
	}
	running, err = parseLoadavg(string(text))
	return running, most, err
}

// parseLoadavg returns the number of tasks from the content of /proc/loadavg. For "1.36 3.49 4.53 2/3518 3715089" it is
// 3518.
func parseLoadavg(text string) (int64, error) {
	fields := strings.Fields(text)
	if len(fields) >= 5 {
		if _, all, ok := strings.Cut(fields[3], "/"); ok {
			if n, err := strconv.ParseInt(all, 10, 64); err == nil && n >= 0 {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("loadavg: no tasks in %.80q", text)
}

// bootTime returns the boot time of the machine, which is the value btime in /proc/stat.
func (p procfs) bootTime() (time.Time, error) {
	text, err := p.readFile("stat")
	if err != nil {
		return time.Time{}, err
	}
	for line := range bytes.Lines(text) {
		if seconds, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(string(seconds)), 10, 40)
			if err == nil {
				return time.Unix(n, 0), nil
			}
		}
	}
	return time.Time{}, errors.New("stat: no btime")
}

// Interface has the traffic counters of a network interface, which start at zero when the interface is created.
type Interface struct {
	Name                                    string
	RxBytes, RxPackets, RxErrors, RxDropped uint64
	TxBytes, TxPackets, TxErrors, TxDropped uint64
}

// readInterfaces returns the traffic of each network interface in the network namespace of the process pid. It omits
// interfaces that cAdvisor ignores.
func (p procfs) readInterfaces(pid string) ([]Interface, error) {
	text, err := p.readFile(pid + "/net/dev")
	if err != nil {
		return nil, err
	}
	return parseNetDev(text)
}

// parseNetDev parses the content of /proc/PID/net/dev, with sixteen counters per interface. It ignores an incomplete last line.
func parseNetDev(text []byte) (all []Interface, err error) {
	number := 0
	cut := len(text) >= maxFile
	for line := range bytes.Lines(text) {
		if number++; number <= 2 || cut && !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		name, counters, ok := strings.Cut(string(line), ":")
		fields := strings.Fields(counters)
		if name = strings.TrimSpace(name); !ok || name == "" || len(fields) != 16 {
			return nil, fmt.Errorf("net/dev line %d: %.80q", number, line)
		}
		if isIgnored(name) || len(all) == maxInterfaces { // a pod may create any number of interfaces
			continue
		}
		i := Interface{Name: strings.ToValidUTF8(name, "\uFFFD")}
		for at, into := range map[int]*uint64{
			0: &i.RxBytes, 1: &i.RxPackets, 2: &i.RxErrors, 3: &i.RxDropped,
			8: &i.TxBytes, 9: &i.TxPackets, 10: &i.TxErrors, 11: &i.TxDropped,
		} {
			if *into, err = strconv.ParseUint(fields[at], 10, 64); err != nil {
				return nil, fmt.Errorf("net/dev line %d: no number: %.40q", number, fields[at])
			}
		}
		all = append(all, i)
	}
	return all, nil
}

// isIgnored reports whether an interface is the loopback interface or the host's end of a container interface. cAdvisor
// ignores the same names (lib/container).
func isIgnored(name string) bool {
	name = strings.ToLower(name)
	for _, prefix := range []string{"lo", "veth", "docker", "nerdctl"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
