// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Load is the usage of a worker during one Tick.
type Load struct {
	CPU           float64 // CPUs
	Memory, Cache int     // blocks
}

// Environment returns the environment variables of a worker with these loads. The last load continues until the process is killed. The worker writes
// file to use page cache. The first worker of a pod waits until the file start exists.
func Environment(loads []Load, file, start string) map[string]string {
	return map[string]string{variable: formatLoads(loads), fileVariable: file, goVariable: start}
}

// ReadTimes returns the times at which the workers of the pod with this file were ready, and the times at which their loads began. Both are nil for a
// pod without a worker.
func ReadTimes(file string) (ready, began []time.Time, err error) {
	if ready, err = readTimes(file + readySuffix); err == nil {
		began, err = readTimes(file + beganSuffix)
	}
	return ready, began, err
}

// readTimes returns the times in a file, or none if it does not exist.
func readTimes(file string) (times []time.Time, err error) {
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil, nil
	}
	for field := range strings.FieldsSeq(string(text)) {
		ns, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", file, err)
		}
		times = append(times, time.Unix(0, ns))
	}
	return times, err
}

// formatLoads returns the text of loads: "NUMBER CPU MEMORY CACHE" for each run of equal loads, separated by commas.
func formatLoads(loads []Load) string {
	var b strings.Builder
	for i := 0; i < len(loads); {
		n := 1
		for i+n < len(loads) && loads[i+n] == loads[i] {
			n++
		}
		fmt.Fprintf(&b, "%d %g %d %d,", n, loads[i].CPU, loads[i].Memory, loads[i].Cache)
		i += n
	}
	return strings.TrimSuffix(b.String(), ",")
}

// parseLoads returns the loads in a text of formatLoads, at least one.
func parseLoads(text string) (loads []Load, err error) {
	for run := range strings.SplitSeq(text, ",") {
		var n int
		var l Load
		if _, err := fmt.Sscan(run, &n, &l.CPU, &l.Memory, &l.Cache); err != nil || n < 1 {
			return nil, fmt.Errorf("loads %q: invalid", run)
		}
		for range n {
			loads = append(loads, l)
		}
	}
	return loads, nil
}
