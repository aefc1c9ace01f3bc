// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// runWithProtocols runs a test with each protocol and each kind of runtime.
func runWithProtocols(t *testing.T, f func(t *testing.T, r *testNode, protocol string)) {
	for _, mode := range modes {
		for _, protocol := range streamtest.Protocols() {
			t.Run(mode+"/"+protocol, func(t *testing.T) { f(t, newTestNode(t, mode, streaming.Options{}), protocol) })
		}
	}
}

func TestCommandOutputs(t *testing.T) {
	runWithProtocols(t, func(t *testing.T, r *testNode, protocol string) {
		got := r.runExec(t, protocol, streamtest.Command{}, "out=hello", "err=world")
		require.NoError(t, got.err)
		assert.Equal(t, "hello", got.stdout.String())
		assert.Equal(t, "world", got.stderr.String())
		if asJSON(protocol) {
			assert.JSONEq(t, `{"status":"Success"}`, got.fault)
		} else {
			assert.Empty(t, got.fault)
		}
	})
}

func TestCommandExitCode(t *testing.T) {
	const message = "command terminated with non-zero exit code: error executing command [out=x exit=42], exit code 42"
	runWithProtocols(t, func(t *testing.T, r *testNode, protocol string) {
		got := r.runExec(t, protocol, streamtest.Command{}, "out=x", "exit=42")
		require.NoError(t, got.err)
		assert.Equal(t, "x", got.stdout.String())
		switch {
		case asJSON(protocol):
			assert.JSONEq(t, `{"status":"Failure","message":"`+message+`","reason":"NonZeroExitCode",
				"details":{"causes":[{"reason":"ExitCode","message":"42"}]}}`, got.fault)
		case protocol == "SPDY channel.k8s.io":
			assert.Empty(t, got.fault, "the oldest protocol cannot send an exit code")
		default:
			assert.Equal(t, message, got.fault)
		}
	})
}

func TestRuntimeErrorReachesTheClient(t *testing.T) {
	runWithProtocols(t, func(t *testing.T, r *testNode, protocol string) {
		got := r.runExec(t, protocol, streamtest.Command{}, "fail=no such file")
		require.NoError(t, got.err)
		const message = "Internal error occurred: error executing command in container: no such file"
		if asJSON(protocol) {
			var s struct {
				Status, Reason, Message string
				Code                    int
			}
			require.NoError(t, json.Unmarshal([]byte(got.fault), &s))
			assert.Equal(t, "Failure InternalError", s.Status+" "+s.Reason)
			assert.Equal(t, 500, s.Code)
			assert.Equal(t, message, s.Message)
		} else if protocol != "SPDY channel.k8s.io" {
			assert.Equal(t, message, got.fault)
		}
	})
}

// Stdin reaches the command, and its end too in protocols that can send it.
func TestStdinAndItsEndReachTheCommand(t *testing.T) {
	text := strings.Repeat("some text that is longer than a frame\n", 5000)
	runWithProtocols(t, func(t *testing.T, r *testNode, protocol string) {
		if strings.HasPrefix(protocol, "WebSocket") && !strings.Contains(protocol, "v5") {
			t.Log("in this protocol stdin ends only with the connection")
			got := r.runExec(t, protocol, streamtest.Command{Stdin: strings.NewReader("abc")}, "sleep=50ms", "out=done")
			require.NoError(t, got.err)
			assert.Equal(t, "done", got.stdout.String())
			return
		}
		got := r.runExec(t, protocol, streamtest.Command{Stdin: strings.NewReader(text)}, "cat", "out=.", "exit=3")
		require.NoError(t, got.err)
		assert.Equal(t, text+".", got.stdout.String())
	})
}

func TestTerminalSizesReachTheCommand(t *testing.T) {
	runWithProtocols(t, func(t *testing.T, r *testNode, protocol string) {
		c := streamtest.Command{TTY: true, Sizes: []cri.TerminalSize{{Width: 132, Height: 43}}}
		steps := []string{"out=a", "err=b", "size"}
		want := "ab132x43"
		if strings.HasSuffix(protocol, " channel.k8s.io") || strings.Contains(protocol, "SPDY v2") {
			if strings.HasPrefix(protocol, "SPDY") { // the protocol has no terminal sizes
				steps, want = steps[:2], "ab"
			}
		}
		got := r.runExec(t, protocol, c, steps...)
		require.NoError(t, got.err)
		assert.Equal(t, want, got.stdout.String())
		assert.Empty(t, got.stderr.String())
	})
}

func TestAttach(t *testing.T) {
	runWithProtocols(t, func(t *testing.T, r *testNode, protocol string) {
		r.runtime.Main = []string{"out=log line", "exit=7"}
		var out strings.Builder
		c := streamtest.Command{Protocol: protocol, Stdout: &out}
		c.URL = r.sessionURL("attach", "uid/c", c)
		fault, err := c.Run(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "log line", out.String())
		if asJSON(protocol) {
			assert.JSONEq(t, `{"status":"Success"}`, fault, "the status of an attach does not depend on the exit code of the container")
		}
	})
}

// A client without a terminal may attach to a container with one, as kubectl does when its input is a file: it opens a stderr
// stream and no resize stream.
func TestAttachWithoutTerminalToContainerWithOne(t *testing.T) {
	for _, protocol := range streamtest.Protocols() {
		t.Run(protocol, func(t *testing.T) {
			r := newTestNode(t, "runner", streaming.Options{CreationTimeout: 20 * time.Second})
			r.runtime.Main = []string{"out=a", "err=b"}
			if strings.HasPrefix(protocol, "SPDY") { // the oldest do not wait for stderr; stdin ends when it is there
				r.runtime.Main = []string{"cat", "out=a", "err=b"}
			}
			var out, errs strings.Builder
			c := streamtest.Command{Protocol: protocol, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
			c.URL = r.sessionURL("attach", "uid/c", streamtest.Command{Stdin: c.Stdin, Stdout: &out, TTY: true}) // like package nodeapi
			fault, err := c.Run(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "ab", out.String())
			assert.Empty(t, errs.String())
			if asJSON(protocol) {
				assert.JSONEq(t, `{"status":"Success"}`, fault)
			}
			awaitNoSessions(t, r)
		})
	}
}

// Large output arrives complete, however it is split into frames.
func TestLargeOutputArrivesWhole(t *testing.T) {
	runWithProtocols(t, func(t *testing.T, r *testNode, protocol string) {
		got := r.runExec(t, protocol, streamtest.Command{}, "flood=3000001", "err=end")
		require.NoError(t, got.err)
		want := make([]byte, 3000001)
		streamtest.FillPattern(0, want)
		assert.Equal(t, want, got.stdout.Bytes())
		assert.Equal(t, "end", got.stderr.String())
	})
}
