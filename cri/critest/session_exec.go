// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/suite"
)

func execStreams(t *sessionTestCase) {
	id := t.startContainer(sleepsUntilTERM(), nil)
	var out, errs outputBuffer
	code, err := t.execProgram(id, printsToBothStreams(0), cri.Session{Stdout: &out, Stderr: &errs})
	t.Succeed(err, ruleRunning, "RunExec")
	t.Hold(code == 0 && out.String() == "out\n" && errs.String() == "err\n", ruleExecEnd,
		"the command exits with %d and writes %q and %q", code, out.String(), errs.String())
	var only outputBuffer
	_, err = t.execProgram(id, printsToBothStreams(0), cri.Session{Stdout: &only})
	t.Succeed(err, ruleRunning, "RunExec without stderr")
	t.Hold(only.String() == "out\n", ruleExecEnd, "without stderr stdout is %q", only.String())
}

func execNoStdin(t *sessionTestCase) {
	id := t.startContainer(sleepsUntilTERM(), nil)
	var out, errs outputBuffer
	_, err := t.execProgram(id, copiesStdin(), cri.Session{Stdout: &out, Stderr: &errs})
	t.Succeed(err, ruleStdin, "RunExec")
	t.Hold(out.String() == "" && errs.String() == "end\n", ruleStdin, "without stdin a copy is %q, and then %q", out.String(), errs.String())
}

func execCodes(t *sessionTestCase) {
	id := t.startContainer(sleepsUntilTERM(), nil)
	for _, code := range []int{0, 1, 42, 137} {
		got, err := t.execProgram(id, printsToBothStreams(code), cri.Session{Stdout: io.Discard})
		t.Succeed(err, ruleSessionExecCode, "RunExec")
		t.Hold(got == code, ruleSessionExecCode, "a command that exits with %d is said to exit with %d", code, got)
	}
}

// execFiles tests a command that copies 4 MiB from stdin to stdout, as kubectl cp does.
func execFiles(t *sessionTestCase) {
	id := t.startContainer(sleepsUntilTERM(), nil)
	data := make([]byte, 4<<20)
	_, _ = rand.Read(data)
	var out bytes.Buffer
	var errs outputBuffer
	_, err := t.execProgram(id, copiesStdin(), cri.Session{Stdin: bytes.NewReader(data), Stdout: &out, Stderr: &errs})
	t.Succeed(err, ruleExecEnd, "RunExec")
	t.Hold(bytes.Equal(out.Bytes(), data), ruleExecEnd, "of %d bytes %d came back, not the same", len(data), out.Len())
	t.Hold(errs.String() == "end\n", ruleExecEnd, "the command does not see the end of its input: %q", errs.String())
}

// slowWriter is a client that delays each write.
type slowWriter struct{ to io.Writer }

func (l slowWriter) Write(data []byte) (int, error) {
	time.Sleep(150 * time.Millisecond)
	return l.to.Write(data)
}

func execSlow(t *sessionTestCase) {
	id := t.startContainer(sleepsUntilTERM(), nil)
	var out outputBuffer
	code, err := t.execProgram(id, printsBytes(60_000), cri.Session{Stdout: slowWriter{&out}})
	t.Succeed(err, ruleExecEnd, "RunExec")
	got := strings.Count(out.String(), "x")
	t.Hold(code == 4 && got == 60_000, ruleExecEnd, "%d of 60000 bytes came, and code %d", got, code)
}

func execTerminal(t *sessionTestCase) {
	id := t.startContainer(sleepsUntilTERM(), nil)
	sizes := make(chan cri.TerminalSize, 2)
	sizes <- cri.TerminalSize{Width: 10, Height: 10}
	sizes <- terminalSize
	var out outputBuffer
	code, err := t.execProgram(id, checksTerminal(), cri.Session{Stdout: &out, TTY: true, Resize: sizes})
	t.Succeed(err, ruleResize, "RunExec")
	t.Hold(code == 5, ruleSessionExecCode, "a command that exits with 5 is said to exit with %d", code)
	t.Hold(out.String() == "terminal\r\nerr\r\n", ruleTTY, "the terminal shows %q", out.String())
}

func execMany(t *sessionTestCase) {
	id := t.startContainer(sleepsUntilTERM(), nil)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			in := strings.Repeat(string(rune('a'+i%26)), 100_000)
			var out, errs outputBuffer
			code, err := t.execProgram(id, copiesStdin(), cri.Session{Stdin: strings.NewReader(in), Stdout: &out, Stderr: &errs})
			if err != nil || code != 0 || out.String() != in || errs.String() != "end\n" {
				t.Errorf("one of many: code %d, %d of %d bytes, %q, %v\n\tbroken: %q", code, len(out.String()), len(in), errs.String(), err, ruleExecEnd)
			}
		})
	}
	wg.Wait()
}

func execLeaves(t *sessionTestCase) {
	id := t.startContainer(sleepsUntilTERM(), nil)
	ctx, cancel := context.WithCancelCause(t.ctx)
	cause := errors.New("the client has disconnected")
	var out outputBuffer
	done := make(chan error, 1)
	mark := rand.Text()
	go func() {
		_, err := t.run.RunExec(ctx, id, runsForeverWithChild(mark).argv(), cri.Session{Stdout: &out})
		done <- err
	}()
	t.awaitOutput(&out, "ready\n", ruleExecEnd)
	cancel(cause)
	select {
	case err := <-done:
		t.Hold(errors.Is(err, cause), ruleExecLeaves, "the error is %v, not the cause of ctx", err)
	case <-time.After(waitTimeout):
		t.Hold(false, ruleExecLeaves, "RunExec goes on after the end of ctx")
	}
	t.Hold(t.containerState(id) == cri.ContainerRunning, ruleExecLeaves, "the container has ended with a client")
	execer, ok := t.rt.(cri.Execer)
	if t.f.ServedByURL || t.f.NoAttach || !ok {
		return // the command may continue, or there are no processes to look for
	}
	find := []string{"/bin/sh", "-c", `grep -qs "$1" /proc/[0-9]*/cmdline`, "finds", "[" + mark[:1] + "]" + mark[1:]}
	soon := &suite.Check{T: t.T, Timeout: killTimeout, Poll: poll}
	soon.Until(ruleExecLeaves, func() (bool, string) {
		res, err := execer.ExecSync(t.ctx, id, find, 0)
		return err == nil && res.ExitCode != 0, "something of the command still runs"
	})
}

func sessionExecUnknown(t *sessionTestCase) {
	_, err := t.execProgram(unknownID, printsToBothStreams(0), cri.Session{Stdout: io.Discard})
	t.Hold(errors.Is(err, cri.ErrNotFound), ruleNotFound, "RunExec in an unknown container: %v", err)
	id := t.startContainer(sleepsUntilTERM(), nil)
	if !t.f.NoAttach {
		_, err = t.run.RunExec(t.ctx, id, []string{"/does/not/exist"}, cri.Session{Stdout: io.Discard})
		t.Hold(err != nil, ruleRunning, "RunExec of a program that is not there succeeds")
	}
	if err := t.rt.StopContainer(t.ctx, id, 0); err != nil {
		t.Fatalf("stop container: %v", err)
	}
	_, err = t.execProgram(id, printsToBothStreams(0), cri.Session{Stdout: io.Discard})
	t.Hold(err != nil, ruleRunning, "RunExec in a container that has exited succeeds")
}
