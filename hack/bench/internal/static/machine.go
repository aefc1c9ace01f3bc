// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// machine describes the machine of a run.
type machine struct {
	Time    time.Time  `json:"time"`
	Kernel  string     `json:"kernel"`
	Cores   int        `json:"cores"`
	CPU     string     `json:"cpu"`
	Load    [3]float64 `json:"load"` // of 1, 5 and 15 minutes, before the first measurement
	Runtime string     `json:"runtime"`
	Image   string     `json:"image"`
	RunID   string     `json:"runID"`
	Seed    uint64     `json:"seed"` // of the random times between kills
}

// describeMachine reads the machine's part of the header.
func describeMachine() (machine, error) {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return machine{}, err
	}
	average, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return machine{}, err
	}
	load, err := parseLoad(string(average))
	if err != nil {
		return machine{}, err
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return machine{}, err
	}
	return machine{
		Time:   time.Now().UTC().Truncate(time.Second),
		Kernel: strings.TrimSpace(string(kernel)),
		Cores:  runtime.NumCPU(),
		CPU:    cpuModel(string(info)),
		Load:   load,
	}, nil
}

// parseLoad reads /proc/loadavg.
func parseLoad(text string) (load [3]float64, err error) {
	fields := strings.Fields(text)
	if len(fields) < len(load) {
		return load, fmt.Errorf("parse load average %q: too few fields", text)
	}
	for i := range load {
		if load[i], err = strconv.ParseFloat(fields[i], 64); err != nil {
			return load, fmt.Errorf("parse load average: %w", err)
		}
	}
	return load, nil
}

// cpuModel returns the name of the first processor in /proc/cpuinfo. Some architectures have none.
func cpuModel(info string) string {
	for line := range strings.Lines(info) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
