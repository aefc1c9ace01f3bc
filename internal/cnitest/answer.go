// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cnitest

import (
	"encoding/json"
	"strings"
)

// Answer is what a plugin does when it is called. The zero value is what it does without a script.
type Answer struct {
	Stdout string // printed as it is, instead of a result
	Repeat int    // how often Stdout is printed; zero: once
	Stderr string
	Exit   int  // exit code
	Crash  bool // it kills itself, after what it prints
	Hang   bool // it does not end, after what it prints
	Child  Child
}

// Child is a process that a plugin starts and that has its standard output open.
type Child string

// The kinds of children.
const (
	NoChild      Child = ""
	GroupChild   Child = "group"   // in the process group of the plugin
	SessionChild Child = "session" // in a session of its own, out of the reach of a signal to the group
)

// Passes is the answer without a script.
func Passes() Answer { return Answer{} }

// Returns is a result, or any other JSON.
func Returns(result string) Answer { return Answer{Stdout: result} }

// Fails is a CNI error with its code. Details are optional.
func Fails(code uint, message string, details ...string) Answer {
	data, _ := json.Marshal(struct {
		Code    uint   `json:"code"`
		Msg     string `json:"msg"`
		Details string `json:"details,omitempty"`
	}{code, message, strings.Join(details, " ")})
	return Answer{Stdout: string(data), Exit: 1}
}

// Hangs is no answer: the plugin does not end, and neither does its child.
func Hangs(c Child) Answer { return Answer{Hang: true, Child: c} }

// Crashes is a plugin that is killed by a signal.
func Crashes() Answer { return Answer{Crash: true} }
