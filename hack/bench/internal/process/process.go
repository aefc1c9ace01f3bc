// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package process runs the process of a measured agent, and reads its usage from /proc.
//
// A [Process] is used by one goroutine at a time, except Alive, which is safe for concurrent use. Errors name the process or
// the file.
package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/internal/agentfile"
)

// Process is a running agent.
type Process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when the process has exited
}

// StartAgent starts examples/agent with the fields of its configuration in a file.
func StartAgent(program, dir string, fields map[string]any) (*Process, error) {
	config, err := agentfile.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return start(program, dir, config, "-config={}")
}

// Start starts a program with its configuration in a file. {} in args is replaced by the path of the file.
func Start(program, dir string, fields map[string]any, args ...string) (*Process, error) {
	config, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return start(program, dir, config, args...)
}

func start(program, dir string, config []byte, args ...string) (*Process, error) {
	file := filepath.Join(dir, "config")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{}", file)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &Process{cmd: exec.Command(program, args...), log: log.Name(), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // exits with the process, for which Stop waits
		_ = p.cmd.Wait() // the result is in ProcessState
		close(p.ended)
	}()
	return p, nil
}

// Alive returns nil while the process runs. Afterwards it returns an error with the end of its output.
func (p *Process) Alive() error {
	select {
	case <-p.ended:
		text, _ := os.ReadFile(p.log)
		text = bytes.TrimSpace(text)
		return fmt.Errorf("it ended by itself (%s); its last output:\n%s", p.cmd.ProcessState, text[max(0, len(text)-2000):])
	default:
		return nil
	}
}

// Stop sends SIGTERM, and SIGKILL after the grace period.
func (p *Process) Stop(grace time.Duration) error {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case <-p.ended:
			return nil
		case <-time.After(grace):
		}
	}
	return fmt.Errorf("process %d does not end", p.cmd.Process.Pid)
}

// Resident returns the resident memory of the process in MiB.
func (p *Process) Resident() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return parseResident(string(text))
}

// parseResident reads VmRSS of /proc/PID/status.
func parseResident(status string) (float64, error) {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("parse process status: it has no VmRSS")
}

// CPU returns the CPU time of the process.
func (p *Process) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return parseCPU(string(text))
}

// parseCPU reads user and system time of /proc/PID/stat, in hundredths of a second. The name of the program is in brackets
// and may contain any characters.
func parseCPU(stat string) (time.Duration, error) {
	const utime, stime = 11, 12
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0, fmt.Errorf("parse process stat %q: too few fields", stat)
	}
	var sum time.Duration
	for _, field := range fields[utime : stime+1] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("parse process stat: %w", err)
		}
		sum += time.Duration(ticks) * time.Second / 100
	}
	return sum, nil
}

// RemoveTree unmounts all mounts of agents below a directory, and removes it.
func RemoveTree(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			if err := syscall.Unmount(fields[4], syscall.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", fields[4], err)
			}
		}
	}
	return os.RemoveAll(dir)
}
