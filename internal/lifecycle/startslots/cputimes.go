// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package startslots

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
)

// cpuTimes is how much time all processors together have spent since the machine came up, in the kernel's unit.
type cpuTimes struct{ idle, all uint64 }

// idleSince returns the share of the time since an earlier look that was idle, or a negative number where no time has
// passed or the counters went back.
func (t cpuTimes) idleSince(before cpuTimes) float64 {
	if t.all <= before.all || t.idle < before.idle || t.idle-before.idle > t.all-before.all {
		return -1
	}
	return float64(t.idle-before.idle) / float64(t.all-before.all)
}

// readCPUTimes reads the machine's. Where there is no /proc/stat it is an error.
func readCPUTimes() (cpuTimes, error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return cpuTimes{}, err
	}
	defer f.Close()
	var line [512]byte // the rest is of single processors
	n, err := io.ReadFull(f, line[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return cpuTimes{}, fmt.Errorf("read /proc/stat: %w", err)
	}
	return parseCPUTimes(line[:n])
}

// parseCPUTimes reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq and steal; the times of
// guests are in those of users. A processor that waits for a disk is not idle here: more starts would wait for it as well.
func parseCPUTimes(text []byte) (t cpuTimes, err error) {
	const idle, steal = 4, 8
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) <= idle || string(fields[0]) != "cpu" {
		return t, fmt.Errorf("parse /proc/stat: %.40q is not the line of all CPUs", line)
	}
	for i, field := range fields[1:min(len(fields), steal+1)] {
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil || n > math.MaxUint64-t.all {
			return cpuTimes{}, fmt.Errorf("parse /proc/stat: %.40q is not a CPU time", field)
		}
		t.all += n
		if i+1 == idle {
			t.idle = n
		}
	}
	return t, nil
}
