// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"math"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// Never is a value of Exit.After: the container does not exit.
const Never time.Duration = math.MaxInt64

// Exit describes how a container exits.
type Exit struct {
	After   time.Duration // since the start, the stop signal, or the [Runtime.KillWith] call
	Code    int32
	Reason  string // empty: Completed for code 0, else Error
	Message string
}

// Script determines the behaviour of one container instance. A container with the zero Script runs until the stop signal and
// exits at once with 128 plus the signal number.
type Script struct {
	StartAfter time.Duration // duration of StartContainer
	StartError error         // error of StartContainer; the container exits with code 128 and reason StartError
	Exit       *Exit         // exit without a stop signal; nil: Never
	Stop       *Exit         // exit after the stop signal; nil: at once, with 128 plus the signal number

	// Started is called when the container has started, before StartContainer returns. It may call the runtime. It runs without
	// locks in the goroutine of StartContainer. Nil does nothing.
	Started func(container cri.Container)
	// Exited is called when a running container has exited, with the lock of the runtime held: it must not call the runtime. Nil
	// does nothing.
	Exited func(container cri.Container)

	// Exec plays a command inside the container; if nil, every command succeeds without output. It is called without locks. Its
	// context ends with the timeout of the command and when the container exits. Exec must return when its context ends.
	Exec ExecFunc
	// Session plays the command of an exec session, under the conditions of Exec; if nil, Exec is used.
	Session SessionFunc
	// Attach plays the container's process for an attached client; if nil, it neither reads nor writes.
	Attach AttachFunc
}

// ExitAfter returns a script whose container runs for the duration d, and then exits with this code.
func ExitAfter(d time.Duration, code int32) Script {
	return Script{Exit: &Exit{After: d, Code: code}}
}

// OOMAfter returns a script whose container runs for the duration d, and is then killed by the OOM killer.
func OOMAfter(d time.Duration) Script {
	return Script{Exit: &Exit{After: d, Code: codeKilled, Reason: reasonOOMKilled}}
}

// IgnoreTERM returns a script whose container ignores the stop signal: it exits only when it is killed.
func IgnoreTERM() Script {
	return Script{Stop: &Exit{After: Never}}
}

// ExitAfterStop returns a script whose container exits with this code, at the time d after the stop signal.
func ExitAfterStop(d time.Duration, code int32) Script {
	return Script{Stop: &Exit{After: d, Code: code}}
}

// FailStart returns a script that makes StartContainer fail with err.
func FailStart(err error) Script {
	return Script{StartError: err}
}

// FailFirst returns a function for [Options.Script]. The first n attempts of each container run the given script. Later
// attempts run until they are stopped.
func FailFirst(n uint32, script Script) func(*cri.ContainerConfig) Script {
	return func(c *cri.ContainerConfig) Script {
		if c.Attempt < n {
			return script
		}
		return Script{}
	}
}

// ByName returns a function for [Options.Script] that selects the script by the name of the container. A container whose
// name is not in the map runs until it is stopped.
func ByName(scripts map[string]Script) func(*cri.ContainerConfig) Script {
	return func(c *cri.ContainerConfig) Script { return scripts[c.Name] }
}

const (
	codeKilled     = 137 // 128 + SIGKILL
	codeStartError = 128 // exit code that containerd assigns to a container that failed to start

	reasonCompleted  = "Completed"
	reasonError      = "Error"
	reasonOOMKilled  = "OOMKilled"
	reasonStartError = "StartError"
)

// reasonOrDefault returns e.Reason. If that is empty, it returns Completed for exit code 0 and Error for other codes.
func (e Exit) reasonOrDefault() string {
	switch {
	case e.Reason != "":
		return e.Reason
	case e.Code == 0:
		return reasonCompleted
	default:
		return reasonError
	}
}

// exitOnSignal returns how the container exits after it has received the stop signal sig: as s.Stop defines. If s.Stop is nil,
// the exit code is 128 plus the signal number.
func (s Script) exitOnSignal(sig cri.Signal) Exit {
	if s.Stop != nil {
		return *s.Stop
	}
	return Exit{Code: 128 + signalNumber(sig)}
}

// signalNumber returns the number of a common stop signal, and 15 (SIGTERM) for any other name.
func signalNumber(signal cri.Signal) int32 {
	switch strings.TrimPrefix(string(signal), "SIG") {
	case "HUP":
		return 1
	case "INT":
		return 2
	case "QUIT":
		return 3
	case "KILL":
		return 9
	case "USR1":
		return 10
	case "USR2":
		return 12
	case "WINCH":
		return 28
	default:
		return 15
	}
}
