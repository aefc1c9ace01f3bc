// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package shim keeps one container's process: a small process of its own, the embedding program executed anew,
// that outlives the agent. It starts the process, writes its log, reaps what it leaves behind and records its
// end. The agent's side of it, starting and finding shims and talking to them, is here too. What a container or
// a sandbox is, the package does not know: it knows a directory.
//
// # The directory
//
//	spec.json   what to run; the agent writes it before it starts a shim
//	lock        locked (flock) for as long as the shim lives; the kernel unlocks it whatever ends the shim
//	run.json    the process has started; written by the shim
//	exit.json   the process has ended; written by the shim or, when the shim was killed, by the agent
//	shim.sock   takes requests: signal, kill, reopen the log, exec
//	shim.log    what the shim itself prints, empty unless it crashes
package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	specFile = "spec.json"
	runFile  = "run.json"
	exitFile = "exit.json"
	lockFile = "lock"
	sockFile = "shim.sock"
	logFile  = "shim.log"
)

// Spec says what to run.
type Spec struct {
	Argv       []string
	Env        []string // all of it: nothing is inherited
	Dir        string
	Log        string // absolute path of the log file; empty: output is dropped
	Stdin      bool   // stdin stays open and never yields anything; otherwise it is empty
	User       *User  // nil: the agent's
	NoNewPrivs bool
}

// User is who the process runs as.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Run is the record of a process that was started.
type Run struct {
	Boot  string // ID of the boot it was started in
	Shim  int    // pid of the shim
	PID   int    // of the process, which leads a session and a process group of this number
	Start uint64 // its start in clock ticks after boot
	At    time.Time
}

// Exit is the record of a process that ended or could not be started.
type Exit struct {
	Code    int32 // 128+n where signal n ended it
	Reason  string
	Message string
	Started time.Time // zero when it never ran
	At      time.Time
}

// The reasons in an [Exit]; those of containerd.
const (
	ReasonCompleted  = "Completed"
	ReasonError      = "Error"
	ReasonStartError = "StartError"
	ReasonUnknown    = "Unknown" // the shim ended before it could say
)

// Codes of an [Exit] that no process returned.
const (
	codeStartError = 128
	codeLost       = 137 // 128+SIGKILL
)

// WriteSpec puts a spec into a directory.
func WriteSpec(dir string, s Spec) error { return Write(filepath.Join(dir, specFile), s) }

// ReadRun returns the record that the process was started.
func ReadRun(dir string) (Run, error) { return Read[Run](filepath.Join(dir, runFile)) }

// StartFailed records that the process could not be started.
func StartFailed(dir string, cause error) (Exit, error) {
	e := Exit{Code: codeStartError, Reason: ReasonStartError, Message: cause.Error(), At: time.Now()}
	return e, writeExit(dir, e)
}

// Read reads a JSON file.
func Read[T any](path string) (T, error) {
	var v T
	data, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("read %s: %w", path, err)
	}
	return v, nil
}

// Write replaces a JSON file in one step. After a power cut the file may be broken, and its directory is then of no
// account.
func Write(path string, v any) error { return write(path, v, false) }

// writeExit keeps the record of an end even through a power cut: a finished job must not run again.
func writeExit(dir string, e Exit) error { return write(filepath.Join(dir, exitFile), e, true) }

func write(path string, v any, durable bool) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	file, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil && durable {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
