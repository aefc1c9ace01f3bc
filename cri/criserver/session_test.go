// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// sessionRuntime is a runtime that runs sessions itself, and has neither URLs nor ExecSync.
type sessionRuntime struct {
	bareRuntime
	*streamtest.Runtime
}

// newSessionRuntime returns a runtime with a running and an exited container, and a ready and a stopped sandbox.
func newSessionRuntime() sessionRuntime {
	return sessionRuntime{bareRuntime{listingRuntime{snapshot: cri.Snapshot{
		Sandboxes: []cri.Sandbox{{ID: "s1", State: cri.SandboxReady}, {ID: "s2", State: cri.SandboxNotReady}},
		Containers: []cri.Container{
			{ID: "c1", SandboxID: "s1", State: cri.ContainerRunning}, {ID: "c2", SandboxID: "s2", State: cri.ContainerExited},
		},
	}}}, &streamtest.Runtime{Main: []string{"out=attached"}}}
}

// newURLServer serves the sessions of a runtime at URLs until the test ends.
func newURLServer(t *testing.T, rt cri.SessionRunner, o streaming.URLOptions) *streaming.URLServer {
	t.Helper()
	server, err := streaming.New(streaming.Options{Runner: rt})
	require.NoError(t, err)
	urls := streaming.NewURLServer(server, o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, urls.Serve(ctx, l)) })
	t.Cleanup(func() {
		stop()
		serving.Wait()
	})
	var url string
	require.Eventually(t, func() (served bool) {
		url, err = urls.Attach(ctx, "ready?", cri.StreamOptions{Stdout: true})
		return err == nil
	}, time.Minute, time.Millisecond, "the URL server serves requests")
	resp, err := http.Get(url) // the URL is used up by a request
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return urls
}

// A CRI client receives URLs at which the sessions are served. Options.Streamer is called only for running containers and
// ready sandboxes.
func TestSessionsServedByURL(t *testing.T) {
	rt := newSessionRuntime()
	client, _, _ := startServer(t, rt, criserver.Options{Streamer: newURLServer(t, rt, streaming.URLOptions{MaxUnusedURLs: 2})})
	ctx := t.Context()
	var out bytes.Buffer
	run := func(url string, err error) string {
		t.Helper()
		require.NoError(t, err)
		out.Reset()
		_, err = streamtest.Command{URL: url, Protocol: "WebSocket v4.channel.k8s.io", Stdout: &out}.Run(ctx)
		require.NoError(t, err)
		return out.String()
	}
	exec, err := client.Exec(ctx, &v1.ExecRequest{ContainerId: "c1", Cmd: []string{"out=run"}, Stdout: true})
	require.Equal(t, "run", run(exec.GetUrl(), err))
	attach, err := client.Attach(ctx, &v1.AttachRequest{ContainerId: "c1", Stdout: true})
	require.Equal(t, "attached", run(attach.GetUrl(), err))
	ports, err := client.PortForward(ctx, &v1.PortForwardRequest{PodSandboxId: "s1", Port: []int32{80}})
	require.NoError(t, err)
	f, err := streamtest.Forward(ctx, ports.GetUrl(), false)
	require.NoError(t, err)
	f.Close()

	refusals := map[string]error{}
	_, refusals["NotFound desc = not found"] = client.Exec(ctx, &v1.ExecRequest{ContainerId: "other", Stdout: true})
	_, refusals["FailedPrecondition desc = container c2 is exited, not running"] = client.Attach(ctx, &v1.AttachRequest{ContainerId: "c2", Stdout: true})
	_, refusals["FailedPrecondition desc = sandbox s2 is not ready"] = client.PortForward(ctx, &v1.PortForwardRequest{PodSandboxId: "s2"})
	_, refusals["InvalidArgument desc = container_id: not set"] = client.Exec(ctx, &v1.ExecRequest{Stdout: true})
	_, refusals["InvalidArgument desc = pod_sandbox_id: not set"] = client.PortForward(ctx, &v1.PortForwardRequest{})
	_, refusals["InvalidArgument desc = stdin, stdout, stderr: one of them: not set"] = client.Exec(ctx, &v1.ExecRequest{ContainerId: "c1"})
	_, refusals["InvalidArgument desc = stderr: must not be set beside tty"] = client.Exec(ctx,
		&v1.ExecRequest{ContainerId: "c1", Stderr: true, Stdout: true, Tty: true})
	for range 2 {
		_, err = client.Exec(ctx, &v1.ExecRequest{ContainerId: "c1", Stdout: true})
		require.NoError(t, err)
	}
	_, refusals["ResourceExhausted desc = too many requests: 2 URLs are unused"] = client.Exec(ctx,
		&v1.ExecRequest{ContainerId: "c1", Stdout: true})
	for want, err := range refusals {
		assert.EqualError(t, err, "rpc error: code = "+want)
	}
}

// Without a Streamer, session calls fail with an error that names the missing option.
func TestSessionCallsFailWithoutStreamer(t *testing.T) {
	client, _, _ := startServer(t, newSessionRuntime(), criserver.Options{})
	_, err := client.Attach(t.Context(), &v1.AttachRequest{ContainerId: "c1", Stdout: true})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	require.ErrorContains(t, err, "Options.Streamer of the server is not set")
	_, err = client.PortForward(t.Context(), &v1.PortForwardRequest{PodSandboxId: "s1"})
	require.Equal(t, codes.Unimplemented, status.Code(err))
}

// ExecSync runs a session if the runtime has no other way to run commands.
func TestExecSyncRunsSession(t *testing.T) {
	client, _, _ := startServer(t, newSessionRuntime(), criserver.Options{})
	run := func(seconds int64, cmd ...string) (*v1.ExecSyncResponse, error) {
		return client.ExecSync(t.Context(), &v1.ExecSyncRequest{ContainerId: "c1", Cmd: cmd, Timeout: seconds})
	}
	got, err := run(0, "out=hello ", "err=problem", "out=world", "exit=3")
	require.NoError(t, err)
	require.Equal(t, "hello world", string(got.GetStdout()))
	require.Equal(t, "problem", string(got.GetStderr()))
	require.EqualValues(t, 3, got.GetExitCode())
	got, err = run(3600, "count")
	require.NoError(t, err)
	require.Equal(t, "0", string(got.GetStdout()), "stdin is empty")

	_, err = run(1, "hang")
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	_, err = run(0, "fail=no such file")
	require.EqualError(t, err, "rpc error: code = Unknown desc = no such file")
	_, err = client.ExecSync(t.Context(), &v1.ExecSyncRequest{ContainerId: "absent", Cmd: []string{"out=x"}})
	require.Equal(t, codes.NotFound, status.Code(err))
}

// The start of a large output is kept, and the command runs until it exits.
func TestExecSyncTruncatesOutput(t *testing.T) {
	const most = 16 << 20
	rt := newSessionRuntime()
	// Its answer is larger than the default of a client.
	client := serveAndDial(t, rt, criserver.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := client.ExecSync(ctx, "c1", []string{"flood=" + "15000000", "err=end"}, 0)
	require.NoError(t, err)
	want := make([]byte, 15000000)
	streamtest.FillPattern(0, want)
	require.True(t, bytes.Equal(want, got.Stdout))
	require.Equal(t, "end", string(got.Stderr))
	_, err = client.ExecSync(ctx, "c1", []string{"flood=40000000", "exit=0"}, 0)
	require.ErrorIs(t, err, cri.ErrTooLarge, "%d bytes and their frame exceed the limit of a client", most)
	require.True(t, strings.Contains(err.Error(), "larger than max"), "%v", err)
}
