// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"math"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// Never is the After of an [Exit] that does not come.
const Never time.Duration = math.MaxInt64

// Exit is an end of a container.
type Exit struct {
	After   time.Duration // since the start, since the stop signal, or since [Runtime.KillWith]
	Code    int32
	Reason  string // empty: Completed or Error, by the code
	Message string
}

// Script is what a container instance does. The zero Script runs until it is stopped, and then dies of the stop signal at
// once.
type Script struct {
	StartAfter time.Duration // how long StartContainer takes
	StartError error         // why StartContainer fails; the container has then exited with 128 and StartError
	Exit       *Exit         // its end if nobody stops it; nil: Never
	Stop       *Exit         // its end after the stop signal; nil: at once, with 128 and the signal's number

	// Started is called when the container has started, before StartContainer returns: what its program does first, or who
	// watches it. It is called with no lock held, on the goroutine of that call, and may ask the runtime. Nil does nothing.
	Started func(c cri.Container)

	// Exec answers a command that is run inside the container; nil: every command succeeds and prints nothing.
	// It is called with no lock held, and its context ends with the timeout of the command and with the
	// container. It must return when its context ends.
	Exec ExecFunc
	// Session plays a command on the streams of a session, under the same conditions; nil: Exec answers.
	Session SessionFunc
	// Attach plays the process for a client that is attached; nil: it reads and writes nothing.
	Attach AttachFunc
}

// ExitAfter is a container that exits by itself.
func ExitAfter(d time.Duration, code int32) Script {
	return Script{Exit: &Exit{After: d, Code: code}}
}

// OOMAfter is a container that the kernel kills for want of memory.
func OOMAfter(d time.Duration) Script {
	return Script{Exit: &Exit{After: d, Code: codeKilled, Reason: reasonOOMKilled}}
}

// IgnoreTERM is a container that only SIGKILL ends.
func IgnoreTERM() Script {
	return Script{Stop: &Exit{After: Never}}
}

// ExitAfterStop is a container that takes its time to exit after the stop signal.
func ExitAfterStop(d time.Duration, code int32) Script {
	return Script{Stop: &Exit{After: d, Code: code}}
}

// FailStart is a container that cannot be started.
func FailStart(err error) Script {
	return Script{StartError: err}
}

// FailFirst gives the script to the first n attempts of a container and lets later ones run until they are
// stopped. It is meant for [Options.Script].
func FailFirst(n uint32, s Script) func(*cri.ContainerConfig) Script {
	return func(c *cri.ContainerConfig) Script {
		if c.Attempt < n {
			return s
		}
		return Script{}
	}
}

// ByName gives each container the script under its name, and the zero Script where there is none. It is meant for
// [Options.Script].
func ByName(scripts map[string]Script) func(*cri.ContainerConfig) Script {
	return func(c *cri.ContainerConfig) Script { return scripts[c.Name] }
}

const (
	codeKilled     = 137 // 128 + SIGKILL
	codeStartError = 128 // what containerd gives a container that did not start

	reasonCompleted  = "Completed"
	reasonError      = "Error"
	reasonOOMKilled  = "OOMKilled"
	reasonStartError = "StartError"
)

// reason returns the reason that a runtime shows for the exit.
func (e Exit) reason() string {
	switch {
	case e.Reason != "":
		return e.Reason
	case e.Code == 0:
		return reasonCompleted
	default:
		return reasonError
	}
}

// stopped returns the end after a stop signal.
func (s Script) stopped(sig cri.Signal) Exit {
	if s.Stop != nil {
		return *s.Stop
	}
	return Exit{Code: 128 + signalNumber(sig)}
}

// signalNumber knows the signals that images ask to be stopped with; any other counts as SIGTERM.
func signalNumber(s cri.Signal) int32 {
	switch strings.TrimPrefix(string(s), "SIG") {
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
