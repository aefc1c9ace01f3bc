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
//	shim.sock   takes requests: signal, kill, reopen the log, exec, and since protocol 2 run and attach
//	shim.log    what the shim itself prints, empty unless it crashes
package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/cri/process/internal/mountns"
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
	Stdin      bool   // stdin stays open and yields what clients send; otherwise it is empty
	StdinOnce  bool   // stdin ends with the first client that has sent to it
	TTY        bool   // a terminal is stdin, stdout and stderr
	User       *User  // nil: the agent's
	NoNewPrivs bool

	Netns    string            // path of the network namespace; empty: the host's
	Sysctls  map[string]string // of that namespace, such as net.ipv4.ip_forward
	Hostname string            // in a UTS namespace of its own; empty: the host's

	MountNamespace bool // there is one, with Mounts in it
	Mounts         []mountns.Mount

	Cgroups     []string // directories, one in each hierarchy, that are there when it starts and go with it
	OOMScoreAdj *int     // nil: the shim's
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
	ReasonOOMKilled  = "OOMKilled" // some process of it was, whatever the code is
	ReasonUnknown    = "Unknown"   // the shim ended before it could say
)

// Codes of an [Exit] that no process returned.
const (
	codeStartError = 128
	codeLost       = 137 // 128+SIGKILL
)

// WriteSpec puts a spec into a directory.
func WriteSpec(dir string, s Spec) error { return Write(filepath.Join(dir, specFile), s) }

// ReadSpec returns the spec of a directory.
func ReadSpec(dir string) (Spec, error) { return Read[Spec](filepath.Join(dir, specFile)) }

// ReadRun returns the record that the process was started.
func ReadRun(dir string) (Run, error) { return Read[Run](filepath.Join(dir, runFile)) }

// StartFailed records that the process could not be started.
func StartFailed(dir string, cause error) (Exit, error) {
	e := Exit{Code: codeStartError, Reason: ReasonStartError, Message: cause.Error(), At: time.Now()}
	return e, writeExit(dir, e)
}

// maxRecord is the most that a record may hold, in bytes: four times what a request of the CRI may.
const maxRecord = 64 << 20

// Read reads a JSON file. An error that [IsTrouble] knows says nothing of its content; another one, that the file is
// damaged or none of ours.
func Read[T any](path string) (T, error) {
	var v T
	data, err := readRegular(path)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("read %s: %w", path, err)
	}
	return v, nil
}

// readRegular reads a file of a bounded size. What a program has put in its place, such as a FIFO without a writer,
// must not hold the agent up.
func readRegular(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read %s: it is %s, not a regular file", path, info.Mode().Type())
	case info.Size() > maxRecord:
		return nil, fmt.Errorf("read %s: %d bytes, more than %d", path, info.Size(), maxRecord)
	}
	return io.ReadAll(io.LimitReader(file, maxRecord))
}

// IsTrouble reports whether an error is that of a machine which cannot read now, as one without free descriptors. It
// is no reason to forget what runs, nor to believe that it has ended.
func IsTrouble(err error) bool {
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, path := errors.AsType[*fs.PathError](err)
	_, call := errors.AsType[*os.SyscallError](err)
	return path || call
}

// Write replaces a JSON file in one step. After a power cut the file may be broken, and its directory is then of no
// account.
func Write(path string, v any) error { return write(path, v, nil) }

// writeExit keeps the record of an end even through a power cut: a finished job must not run again.
func writeExit(dir string, e Exit) error { return keepExit(dir, e, (*os.File).Sync) }

// keepExit writes the record of an end and brings everything to the disk that it takes to find it there again, by sync:
// its content before its name, the records beside it, which nobody has brought there so far, the names of all of them,
// and the name of the directory.
func keepExit(dir string, e Exit, sync func(*os.File) error) error {
	if err := write(filepath.Join(dir, exitFile), e, sync); err != nil {
		return err
	}
	records, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	errs := make([]error, 0, len(records)+2)
	for _, path := range append(records, dir, filepath.Dir(dir)) {
		if filepath.Base(path) != exitFile {
			errs = append(errs, syncPath(path, sync))
		}
	}
	return errors.Join(errs...)
}

// syncPath brings a file or a directory to the disk. A file system that has no such call for directories does so by
// itself.
func syncPath(path string, sync func(*os.File) error) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := sync(file); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// write replaces a JSON file, after sync where there is one.
func write(path string, v any, sync func(*os.File) error) error {
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
	if err == nil && sync != nil {
		err = sync(file)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
