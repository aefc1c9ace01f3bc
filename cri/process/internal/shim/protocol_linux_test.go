// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// serveAs replies to requests in place of a shim, for which a sleeping process stands.
func serveAs(t *testing.T, handle func(conn *net.UnixConn)) *Handle {
	t.Helper()
	dir := t.TempDir()
	listener, err := listenRequests(dir)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			handle(conn)
			conn.Close()
		}
	}()
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	require.NoError(t, err)
	h := newHandle(dir, cmd.Process.Pid, fd)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		h.Close()
		listener.Close()
		<-done
	})
	return h
}

// firstShim replies like a shim of protocol 1: it accepts four requests and two descriptors, and sends no version.
func firstShim(conn *net.UnixConn) {
	oob := make([]byte, unix.CmsgSpace(2*4))
	first := make([]byte, 1)
	_, oobn, _, _, err := conn.ReadMsgUnix(first, oob)
	if err != nil {
		return
	}
	if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(messages) > 0 {
		fds, _ := unix.ParseUnixRights(&messages[0])
		closeAll(fds)
	}
	buf := make([]byte, 4096)
	n, _ := conn.Read(buf)
	var r struct {
		Op     string
		Signal int
		Argv   []string
	}
	type answer struct {
		Error string
		Code  int
	}
	if err := json.Unmarshal(append(first, buf[:n]...), &r); err != nil {
		_ = json.NewEncoder(conn).Encode(answer{Error: err.Error()})
		return
	}
	switch r.Op {
	case "signal", "kill", "reopen":
		_ = json.NewEncoder(conn).Encode(answer{})
	case "exec":
		_ = json.NewEncoder(conn).Encode(answer{Code: 7})
	default:
		_ = json.NewEncoder(conn).Encode(answer{Error: `unknown request "` + r.Op + `"`})
	}
}

func openNulls(t *testing.T, n int) (fds []int) {
	t.Helper()
	for range n {
		fd, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		fds = append(fds, fd)
	}
	return fds
}

// A shim of an older agent accepts its requests; a newer request is an error that advises to restart the container.
func TestRequestsToOldShim(t *testing.T) {
	h := serveAs(t, firstShim)
	require.NoError(t, h.Signal(t.Context(), 15))
	require.NoError(t, h.ReopenLog(t.Context()))
	file, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	code, err := h.Exec(t.Context(), []string{"true"}, file, file)
	require.NoError(t, err)
	assert.Equal(t, 7, code)

	_, err = h.Run(t.Context(), []string{"true"}, false, openNulls(t, 3))
	require.ErrorIs(t, err, ErrOldShim)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "older agent")
	require.ErrorContains(t, err, "(protocol 1; run takes 2)")
	fds := openNulls(t, 2)
	_, err = h.Attach(t.Context(), AttachOptions{Input: true, Terminal: true}, [2]int(fds))
	require.ErrorIs(t, err, ErrOldShim)
	for _, fd := range fds {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		require.ErrorIs(t, err, unix.EBADF, "the descriptors are closed even after an error")
	}
}

// A hung shim does not block an attach, nor a caller whose context has ended.
func TestHungShimDoesNotBlockCaller(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	h := serveAs(t, func(*net.UnixConn) { <-release })
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		begin := time.Now()
		_, err := h.Attach(ctx, AttachOptions{Input: true}, [2]int(openNulls(t, 2)))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(begin), time.Minute)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := h.Run(ctx, []string{"true"}, false, openNulls(t, 3))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A result is valid even if the shim exits before a slow client has confirmed it.
func TestRunReturnsResultOfExitedShim(t *testing.T) {
	h := serveAs(t, func(conn *net.UnixConn) {
		var r request
		fds, _, err := readMessage(conn, &r)
		assert.NoError(t, err)
		closeAll(fds)
		assert.NoError(t, json.NewEncoder(conn).Encode(reply{Version: protocol, Code: 7}))
	})
	for range 100 {
		code, err := h.Run(t.Context(), []string{"true"}, false, openNulls(t, 3))
		require.NoError(t, err)
		require.Equal(t, 7, code)
	}
}

// requestReply sends a request to a shim over a connection and returns its reply.
func requestReply(t testing.TB, k *shimServer, message []byte, fds []int) reply {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	conns := make([]*net.UnixConn, 2)
	for i, fd := range ends {
		file := os.NewFile(uintptr(fd), "end")
		conn, err := net.FileConn(file)
		require.NoError(t, err)
		file.Close()
		conns[i] = conn.(*net.UnixConn)
	}
	defer conns[0].Close()
	var answer reply
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer conns[1].Close()
		code, err := k.handleRequest(conns[1])
		answer.Code = code
		if err != nil {
			answer.Error = err.Error()
		}
	}()
	if len(message) > 0 {
		_, _, err = conns[0].WriteMsgUnix(message[:1], unix.UnixRights(fds...), nil)
		require.NoError(t, err)
		_, _ = conns[0].Write(message[1:]) // the shim may already have refused the request
	}
	_ = conns[0].CloseWrite()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		require.Fail(t, "the request gets no reply", "%q", message)
	}
	return answer
}

// newExitedServer returns a shim whose process has exited, so that no request has an effect.
func newExitedServer() *shimServer {
	k := &shimServer{exited: true, cgroupFD: -1}
	k.hub.closed = true
	return k
}

func TestRequests(t *testing.T) {
	for _, row := range []struct {
		message string
		fds     int
		want    string
	}{
		{`{"Op":"signal","Signal":15}`, 0, ""},
		{`{"Op":"signal","Signal":15,"Version":3}`, 0, `"signal" takes protocol 3, and this shim has 2`},
		{`{"Op":"dance"}`, 0, `unknown request "dance"`},
		{`{"Op":"exec","Argv":["true"]}`, 1, "two descriptors"},
		{`{"Op":"exec","Argv":["true"]}`, 2, "has exited"},
		{`{"Op":"run","Argv":["true"]}`, 2, "3 descriptors, not 2"},
		{`{"Op":"run","Argv":["true"],"TTY":true}`, 2, "1 descriptors, not 2"},
		{`{"Op":"run","Argv":[]}`, 3, "wants a command"},
		{`{"Op":"run","Argv":["true"]}`, 3, "has exited"},
		{`{"Op":"run","Argv":["true"]}`, 5, "more than 3 descriptors"},
		{`{"Op":"attach","Stdout":true}`, 2, "attach wants 1 descriptors, not 2"},
		{`{"Op":"attach","Stdout":true,"Stderr":true}`, 2, "has exited"},
		{`{"Op":"reopen"}`, 3, "no log"},
		{`{"Op":`, 3, "EOF"},
		{`[]`, 1, "cannot unmarshal"},
		{``, 0, "EOF"},
	} {
		answer := requestReply(t, newExitedServer(), []byte(row.message), openNulls(t, row.fds))
		if row.want == "" {
			assert.Empty(t, answer.Error, row.message)
			continue
		}
		assert.Contains(t, answer.Error, row.want, row.message)
	}
}

// An endless message is refused at the size limit.
func TestOversizedRequestIsRefused(t *testing.T) {
	answer := requestReply(t, newExitedServer(), []byte(`{"Op":"`+strings.Repeat("x", maxMessage+1)+`"}`), nil)
	assert.Contains(t, answer.Error, "EOF")
}

// Every input gets a reply, and no descriptor leaks.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{`{"Op":"attach","Stdin":true,"Stdout":true}`, `{"Op":"run","Argv":["x"],"TTY":true,"Version":2}`, `{"Op":"exec"}`, "\x00", `[[[[`} {
		f.Add([]byte(seed), uint8(2))
	}
	f.Fuzz(func(t *testing.T, message []byte, n uint8) {
		before := openDescriptors(t)
		fds := openNulls(t, int(n%6))
		requestReply(t, newExitedServer(), message, fds)
		closeAll(fds)
		for deadline := time.Now().Add(5 * time.Second); openDescriptors(t) > before && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		assert.LessOrEqual(t, openDescriptors(t), before)
	})
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(names)
}

// The agent handles every input from a shim.
func FuzzReply(f *testing.F) {
	for _, seed := range []string{`{"Version":2,"TTY":true}`, `{"Version":2}{"Version":2,"Error":"x"}`, `{"Error":"unknown"}`, `{`, ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		conns := make([]*net.UnixConn, 2)
		for i, fd := range ends {
			file := os.NewFile(uintptr(fd), "end")
			conn, err := net.FileConn(file)
			require.NoError(t, err)
			file.Close()
			conns[i] = conn.(*net.UnixConn)
		}
		go func() {
			_, _ = conns[1].Write(answer)
			conns[1].Close()
		}()
		h := newHandle("", 0, -1) // stands for a shim that has exited
		a, err := h.readAttached(t.Context(), request{Op: opAttach, Version: protocol}, conns[0])
		if err != nil {
			conns[0].Close()
			return
		}
		_ = a.Wait(t.Context())
		a.Close()
	})
}
