// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cnitest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// childArg is the argument with which a plugin starts its child process.
const childArg = "cnitest-child"

// Main runs the scripted plugin and exits if this process was started as a plugin. Otherwise it returns at once. Call it first in
// TestMain.
func Main() {
	dir, plugin := filepath.Split(os.Args[0])
	if len(os.Args) == 2 && os.Args[1] == childArg {
		waitForTestEnd(dir)
	}
	if _, ok := os.LookupEnv("CNI_COMMAND"); !ok {
		// With the race detector, a process takes a second to exit, which plugins need not.
		if err := os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0"); err != nil {
			panic(err)
		}
		return
	}
	code, err := runScript(dir, plugin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cnitest:", err)
		code = 3
	}
	os.Exit(code)
}

// waitForTestEnd blocks until the test ends, and then exits this process. It detects the end by the removal of the directory
// dir.
func waitForTestEnd(dir string) {
	for {
		if _, err := os.Lstat(filepath.Join(dir, scriptFile)); err != nil {
			os.Exit(0)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// runScript acts as the plugin in one CNI call: it prints the scripted answer and returns the exit code.
func runScript(dir, plugin string) (exit int, err error) {
	call := Call{
		Plugin: plugin, Command: os.Getenv("CNI_COMMAND"), ContainerID: os.Getenv("CNI_CONTAINERID"), Netns: os.Getenv("CNI_NETNS"),
		Interface: os.Getenv("CNI_IFNAME"), Args: os.Getenv("CNI_ARGS"), Path: os.Getenv("CNI_PATH"), PID: os.Getpid(),
	}
	if call.Config, err = io.ReadAll(os.Stdin); err != nil {
		return 0, err
	}
	if !json.Valid(call.Config) {
		return 0, fmt.Errorf("the configuration is no JSON: %q", call.Config)
	}
	answer, err := recordCall(dir, &call)
	if err != nil {
		return 0, err
	}
	out := []byte(answer.Stdout)
	if answer.Stdout == "" && !answer.Hang && !answer.Crash && answer.Exit == 0 {
		out = defaultOutput(call)
	}
	for range max(1, answer.Repeat) {
		if _, err := os.Stdout.Write(out); err != nil {
			return 0, err
		}
	}
	fmt.Fprint(os.Stderr, answer.Stderr)
	if answer.Crash {
		return 0, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if answer.Hang {
		waitForTestEnd(dir)
	}
	return answer.Exit, nil
}

// recordCall appends a call to the file of calls in dir, and returns the scripted answer for it.
func recordCall(dir string, call *Call) (answer Answer, err error) {
	f, err := os.OpenFile(filepath.Join(dir, callsFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return answer, err
	}
	defer f.Close() // this releases the lock
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return answer, err
	}
	s, err := readScript(dir)
	if err != nil {
		return answer, err
	}
	earlier, err := io.ReadAll(f)
	if err != nil {
		return answer, err
	}
	before, err := parseCalls(earlier)
	if err != nil {
		return answer, err
	}
	// The answer depends on the number of earlier calls with the same plugin and command.
	count := 0
	for _, c := range before {
		if c.String() == call.String() {
			count++
		}
	}
	if answers := s[call.String()]; len(answers) > 0 {
		answer = answers[min(count, len(answers)-1)]
	}
	// The record contains the PID of the child process.
	if answer.Child != NoChild {
		if call.Child, err = startChild(answer.Child); err != nil {
			return answer, err
		}
	}
	line, err := json.Marshal(call)
	if err != nil {
		return answer, err
	}
	_, err = f.Write(append(line, '\n'))
	return answer, err
}

func startChild(kind Child) (pid int, err error) {
	cmd := exec.Command(os.Args[0], childArg)
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: kind == SessionChild}
	err = cmd.Start()
	if err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

// defaultOutput returns the output of a plugin without script: for ADD the previous result, or one with a generated address.
func defaultOutput(call Call) []byte {
	switch call.Command {
	case "VERSION":
		return []byte(`{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}`)
	case "ADD":
	default:
		return nil
	}
	if before := call.Field("prevResult"); before != "" {
		return []byte(before)
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(call.ContainerID + call.Interface))
	sum := hash.Sum(nil)
	version := call.Field("cniVersion")
	return fmt.Appendf(nil, `{"cniVersion":%s,"interfaces":[{"name":%q,"sandbox":%q}],"ips":[{%s"address":"10.%d.%d.%d/8","interface":0}]}`,
		version, call.Interface, call.Netns, versionField(version), sum[0], sum[1], sum[2])
}

// versionField returns the JSON field "version" of an IP address in a CNI result, or "" since CNI version 1.0.0.
func versionField(version string) string {
	if version < `"1` {
		return `"version":"4",`
	}
	return ""
}
