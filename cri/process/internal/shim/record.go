// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package shim runs and supervises the process of one container in a small process of its own, the shim, which outlives the
// agent. The package knows only a container directory, not the container or its sandbox. A shim is the embedding program executed
// again.
//
// The shim starts the process, writes its log, reaps its descendants and records its exit. The agent's side is also here: it
// starts and finds shims and sends them requests.
//
// # The directory
//
//	spec.json   program and environment to run; written by the agent before it starts a shim
//	lock        locked (flock) while the shim is alive; the kernel releases it at any exit of the shim
//	run.json    the process has started; written by the shim
//	exit.json   the process has exited; written by the shim or, if the shim was killed, by the agent
//	shim.sock   socket for requests: signal, kill, reopen, exec, and since protocol 2 run and attach
//	shim.log    output of the shim itself, empty unless it crashes
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

// Spec is the program to run, and its environment.
type Spec struct {
	Argv       []string
	Env        []string // complete: nothing is inherited
	Dir        string
	Log        string // absolute path of the log file; empty: output is discarded
	Stdin      bool   // keep stdin open for input of clients; otherwise stdin is empty
	StdinOnce  bool   // close stdin when the first client that sent input disconnects
	TTY        bool   // use one terminal as stdin, stdout and stderr
	User       *User  // nil: the agent's user
	NoNewPrivs bool

	Netns    string            // path of the network namespace; empty: the host's
	Sysctls  map[string]string // sysctls of the network namespace, such as net.ipv4.ip_forward
	Hostname string            // host name in a new UTS namespace; empty: the host's namespace

	MountNamespace bool // create a mount namespace with Mounts
	Mounts         []mountns.Mount

	Cgroups     []string // directories of existing cgroups, one per hierarchy; removed after the exit
	OOMScoreAdj *int     // nil: that of the shim
}

// User contains the user and group IDs of the process.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Run is the record of a started process.
type Run struct {
	Boot  string // boot ID of the machine at the start
	Shim  int    // PID of the shim
	PID   int    // PID of the process, which leads a session and a process group
	Start uint64 // start of the process in clock ticks after boot
	At    time.Time
}

// Exit is the record of a process that exited or could not be started.
type Exit struct {
	Code    int32 // 128+n if signal n killed the process
	Reason  string
	Message string
	Started time.Time // zero if it never ran
	At      time.Time
}

// The reasons in an [Exit], with containerd's names.
const (
	ReasonCompleted  = "Completed"
	ReasonError      = "Error"
	ReasonStartError = "StartError"
	ReasonOOMKilled  = "OOMKilled" // the OOM killer killed one of its processes; the exit code is not considered
	ReasonUnknown    = "Unknown"   // the shim exited before it wrote a record
)

// Exit codes of an [Exit] that no process returned.
const (
	codeStartError = 128
	codeLost       = 137 // 128+SIGKILL
)

// WriteSpec writes the spec to its file in the directory of a container.
func WriteSpec(dir string, spec Spec) error { return WriteRecord(filepath.Join(dir, specFile), spec) }

// ReadSpec reads the spec from the directory of a container.
func ReadSpec(dir string) (Spec, error) { return ReadRecord[Spec](filepath.Join(dir, specFile)) }

// ReadRun reads the start record from the directory of a container.
func ReadRun(dir string) (Run, error) { return ReadRecord[Run](filepath.Join(dir, runFile)) }

// RecordStartFailure writes an exit record to the directory of a container whose process could not be started, and returns
// the record.
func RecordStartFailure(dir string, cause error) (Exit, error) {
	e := Exit{Code: codeStartError, Reason: ReasonStartError, Message: cause.Error(), At: time.Now()}
	return e, writeExit(dir, e)
}

// maxRecord is the maximum size of a record in bytes: four times the maximum of a CRI request.
const maxRecord = 64 << 20

// ReadRecord reads a JSON file. After an error for which [IsReadFailure] returns true, the content of the file is unknown. After
// any other error the file is missing or damaged.
func ReadRecord[T any](path string) (T, error) {
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

// readRegular reads a regular file of at most maxRecord bytes.
func readRegular(path string) ([]byte, error) {
	// does not block on a named pipe, by which another program may have replaced the file
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

// IsReadFailure reports whether err means that an existing file cannot be read now, for example because no descriptor is
// free. The caller must not conclude that the process has exited, because the file may be readable later.
func IsReadFailure(err error) bool {
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, path := errors.AsType[*fs.PathError](err)
	_, call := errors.AsType[*os.SyscallError](err)
	return path || call
}

// WriteRecord writes a value as JSON and replaces the file atomically. It does not sync the file to disk. If a power failure
// damages the file, the directory of the container is discarded.
func WriteRecord(path string, value any) error { return writeRecord(path, value, nil) }

// writeExit writes the exit record to dir and syncs it to disk. If a power failure lost the record, a completed job could
// run again.
func writeExit(dir string, exit Exit) error { return writeExitSynced(dir, exit, (*os.File).Sync) }

// writeExitSynced writes the exit record, and calls sync for each file and directory that a power failure could lose.
func writeExitSynced(dir string, exit Exit, sync func(*os.File) error) error {
	if err := writeRecord(filepath.Join(dir, exitFile), exit, sync); err != nil {
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

// syncPath calls sync for the file or directory at this path. It ignores the error of a file system that cannot sync
// directories.
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

// writeRecord writes a value as JSON and replaces the file atomically. sync, which may be nil, is called before the rename.
func writeRecord(path string, value any, sync func(*os.File) error) error {
	data, err := json.Marshal(value)
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
