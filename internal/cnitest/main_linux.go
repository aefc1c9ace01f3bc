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

// childArg is the argument that a plugin starts its child with.
const childArg = "cnitest-child"

// Main plays the plugin, and does not return, if this process was started as one. TestMain calls it first.
func Main() {
	dir, plugin := filepath.Split(os.Args[0])
	if len(os.Args) == 2 && os.Args[1] == childArg {
		outlive(dir)
	}
	if _, ok := os.LookupEnv("CNI_COMMAND"); !ok {
		// With the race detector a program waits for a second when it ends. The plugins need not.
		if err := os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0"); err != nil {
			panic(err)
		}
		return
	}
	code, err := play(dir, plugin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cnitest:", err)
		code = 3
	}
	os.Exit(code)
}

// outlive waits for the end of the test, which removes the directory.
func outlive(dir string) {
	for {
		if _, err := os.Lstat(filepath.Join(dir, scriptFile)); err != nil {
			os.Exit(0)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// play does what the script has for this call.
func play(dir, plugin string) (exit int, err error) {
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
	answer, err := record(dir, &call)
	if err != nil {
		return 0, err
	}
	out := []byte(answer.Stdout)
	if answer.Stdout == "" && !answer.Hang && !answer.Crash && answer.Exit == 0 {
		out = plain(call)
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
		outlive(dir)
	}
	return answer.Exit, nil
}

// record writes down a call and returns what it is answered with: the number of calls before it decides. Its child is
// started here, so that the call has its number.
func record(dir string, call *Call) (answer Answer, err error) {
	f, err := os.OpenFile(filepath.Join(dir, callsFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return answer, err
	}
	defer f.Close() // which releases the lock
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
	count := 0
	for _, c := range before {
		if c.String() == call.String() {
			count++
		}
	}
	if answers := s[call.String()]; len(answers) > 0 {
		answer = answers[min(count, len(answers)-1)]
	}
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

// plain returns what a plugin prints without a script.
func plain(call Call) []byte {
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
		version, call.Interface, call.Netns, ipVersion(version), sum[0], sum[1], sum[2])
}

// ipVersion is a field of addresses that versions before 1.0.0 have.
func ipVersion(version string) string {
	if version < `"1` {
		return `"version":"4",`
	}
	return ""
}
