// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ, which is 100 on every architecture that Go supports.
const tick = time.Second / 100

// procFS reads processes below a mount of the proc file system.
type procFS string

// procStat contains the fields of /proc/PID/stat that the harness needs.
type procStat struct {
	session int
	own     time.Duration // user and system time of the process
	reaped  time.Duration // user and system time of its child processes that have exited and were waited for
}

// parseStat parses /proc/PID/stat. The command name may contain spaces and brackets, so fields are counted from the last
// closing bracket.
func parseStat(text string) (procStat, error) {
	const session, utime, cstime = 3, 11, 14
	end := strings.LastIndexByte(text, ')')
	fields := strings.Fields(text[end+1:])
	if end < 0 || len(fields) <= cstime {
		return procStat{}, fmt.Errorf("parse process stat %q: too few fields", text)
	}
	sid, err := strconv.Atoi(fields[session])
	if err != nil {
		return procStat{}, fmt.Errorf("parse process stat: session: %w", err)
	}
	var ticks [4]time.Duration
	for i := range ticks {
		n, err := strconv.ParseInt(fields[utime+i], 10, 64)
		if err != nil {
			return procStat{}, fmt.Errorf("parse process stat: CPU time: %w", err)
		}
		ticks[i] = time.Duration(n) * tick
	}
	return procStat{session: sid, own: ticks[0] + ticks[1], reaped: ticks[2] + ticks[3]}, nil
}

// stat reads one process.
func (fs procFS) stat(pid int) (procStat, error) {
	text, err := os.ReadFile(filepath.Join(string(fs), strconv.Itoa(pid), "stat"))
	if err != nil {
		return procStat{}, err
	}
	return parseStat(string(text))
}

// session lists the processes of a session. It omits processes that exit during the call.
func (fs procFS) session(sid int) (map[int]procStat, error) {
	entries, err := os.ReadDir(string(fs))
	if err != nil {
		return nil, err
	}
	members := map[int]procStat{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if stat, err := fs.stat(pid); err == nil && stat.session == sid {
			members[pid] = stat
		}
	}
	return members, nil
}

// sessionCPU returns the CPU time of a session so far: of its running processes, and of the child processes that they have
// reaped.
func (fs procFS) sessionCPU(sid int) (time.Duration, error) {
	members, err := fs.session(sid)
	var sum time.Duration
	for _, stat := range members {
		sum += stat.own + stat.reaped
	}
	return sum, err
}

// memory is resident memory in bytes. pss counts shared pages in proportion. anon is the part without a file behind it (the
// heap); the remainder is mostly the text of the binary, which the kernel can drop.
type memory struct{ rss, pss, anon uint64 }

// sessionMemory adds up the memory of a session.
func (fs procFS) sessionMemory(sid int) (memory, error) {
	var sum memory
	members, err := fs.session(sid)
	if err != nil {
		return sum, err
	}
	for pid := range members {
		dir := filepath.Join(string(fs), strconv.Itoa(pid))
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil {
			return sum, err
		}
		rollup, err := os.ReadFile(filepath.Join(dir, "smaps_rollup"))
		if err != nil {
			return sum, err
		}
		sum.rss += parseKiB(string(status), "VmRSS")
		sum.anon += parseKiB(string(status), "RssAnon")
		sum.pss += parseKiB(string(rollup), "Pss")
	}
	return sum, nil
}

// parseKiB returns the bytes of a "Key:   123 kB" line, 0 when there is none.
func parseKiB(text, key string) uint64 {
	for line := range strings.Lines(text) {
		value, found := strings.CutPrefix(line, key+":")
		if !found {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0
		}
		return n << 10
	}
	return 0
}

// machineCPU returns the busy time of all cores since boot.
func (fs procFS) machineCPU() (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(string(fs), "stat"))
	if err != nil {
		return 0, err
	}
	return parseMachineCPU(string(text))
}

// parseMachineCPU parses the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. The guest
// times after them are included in user and nice.
func parseMachineCPU(text string) (time.Duration, error) {
	const idle, iowait, steal = 3, 4, 7
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) <= steal+1 || fields[0] != "cpu" {
		return 0, fmt.Errorf("parse machine CPU times %q: not the line of all cores", line)
	}
	var busy time.Duration
	for i, field := range fields[1 : steal+2] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse machine CPU times: %w", err)
		}
		if i != idle && i != iowait {
			busy += time.Duration(n) * tick
		}
	}
	return busy, nil
}

// ownCPU returns the CPU time of the harness so far.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// millicores returns the CPU time spent per elapsed time.
func millicores(spent, elapsed time.Duration) float64 {
	return 1000 * spent.Seconds() / elapsed.Seconds()
}
