// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// agent is a program to measure: its name and how to start it.
type agent struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
	Binary  string   `json:"binary"` // path of Command[0]

	// prepare writes the files that the agent needs besides manifests, before each start. It may be nil.
	prepare func(p paths) error
}

// paths are the values of the placeholders in an agent's command line.
type paths struct{ cri, manifests, work string }

// expand replaces the placeholders in an argument.
func (p paths) expand(arg string) string {
	return strings.NewReplacer("{cri}", p.cri, "{manifests}", p.manifests, "{work}", p.work).Replace(arg)
}

// parseAgent reads NAME=COMMAND.
func parseAgent(text string) (agent, error) {
	name, command, found := strings.Cut(text, "=")
	fields := strings.Fields(command)
	if !found || name == "" || len(fields) == 0 {
		return agent{}, fmt.Errorf("parse agent %q: want NAME=COMMAND", text)
	}
	for _, placeholder := range []string{"{cri}", "{manifests}"} {
		if !strings.Contains(command, placeholder) {
			return agent{}, fmt.Errorf("parse agent %q: no %s in its command", text, placeholder)
		}
	}
	binary, err := findBinary(fields[0])
	if err != nil {
		return agent{}, fmt.Errorf("parse agent %q: %w", text, err)
	}
	return agent{Name: name, Command: fields, Binary: binary}, nil
}

// findBinary returns the absolute path of a program, because each agent runs in its own work directory.
func findBinary(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// process is a started agent. It leads its own session, so that its child processes can be found.
type process struct {
	cmd   *exec.Cmd
	log   string
	start time.Time
	ended chan struct{} // closed when the process has exited
}

// startAgent starts the agent with its output in a file of its work directory.
func startAgent(a agent, p paths) (*process, error) {
	if a.prepare != nil {
		if err := a.prepare(p); err != nil {
			return nil, fmt.Errorf("prepare agent %s: %w", a.Name, err)
		}
	}
	args := make([]string, len(a.Command)-1)
	for i, arg := range a.Command[1:] {
		args[i] = p.expand(arg)
	}
	log, err := os.Create(filepath.Join(p.work, "agent.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	run := &process{cmd: exec.Command(a.Binary, args...), log: log.Name(), ended: make(chan struct{})}
	run.cmd.Stdout, run.cmd.Stderr, run.cmd.Dir = log, log, p.work
	run.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	run.start = time.Now()
	if err := run.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start agent %s: %w", a.Name, err)
	}
	go func() { // exits with the process, for which stop waits
		_ = run.cmd.Wait() // the result is in ProcessState
		close(run.ended)
	}()
	return run, nil
}

// pid is the process id of the agent, and the id of its session.
func (p *process) pid() int { return p.cmd.Process.Pid }

// alive returns nil while the agent runs. Afterwards it returns an error with the end of its output.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("agent ended by itself (%s)", p.cmd.ProcessState)
	default:
		return nil
	}
}

// tail returns the end of the agent's output.
func (p *process) tail() string {
	const most = 2000
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimSpace(text)
	return string(text[max(0, len(text)-most):])
}

// stop sends SIGTERM to the agent and, after grace, SIGKILL to all processes of its session.
func (p *process) stop(ctx context.Context, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop agent: %w", err)
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
	}
	// The agent is killed before its children: a shell exits with the status of its child if the child is killed first.
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill agent: %w", err)
	}
	members, err := procFS("/proc").session(p.pid())
	for pid := range members {
		if killErr := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(killErr, syscall.ESRCH) {
			err = errors.Join(err, killErr)
		}
	}
	<-p.ended
	return err
}
