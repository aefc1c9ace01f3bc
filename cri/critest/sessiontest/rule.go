// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package sessiontest

// The sentences of package cri's documentation that the suite holds a runtime to, as in package critest.
const (
	ruleExecEnd    = "SessionRunner: It returns when the command has ended and all that it wrote has been written to s, however slowly that goes"
	ruleExecCode   = "SessionRunner: a non-zero exit code is a result, not an error."
	ruleExecLeaves = "SessionRunner: When ctx ends, the command is killed with what it started, and the error is the cause of ctx."
	ruleRunning    = "SessionRunner: RunExec runs a command in a running container."
	ruleTTY        = "Session: TTY gives the command a terminal, whose one output is Stdout"
	ruleResize     = "Session: Resize has the sizes of the terminal, the newest last."
	ruleStdin      = "Session: nil: empty"
	ruleAttach     = "SessionRunner: It returns nil when the container has ended and its output is written, and the cause of ctx when that ends; the container goes on."
	ruleStdinEnds  = "SessionRunner: About a second after the end of Stdin it returns nil too, unless that ends the container's own stdin (StdinOnce)."
	ruleAttachSlow = "SessionRunner: A client never delays the container: one that is too far behind is ended with an error."
	ruleStdinOnce  = "ContainerConfig.StdinOnce: close stdin when the first client leaves"
	ruleForward    = "SessionRunner: RunPortForward connects conn to a port on the loopback of a sandbox"
	ruleForwardEnd = "SessionRunner: It closes conn."
	ruleNotFound   = "cri: An object that is not there is [ErrNotFound]"
)
