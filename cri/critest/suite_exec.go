// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

func (t *testCase) requireExecer() cri.Execer {
	e, ok := t.rt.(cri.Execer)
	if !ok {
		t.Skip("the runtime is no cri.Execer")
	}
	return e
}

func execResult(t *testCase) {
	e := t.requireExecer()
	id := t.startInNewPod(exitsOnTERM(0))
	for _, code := range []int{0, 3} {
		res, err := e.ExecSync(t.ctx, id, printsAndExits(code).argv(t.f.Shell), 0)
		t.Succeed(err, ruleExecCode, "ExecSync")
		t.Hold(res.ExitCode == code, ruleExecCode, "ExecSync of a command that exits with %d returns %d", code, res.ExitCode)
		t.Hold(string(res.Stdout) == "out\n" && string(res.Stderr) == "err\n", ruleExec,
			"ExecSync returns stdout %q and stderr %q, want %q and %q", res.Stdout, res.Stderr, "out\n", "err\n")
	}
}

func execTimeout(t *testCase) {
	e := t.requireExecer()
	id := t.startInNewPod(exitsOnTERM(0))
	mark := rand.Text()
	begin := time.Now()
	_, err := e.ExecSync(t.ctx, id, runsForever(mark).argv(t.f.Shell), time.Second)
	t.requireError(err, context.DeadlineExceeded, ruleExecTimeout, "ExecSync of a command that runs out of time")
	t.Hold(time.Since(begin) >= time.Second, ruleExecTimeout, "ExecSync gave up after %v, with a timeout of 1s", time.Since(begin))
	t.Hold(time.Since(begin) < time.Second+slack, ruleExecTimeout, "ExecSync took %v, with a timeout of 1s", time.Since(begin))
	t.Until(ruleExecTimeout, func() (bool, string) {
		res, err := e.ExecSync(t.ctx, id, findsProcess(mark).argv(t.f.Shell), 0)
		t.Succeed(err, ruleExec, "ExecSync")
		return res.ExitCode != 0, "a command that ran out of time still runs"
	})
	t.Hold(t.containerStatus(id).State == cri.ContainerRunning, ruleExecTimeout, "the timeout of a command ended its container")
}

func execUnknown(t *testCase) {
	e := t.requireExecer()
	_, err := e.ExecSync(t.ctx, unknownID, printsAndExits(0).argv(t.f.Shell), 0)
	t.requireError(err, cri.ErrNotFound, ruleNotFound, "ExecSync in an unknown container")
	id := t.startInNewPod(exitsAfter(0, 0))
	t.awaitExit(id)
	_, err = e.ExecSync(t.ctx, id, printsAndExits(0).argv(t.f.Shell), 0)
	t.Hold(err != nil, ruleExec, "ExecSync in an exited container succeeds")
}
