// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources_test

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/podresources"
)

func TestNewRejectsOptions(t *testing.T) {
	for want, o := range map[string]podresources.Options{
		`Options.Socket "": must be a clean absolute path`:        {},
		`Options.Socket "s": must be a clean absolute path`:       {Socket: "s"},
		`Options.Socket "/a/../s": must be a clean absolute path`: {Socket: "/a/../s"},
		`must have at most 100 bytes`:                             {Socket: "/" + strings.Repeat("x", 100)},
		`Options.Burst -1: must not be negative`:                  {Socket: "/s", Burst: -1},
		`Options.MaxConnections -1: must not be negative`:         {Socket: "/s", MaxConnections: -1},
		`Options.Timeout -1s: must not be negative`:               {Socket: "/s", Timeout: -time.Second},
	} {
		_, err := podresources.New(o)
		assert.ErrorContains(t, err, want)
	}
}

func TestSocketAndDirectoryAreCreatedAndRemoved(t *testing.T) {
	socket := tempSocket(t)
	conn, stop := serve(t, podresources.Options{Socket: socket})
	_, err := list(t.Context(), conn)
	require.NoError(t, err)
	info, err := os.Lstat(filepath.Dir(socket))
	require.NoError(t, err)
	assert.Equal(t, fs.ModeDir|0o750, info.Mode())
	info, err = os.Lstat(socket)
	require.NoError(t, err)
	assert.Equal(t, fs.ModeSocket|0o600, info.Mode())
	stop()
	remaining, err := os.ReadDir(filepath.Dir(socket))
	require.NoError(t, err)
	assert.Empty(t, remaining)
}

func TestStaleSocketIsReplaced(t *testing.T) {
	socket := tempSocket(t)
	require.NoError(t, os.Mkdir(filepath.Dir(socket), 0o700))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	conn, _ := serve(t, podresources.Options{Socket: socket})
	_, err = list(t.Context(), conn)
	assert.NoError(t, err)
}

// The server never removes a file that is no stale socket. It serves when another program has removed the file.
func TestOtherFilesAreNotReplaced(t *testing.T) {
	for name, create := range map[string]func(t *testing.T, path string){
		"file": func(t *testing.T, path string) { require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600)) },
		"link": func(t *testing.T, path string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + ".stale", Net: "unix"})
			require.NoError(t, err)
			l.SetUnlinkOnClose(false)
			require.NoError(t, l.Close())
			require.NoError(t, os.Symlink(path+".stale", path))
		},
		"dangling link": func(t *testing.T, path string) { require.NoError(t, os.Symlink(path+".none", path)) },
		"directory":     func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o700)) },
		"live socket": func(t *testing.T, path string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			require.NoError(t, err)
			l.SetUnlinkOnClose(false)
			t.Cleanup(func() { _ = l.Close() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			socket := tempSocket(t)
			require.NoError(t, os.Mkdir(filepath.Dir(socket), 0o700))
			create(t, socket)
			before, err := os.Lstat(socket)
			require.NoError(t, err)
			failed := make(chan struct{}, 1)
			conn, _ := serve(t, podresources.Options{Socket: socket, Logger: errorSignal(failed)})
			<-failed
			after, err := os.Lstat(socket)
			require.NoError(t, err)
			assert.True(t, os.SameFile(before, after))
			require.NoError(t, os.Rename(socket, socket+".moved"))
			_, err = list(t.Context(), conn)
			assert.NoError(t, err)
		})
	}
}

func TestHangingSourceFailsOnlyItsRequests(t *testing.T) {
	hanging, release := make(chan struct{}, 100), make(chan struct{})
	failed := make(chan string, 100)
	conn, stop := serve(t, podresources.Options{
		Timeout: 20 * time.Millisecond,
		Pods: podresources.PodsFunc(func() (active, inactive []device.Pod) {
			hanging <- struct{}{}
			<-release
			return nil, nil
		}),
		Hooks: podresources.Hooks{RequestFailed: func(version, method string) { failed <- version + " " + method }},
	})
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	_, err := list(t.Context(), conn)
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
	assert.Len(t, hanging, 1)
	assert.Equal(t, "v1 List", <-failed)
	_, err = client.GetAllocatableResources(t.Context(), &podresourcesv1.AllocatableResourcesRequest{})
	assert.NoError(t, err, "a request that needs no pods")
	close(release)
	stop()
}

func TestIncompleteAndLargeRequestsFail(t *testing.T) {
	conn, _ := serve(t, podresources.Options{Timeout: 50 * time.Millisecond})
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{}, podresourcesv1.PodResourcesLister_List_FullMethodName)
	require.NoError(t, err)
	assert.Equal(t, codes.DeadlineExceeded, status.Code(stream.RecvMsg(&podresourcesv1.ListPodResourcesResponse{})))
	conn, _ = serve(t, podresources.Options{})
	_, err = podresourcesv1.NewPodResourcesListerClient(conn).Get(t.Context(), &podresourcesv1.GetPodResourcesRequest{PodName: strings.Repeat("x", 1<<20)})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err), "the size of requests is limited")
}

func TestLongestSilentConnectionIsClosedAboveTheLimit(t *testing.T) {
	socket := tempSocket(t)
	conn, _ := serve(t, podresources.Options{Socket: socket, MaxConnections: 3})
	_, err := list(t.Context(), conn)
	require.NoError(t, err)
	silent := connect(t, socket)
	_, err = list(t.Context(), conn)
	require.NoError(t, err)
	others := []net.Conn{connect(t, socket), connect(t, socket)}
	_, err = io.ReadAll(silent)
	assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server has closed the connection")
	_, err = list(t.Context(), conn)
	assert.NoError(t, err)
	for _, c := range others {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
		_, err := io.ReadAll(c)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is open")
	}
}

// New connections do not close a connection whose request is running, so that requests are served in spite of a crowd of clients.
func TestRunningRequestIsServedAboveTheLimit(t *testing.T) {
	socket, running, release := tempSocket(t), make(chan struct{}), make(chan struct{})
	conn, _ := serve(t, podresources.Options{Socket: socket, MaxConnections: 3, Pods: podresources.PodsFunc(func() (active, inactive []device.Pod) {
		running <- struct{}{}
		<-release
		return nil, nil
	})})
	served := make(chan error, 1)
	go func() {
		_, err := podresourcesv1.NewPodResourcesListerClient(conn).List(t.Context(), &podresourcesv1.ListPodResourcesRequest{}, grpc.WaitForReady(true))
		served <- err
	}()
	<-running
	for range 4 {
		connect(t, socket)
	}
	close(release)
	assert.NoError(t, <-served)
}

// connect opens a connection that sends nothing, and waits until the server has accepted it.
func connect(t *testing.T, socket string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = io.ReadFull(c, make([]byte, 9)) // the header of the settings of the server
	require.NoError(t, err)
	return c
}

// errorSignal returns a logger that signals each error.
func errorSignal(failed chan<- struct{}) *slog.Logger { return slog.New(errorHandler{failed}) }

type errorHandler struct{ failed chan<- struct{} }

func (errorHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}
func (h errorHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h errorHandler) WithGroup(string) slog.Handler      { return h }

func (h errorHandler) Handle(context.Context, slog.Record) error {
	select {
	case h.failed <- struct{}{}:
	default:
	}
	return nil
}
