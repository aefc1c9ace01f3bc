// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cnitest

import (
	"encoding/json"
	"strings"
)

// Answer is the behaviour of a scripted plugin in one call. The zero value is the default behaviour.
type Answer struct {
	Stdout string // printed unchanged, instead of a result
	Repeat int    // how often Stdout is printed; zero: once
	Stderr string
	Exit   int  // exit code
	Crash  bool // the plugin kills itself after its output
	Hang   bool // the plugin does not exit after its output
	Child  Child
}

// Child is the kind of a child process that a plugin starts, with its standard output open.
type Child string

// The kinds of child processes.
const (
	NoChild      Child = ""
	GroupChild   Child = "group"   // in the process group of the plugin
	SessionChild Child = "session" // in a session of its own, which a signal to the group does not reach
)

// Succeed returns the default Answer: the plugin succeeds with a default result.
func Succeed() Answer { return Answer{} }

// Return returns an Answer with which the plugin prints result, usually a CNI result in JSON, and succeeds.
func Return(result string) Answer { return Answer{Stdout: result} }

// Fail returns an Answer with which the plugin prints a CNI error with the given code, message and details, and exits with
// exit code 1.
func Fail(code uint, message string, details ...string) Answer {
	data, _ := json.Marshal(struct {
		Code    uint   `json:"code"`
		Msg     string `json:"msg"`
		Details string `json:"details,omitempty"`
	}{code, message, strings.Join(details, " ")})
	return Answer{Stdout: string(data), Exit: 1}
}

// Hang returns an Answer with which the plugin prints nothing and runs until the test ends. The plugin also starts a child
// process of this kind, or none for [NoChild].
func Hang(child Child) Answer { return Answer{Hang: true, Child: child} }

// Crash returns an Answer with which the plugin kills itself with SIGKILL.
func Crash() Answer { return Answer{Crash: true} }
