// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/cri/streaming"
	"github.com/seed81659283/nodeagent/internal/lab"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// containerd starts a pod on containerd in the network of the host, whose container echoes its stdin.
func containerd(t *testing.T) (r *testNode, sandbox, container string) {
	t.Helper()
	client, err := remote.Dial(lab.Start(t).Endpoint(), remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	uid := strings.ToLower(t.Name())
	pod := &cri.SandboxConfig{
		Pod:          cri.PodIdentity{UID: uid, Name: "stream", Namespace: "stream-test"},
		LogDirectory: t.TempDir(),
		Labels:       map[string]string{cri.LabelPodUID: uid},
		Security:     cri.SandboxSecurity{Namespaces: cri.NamespaceOptions{Network: cri.NamespaceNode}},
	}
	sandbox, err = client.RunSandbox(t.Context(), pod)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
		defer cancel()
		assert.NoError(t, client.StopSandbox(ctx, sandbox))
		assert.NoError(t, client.RemoveSandbox(ctx, sandbox))
	})
	container, err = client.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{
		Name: "main", Image: cri.ImageSpec{Image: lab.BusyboxImage}, Command: []string{"/bin/cat"}, Stdin: true,
		Env: []cri.EnvVar{{Name: "PATH", Value: "/bin"}}, Labels: map[string]string{cri.LabelPodUID: uid}, LogPath: "main.log",
		Security: cri.ContainerSecurity{Namespaces: cri.NamespaceOptions{Network: cri.NamespaceNode}},
	}, pod)
	require.NoError(t, err)
	require.NoError(t, client.StartContainer(t.Context(), container))

	r = &testNode{runtime: &streamtest.Runtime{}}
	r.Server, err = streaming.New(streaming.Options{Streamer: client})
	require.NoError(t, err)
	r.http = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(func() {
		r.Close()
		r.http.Close()
	})
	return r, sandbox, container
}

// runCommand runs a command in a container with a protocol.
func (r *testNode) runCommand(t *testing.T, kind, container string, c streamtest.Command, cmd ...string) *result {
	t.Helper()
	var got result
	c.Stdout = &got.stdout
	if !c.TTY {
		c.Stderr = &got.stderr
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	c.URL = r.sessionURL(kind, container, c, cmd...)
	got.fault, got.err = c.Run(ctx)
	return &got
}

// Exec, attach and port-forward with containerd, with every protocol that it supports or that is translated for it.
func TestIntegrationContainerd(t *testing.T) {
	r, sandbox, container := containerd(t)
	for _, protocol := range streamtest.Protocols() {
		t.Run(protocol, func(t *testing.T) {
			got := r.runCommand(t, "exec", container, streamtest.Command{Protocol: protocol}, "/bin/sh", "-c", "echo out; echo err >&2; exit 3")
			require.NoError(t, got.err)
			assert.Equal(t, "out\n", got.stdout.String())
			assert.Equal(t, "err\n", got.stderr.String())
			if asJSON(protocol) {
				assert.Contains(t, got.fault, `{"reason":"ExitCode","message":"3"}`)
			}
			if strings.HasPrefix(protocol, "SPDY v") || strings.HasSuffix(protocol, "v5.channel.k8s.io") {
				text := strings.Repeat("a line of text\n", 20000)
				got = r.runCommand(t, "exec", container, streamtest.Command{Protocol: protocol, Stdin: strings.NewReader(text)}, "/bin/cat")
				require.NoError(t, got.err)
				assert.Equal(t, len(text), got.stdout.Len())
			}
			if asJSON(protocol) && !strings.HasPrefix(protocol, "WebSocket v4") { // for these protocols containerd closes the terminal's input
				size := []cri.TerminalSize{{Width: 132, Height: 43}}
				got = r.runCommand(t, "exec", container, streamtest.Command{Protocol: protocol, TTY: true, Sizes: size},
					"/bin/sh", "-c", `i=0; while [ "$(stty size)" != "43 132" ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done; stty size`)
				require.NoError(t, got.err)
				assert.Contains(t, got.stdout.String(), "43 132")
			}
		})
	}
	t.Run("absent", func(t *testing.T) {
		got := r.runCommand(t, "exec", "absent", streamtest.Command{Protocol: "SPDY v4.channel.k8s.io"}, "true")
		var no *streamtest.Refused
		require.ErrorAs(t, got.err, &no)
		assert.Equal(t, http.StatusNotFound, no.Code)
	})
	t.Run("attach", func(t *testing.T) {
		out := make(chan string, 10)
		c := streamtest.Command{
			Protocol: "WebSocket v5.channel.k8s.io", Stdin: io.MultiReader(strings.NewReader("to cat\n"), neverEnds{t.Context()}),
			Stdout: writerFunc(func(b []byte) (int, error) {
				if len(b) > 0 {
					out <- string(b)
				}
				return len(b), nil
			}),
		}
		c.URL = r.sessionURL("attach", container, c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.Run(ctx)
		}()
		select {
		case got := <-out:
			assert.Equal(t, "to cat\n", got)
		case <-time.After(timeout):
			assert.Fail(t, "nothing came")
		}
		cancel()
		<-done
	})
	for _, tunnel := range []bool{false, true} {
		t.Run("forward", func(t *testing.T) { forwardToHost(t, r, sandbox, tunnel) })
	}
}

type neverEnds struct{ ctx context.Context }

func (n neverEnds) Read([]byte) (int, error) {
	<-n.ctx.Done()
	return 0, io.EOF
}

// forwardToHost forwards to a port of the host, because the pod uses the host's network.
func forwardToHost(t *testing.T, r *testNode, sandbox string, tunnel bool) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	f, err := streamtest.Forward(t.Context(), r.http.URL+"/portforward/"+sandbox, tunnel)
	require.NoError(t, err)
	defer f.Close()
	text := bytes.Repeat([]byte("0123456789"), 200000)
	for range 3 {
		c := openConnection(t, f, l.Addr().(*net.TCPAddr).Port)
		go func() {
			_, _ = c.Write(text)
			_ = c.CloseWrite()
		}()
		got := make([]byte, len(text))
		_, err := io.ReadFull(c, got)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(text, got))
		require.NoError(t, c.Close())
	}
	bad, err := f.Connect(t.Context(), 1)
	if err != nil { // containerd resets the stream, sometimes before it has accepted it
		assert.ErrorContains(t, err, "reset by the peer")
		return
	}
	fault, err := bad.ReadError()
	require.NoError(t, err)
	assert.Contains(t, fault, "connection refused")
}
