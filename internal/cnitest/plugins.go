// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cnitest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Plugins is a directory of scripted plugins.
type Plugins struct {
	Dir string // plugin directory for the code under test

	t testing.TB
}

// Names of the files in a directory of plugins.
const (
	scriptFile = ".script.json"
	callsFile  = ".calls.jsonl"
)

// script has the answers of the plugins for their calls. The key is a plugin and a CNI command, such as "bridge ADD".
type script map[string][]Answer

// Call is one recorded call of a plugin.
type Call struct {
	Plugin      string
	Command     string // such as "ADD"
	ContainerID string
	Netns       string
	Interface   string
	Args        string          // CNI_ARGS
	Path        string          // CNI_PATH
	Config      json.RawMessage // configuration from standard input
	PID         int
	Child       int // PID of its child process; zero: none
}

// String returns the plugin and the CNI command, such as "bridge ADD".
func (c Call) String() string { return c.Plugin + " " + c.Command }

// Field returns, as JSON, the field called name of the network configuration that the plugin received, such as "prevResult"
// or "runtimeConfig". It returns "" if the field is missing.
func (c Call) Field(name string) string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(c.Config, &fields)
	return string(fields[name])
}

// New creates a directory with executable plugins of the given names. The directory is removed when the test ends. On
// systems other than Linux, New skips the test.
func New(t testing.TB, names ...string) *Plugins {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("scripted plugins are processes of Linux")
	}
	p := &Plugins{Dir: t.TempDir(), t: t}
	p.writeScript(script{})
	for _, name := range names {
		p.Install(name)
	}
	return p
}

// Install adds an executable plugin with this name to the directory.
func (p *Plugins) Install(name string) {
	p.t.Helper()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(p.Dir, name))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// Uninstall removes the plugin called name from the directory.
func (p *Plugins) Uninstall(name string) {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.Dir, name)); err != nil {
		p.t.Fatal(err)
	}
}

// Script sets the answers of plugin to its calls with a CNI command, such as "ADD": one per call, and the last one for all
// further calls. Without answers, the plugin succeeds with a default result.
func (p *Plugins) Script(plugin, command string, answers ...Answer) {
	p.t.Helper()
	s, err := readScript(p.Dir)
	if err != nil {
		p.t.Fatal(err)
	}
	s[plugin+" "+command] = answers
	p.writeScript(s)
}

// writeScript writes answers to the file that the test plugins read when they are called. It replaces the file atomically,
// because a plugin may read it at any time.
func (p *Plugins) writeScript(answers script) {
	p.t.Helper()
	data, err := json.Marshal(answers)
	if err != nil {
		p.t.Fatal(err)
	}
	path := filepath.Join(p.Dir, scriptFile)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.t.Fatal(err)
	}
}

func readScript(dir string) (script, error) {
	data, err := os.ReadFile(filepath.Join(dir, scriptFile))
	if err != nil {
		return nil, err
	}
	s := script{}
	return s, json.Unmarshal(data, &s)
}

// Calls returns the recorded calls of all plugins in order. If commands are given, it returns only the calls of these CNI
// commands, such as "ADD".
func (p *Plugins) Calls(commands ...string) []Call {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.Dir, callsFile))
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	calls, err := parseCalls(data)
	if err != nil {
		p.t.Fatal(err)
	}
	return slices.DeleteFunc(calls, func(c Call) bool {
		return len(commands) > 0 && !slices.Contains(commands, c.Command)
	})
}

// CallNames returns the calls of [Plugins.Calls] as one text, such as "bridge ADD, portmap ADD". If commands are given, it
// lists only the calls of these CNI commands.
func (p *Plugins) CallNames(commands ...string) string {
	p.t.Helper()
	var words []string
	for _, c := range p.Calls(commands...) {
		words = append(words, c.String())
	}
	return strings.Join(words, ", ")
}

// ClearCalls deletes the records of all calls so far.
func (p *Plugins) ClearCalls() {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.Dir, callsFile)); err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
}

func parseCalls(data []byte) ([]Call, error) {
	var calls []Call
	for line := range strings.Lines(string(data)) {
		if !strings.HasSuffix(line, "\n") { // a plugin is writing it
			break
		}
		var c Call
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	return calls, nil
}
