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

// cpuTimes are the CPU times of all processors since boot, in clock ticks.
type cpuTimes struct{ idle, all uint64 }

// idleFraction returns the fraction of idle CPU time since before, from 0 to 1, or a negative number if it is unknown.
func (t cpuTimes) idleFraction(before cpuTimes) float64 {
	if t.all <= before.all || t.idle < before.idle || t.idle-before.idle > t.all-before.all {
		return -1
	}
	return float64(t.idle-before.idle) / float64(t.all-before.all)
}

// readCPUTimes reads the CPU times from /proc/stat. It fails on systems without that file.
func readCPUTimes() (cpuTimes, error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return cpuTimes{}, err
	}
	defer f.Close()
	var line [512]byte // enough for the first line
	n, err := io.ReadFull(f, line[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return cpuTimes{}, fmt.Errorf("read /proc/stat: %w", err)
	}
	return parseCPUTimes(line[:n])
}

// parseCPUTimes parses the CPU times in the first line of /proc/stat.
func parseCPUTimes(text []byte) (t cpuTimes, err error) {
	const idle, steal = 4, 8
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) <= idle || string(fields[0]) != "cpu" {
		return t, fmt.Errorf("parse /proc/stat: %.40q is not the line of all CPUs", line)
	}
	// Without guest times, which the user times include. iowait is not idle: more parallel starts would wait for the
	// disk too.
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
