// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	remote "k8s.io/cri-client/pkg"
	execprobe "k8s.io/kubernetes/pkg/probe/exec"
	"k8s.io/utils/exec"

	ours "github.com/seed81659283/nodeagent/probe"
)

// command implements the kubelet's interface of a command in a container: it completes in Start and writes all output then.
// Source: execInContainer in pkg/kubelet/prober/prober.go.
type command struct {
	exec.Cmd
	output []byte
	err    error
	writer io.Writer
}

func (c *command) SetStdout(w io.Writer) { c.writer = w }
func (c *command) SetStderr(w io.Writer) { c.writer = w }
func (c *command) Wait() error           { return nil }

func (c *command) Start() error {
	_, _ = c.writer.Write(c.output)
	return c.err
}

// Both sides return the same results for commands, which run in the test process instead of a container.
func TestProbeExec(t *testing.T) {
	execer := ours.ExecFunc(func(ctx context.Context, _ string, argv []string) ([]byte, int, error) {
		output, err := osexec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		if exit, ok := errors.AsType[*osexec.ExitError](err); ok {
			return output, exit.ExitCode(), nil
		}
		return output, 0, err
	})
	for _, script := range []string{
		"", "exit 0", "exit 1", "exit 127", "exit 255", "echo fine", "echo bad >&2; exit 3", "echo one; echo two >&2",
		"yes | head -c 10240", "yes | head -c 10241", "yes | head -c 11264; exit 1", `printf '\377\000x'`,
	} {
		t.Run(script, func(t *testing.T) {
			output, code, err := execer(t.Context(), "", []string{"sh", "-c", script})
			if err != nil {
				t.Fatal(err)
			}
			ended := &command{output: output}
			if code != 0 {
				ended.err = exec.CodeExitError{Err: errors.New("exit"), Code: code}
			}
			kubelet := fromKubelet(execprobe.New().Probe(ended))
			if got := execOurs(t, execer, "sh", "-c", script); got != kubelet {
				t.Errorf("the kubelet returns %+.200v, nodeagent %+.200v", kubelet, got)
			}
		})
	}
}

// A command that times out is a failure. A command that cannot be run has no result.
func TestProbeExecErrors(t *testing.T) {
	sleep := []string{"sleep", "60"}
	for name, row := range map[string]struct{ kubelet, ours error }{
		"timeout": {
			fmt.Errorf("%w: %q timed out after %s", remote.ErrCommandTimedOut, strings.Join(sleep, " "), 20*time.Second),
			context.DeadlineExceeded,
		},
		"container is not running": {errors.New("container not running"), errors.New("container not running")},
	} {
		t.Run(name, func(t *testing.T) {
			execer := ours.ExecFunc(func(context.Context, string, []string) ([]byte, int, error) { return []byte("some"), 0, row.ours })
			kubelet := fromKubelet(execprobe.New().Probe(&command{output: []byte("some"), err: row.kubelet}))
			if got := execOurs(t, execer, sleep...); got != kubelet {
				t.Errorf("the kubelet returns %+.200v, nodeagent %+.200v", kubelet, got)
			}
		})
	}
}

func execOurs(t *testing.T, execer ours.Execer, argv ...string) probeOutcome {
	t.Helper()
	prober, err := ours.NewExec(execer, ours.ExecConfig{ContainerID: "id", Command: argv})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return fromOurs(prober.Probe(ctx))
}
